"""GPT-2's numbering of single bytes, and the two files its vocabulary is published in.

In those files a token is written with one printable character for each byte: bytes that are printable in Latin-1
stand for themselves, the other 68 are written as U+0100, U+0101, ... in byte order. Sorting all 256 by that
character gives the ids 0 to 255.
"""

import json
from pathlib import Path

_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_HIDDEN = [byte for byte in range(256) if byte not in _PRINTABLE]

BYTE_FROM_ID = (*_PRINTABLE, *_HIDDEN)
ID_FROM_BYTE = tuple(BYTE_FROM_ID.index(byte) for byte in range(256))
CHARACTER_FROM_ID = (*map(chr, _PRINTABLE), *(chr(256 + n) for n in range(len(_HIDDEN))))


def read_gpt2_files(encoder_json, vocab_bpe):
    """Read GPT-2's `encoder.json` (token to id) and `vocab.bpe` (merges in order).

    Returns (merges as a list of id pairs, special tokens as a list in id order). Raises ValueError when the two
    files disagree or number their tokens differently from GPT-2: bytes, then merges, then special tokens.
    """
    try:
        id_from_token = json.loads(Path(encoder_json).read_bytes())
    except ValueError as error:
        raise ValueError(f"{encoder_json} is not JSON: {error}. Give encoder.json first, vocab.bpe second.") from None
    expected = {character: token_id for token_id, character in enumerate(CHARACTER_FROM_ID)}
    merges = []
    for number, line in _merge_lines(vocab_bpe):
        parts = line.split(" ")
        if len(parts) != 2 or not all(part in expected for part in parts):
            raise ValueError(f"{vocab_bpe}, line {number}: {line!r} is not a merge of two tokens known so far.")
        merges.append((expected[parts[0]], expected[parts[1]]))
        expected["".join(parts)] = len(expected)

    for token, token_id in expected.items():
        if id_from_token.get(token) != token_id:
            raise ValueError(
                f"{encoder_json} gives token {token!r} the id {id_from_token.get(token)}, but by {vocab_bpe} it is "
                f"{token_id}. Use two files of one GPT-2 vocabulary, with special tokens numbered last."
            )
    special_ids = {id_from_token[token]: token for token in id_from_token.keys() - expected.keys()}
    wanted = range(len(expected), len(expected) + len(special_ids))
    if sorted(special_ids) != list(wanted):
        raise ValueError(f"{encoder_json}: the ids of the special tokens must follow {len(expected) - 1} without gaps.")
    return merges, [special_ids[token_id] for token_id in wanted]


def _merge_lines(vocab_bpe):
    """Yield (line number, merge); only the first line can be a comment, since a merge may itself start with '#'."""
    lines = Path(vocab_bpe).read_bytes().decode("utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        is_header = number == 1 and line.startswith("#version")
        is_end = number == len(lines) and not line
        if not is_header and not is_end:
            yield number, line.removesuffix("\r")
