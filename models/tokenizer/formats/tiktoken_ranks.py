"""tiktoken's files: `base64(token) rank` on each line, where the rank is both the id and the priority.

They hold neither the special tokens nor the pattern that splits text, so who reads one has to say them, and they hold
no merges: a token's is found by encoding its bytes with the tokens of lower rank.
"""

import base64
import binascii
from pathlib import Path

from models.files import replacing
from models.tokenizer.bpe import Tokenizer, apply_merges
from models.tokenizer.formats.printable_tokens import check_ids
from models.tokenizer.gpt2_vocabulary import BYTE_FROM_ID, ID_FROM_BYTE

# GPT-2's pattern as OpenAI first wrote it and as tiktoken and its users write it: all split every text alike.
GPT2_PATTERNS = {
    "gpt2",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
}


def read(path, special_tokens=None, pattern=None):
    """Read a file; `special_tokens` are texts, numbered after all other ids, or {text: id}, perhaps none.

    `pattern` is the regular expression by which text is split: GPT-2's, or "gpt2" for short, is the one this program
    has. Raises FileNotFoundError, or ValueError if one of the two is not given, or for a file that is not a byte-level
    BPE vocabulary in which every token encodes to itself.
    """
    if special_tokens is None or pattern is None:
        raise ValueError(
            f"{path} does not say how text is split, nor its special tokens. Give both, e.g. pattern='gpt2' and "
            "special_tokens={'<|endoftext|>': 50256}."
        )
    check_pattern(pattern)
    place_from_token, id_from_token = {}, {}
    for place, token, token_id in _lines(path):
        if token in id_from_token:
            raise ValueError(f"{place}: the token {token!r} stands here and in {place_from_token[token]}.")
        place_from_token[token], id_from_token[token] = place, token_id
    check_ids(id_from_token, path)
    if missing := [byte for byte in range(256) if bytes([byte]) not in id_from_token]:
        raise ValueError(f"{path} has no token for {len(missing)} of the 256 bytes, such as 0x{missing[0]:02x}.")
    merges, ids = {}, [id_from_token[bytes([byte])] for byte in BYTE_FROM_ID]
    for token, token_id in sorted(id_from_token.items(), key=lambda item: item[1]):
        if len(token) != 1:
            parts = apply_merges([ID_FROM_BYTE[byte] for byte in token], merges)
            if len(parts) != 2:
                raise ValueError(
                    f"{place_from_token[token]}: {token!r} encodes to {len(parts)} tokens of lower rank, not 2, so no "
                    "merge makes it."
                )
            merges[tuple(parts)] = len(ids)
            ids.append(token_id)
    try:
        return Tokenizer(merges, special_tokens, ids)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def check_pattern(pattern):
    """Raise ValueError unless a regular expression splits text as GPT-2's does."""
    if pattern not in GPT2_PATTERNS:
        raise ValueError(f"This program splits text by GPT-2's pattern only, not by {pattern!r}.")


def write(tokenizer, path):
    """Write a file. Raises ValueError if the ids do not follow the order of the merges, or two make the same bytes."""
    ids = tokenizer.ids or list(range(256 + len(tokenizer.merges)))
    if ids[256:] != sorted(ids[256:]):
        raise ValueError("The ids of this vocabulary are not in the order of its merges, which a tiktoken file needs.")
    tokens = {tokenizer.token_bytes(token_id): token_id for token_id in sorted(ids)}
    if len(tokens) < len(ids):
        raise ValueError("Two merges of this vocabulary make the same bytes, which a tiktoken file cannot hold.")
    with replacing(path) as file:
        file.writelines(b"%s %d\n" % (base64.b64encode(token), token_id) for token, token_id in tokens.items())


def _lines(path):
    """Yield (place, token bytes, id) of each line."""
    for number, line in enumerate(Path(path).read_bytes().splitlines(), start=1):
        place, parts = f"{path}, line {number}", line.split(b" ")
        try:
            encoded, digits = parts
            token, token_id = base64.b64decode(encoded, validate=True), int(digits)
        except (ValueError, binascii.Error):
            shown = line[:60].decode("ascii", "backslashreplace")
            raise ValueError(f"{place}: {shown!r} should be a token in base64, a blank and its rank.") from None
        if not token:
            raise ValueError(f"{place}: the token is empty.")
        yield place, token, token_id
