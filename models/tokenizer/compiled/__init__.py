"""The tokenizer's loops as machine code: the same results as `pretokenize`, `training` and `bpe`, many times faster.

    scanner     pieces of GPT-2's pattern in UTF-8 bytes     runs        texts between special tokens, for threads
    counting    how often each piece occurs                  merging     merges learned from counted pieces
    encoding    pieces as ids, with a cache                  keys, pair_table, merge_table    their hash tables

Compiling takes a fraction of a second, once a machine, so it is for large inputs, and nothing here is imported before.
"""

import sys

import numpy as np

from models.tokenizer.pretokenize import byte_view, bytes_of, text_from

SMALLEST_INPUT = 1 << 18
"""Characters or bytes from which on the compiled loops are used."""


def is_worth_it(source):
    """Whether a text is long enough for the compiled loops, and they run on this machine. Raises as `text_from`."""
    size = len(source if isinstance(source, str) else byte_view(source))
    # The scanner reads eight bytes as one little-endian number.
    if size < SMALLEST_INPUT or sys.byteorder != "little":
        return False
    from euler_ir.native import is_available

    return is_available()


def utf8(source):
    """The bytes, u8[bytes], of a str, with lone surrogates replaced as in `text_from`, or of bytes."""
    return np.frombuffer(bytes_of(text_from(source)) if isinstance(source, str) else byte_view(source), np.uint8)


def learn_merges(text, special_tokens, limit, byte_numbers):
    """At most `limit` merges, (left, right), of a str or bytes; bytes are numbered by `byte_numbers`, 256 integers."""
    from models.tokenizer.compiled import counting, merging, runs

    data = utf8(text)
    documents = runs.find_runs(data, dict.fromkeys(special_tokens, runs.NO_TOKEN))
    counted = counting.count_pieces(data, documents)
    return merging.learn_merges(*counted, limit, np.array(byte_numbers, np.int64))[0].tolist()


def encoder(merges, ids):
    """A `models.tokenizer.compiled.encoding.Encoder`."""
    from models.tokenizer.compiled.encoding import Encoder

    return Encoder(merges, ids)
