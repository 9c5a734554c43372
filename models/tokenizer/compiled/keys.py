"""Pieces as keys of hash tables: a short piece is its own key, in two words of 64 bits, and needs no further look."""

from euler_ir.native import function, i64, multiply_wide, u64
from models.tokenizer.compiled.scanner import TEXT, WORDS

LONGEST_SHORT = 15
"""Bytes of the longest piece whose key holds it."""

# Odd numbers without pattern: the digits of the square roots of 2, 3 and 5.
FIRST_FACTOR = 0x6A09E667F3BCC909
SECOND_FACTOR = 0xBB67AE8584CAA73B
THIRD_FACTOR = 0x3C6EF372FE94F82B


@function(inline=True)
def word_at(text: TEXT, start: i64, length: i64, end: i64) -> u64:
    """The first `length` bytes, at most 8, from `start` on as a number; nothing behind `end` is read."""
    if length <= 0:
        return u64(0)
    if start + 8 <= end:
        # A shift that is seen to be below 64 is one instruction.
        return WORDS(text + start)[0] & u64(-1) >> u64(-8 * (length if length < 8 else 8) & 63)
    word = u64(0)
    for position in range(length):
        word |= u64(text[start + position]) << u64(8 * position)
    return word


@function(inline=True)
def short_key(text: TEXT, start: i64, length: i64, end: i64) -> (u64, u64):
    """A piece of at most LONGEST_SHORT bytes: the first eight, and the others below the length."""
    low = word_at(text, start, length if length < 8 else 8, end)
    high = word_at(text, start + 8, length - 8, end)
    return low, high | u64(length) << 56


@function(inline=True)
def hash_words(low: u64, high: u64) -> u64:
    lower, upper = multiply_wide(low * FIRST_FACTOR ^ high * SECOND_FACTOR, u64(THIRD_FACTOR))
    return lower ^ upper


@function
def hash_bytes(text: TEXT, start: i64, length: i64, end: i64) -> u64:
    result = u64(length)
    position = 0
    while position < length:
        rest = length - position
        result = hash_words(result, word_at(text, start + position, rest if rest < 8 else 8, end))
        position += 8
    return result
