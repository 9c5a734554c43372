"""Encoding: the pieces of a text as token ids, with a bounded memory of pieces met before.

The cache has buckets of two slots, together one cache line. A slot has four words: the two of a short piece's key, with
the number of its ids above the length, and up to four ids. A new piece takes the first slot of its bucket and what was
there the second, so the cache never grows; what it holds changes no result.
"""

from itertools import accumulate

import numpy as np

from euler_ir.native import function, i32, i64, pointer, read_only, u32, u64
from models.tokenizer.compiled.keys import LONGEST_SHORT, hash_words, short_key
from models.tokenizer.compiled.merge_table import LONGEST_SCAN, merge_by_queue, merge_by_scan, merge_table
from models.tokenizer.compiled.runs import find_runs, in_threads, shards
from models.tokenizer.compiled.scanner import TEXT, piece_end
from models.tokenizer.gpt2_vocabulary import ID_FROM_BYTE
from models.tokenizer.unicode_classes import class_table

BUCKETS = 1 << 15
BUCKET_WORDS = 8
SLOT_WORDS = 4
CACHED_IDS = 4
KEY_BITS = (1 << 60) - 1

IDS = pointer(i32)
RANKS = read_only(i32)
CACHE = pointer(u64)

# What `state` holds: the run and the position in it to go on from, and the ids written.
RUN, POSITION, WRITTEN = range(3)


@function(inline=True)
def copy_ids(slot: CACHE, ids: IDS) -> i64:
    """Write the ids of a slot, always four of them, and return how many count."""
    target = CACHE(ids)
    target[0] = slot[2]
    target[1] = slot[3]
    return i64(slot[1] >> 60)


@function(inline=True)
def remember(bucket: CACHE, low: u64, high: u64, ids: IDS, number: i64):
    """Keep the ids of a piece, of which at least four are in memory."""
    for word in range(SLOT_WORDS):
        bucket[SLOT_WORDS + word] = bucket[word]
    source = CACHE(ids)
    bucket[0] = low
    bucket[1] = high | u64(number) << 60
    bucket[2] = source[0]
    bucket[3] = source[1]


@function
def encode_piece(
    text: TEXT, start: i64, length: i64, byte_ranks: RANKS, id_from_rank: RANKS, merges: read_only(i64), mask: i64,
    found: pointer(i64), links: pointer(u32), queue: CACHE, ids: IDS
) -> i64:  # fmt: skip
    """Write the ids of one piece and return their number. Until the end, `ids` holds ranks."""
    for position in range(length):
        ids[position] = byte_ranks[text[start + position]]
    if length <= LONGEST_SCAN:
        number = merge_by_scan(ids, length, merges, mask, found)
    else:
        number = merge_by_queue(ids, length, merges, mask, links, queue)
    for position in range(number):
        ids[position] = id_from_rank[ids[position]]
    return number


@function
def encode_runs(
    text: TEXT, runs: read_only(i64), number: i64, classes: TEXT, byte_ranks: RANKS, id_from_rank: RANKS,
    merges: read_only(i64), mask: i64, cache: CACHE, found: pointer(i64), links: pointer(u32), queue: CACHE,
    longest: i64, ids: IDS, state: pointer(i64)
) -> i64:  # fmt: skip
    """Write the ids of runs of text, rows (start, end, id behind it or -1).

    Returns 0, or the length of a piece longer than the `longest` that `links` and `queue` have room for; `state` says
    where to go on.
    """
    written = state[WRITTEN]
    for run in range(state[RUN], number):
        end = runs[3 * run + 1]
        position = state[POSITION] if state[POSITION] > runs[3 * run] else runs[3 * run]
        while position < end:
            following = piece_end(text, position, end, classes)
            length = following - position
            if length == 1:
                ids[written] = id_from_rank[byte_ranks[text[position]]]
                written += 1
            elif length <= LONGEST_SHORT:
                low, high = short_key(text, position, length, end)
                bucket = cache + i64(hash_words(low, high) & (BUCKETS - 1)) * BUCKET_WORDS
                if bucket[0] == low and bucket[1] & KEY_BITS == high:
                    written += copy_ids(bucket, ids + written)
                elif bucket[4] == low and bucket[5] & KEY_BITS == high:
                    written += copy_ids(bucket + SLOT_WORDS, ids + written)
                else:
                    many = encode_piece(
                        text, position, length, byte_ranks, id_from_rank, merges, mask, found, links, queue,
                        ids + written
                    )  # fmt: skip
                    if many <= CACHED_IDS:
                        remember(bucket, low, high, ids + written, many)
                    written += many
            elif length <= longest:
                written += encode_piece(
                    text, position, length, byte_ranks, id_from_rank, merges, mask, found, links, queue, ids + written
                )
            else:
                state[RUN] = run
                state[POSITION] = position
                state[WRITTEN] = written
                return length
            position = following
        if runs[3 * run + 2] >= 0:
            ids[written] = runs[3 * run + 2]
            written += 1
    state[WRITTEN] = written
    return 0


class Encoder:
    """Encodes texts, each thread with a cache of its own, which it keeps for the next text."""

    def __init__(self, merges, ids):
        """Build from merges [(left rank, right rank), ...] and the id of each rank, or None where it is the rank."""
        self._merges = merge_table(merges)
        self._id_from_rank = np.array(range(256 + len(merges)) if ids is None else ids, np.int32)
        self._caches = []

    def encode(self, text, id_from_token):
        """The ids i32[tokens] of a text u8[bytes] in which some special tokens, {text: id}, have a meaning."""
        parts = shards(text, find_runs(text, id_from_token))
        # No piece has more ids than bytes; four ids at a time are copied. Memory that is not written is never there.
        rooms = [int((runs[:, 1] - runs[:, 0]).sum()) + len(runs) + CACHED_IDS for runs in parts]
        ids, ends = np.empty(sum(rooms), np.int32), list(accumulate(rooms))

        def encoded(number):
            return self._encode(text, parts[number], ids[ends[number] - rooms[number] : ends[number]])

        written = 0
        for number, count in enumerate(in_threads(encoded, range(len(parts)))):
            start = ends[number] - rooms[number]
            ids[written : written + count] = ids[start : start + count]
            written += count
        ids.resize(written, refcheck=False)
        return ids

    def _encode(self, text, runs, ids):
        """Write the ids of runs i64[runs, 3] and return their number."""
        try:
            cache = self._caches.pop()
        except IndexError:
            cache = _cache_lines(BUCKETS)
        state, found, needed = np.zeros(3, np.int64), np.empty(LONGEST_SCAN, np.int64), LONGEST_SCAN
        while needed:
            longest, links, queue = needed, np.empty(2 * needed, np.uint32), np.empty(2 * needed, np.uint64)
            needed = encode_runs(
                text, runs, len(runs), class_table(), _BYTE_RANKS, self._id_from_rank, self._merges,
                len(self._merges) // 2 - 1, cache, found, links, queue, longest, ids, state
            )  # fmt: skip
        self._caches.append(cache)
        return int(state[WRITTEN])


_BYTE_RANKS = np.array(ID_FROM_BYTE, np.int32)


def _cache_lines(buckets):
    """Zeroed u64[buckets * BUCKET_WORDS] that begins at a cache line."""
    words = np.zeros((buckets + 1) * BUCKET_WORDS, np.uint64)
    skipped = -words.ctypes.data // 8 % BUCKET_WORDS
    return words[skipped : skipped + buckets * BUCKET_WORDS]
