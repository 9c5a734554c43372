"""The compiled loops of the tokenizer touch no memory but their own, and take no more steps than they should."""

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from guarded_memory import GuardedNumpy, guarded_array

from euler_ir.native import function, i64, pointer, u64
from models.tokenizer.compiled import counting, encoding, merge_table, merging, runs
from models.tokenizer.gpt2_vocabulary import ID_FROM_BYTE
from models.tokenizer.pretokenize import bytes_of, pieces, text_from
from models.tokenizer.training import learn_merges

SPECIAL = "<|endoftext|>"


def whole(data):
    return np.array([[0, len(data), runs.NO_TOKEN]])


def counted_words(data):
    joined, ends, counts = counting.count_pieces(data, whole(data))
    bounds = pairwise([0, *ends.tolist()])
    return dict(zip((joined[start:end].tobytes() for start, end in bounds), counts.tolist(), strict=True))


def expected_words(data):
    return Counter(bytes_of(piece) for piece in pieces(text_from(data)))


def guarded_text(data, before=False):
    array = guarded_array(len(data), np.uint8, before)
    array[:] = np.frombuffer(data, np.uint8)
    return array


@pytest.mark.parametrize("tail", ["", "a", "'", "'l", " ", "  ", "\n", "é", "你", "😀", "word", " sixteen letters!"])
def test_nothing_behind_the_text_is_read(gpt2, tail):
    data = ("some text, " + "x" * 40 + " " + tail).encode()
    encoder = encoding.Encoder(gpt2.merges[:500], None)
    for cut in range(len(data)):
        text = guarded_text(data[cut:])
        assert counted_words(text) == expected_words(data[cut:])
        assert encoder.encode(text, {}).size > 0
        runs.shards(text, whole(text))


def texts():
    """Texts that fill their memory: as many ids as bytes, and pieces of every length around those that are kept."""
    source = random.Random(4)
    yield b""
    yield b"\xff"
    for length in (1, 2, 4, 5, 14, 15, 16, 47, 48, 49, 50, 200):
        yield bytes(source.choices(range(1, 32), k=length))
        yield b"a" * length
        yield b"".join(bytes(source.choices(b"abcd", k=length)) + b" " for _ in range(30))
    yield b"".join(bytes(source.choices(range(256), k=source.randrange(30))) for _ in range(200))


@pytest.mark.parametrize("before", [False, True])
def test_encoding_stays_inside_of_its_arrays(monkeypatch, gpt2, before):
    monkeypatch.setattr(encoding, "np", GuardedNumpy(before))
    monkeypatch.setattr(merge_table, "np", GuardedNumpy(before))
    encoder = encoding.Encoder(gpt2.merges[:2000], None)
    for data in texts():
        text = guarded_text(data, before)
        # What `Encoder.encode` gives a shard: an id a byte, one a run, and four that are copied together.
        ids = guarded_array(len(data) + 1 + encoding.CACHED_IDS, np.int32, before)
        for _ in range(2):
            count = encoder._encode(text, whole(data), ids)
            assert b"".join(gpt2.token_bytes(int(token_id)) for token_id in ids[:count]) == data


@pytest.mark.parametrize("before", [False, True])
def test_training_stays_inside_of_its_arrays(monkeypatch, before):
    monkeypatch.setattr(counting, "np", GuardedNumpy(before))
    monkeypatch.setattr(merging, "np", GuardedNumpy(before))
    monkeypatch.setattr(counting, "FIRST_SLOTS", 4)
    monkeypatch.setattr(merging, "FIRST_SLOTS", 1 << 12)
    for data in texts():
        words = expected_words(data)
        assert counted_words(guarded_text(data, before)) == words
        joined = guarded_text(b"".join(words), before)
        ends = np.cumsum([len(word) for word in words], dtype=np.int64)
        counts = np.array(list(words.values()), np.int64)
        limit = min(300, len(data))
        merges = merging.learn_merges(joined, ends, counts, limit, np.array(ID_FROM_BYTE))[0]
        assert list(map(tuple, merges.tolist())) == learn_merges(words, limit)


@pytest.mark.parametrize("before", [False, True])
def test_a_merge_in_all_words_with_ever_new_neighbours_has_room(monkeypatch, before):
    """The first merge adds as many pairs as there were, and visits each word."""
    monkeypatch.setattr(merging, "np", GuardedNumpy(before))
    monkeypatch.setattr(merging, "FIRST_SLOTS", 1 << 9)
    words = {bytes([byte]) + b"ab" + bytes([byte]): 1 for byte in range(120, 247)}
    joined = guarded_text(b"".join(words), before)
    ends, counts = np.arange(4, 4 * len(words) + 1, 4), np.ones(len(words), np.int64)
    merges = merging.learn_merges(joined, ends, counts, 50, np.array(ID_FROM_BYTE))[0]
    assert list(map(tuple, merges.tolist())) == learn_merges(words, 50)


@pytest.mark.parametrize("unit", ["a", "ab", "acgt"])
def test_steps_of_the_queue_grow_in_proportion_to_a_piece(monkeypatch, gpt2, unit):
    """Each step takes one candidate from a heap, so n of them are n log n comparisons."""
    sink = merge_table.sink_candidate

    @function(inline=True)
    def counted(queue: pointer(u64), size: i64, entry: i64):
        queue[-1] += 1
        sink(queue, size, entry)

    monkeypatch.setattr(merge_table, "sink_candidate", counted)
    merge_by_queue = function(merge_table.merge_by_queue.__wrapped__)
    table = merge_table.merge_table(gpt2.merges)

    def steps(length):
        letters = "".join(random.Random(0).choices(unit, k=length)).encode()
        symbols = np.array([ID_FROM_BYTE[byte] for byte in letters], np.int32)
        queue = np.zeros(1 + 2 * length, np.uint64)
        left = merge_by_queue(
            symbols, length, table, len(table) // 2 - 1, np.empty(2 * length, np.uint32), queue[1:]
        )  # fmt: skip
        assert left < length / 1.5
        return int(queue[0])

    counted_steps = [steps(length) for length in (5_000, 10_000, 20_000, 40_000)]
    assert counted_steps[0] > 2_500
    for shorter, longer in pairwise(counted_steps):
        assert 1.8 * shorter < longer < 2.2 * shorter
