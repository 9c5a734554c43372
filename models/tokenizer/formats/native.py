"""This program's own file: a tokenizer of any kind as one JSON document, with a checksum."""

import json

from models.files import read_json, replacing
from models.tokenizer.bpe import Tokenizer
from models.tokenizer.characters import CharacterTokenizer
from models.tokenizer.unicode_classes import UNICODE_VERSION

FORMAT = "euler_ir tokenizer"
VERSION = 1
BYTE_PAIRS, CHARACTERS = "byte-level BPE", "characters"


def document_of(tokenizer):
    """A tokenizer as a document that JSON can hold, whole in itself and checked by `tokenizer_of`."""
    document = {"format": FORMAT, "version": VERSION, "checksum": tokenizer.fingerprint}
    document["special_tokens"] = tokenizer.special_tokens_as_given
    if isinstance(tokenizer, CharacterTokenizer):
        return document | {"kind": CHARACTERS, "characters": tokenizer.characters}
    pairs = {"unicode": UNICODE_VERSION, "merges": tokenizer.merges, "ids": tokenizer.ids}
    return document | {"kind": BYTE_PAIRS} | pairs


def tokenizer_of(document, source):
    """The tokenizer of a document made by `document_of`; `source` says for messages where it was.

    Raises ValueError for a document that is something else, newer, or damaged.
    """
    if document.get("format") != FORMAT:
        raise ValueError(f"{source} is not a tokenizer file. Expected a file written by save_tokenizer.")
    kind, version, unicode_version = (document.get(name) for name in ("kind", "version", "unicode"))
    if version != VERSION or kind not in (BYTE_PAIRS, CHARACTERS):
        raise ValueError(
            f"{source} has version {version} of kind {kind!r}, this program reads version {VERSION}. "
            "Use the program that wrote it, or train again."
        )
    if kind == BYTE_PAIRS and unicode_version != UNICODE_VERSION:
        raise ValueError(
            f"{source} splits text by Unicode {unicode_version}, this program by Unicode {UNICODE_VERSION}. "
            "Use the program that wrote it, or train again."
        )
    try:
        if kind == CHARACTERS:
            tokenizer = CharacterTokenizer(document["characters"], document["special_tokens"])
        else:
            tokenizer = Tokenizer(map(tuple, document["merges"]), document["special_tokens"], document["ids"])
        sound = tokenizer.fingerprint == document.get("checksum")
    except (KeyError, TypeError, ValueError, AttributeError):
        sound = False
    if not sound:
        raise ValueError(f"{source} is damaged: its checksum does not fit its content. Restore it or train again.")
    return tokenizer


def read(path):
    """Read a file written by `write`. Raises FileNotFoundError, or ValueError as `tokenizer_of` does."""
    return tokenizer_of(read_json(path), path)


def write(tokenizer, path):
    """Write a tokenizer of any kind as JSON; an existing file is replaced in one step."""
    with replacing(path) as file:
        file.write((json.dumps(document_of(tokenizer)) + "\n").encode("utf-8"))
