"""Cutting UTF-8 bytes into the pieces of GPT-2's pattern, one piece after the other, as `pretokenize` does for text.

A byte that is not part of valid UTF-8 is a character of its own, of class OTHER. `classes` is `class_table()`: the
class of each code point. Nothing is read outside of text[0:end].
"""

from euler_ir.native import function, i64, read_only, trailing_zeros, u8, u64
from models.tokenizer.unicode_classes import LETTER, OTHER, SPACE

TEXT = read_only(u8)
WORDS = read_only(u64)

BLANK, NEWLINE, APOSTROPHE = b" \n'"
D, E, L, M, R, S, T, V = b"delmrstv"

# One bit or number in each of the eight bytes of a word.
TOP_BITS = 0x8080808080808080
LOW_BITS = 0x7F7F7F7F7F7F7F7F
CASE_BITS = 0x2020202020202020
# Added to a byte below 0x80, these set its top bit if it is at least 'a', and if it is above 'z'.
FROM_A = 0x1F1F1F1F1F1F1F1F
ABOVE_Z = 0x0505050505050505


@function(inline=True)
def is_continuation(text: TEXT, position: i64, end: i64) -> bool:
    return position < end and text[position] & 0xC0 == 0x80


@function(inline=True)
def character(text: TEXT, position: i64, end: i64, classes: TEXT) -> (i64, i64):
    """Class and length in bytes of the character at a position (Unicode 16.0, table 3-7: well-formed UTF-8)."""
    first = text[position]
    if first < 0x80:
        return classes[first], 1
    if first < 0xC2 or first > 0xF4 or not is_continuation(text, position + 1, end):
        return OTHER, 1
    second = text[position + 1]
    if first < 0xE0:
        return classes[(first & 0x1F) << 6 | second & 0x3F], 2
    if not is_continuation(text, position + 2, end):
        return OTHER, 1
    code = second & 0x3F
    if first < 0xF0:
        code = (first & 0x0F) << 12 | code << 6 | text[position + 2] & 0x3F
        # Written longer than needed. Surrogates are of class OTHER, as each of their bytes would be.
        if code < 0x800:
            return OTHER, 1
        return classes[code], 3
    if not is_continuation(text, position + 3, end):
        return OTHER, 1
    code = (first & 0x07) << 18 | code << 12 | (text[position + 2] & 0x3F) << 6 | text[position + 3] & 0x3F
    if code < 0x10000 or code >= 0x110000:
        return OTHER, 1
    return classes[code], 4


@function(inline=True)
def ascii_letters_end(text: TEXT, position: i64, end: i64) -> i64:
    """Behind the ASCII letters from a position on, eight at a time; the last few bytes of the text are left."""
    while position + 8 <= end:
        word = WORDS(text + position)[0]
        lower = word & LOW_BITS | CASE_BITS
        others = (~(lower + FROM_A) | lower + ABOVE_Z | word) & TOP_BITS
        if others != 0:
            return position + (trailing_zeros(others) >> 3)
        position += 8
    return position


@function(inline=True)
def contraction_length(text: TEXT, start: i64, end: i64) -> i64:
    """Bytes of the 's 't 'm 'd 're 've 'll at an apostrophe, or 0."""
    if start + 1 >= end:
        return 0
    first = text[start + 1]
    if first == S or first == T or first == M or first == D:
        return 2
    if start + 2 >= end:
        return 0
    second = text[start + 2]
    if (first == R and second == E) or (first == V and second == E) or (first == L and second == L):
        return 3
    return 0


@function(inline=True)
def white_space_end(text: TEXT, start: i64, end: i64, classes: TEXT) -> i64:
    """A run of white space gives up its last character to what follows it, unless it has only that one."""
    position, last = start, start
    while position < end:
        kind, size = character(text, position, end, classes)
        if kind != SPACE:
            return position if last == start else last
        last = position
        position += size
    return end


@function(inline=True)
def piece_end(text: TEXT, start: i64, end: i64, classes: TEXT) -> i64:
    """Where the piece that starts at `start` ends, in a text that ends at `end`."""
    first = text[start]
    if first == APOSTROPHE:
        length = contraction_length(text, start, end)
        if length > 0:
            return start + length
    position = start
    if first == BLANK and start + 1 < end:
        position += 1
    kind, size = character(text, position, end, classes)
    if kind == SPACE:
        return white_space_end(text, start, end, classes)
    position += size
    if kind == LETTER:
        position = ascii_letters_end(text, position, end)
    while position < end:
        following, size = character(text, position, end, classes)
        if following != kind:
            break
        position += size
    return position


@function
def safe_cut(text: TEXT, start: i64, end: i64, classes: TEXT) -> i64:
    """The first place after `start`, else `end`, where a piece ends whatever follows: before a blank or newline
    behind a character that is not white space. No rule for either side looks past it.
    """
    position = start + 1
    while position < end:
        if text[position] == BLANK or text[position] == NEWLINE:
            before = position - 1
            while before > 0 and position - before < 4 and text[before] & 0xC0 == 0x80:
                before -= 1
            kind, size = character(text, before, position, classes)
            if kind != SPACE or before + size != position:
                return position
        position += 1
    return end
