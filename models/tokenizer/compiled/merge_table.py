"""Applying merges to one piece: `bpe.apply_merges`, on flat arrays.

The table of merges is a hash table of two numbers a slot, the pair left << 32 | right and the id it becomes, with -1
for a free slot. Ids of merges ascend in the order they were learned, so the lowest id is the merge to make first.
"""

import numpy as np

from euler_ir.native import function, i32, i64, pointer, read_only, u32, u64
from models.tokenizer.compiled.pair_table import SPREAD, pair_of

LONGEST_SCAN = 48
"""Bytes up to which looking at every pair after each merge is faster than keeping a queue."""
NO_MERGE = 1 << 40
GONE = -1

SYMBOLS = pointer(i32)
MERGES = read_only(i64)


@function(inline=True)
def first_slot(pair: i64, mask: i64) -> i64:
    return i64(u64(pair) * SPREAD >> 32) & mask


@function
def merge_of(left: i64, right: i64, merges: MERGES, mask: i64) -> i64:
    """The id that a pair becomes, or NO_MERGE."""
    pair = pair_of(left, right)
    slot = first_slot(pair, mask)
    while merges[2 * slot] != pair:
        if merges[2 * slot] < 0:
            return NO_MERGE
        slot = (slot + 1) & mask
    return merges[2 * slot + 1]


@function
def fill_merges(pairs: MERGES, number: i64, merges: pointer(i64), mask: i64):
    for each in range(number):
        pair = pair_of(pairs[2 * each], pairs[2 * each + 1])
        slot = first_slot(pair, mask)
        while merges[2 * slot] >= 0:
            slot = (slot + 1) & mask
        merges[2 * slot] = pair
        merges[2 * slot + 1] = 256 + each


def merge_table(merges):
    """The table of merges [(left id, right id), ...], i64[2 * slots]."""
    slots = 1 << (2 * len(merges) + 1).bit_length()
    table = np.full(2 * slots, -1, np.int64)
    fill_merges(np.array(merges, np.int64).reshape(-1), len(merges), table, slots - 1)
    return table


@function
def merge_by_scan(symbols: SYMBOLS, length: i64, merges: MERGES, mask: i64, found: pointer(i64)) -> i64:
    """Merge a short piece in place; `found` is scratch for the merge of each pair. Returns the symbols left."""
    for position in range(length - 1):
        found[position] = merge_of(symbols[position], symbols[position + 1], merges, mask)
    while True:
        best, place = NO_MERGE, 0
        for position in range(length - 1):
            if found[position] < best:
                best = found[position]
                place = position
        if best == NO_MERGE:
            return length
        length -= 1
        symbols[place] = best
        for position in range(place + 1, length):
            symbols[position] = symbols[position + 1]
            found[position - 1] = found[position]
        if place > 0:
            found[place - 1] = merge_of(symbols[place - 1], best, merges, mask)
        if place + 1 < length:
            found[place] = merge_of(best, symbols[place + 1], merges, mask)
    return length


QUEUE = pointer(u64)


@function(inline=True)
def sink_candidate(queue: QUEUE, size: i64, entry: i64):
    value = queue[entry]
    while 2 * entry + 1 < size:
        child = 2 * entry + 1
        if child + 1 < size and queue[child + 1] < queue[child]:
            child += 1
        if queue[child] >= value:
            break
        queue[entry] = queue[child]
        entry = child
    queue[entry] = value


@function(inline=True)
def push_candidate(queue: QUEUE, size: i64, merged: i64, position: i64) -> i64:
    """Add a merge at a position, if it is one; returns the size."""
    if merged == NO_MERGE:
        return size
    value = u64(merged) << 32 | u64(position)
    entry = size
    while entry > 0 and queue[(entry - 1) >> 1] > value:
        queue[entry] = queue[(entry - 1) >> 1]
        entry = (entry - 1) >> 1
    queue[entry] = value
    return size + 1


@function
def merge_by_queue(
    symbols: SYMBOLS, length: i64, merges: MERGES, mask: i64, links: pointer(u32), queue: QUEUE
) -> i64:
    """Merge a piece of any length in place, in n log n steps; returns how many symbols are left.

    `links` holds two numbers a symbol, the positions before and behind it. A merge takes one candidate from the queue
    and adds at most two, so the queue holds no more than two a symbol.
    """
    size = 0
    for position in range(length):
        links[2 * position] = position - 1
        links[2 * position + 1] = position + 1
        if position + 1 < length:
            merged = merge_of(symbols[position], symbols[position + 1], merges, mask)
            size = push_candidate(queue, size, merged, position)
    while size > 0:
        merged, position = i64(queue[0] >> 32), i64(queue[0] & 0xFFFFFFFF)
        size -= 1
        queue[0] = queue[size]
        sink_candidate(queue, size, 0)
        neighbour = i64(links[2 * position + 1])
        if symbols[position] == GONE or neighbour == length:
            continue
        if merge_of(symbols[position], symbols[neighbour], merges, mask) != merged:
            continue
        behind = i64(links[2 * neighbour + 1])
        symbols[position] = merged
        symbols[neighbour] = GONE
        links[2 * position + 1] = behind
        if position > 0:
            before = i64(links[2 * position])
            size = push_candidate(queue, size, merge_of(symbols[before], merged, merges, mask), before)
        if behind < length:
            links[2 * behind] = position
            size = push_candidate(queue, size, merge_of(merged, symbols[behind], merges, mask), position)
    kept = 0
    for position in range(length):
        if symbols[position] != GONE:
            symbols[kept] = symbols[position]
            kept += 1
    return kept
