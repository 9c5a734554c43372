"""Cutting text into the pieces that byte-pair merges never cross, exactly as GPT-2 does.

GPT-2 states the rule as a regular expression (Radford et al., 2019, `encoder.py`):

    's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+

Here the same cuts are found by comparing the class of each character with that of its neighbours, for a whole
block of text at once.
"""

import re
from itertools import pairwise

import numpy as np

from models.tokenizer.unicode_classes import SPACE, class_table

BLOCK_CHARACTERS = 1 << 20
SAFE_CUT = re.compile(r"\S[ \n]")
SHORT_CONTRACTIONS = [ord(letter) for letter in "stmd"]
LONG_CONTRACTIONS = [tuple(map(ord, letters)) for letters in ("re", "ve", "ll")]


def text_from(source):
    """The text to tokenize, from a str or from bytes, a memory map of them for example.

    In a str, surrogate pairs are joined and lone surrogates become U+FFFD, as in tiktoken. In bytes, each byte
    that is not part of valid UTF-8 becomes one character of its own (class OTHER) that `bytes_of` turns back
    into that byte. Raises TypeError for anything else.
    """
    if not isinstance(source, str):
        return str(byte_view(source), "utf-8", "surrogateescape")
    try:
        source.encode("utf-8")
    except UnicodeEncodeError:
        return source.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return source


def byte_view(source):
    """A memoryview of bytes, whatever holds them: a memory map, a uint8 array. Raises TypeError for anything else."""
    try:
        view = memoryview(source)
    except TypeError:
        view = None
    if view is None or view.itemsize != 1 or view.ndim != 1 or not view.contiguous:
        raise TypeError(f"A tokenizer reads str or bytes, not {type(source).__name__}.")
    return view


def bytes_of(text):
    """The bytes of a text made by `text_from`."""
    return text.encode("utf-8", "surrogateescape")


def pieces(text):
    """Yield the pieces of a text made by `text_from`, in order; joined, they are the text."""
    for block in _blocks(text):
        code_points = np.frombuffer(block.encode("utf-32-le", "surrogatepass"), np.uint32)
        bounds = [*piece_starts(code_points).tolist(), len(block)]
        for start, end in pairwise(bounds):
            yield block[start:end]


def piece_starts(code_points):
    """Indices, ascending int64[pieces], at which the pieces of uint32[characters] code points start."""
    classes = class_table()[code_points]
    is_space = classes == SPACE
    starts = np.ones(len(code_points), bool)
    starts[1:] = classes[1:] != classes[:-1]
    joins_blank_before = (code_points[:-1] == ord(" ")) & ~is_space[1:]
    starts[1:] &= ~joins_blank_before
    last_of_white_space_run = is_space[:-1] & ~is_space[1:]
    starts[:-1] |= last_of_white_space_run
    _cut_contractions(code_points, starts)
    return np.flatnonzero(starts)


def _cut_contractions(code_points, starts):
    """Make 's 't 'm 'd 're 've 'll pieces of their own wherever a piece starts at the apostrophe."""
    apostrophes = np.flatnonzero((code_points == ord("'")) & starts)
    if not len(apostrophes):
        return
    padded = np.append(code_points, [0, 0])
    first, second = padded[apostrophes + 1], padded[apostrophes + 2]
    short = np.isin(first, SHORT_CONTRACTIONS)
    long = np.zeros_like(short)
    for letters in LONG_CONTRACTIONS:
        long |= (first == letters[0]) & (second == letters[1])
    starts[apostrophes[short | long] + 1] = False
    ends = np.append(apostrophes[short] + 2, apostrophes[long] + 3)
    starts[ends[ends < len(starts)]] = True


def _blocks(text):
    """Cut a long text where no piece can cross, so that memory does not grow with its length.

    Between a character that is not white space and a blank or newline there is always a cut, and no rule for
    either side looks past it.
    """
    start = 0
    while len(text) - start > BLOCK_CHARACTERS and (match := SAFE_CUT.search(text, start + BLOCK_CHARACTERS)):
        yield text[start : match.start() + 1]
        start = match.start() + 1
    yield text[start:]
