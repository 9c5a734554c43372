"""The compiled loops of the tokenizer, against tiktoken, tokenizers, rustbpe and the Python loops."""

import mmap
import os
import random
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trainers import hugging_face_merges, rustbpe_merges

import euler_ir.native
from euler_ir.native import function, i64, read_only, u8, u64
from models.tokenizer import compiled
from models.tokenizer.bpe import Tokenizer
from models.tokenizer.compiled import counting, encoding, merging, runs, scanner
from models.tokenizer.gpt2_vocabulary import ID_FROM_BYTE
from models.tokenizer.pretokenize import bytes_of, pieces, text_from
from models.tokenizer.training import learn_merges
from models.tokenizer.unicode_classes import class_table

ROOT = Path(__file__).parents[2]
TRICKY_CHARACTERS = "aZstmdrevl''  \t\n\r\x0b\x1c\x85\xa0\u200b\u2003\u2028.,-_<|>09٣Ⅷ½ée\u0301你😀\u200d\ufeff\0"
SPECIAL = "<|endoftext|>"

TEXTS = st.text(st.sampled_from(TRICKY_CHARACTERS) | st.characters(codec="utf-8"), max_size=60)
# Whole characters, halves of them, and what only looks like one: too long, a surrogate, beyond the last.
SCRAPS = [b"\xe4\xbd\xa0", b"\xf0\x9f\x98\x80", b"\xc3\xa9", b"\xc2\xa0", b"\xe2\x80\x83", b"\xe4\xbd", b"\xf0\x9f\x98"]
SCRAPS += [b"\x80", b"\xc0\xaf", b"\xc1", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf"]
SCRAPS += [b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5", b"\xff", b"\xf4\x8f\xbf\xbf"]
BYTES = st.lists(st.sampled_from(SCRAPS) | st.binary(max_size=3) | TEXTS.map(str.encode), max_size=12).map(b"".join)


@pytest.fixture
def always(monkeypatch):
    """Even the shortest text goes through the compiled loops."""
    monkeypatch.setattr(compiled, "SMALLEST_INPUT", 0)


def as_array(data):
    return np.frombuffer(data, np.uint8)


def whole(data):
    return np.array([[0, len(data), runs.NO_TOKEN]])


def pieces_found(data):
    text, ends = as_array(data), [0]
    while ends[-1] < len(text):
        ends.append(scanner.piece_end(text, ends[-1], len(text), class_table()))
    return [data[start:end] for start, end in pairwise(ends)]


def pieces_expected(data):
    return [bytes_of(piece) for piece in pieces(text_from(data))]


# --- Splitting ---


@settings(max_examples=400, deadline=None)
@given(BYTES)
def test_any_bytes_are_cut_as_in_python(data):
    assert pieces_found(data) == pieces_expected(data)


def test_every_character_has_its_class():
    for start in range(0, 0x110000, 1 << 16):
        # A letter and a mark on either side show whether a character is a letter, a mark, a number or white space.
        points = [point for point in range(start, start + (1 << 16)) if not 0xD800 <= point < 0xE000]
        points = points[:: 1 if start < 1 << 17 else 16]
        data = "".join(f"a{chr(point)}.{chr(point)}1{chr(point)}\n" for point in points)
        text = as_array(data.encode())
        counted = counting.count_pieces(text, whole(text))
        assert counted_words(*counted) == Counter(map(bytes_of, pieces(data)))


@settings(max_examples=300, deadline=None)
@given(BYTES, st.integers(0, 80))
def test_a_safe_cut_changes_no_piece(data, start):
    start = min(start, len(data))
    cut = scanner.safe_cut(as_array(data), start, len(data), class_table())
    assert start < cut <= len(data) or cut == len(data)
    assert pieces_expected(data[:cut]) + pieces_expected(data[cut:]) == pieces_expected(data)


# --- Counting ---


def counted_words(joined, ends, counts):
    bounds = pairwise([0, *ends.tolist()])
    return dict(zip((joined[start:end].tobytes() for start, end in bounds), counts.tolist(), strict=True))


@settings(max_examples=300, deadline=None)
@given(BYTES)
def test_any_bytes_are_counted_as_in_python(data):
    assert counted_words(*counting.count_pieces(as_array(data), whole(data))) == Counter(pieces_expected(data))


def test_pieces_whose_keys_are_alike_are_told_apart():
    alike = ["a", "a\0", "a\0\0", "ab", "abcdefgh", "abcdefghi", "abcdefgh\0", "abcdefghijklmno", "abcdefghijklmnop"]
    alike += ["abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyy", "\0" * 7, "\0" * 8, "\0" * 15, "\0" * 16]
    data = "\n".join(alike * 3).encode()
    assert counted_words(*counting.count_pieces(as_array(data), whole(data))) == Counter(pieces_expected(data))


def test_a_hash_is_never_trusted(monkeypatch):
    """With one hash for all, long pieces are still told apart, by their bytes."""

    @function
    def one_hash(text: read_only(u8), start: i64, length: i64, end: i64) -> u64:
        return u64(7)

    monkeypatch.setattr(counting, "hash_bytes", one_hash)
    monkeypatch.setattr(counting, "count_runs", function(counting.count_runs.__wrapped__))
    data = b"a-rather-long-piece1and-another-of-same-length" * 3 + b" a-rather-long-piece2and-another-of-same-length"
    data += "".join(f"{'x' * 20}{letter} " for letter in "abcabca").encode()
    # One that begins as a longer one does.
    data += b" ".join([b"y" * length for length in (26, 20, 26, 20)])
    assert counted_words(*counting.count_pieces(as_array(data), whole(data))) == Counter(pieces_expected(data))


def test_the_table_grows():
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [" " + a + b + c for a in letters for b in letters for c in letters]
    data = "".join(words + words[::2] + ["x" * 20 + word for word in words]).encode()
    assert len(words) > 4 * counting.FIRST_SLOTS
    assert counted_words(*counting.count_pieces(as_array(data), whole(data))) == Counter(pieces_expected(data))


@pytest.mark.parametrize("threads", ["1", "2", "5"])
@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 15])
def test_neither_threads_nor_cuts_change_a_result(monkeypatch, gpt2, reference, corpus, threads, size):
    text = corpus[: 3000 if size < 100 else 100_000] + SPECIAL + "你好 'll\n\n  x" * 50
    data = as_array(text.encode())
    found = runs.find_runs(data, {SPECIAL: 50256})
    monkeypatch.setattr(runs, "SHARD_BYTES", size)
    monkeypatch.setenv("EULER_IR_THREADS", threads)
    assert len(runs.shards(data, found)) > 2
    expected = Counter(piece for part in text.split(SPECIAL) for piece in pieces_expected(part.encode()))
    assert counted_words(*counting.count_pieces(data, found)) == expected
    ids = encoding.Encoder(gpt2.merges, None).encode(data, {SPECIAL: 50256})
    assert np.array_equal(ids, reference.encode(text, allowed_special="all"))


# --- Merging ---


def merged_bytes(tokenizer):
    return [tokenizer.token_bytes(256 + number) for number in range(len(tokenizer.merges))]


TRAINING_TEXTS = ["zy ab", "bbb aaa dddd cccc", "aaaa aaa aaaaaaa", "abababa ababab bababa", "ab", "", "   "]
TRAINING_TEXTS += ["ÿa éb 你好你好", "abcabdabe" * 3, "a" * 33 + " aa aaa", "abaabaaabaaaab" * 5 + " ab aba abaab"]


@pytest.mark.parametrize("text", TRAINING_TEXTS)
def test_ties_go_to_the_smaller_bytes_as_in_rustbpe(always, text):
    assert merged_bytes(Tokenizer.train(text, 300, (), tie_break="bytes")) == rustbpe_merges(text, 44)


def test_merges_of_the_corpus_are_those_of_rustbpe(corpus):
    assert len(corpus) > compiled.SMALLEST_INPUT
    assert merged_bytes(Tokenizer.train(corpus, 4000, (), tie_break="bytes")) == rustbpe_merges(corpus, 3744)


def test_merges_of_the_corpus_are_those_of_tokenizers(corpus):
    assert Tokenizer.train(corpus, 4000).merges == hugging_face_merges(corpus, 4000)


def test_a_tie_break_must_be_known():
    with pytest.raises(ValueError, match="tie_break='corpus' should be 'gpt2'"):
        Tokenizer.train("text", 300, tie_break="corpus")


def learned(count_from_word, limit, numbers=ID_FROM_BYTE):
    """(merges, their counts) by the compiled loop."""
    joined = as_array(b"".join(count_from_word))
    ends = np.cumsum([len(word) for word in count_from_word], dtype=np.int64)
    counts = np.array(list(count_from_word.values()), np.int64)
    pairs, merged = merging.learn_merges(joined, ends, counts, limit, np.array(numbers))
    return list(map(tuple, pairs.tolist())), merged.tolist()


WORDS = st.text("ab", max_size=12) | st.text("abc \xe9", max_size=6)
COUNTED = st.dictionaries(WORDS.map(str.encode), st.integers(1, 5), max_size=8)


@settings(max_examples=200, deadline=None)
@given(COUNTED)
def test_any_words_give_the_merges_of_python(count_from_word):
    for numbers in (ID_FROM_BYTE, range(256)):
        assert learned(count_from_word, 40, numbers)[0] == learn_merges(count_from_word, 40, numbers)


def test_each_merge_is_recorded_with_its_true_count(corpus):
    """Replay: after each merge the pairs are counted anew, from nothing."""
    counts = Counter(pieces_expected(corpus[:10_000].encode()))
    words = [([ID_FROM_BYTE[byte] for byte in word], count) for word, count in counts.items()]
    for number, (pair, claimed) in enumerate(zip(*learned(counts, 200), strict=True)):
        found = Counter()
        for symbols, count in words:
            for each in pairwise(symbols):
                found[each] += count
        assert claimed == found[pair] == max(found.values())
        assert pair == min(each for each, count in found.items() if count == claimed)
        words = [(replaced(symbols, pair, 256 + number), count) for symbols, count in words]


def replaced(symbols, pair, merged):
    result, position = [], 0
    while position < len(symbols):
        is_pair = tuple(symbols[position : position + 2]) == pair
        result.append(merged if is_pair else symbols[position])
        position += 2 if is_pair else 1
    return result


def test_counts_beyond_32_bits():
    counts = {b"  ": 3_000_000_000, b"the": 5_000_000_000, b"aaaa": 1 << 60, b"ab": 2_999_999_999}
    merges, found = learned(counts, 10)
    assert merges == learn_merges(counts, 10)
    assert found == [3 << 60, 1 << 60, 5_000_000_000, 5_000_000_000, 3_000_000_000, 2_999_999_999]


def test_the_table_of_pairs_grows_and_forgets_what_is_gone(monkeypatch, corpus):
    counts = Counter(pieces_expected(corpus[:100_000].encode()))
    monkeypatch.setattr(merging, "FIRST_SLOTS", 1 << 13)
    merges, found = learned(counts, 1 << 16)
    assert merges == learn_merges(counts, 1 << 16) and 5000 < len(merges) < 1 << 16
    assert found[-1] == 1


def test_the_order_of_documents_does_not_matter(always, corpus):
    speeches = corpus[:200_000].split("\n\n")
    in_order = Tokenizer.train(SPECIAL.join(speeches), 1000)
    random.Random(3).shuffle(speeches)
    assert Tokenizer.train(SPECIAL.join(speeches), 1000).merges == in_order.merges


def test_special_tokens_separate_documents(always):
    text = f"ab{SPECIAL}cd{SPECIAL}{SPECIAL}" * 5
    tokenizer = Tokenizer.train(text, 300)
    assert sorted(merged_bytes(tokenizer)) == [b"ab", b"cd"]


# --- Encoding ---


@settings(max_examples=500, deadline=None)
@given(text=TEXTS)
def test_any_text_has_the_ids_of_tiktoken(gpt2, reference, text):
    encoder = gpt2._encoder
    assert encoder.encode(as_array(text.encode()), {}).tolist() == reference.encode_ordinary(text)


@settings(max_examples=300, deadline=None)
@given(data=BYTES)
def test_any_bytes_have_the_ids_of_python(gpt2, data):
    assert gpt2._encoder.encode(as_array(data), {}).tolist() == gpt2.encode_bytes(data)


def test_lone_surrogates_are_replaced(always, gpt2, reference):
    for text in ("\ud83d", "\ud83d\ude00", "a\ude00b"):
        assert gpt2.encode_ordinary(text) == reference.encode_ordinary(text)


@pytest.mark.parametrize("unit", ["a", "^", "ab", "你", "-=", "\0"])
def test_a_million_bytes_without_a_break(gpt2, reference, unit):
    """With work that grows as the square of the length this would take hours."""
    text = unit * (1_000_000 // len(unit.encode()))
    assert np.array_equal(gpt2.encode_to_numpy(text), reference.encode_ordinary(text))


def test_a_million_blanks_or_lines(gpt2):
    """tiktoken's regular expression overflows its stack here. GPT-2 has a token of two newlines, none of two blanks."""
    assert np.array_equal(gpt2.encode_to_numpy(" " * 1_000_000), [220] * 1_000_000)
    assert np.array_equal(gpt2.encode_to_numpy("\n" * 1_000_000), [628] * 500_000)


def test_training_on_a_long_text_without_a_break():
    letters = "".join(random.Random(0).choices("acgt", k=300_000))
    tokenizer = Tokenizer.train(letters, 1000)
    assert tokenizer.merges[:20] == learn_merges({letters.encode(): 1}, 20)
    assert tokenizer.decode(tokenizer.encode(letters)) == letters


def test_a_short_memory_of_pieces_does_no_harm(gpt2, reference):
    """More different pieces than the cache has slots, each met twice."""
    source = random.Random(1)
    words = ["".join(source.choices("abcdefghijklmnop", k=source.randrange(2, 18))) for _ in range(90_000)]
    assert len(set(words)) > 2 * encoding.BUCKETS
    text = " ".join(words + words)
    assert np.array_equal(gpt2.encode_to_numpy(text), reference.encode_ordinary(text))


def test_one_tokenizer_serves_many_threads(gpt2, corpus):
    texts = [corpus[start : start + 300_000] for start in range(0, 800_000, 100_000)]
    expected = [gpt2.encode_to_numpy(text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        assert all(map(np.array_equal, pool.map(gpt2.encode_to_numpy, texts * 3), expected * 3))


def test_ids_may_differ_from_ranks(always, corpus):
    plain = Tokenizer.train(corpus[:50_000], 400, ())
    ids = random.Random(2).sample(range(1000), 400)
    renumbered = Tokenizer(plain.merges, {SPECIAL: 1000}, ids)
    text = corpus[60_000:70_000]
    assert renumbered.encode(text) == [ids[rank] for rank in plain.encode(text)]
    assert renumbered.encode(f"{text}{SPECIAL}{text}", allowed_special="all").count(1000) == 1


def test_special_tokens_keep_their_contract(always, gpt2):
    text = "hi <|endoftext|> x"
    with pytest.raises(ValueError, match=r"contains the special token '<\|endoftext\|>'"):
        gpt2.encode(text)
    assert gpt2.encode(text, allowed_special="all") == [5303, 220, 50256, 2124]
    assert gpt2.encode_ordinary(text) == [5303, 1279, 91, 437, 1659, 5239, 91, 29, 2124]
    assert Tokenizer([], ["<|a|>", "<|a|>b", "é"]).encode("<|a|>bé<|a|>c", allowed_special="all")[:3] == [257, 258, 256]


def test_other_bytes_than_str(always, gpt2, tmp_path):
    data = "some text, é你".encode()
    (tmp_path / "text").write_bytes(data)
    expected = gpt2.encode_bytes(data)
    with open(tmp_path / "text", "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for source in (bytearray(data), memoryview(data), mapped, np.memmap(tmp_path / "text", np.uint8, "r")):
            assert gpt2.encode_to_numpy(source).tolist() == expected
            assert Tokenizer.train(source, 260).merges == Tokenizer.train(data.decode(), 260).merges
    for source in (5, [1, 2], np.zeros(4, np.int32), None):
        with pytest.raises(TypeError, match="reads str or bytes"):
            gpt2.encode_to_numpy(source)


# --- Where it runs ---


def test_short_texts_and_machines_without_llvm_use_python(monkeypatch, corpus):
    expected = Tokenizer.train(corpus, 300)
    ids = expected.encode_to_numpy(corpus)
    monkeypatch.setattr(euler_ir.native, "is_available", lambda: False)
    monkeypatch.setattr(compiled, "encoder", None)
    tokenizer = Tokenizer.train(corpus, 300)
    assert tokenizer.merges == expected.merges
    assert np.array_equal(tokenizer.encode_to_numpy(corpus), ids)


def test_without_llvm_texts_and_files_are_encoded_all_the_same(tmp_path, corpus):
    source = tmp_path / "text.txt"
    source.write_bytes(corpus[:300_000].encode())
    script = "import sys\nsys.modules['llvmlite'] = None\n"
    script += "from models.tokenizer.bpe import Tokenizer\nfrom models.data.text_files import encode_file\n"
    script += f"t = Tokenizer.train(open({str(source)!r}, 'rb').read(), 300)\n"
    script += f"print(t.fingerprint, encode_file(t, {str(source)!r}, {str(tmp_path / 'tokens')!r}))\n"
    found = subprocess.check_output([sys.executable, "-c", script], text=True, cwd=ROOT).split()
    expected = Tokenizer.train(corpus[:300_000], 300)
    assert found == [expected.fingerprint, str(len(expected.encode(corpus[:300_000])))]


def test_a_short_text_loads_no_llvm():
    script = "from models.tokenizer.bpe import Tokenizer\nTokenizer.train('some text' * 1000, 300).encode('text')\n"
    script += "import sys; print('llvmlite' in sys.modules, 'euler_ir' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", script], text=True, cwd=ROOT) == "False False\n"


def test_neither_hash_seeds_nor_a_cold_cache_change_a_merge(corpus):
    script = "import hashlib\nfrom models.tokenizer.bpe import Tokenizer\n"
    script += "text = open('models/corpora/shakespeare.txt', 'rb').read()\n"
    script += "t = Tokenizer.train(text, 1500)\n"
    script += "print(t.fingerprint, hashlib.sha256(t.encode_to_numpy(text)).hexdigest())\n"
    settings = [{"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2", "EULER_IR_CACHE": "off"}]
    command = [sys.executable, "-c", script]
    first, second = (subprocess.check_output(command, env=os.environ | each, cwd=ROOT) for each in settings)
    assert first == second


def test_a_child_process_encodes_after_a_fork(gpt2, corpus):
    expected = gpt2.encode_to_numpy(corpus)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(gpt2.encode_to_numpy(corpus), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(gpt2.encode_to_numpy(corpus), expected)
