"""The class of every Unicode code point, pinned to one Unicode version.

GPT-2's splitting rule asks only whether a character is a letter, a number, white space or something else.
Engines built on different Unicode versions answer differently, and a different answer means different token ids,
so the answers are stored beside this file (written by scripts/make_unicode_classes.py) instead of computed.
"""

import zlib
from functools import cache
from pathlib import Path

import numpy as np

UNICODE_VERSION = "16.0"
OTHER, LETTER, NUMBER, SPACE = range(4)


@cache
def class_table():
    """Class of each code point: read-only uint8[0x110000] of OTHER, LETTER, NUMBER or SPACE.

    Surrogates and unassigned code points are OTHER.
    """
    compressed = Path(__file__).with_name("unicode_classes.zlib").read_bytes()
    return np.frombuffer(zlib.decompress(compressed), np.uint8)
