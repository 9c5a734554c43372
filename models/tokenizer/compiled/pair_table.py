"""The pairs of tokens that training knows: a hash table of their counts and places, and a heap of the most frequent.

A pair is one number, left << 32 | right. A slot of the table has three words: pair, count, and the first of the records
that say in which words the pair stands; there is no record 0, so a slot whose record is 0 is free. An entry of the heap
has two: count and pair. The entry on top has the highest count, and of those the smallest pair.
"""

from euler_ir.native import function, i64, pointer, u64

SLOT_WORDS = 3
# The fraction of the golden ratio, which spreads numbers that differ little (Knuth, volume 3, section 6.4).
SPREAD = 0x9E3779B97F4A7C15

NUMBERS = pointer(i64)


@function(inline=True)
def pair_of(left: i64, right: i64) -> i64:
    return left << 32 | right


@function(inline=True)
def pair_slot(table: NUMBERS, mask: i64, pair: i64) -> NUMBERS:
    """The slot of a pair, or the free one where it belongs."""
    mixed = u64(pair) * SPREAD
    slot = i64(mixed ^ mixed >> 32) & mask
    while table[slot * SLOT_WORDS + 2] != 0 and table[slot * SLOT_WORDS] != pair:
        slot = (slot + 1) & mask
    return table + slot * SLOT_WORDS


@function
def copy_pairs(source: NUMBERS, slots: i64, table: NUMBERS, mask: i64) -> i64:
    """Put the pairs that still occur into another table; returns how many they are."""
    copied = 0
    for number in range(slots):
        given = source + number * SLOT_WORDS
        if given[1] > 0:
            place = pair_slot(table, mask, given[0])
            place[0] = given[0]
            place[1] = given[1]
            place[2] = given[2]
            copied += 1
    return copied


@function(inline=True)
def comes_first(heap: NUMBERS, first: i64, second: i64) -> bool:
    """Whether one entry of the heap belongs above another."""
    count, other = heap[2 * first], heap[2 * second]
    return count > other or (count == other and heap[2 * first + 1] < heap[2 * second + 1])


@function(inline=True)
def swap_entries(heap: NUMBERS, first: i64, second: i64):
    count, pair = heap[2 * first], heap[2 * first + 1]
    heap[2 * first] = heap[2 * second]
    heap[2 * first + 1] = heap[2 * second + 1]
    heap[2 * second] = count
    heap[2 * second + 1] = pair


@function
def sink_entry(heap: NUMBERS, size: i64, entry: i64):
    """Move an entry down until it is above both that are below it."""
    while 2 * entry + 1 < size:
        child = 2 * entry + 1
        if child + 1 < size and comes_first(heap, child + 1, child):
            child += 1
        if not comes_first(heap, child, entry):
            return
        swap_entries(heap, child, entry)
        entry = child


@function
def push_entry(heap: NUMBERS, size: i64, count: i64, pair: i64):
    """Add an entry to a heap of `size`."""
    heap[2 * size] = count
    heap[2 * size + 1] = pair
    entry = size
    while entry > 0:
        parent = (entry - 1) >> 1
        if not comes_first(heap, entry, parent):
            return
        swap_entries(heap, entry, parent)
        entry = parent
