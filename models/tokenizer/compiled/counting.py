"""Counting the pieces of a text of any size, with as many threads as asked.

A table of counts has slots of four words: the two of a key, the length in bytes, the count. A short piece is its key;
the key of a long one is its hash and where it first stands in the text, marked by the top bit. No piece has a second
word of 0, so that marks a free slot. Which slot a piece is in depends on what came before, its count does not.
"""

import numpy as np

from euler_ir.native import function, i64, pointer, read_only, u8, u64
from models.tokenizer.compiled.keys import LONGEST_SHORT, hash_bytes, hash_words, short_key
from models.tokenizer.compiled.runs import in_threads, shards
from models.tokenizer.compiled.scanner import TEXT, piece_end
from models.tokenizer.unicode_classes import class_table

SLOT_WORDS = 4
FIRST_SLOTS = 1 << 12
LONG = 1 << 63

TABLE = pointer(u64)
STATE = pointer(i64)


@function(inline=True)
def piece_key(text: TEXT, start: i64, length: i64, end: i64) -> (u64, u64):
    """The key of a piece, its second word marked when it is long."""
    if length <= LONGEST_SHORT:
        low, high = short_key(text, start, length, end)
        return low, high
    return hash_bytes(text, start, length, end), u64(start) | LONG


@function(inline=True)
def home_slot(low: u64, high: u64, mask: u64) -> u64:
    """Where the search for a key begins. For a long piece only its hash counts, not where it stands."""
    return hash_words(low, high if high < LONG else u64(LONG)) & mask


@function(inline=True)
def same_bytes(text: TEXT, first: i64, second: i64, length: i64) -> bool:
    for position in range(length):
        if text[first + position] != text[second + position]:
            return False
    return True


@function(inline=True)
def find_slot(text: TEXT, low: u64, high: u64, length: i64, table: TABLE, mask: u64) -> u64:
    """The slot of a piece, or the free one where it belongs. A hash is never trusted: long pieces are compared."""
    slot = home_slot(low, high, mask)
    while True:
        place = table + i64(slot) * SLOT_WORDS
        if place[1] == 0:
            return slot
        if place[0] == low:
            if place[1] == high:
                return slot
            if high >= LONG and place[1] >= LONG and place[2] == u64(length):
                if same_bytes(text, i64(place[1] ^ LONG), i64(high ^ LONG), length):
                    return slot
        slot = (slot + 1) & mask


# What `state` holds: the pieces in the table, and the run and the position in it to go on from.
USED, RUN, POSITION = range(3)


@function
def count_runs(
    text: TEXT, runs: read_only(i64), number: i64, classes: TEXT, table: TABLE, mask: u64, most: i64, state: STATE
) -> bool:
    """Count the pieces of runs of text. False: the table has the `most` pieces it may hold; `state` says where."""
    for run in range(state[RUN], number):
        end = runs[3 * run + 1]
        position = state[POSITION] if state[POSITION] > runs[3 * run] else runs[3 * run]
        while position < end:
            following = piece_end(text, position, end, classes)
            length = following - position
            low, high = piece_key(text, position, length, end)
            slot = find_slot(text, low, high, length, table, mask)
            place = table + i64(slot) * SLOT_WORDS
            if place[1] == 0:
                if state[USED] == most:
                    state[RUN] = run
                    state[POSITION] = position
                    return False
                state[USED] += 1
                place[0] = low
                place[1] = high
                place[2] = u64(length)
            place[3] += 1
            position = following
    return True


@function
def add_counts(text: TEXT, source: TABLE, slots: i64, table: TABLE, mask: u64, state: STATE):
    """Add the counts of one table to another, which has room for all of them."""
    for number in range(slots):
        given = source + number * SLOT_WORDS
        if given[1] != 0:
            slot = find_slot(text, given[0], given[1], i64(given[2]), table, mask)
            place = table + i64(slot) * SLOT_WORDS
            if place[1] == 0:
                state[USED] += 1
                place[0] = given[0]
                place[1] = given[1]
                place[2] = given[2]
            place[3] += given[3]


@function
def write_pieces(
    text: TEXT, table: TABLE, slots: i64, pieces: pointer(u8), ends: pointer(i64), counts: pointer(i64)
):
    """The pieces of a table end to end, where each ends, and its count."""
    written, number = 0, 0
    for each in range(slots):
        place = table + each * SLOT_WORDS
        if place[1] != 0:
            length = i64(place[2])
            for position in range(length):
                if place[1] >= LONG:
                    pieces[written + position] = text[i64(place[1] ^ LONG) + position]
                else:
                    word = place[0] if position < 8 else place[1]
                    pieces[written + position] = word >> u64(8 * (position & 7))
            written += length
            ends[number] = written
            counts[number] = i64(place[3])
            number += 1


class PieceTable:
    """Counts of the pieces of one text, u8[bytes]; grows as it fills."""

    def __init__(self, text):
        self._text = text
        self._state = np.zeros(3, np.int64)
        self._words = np.zeros(FIRST_SLOTS * SLOT_WORDS, np.uint64)

    @property
    def _slots(self):
        return len(self._words) // SLOT_WORDS

    def count(self, runs):
        """Count the pieces of runs, i64[runs, 3]."""
        self._state[[RUN, POSITION]] = 0
        while not count_runs(
            self._text, runs, len(runs), class_table(), self._words, self._slots - 1, self._slots // 2, self._state
        ):
            self._make_room(4 * self._slots)

    def add(self, other):
        """Add the counts of another table of the same text."""
        needed = 2 * int(self._state[USED] + other._state[USED])
        if needed > self._slots:
            self._make_room(1 << (needed - 1).bit_length())
        self._add(other._words)

    def _make_room(self, slots):
        old, self._words = self._words, np.zeros(slots * SLOT_WORDS, np.uint64)
        self._state[USED] = 0
        self._add(old)

    def _add(self, words):
        add_counts(self._text, words, len(words) // SLOT_WORDS, self._words, self._slots - 1, self._state)

    def pieces(self):
        """(all pieces end to end u8[bytes], where each ends i64[pieces], counts i64[pieces]), in no order."""
        total, number = int(self._words[2::SLOT_WORDS].sum()), int(self._state[USED])
        pieces, ends, counts = np.empty(total, np.uint8), np.empty(number, np.int64), np.empty(number, np.int64)
        write_pieces(self._text, self._words, self._slots, pieces, ends, counts)
        return pieces, ends, counts


def count_pieces(text, runs):
    """The pieces of runs i64[runs, 3] of a text u8[bytes], which may be a memory map, as `PieceTable.pieces`."""
    tables = []

    def count(part):
        try:
            table = tables.pop()
        except IndexError:
            table = PieceTable(text)
        table.count(part)
        tables.append(table)

    in_threads(count, shards(text, runs))
    first, *others = tables
    for other in others:
        first.add(other)
    return first.pieces()
