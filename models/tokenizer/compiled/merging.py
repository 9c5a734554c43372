"""Learning merges from counted words: the algorithm of `training.learn_merges`, on flat arrays.

A word lies in `words` as its count (i64), the number of its symbols (i32) and the symbols (i32), and is named by where
it begins. A record, two numbers, says that a pair stands in a word, and which record of the pair follows; a pair that
vanished from a word keeps its record there. Records are only ever added, so all memory but that of the pairs is known
beforehand.

A merge visits the words of its pair. What it changes are the counts of pairs with a neighbour of the merged token, and
neighbours are counted in arrays by token, one for each side; the table of pairs is then changed once a neighbour.
"""

import numpy as np

from euler_ir.native import function, i32, i64, pointer, prefetch, read_only, u8, u32
from models.tokenizer.compiled.pair_table import (
    NUMBERS,
    SLOT_WORDS,
    copy_pairs,
    pair_of,
    pair_slot,
    push_entry,
    sink_entry,
)

WORDS = pointer(i32)
COUNT = pointer(i64)
RECORDS = pointer(u32)

HEADER = 3
"""Numbers before a word's symbols."""
BYTE_PAIRS = 1 << 16
FIRST_SLOTS = 4 * BYTE_PAIRS
WORDS_AHEAD = 8
"""Words whose memory is on its way while one is visited."""
MOST_RECORDS = 1 << 32

MERGES_AT_ONCE = 1 << 10
"""Merges in one call, which no Ctrl-C interrupts."""

# What `state` holds; neighbours that were met on one side are a chain that begins at FIRST_BEFORE or FIRST_AFTER.
MERGES, RECORDS_USED, PAIRS_USED, HEAP_SIZE, ADJACENT_COUNT, ADJACENT_RECORD, FIRST_BEFORE, FIRST_AFTER = range(8)
# What a neighbour of the merged token has: the weight of its occurrences, its newest record, the next one of the chain.
NEIGHBOUR = 3
NOBODY = -1


@function
def lay_out_words(
    pieces: read_only(u8), ends: read_only(i64), counts: read_only(i64), number: i64, ids: read_only(i64), words: WORDS
) -> i64:
    """Write the pieces that have a pair as words, each byte as its id; returns the numbers written."""
    start, at = 0, 0
    for piece in range(number):
        length = ends[piece] - start
        if length > 1:
            COUNT(words + at)[0] = counts[piece]
            words[at + 2] = length
            for position in range(length):
                words[at + HEADER + position] = ids[pieces[start + position]]
            at += HEADER + length
        start = ends[piece]
    return at


@function
def count_byte_pairs(words: WORDS, size: i64, counts: NUMBERS, records: NUMBERS, last: NUMBERS):
    """For each pair of bytes, left << 8 | right, its count and in how many words it stands; `last` is scratch."""
    at = 0
    while at < size:
        count, length = COUNT(words + at)[0], words[at + 2]
        for position in range(1, length):
            pair = words[at + HEADER + position - 1] << 8 | words[at + HEADER + position]
            counts[pair] += count
            if last[pair] != at + 1:
                last[pair] = at + 1
                records[pair] += 1
        at += HEADER + length


@function
def index_byte_pairs(words: WORDS, size: i64, records: RECORDS, following: NUMBERS, last: NUMBERS):
    """Write the records of each pair of bytes one after the other, from `following` on, each leading to the next."""
    at = 0
    while at < size:
        length = words[at + 2]
        for position in range(1, length):
            pair = words[at + HEADER + position - 1] << 8 | words[at + HEADER + position]
            if last[pair] != at + 1:
                last[pair] = at + 1
                record = following[pair]
                records[2 * record] = at
                records[2 * record + 1] = record + 1
                following[pair] = record + 1
        at += HEADER + length


@function
def add_byte_pairs(counts: NUMBERS, firsts: NUMBERS, table: NUMBERS, mask: i64, heap: NUMBERS, state: NUMBERS):
    """Fill the empty table and heap with the pairs of bytes."""
    size = 0
    for each in range(BYTE_PAIRS):
        if counts[each] > 0:
            pair = pair_of(each >> 8, each & 255)
            place = pair_slot(table, mask, pair)
            place[0] = pair
            place[1] = counts[each]
            place[2] = firsts[each]
            push_entry(heap, size, counts[each], pair)
            size += 1
    state[PAIRS_USED] = size
    state[HEAP_SIZE] = size


@function(inline=True)
def add_record(records: RECORDS, newest: i64, at: i64, state: NUMBERS) -> i64:
    """The newest record of a pair, now that it stands in the word at `at`."""
    if newest != 0 and records[2 * newest] == at:
        return newest
    record = state[RECORDS_USED]
    state[RECORDS_USED] = record + 1
    records[2 * record] = at
    records[2 * record + 1] = newest
    return record


@function(inline=True)
def add_neighbour(side: NUMBERS, first: i64, token: i64, count: i64, at: i64, records: RECORDS, state: NUMBERS):
    """Count a neighbour of the merged token on the side whose chain begins at state[first]."""
    place = side + token * NEIGHBOUR
    if place[1] == 0:
        place[2] = state[first]
        state[first] = token
    place[0] += count
    place[1] = add_record(records, place[1], at, state)


@function
def merge_in_word(
    words: WORDS, at: i64, left: i64, right: i64, merged: i64, records: RECORDS, before: NUMBERS, after: NUMBERS,
    state: NUMBERS
):  # fmt: skip
    """Replace a pair in one word, from left to right, and count what stands beside it."""
    count, length = COUNT(words + at)[0], words[at + 2]
    symbols = words + at + HEADER
    source, kept = 0, 0
    while source < length:
        symbol = symbols[source]
        if symbol != left or source + 1 == length or symbols[source + 1] != right:
            symbols[kept] = symbol
            source += 1
            kept += 1
            continue
        source += 2
        if kept > 0:
            if symbols[kept - 1] == merged:
                state[ADJACENT_COUNT] += count
                state[ADJACENT_RECORD] = add_record(records, state[ADJACENT_RECORD], at, state)
            else:
                add_neighbour(before, FIRST_BEFORE, symbols[kept - 1], count, at, records, state)
        symbols[kept] = merged
        kept += 1
        if source < length:
            # Of two pairs that touch, the second one counts what is between them.
            if symbols[source] != left or source + 1 == length or symbols[source + 1] != right:
                add_neighbour(after, FIRST_AFTER, symbols[source], count, at, records, state)
    words[at + 2] = kept


@function
def change_pair(
    lost: i64, gained: i64, count: i64, record: i64, table: NUMBERS, mask: i64, heap: NUMBERS, state: NUMBERS
):
    """Let `count` occurrences of one pair become those of a new one, whose records begin at `record`."""
    pair_slot(table, mask, lost)[1] -= count
    place = pair_slot(table, mask, gained)
    place[0] = gained
    place[1] = count
    place[2] = record
    state[PAIRS_USED] += 1
    push_entry(heap, state[HEAP_SIZE], count, gained)
    state[HEAP_SIZE] += 1


@function
def visit_words(
    words: WORDS, pair: i64, record: i64, merged: i64, records: RECORDS, before: NUMBERS, after: NUMBERS,
    visits: RECORDS, state: NUMBERS
):  # fmt: skip
    """Merge a pair in all words of its records; `visits` is scratch for as many numbers as there are words."""
    number = 0
    while record != 0:
        visits[number] = records[2 * record]
        number += 1
        record = records[2 * record + 1]
    for each in range(number):
        if each + WORDS_AHEAD < number:
            prefetch(words + visits[each + WORDS_AHEAD])
        merge_in_word(words, visits[each], pair >> 32, pair & 0xFFFFFFFF, merged, records, before, after, state)


@function
def change_pairs(
    pair: i64, merged: i64, before: NUMBERS, after: NUMBERS, table: NUMBERS, mask: i64, heap: NUMBERS, state: NUMBERS
):
    """Bring table and heap up to date after a merge, and forget its neighbours."""
    left, right = pair >> 32, pair & 0xFFFFFFFF
    token = state[FIRST_BEFORE]
    while token != NOBODY:
        place = before + token * NEIGHBOUR
        change_pair(pair_of(token, left), pair_of(token, merged), place[0], place[1], table, mask, heap, state)
        place[0], place[1] = 0, 0
        token = place[2]
    token = state[FIRST_AFTER]
    while token != NOBODY:
        place = after + token * NEIGHBOUR
        change_pair(pair_of(right, token), pair_of(merged, token), place[0], place[1], table, mask, heap, state)
        place[0], place[1] = 0, 0
        token = place[2]
    if state[ADJACENT_COUNT] > 0:
        change_pair(
            pair_of(right, left), pair_of(merged, merged), state[ADJACENT_COUNT], state[ADJACENT_RECORD],
            table, mask, heap, state
        )  # fmt: skip
    # Last, since what was lost may have been this pair itself, as (a, a) is in `aaa`.
    pair_slot(table, mask, pair)[1] = 0
    state[ADJACENT_COUNT], state[ADJACENT_RECORD] = 0, 0
    state[FIRST_BEFORE], state[FIRST_AFTER] = NOBODY, NOBODY


@function
def learn(
    limit: i64, words: WORDS, records: RECORDS, table: NUMBERS, mask: i64, heap: NUMBERS, most: i64, before: NUMBERS,
    after: NUMBERS, visits: RECORDS, merges: NUMBERS, state: NUMBERS
) -> bool:  # fmt: skip
    """Learn merges until there are `limit` or no pair is left. False: table and heap might outgrow `most` pairs.

    A merge is written as its pair and count. A pair's count only rises in the merge that creates it and falls
    afterwards, so an entry of the heap that is out of date is too high, never too low.
    """
    while state[MERGES] < limit and state[HEAP_SIZE] > 0:
        merged = 256 + state[MERGES]
        if (state[PAIRS_USED] if state[PAIRS_USED] > state[HEAP_SIZE] else state[HEAP_SIZE]) + 2 * merged > most:
            return False
        count, pair = heap[0], heap[1]
        place = pair_slot(table, mask, pair)
        current = place[1] if place[2] != 0 else 0
        if current != count or current == 0:
            if current > 0:
                heap[0] = current
            else:
                state[HEAP_SIZE] -= 1
                heap[0] = heap[2 * state[HEAP_SIZE]]
                heap[1] = heap[2 * state[HEAP_SIZE] + 1]
            sink_entry(heap, state[HEAP_SIZE], 0)
            continue
        merges[2 * state[MERGES]] = pair
        merges[2 * state[MERGES] + 1] = count
        state[MERGES] += 1
        visit_words(words, pair, place[2], merged, records, before, after, visits, state)
        change_pairs(pair, merged, before, after, table, mask, heap, state)
    return True


def learn_merges(pieces, ends, counts, limit, ids_from_byte):
    """The merges of `training.learn_merges`, as two arrays: the pairs i64[merges, 2] and the count of each i64[merges].

    The words are `pieces` u8[bytes], end to end, each up to its number in `ends` i64[words], and occur `counts`
    i64[words] times; `ids_from_byte` i64[256] numbers the bytes, and so decides between equally frequent pairs. Raises
    ValueError for more than a billion bytes of different words.
    """
    words = np.empty(len(pieces) + HEADER * len(ends), np.int32)
    size = lay_out_words(pieces, ends, counts, len(ends), ids_from_byte, words)
    symbols = len(pieces)

    byte_counts, byte_records = np.zeros(BYTE_PAIRS, np.int64), np.zeros(BYTE_PAIRS, np.int64)
    count_byte_pairs(words, size, byte_counts, byte_records, np.zeros(BYTE_PAIRS, np.int64))
    used = 1 + int(byte_records.sum())
    # A merge makes a word shorter by one, and adds at most a record on either side.
    most_records = used + 2 * symbols
    if max(most_records, size) > MOST_RECORDS:
        raise ValueError(f"The text has {symbols} bytes of different pieces, too many to number. Train on part of it.")
    records = np.empty(2 * most_records, np.uint32)
    firsts = 1 + np.cumsum(byte_records) - byte_records
    behind = firsts.copy()
    index_byte_pairs(words, size, records, behind, np.zeros(BYTE_PAIRS, np.int64))
    records[2 * behind[byte_records > 0] - 1] = 0

    state = np.zeros(8, np.int64)
    state[RECORDS_USED], state[FIRST_BEFORE], state[FIRST_AFTER] = used, NOBODY, NOBODY
    slots = FIRST_SLOTS
    table, heap = np.zeros(slots * SLOT_WORDS, np.int64), np.empty(slots, np.int64)
    add_byte_pairs(byte_counts, firsts, table, slots - 1, heap, state)
    before, after = (np.zeros((256 + limit) * NEIGHBOUR, np.int64) for _ in range(2))
    visits, merges = np.empty(len(ends), np.uint32), np.empty(2 * limit, np.int64)
    while state[MERGES] < limit and state[HEAP_SIZE] > 0:
        if not learn(
            min(limit, int(state[MERGES]) + MERGES_AT_ONCE), words, records, table, slots - 1, heap, slots // 2,
            before, after, visits, merges, state
        ):  # fmt: skip
            larger = np.zeros(2 * slots * SLOT_WORDS, np.int64)
            state[PAIRS_USED] = copy_pairs(table, slots, larger, 2 * slots - 1)
            slots, table, heap = 2 * slots, larger, np.concatenate([heap, np.empty_like(heap)])
    learned = merges[: 2 * state[MERGES]].reshape(-1, 2)
    return np.stack([learned[:, 0] >> 32, learned[:, 0] & 0xFFFFFFFF], axis=1), learned[:, 1]
