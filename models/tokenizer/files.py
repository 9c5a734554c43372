"""Whole files of text to a token file, a block at a time, so that they may be larger than memory."""

import codecs
import os
from pathlib import Path

from models.data.token_files import token_file_writer
from models.tokenizer.pretokenize import SAFE_CUT

BLOCK_BYTES = 1 << 20
SHORTEST_SEARCH = 1 << 10


def encode_file(tokenizer, sources, destination, *, separator=None, allowed_special=(), disallowed_special="all"):
    """Write the ids of one UTF-8 file, or of several in order, as the token file `destination`; returns their number.

    `separator` is a special token to put between the files, such as "<|endoftext|>". Special tokens in the texts are
    treated as `encode` does. Line ends and byte order marks are text like any other, and so are bytes that are not
    UTF-8. `destination` is written whole or, on any error, left as it was. Raises FileNotFoundError, OSError, and
    ValueError, naming file and line, for a special token that is not allowed.
    """
    sources = [Path(source) for source in ([sources] if isinstance(sources, (str, os.PathLike)) else sources)]
    if not sources:
        raise ValueError("There is no file to encode. Give at least one.")
    if separator is not None and separator not in tokenizer.special_tokens:
        raise ValueError(f"The separator {separator!r} is not a special token of this vocabulary.")
    if any(source.resolve() == Path(destination).resolve() for source in sources):
        raise ValueError(f"{destination} is a source and the destination. Write the tokens to another file.")
    permissions = {"allowed_special": allowed_special, "disallowed_special": disallowed_special}
    special_tokens = {*tokenizer.special_tokens, *(() if disallowed_special == "all" else disallowed_special)}
    with token_file_writer(destination, tokenizer) as writer:
        for index, source in enumerate(sources):
            if index and separator is not None:
                writer.append([tokenizer.special_tokens[separator]])
            line = 1
            with open(source, "rb") as file:
                for block in text_blocks(file, special_tokens):
                    try:
                        writer.append(tokenizer.encode_to_numpy(block.encode("utf-8", "surrogateescape"), **permissions))
                    except ValueError as error:
                        raise ValueError(f"{source}, line {line} or after: {error}") from None
                    line += block.count("\n")
    return writer.count


def text_blocks(file, special_tokens=()):
    """Yield the text of a binary file in blocks of about BLOCK_BYTES that have the same ids apart as together.

    A block ends where no piece and no special token crosses. Bytes that are not UTF-8 are as in `text_from`. Only a
    stretch without any such place makes a longer block.
    """
    longest = max(map(len, special_tokens), default=1)
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    text, searched = "", 0
    while data := file.read(BLOCK_BYTES):
        text += decoder.decode(data)
        end = len(text) - longest
        if cut := _late_cut(text, searched, end, special_tokens):
            yield text[:cut]
            text = text[cut:]
            searched = 0
        else:
            searched = max(0, end - 1)
    yield text + decoder.decode(b"", final=True)


def _late_cut(text, start, end, special_tokens):
    """A place near `end` of text[start:end] where it can be cut, or None."""
    stretch = SHORTEST_SEARCH
    while True:
        match = SAFE_CUT.search(text, max(start, end - stretch), end)
        while match and _inside_special(text, match.start() + 1, special_tokens):
            match = SAFE_CUT.search(text, match.start() + 1, end)
        if match or end - stretch <= start:
            return match and match.start() + 1
        stretch *= 8


def _inside_special(text, cut, special_tokens):
    spans = ((token, max(0, cut - len(token) + 1), cut + len(token) - 1) for token in special_tokens)
    return any(text.find(token, *span) >= 0 for token, *span in spans)
