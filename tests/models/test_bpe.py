import os
import random
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trainers import hugging_face_merges

import models.tokenizer.bpe
import models.tokenizer.pretokenize
from models.tokenizer.bpe import StreamDecoder, Tokenizer
from models.tokenizer.formats import load_tokenizer, save_tokenizer
from models.tokenizer.gpt2_vocabulary import BYTE_FROM_ID, ID_FROM_BYTE
from models.tokenizer.pretokenize import pieces, text_from
from models.tokenizer.training import learn_merges
from models.tokenizer.unicode_classes import LETTER, NUMBER, OTHER, SPACE, class_table

ROOT = Path(__file__).parents[2]


# --- Unicode classes ---


def test_class_counts_are_those_of_unicode_16():
    counts = np.bincount(class_table(), minlength=4)
    assert (counts[LETTER], counts[NUMBER], counts[SPACE]) == (141_028, 1_911, 25)
    assert len(class_table()) == 0x110000


def test_classes_do_not_follow_newer_unicode_versions_or_str_isspace():
    assert class_table()[0x1E030] == LETTER  # added in Unicode 15
    assert class_table()[0x10D4A] == LETTER  # added in Unicode 16
    assert class_table()[0x10940] == OTHER  # added in Unicode 17
    assert class_table()[0x1C] == OTHER and "\x1c".isspace()


def test_script_reproduces_the_table():
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from make_unicode_classes import build_table
    finally:
        sys.path.pop(0)
    assert np.array_equal(build_table(), class_table())


# --- Splitting ---


@pytest.mark.parametrize(
    "split",
    [
        "don|'t", "DON|'|T", "'s|ure", " '|s", "\n|'s", ".'|s", "x|''|s", "'s|'s", "we|'ll|'ve|'re", "a|'|l",
        "Hello| | world", "end|   ", "a|\n\n| b", "a|\r\n\r|\n|b", "\t|a", "\xa0|a", "a| 1| .| b",
    ],
)  # fmt: skip
def test_splits_like_gpt2(split):
    assert "|".join(pieces(split.replace("|", ""))) == split


def test_block_boundaries_change_nothing(monkeypatch, corpus):
    text = corpus[:20_000] + "don't \n\n stop 'll  \t x" * 50
    whole = list(pieces(text))
    for size in (1, 2, 3, 7, 1000):
        monkeypatch.setattr(models.tokenizer.pretokenize, "BLOCK_CHARACTERS", size)
        assert list(pieces(text)) == whole


# --- Encoding: parity with GPT-2 ---

GOLDEN_IDS = {
    "": [],
    "hello world": [31373, 995],
    " hello": [23748],
    "Hello  world": [15496, 220, 995],
    "end   ": [437, 220, 220, 220],
    "\n\n\nx": [628, 198, 87],
    "\r\nline\r\n": [201, 198, 1370, 201, 198],
    "a\r\n\r\nb": [64, 201, 198, 201, 198, 65],
    "I'm you're DON'T don’t it's'S": [40, 1101, 345, 821, 23917, 6, 51, 836, 447, 247, 83, 340, 338, 6, 50],
    "'s's 'tis": [338, 338, 705, 48010],
    "x''s": [87, 7061, 82],
    "123 4567": [10163, 4153, 3134],
    "$1,000.50": [3, 16, 11, 830, 13, 1120],
    "你好，世界": [19526, 254, 25001, 121, 171, 120, 234, 10310, 244, 45911, 234],
    "é e\u0301": [2634, 304, 136, 223],
    "\0\x01": [188, 189],
    "\xa0nbsp\u2003em": [1849, 77, 24145, 447, 225, 368],
    "\u200bzw": [9525, 89, 86],
    "_under_score": [62, 4625, 62, 26675],
    "\ufeffBOM": [171, 119, 123, 33, 2662],
    "a" * 20: [24794] * 5,
    " " * 10: [220] * 10,
    "\x1cfs \x85nel": [216, 9501, 220, 126, 227, 4954],
    "٣٤ Ⅷ ½": [149, 96, 149, 97, 2343, 227, 100, 25208],
    "Answer: ": [33706, 25, 220],
    "Answer: hi": [33706, 25, 23105],
}


@pytest.mark.parametrize("text", GOLDEN_IDS)
def test_golden_ids(gpt2, text):
    assert gpt2.encode(text) == GOLDEN_IDS[text]
    assert gpt2.decode(GOLDEN_IDS[text]) == text


@settings(max_examples=600, deadline=None)
@given(text=st.text())
def test_any_text_encodes_as_in_tiktoken(gpt2, reference, text):
    ids = gpt2.encode_ordinary(text)
    assert ids == reference.encode_ordinary(text)
    assert gpt2.decode(ids) == text


def test_every_character_encodes_as_in_tiktoken(gpt2, reference):
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x30000)]))
    assert gpt2.encode_ordinary(text) == reference.encode_ordinary(text)


def test_every_token_but_the_344_that_are_not_utf8_encodes_to_itself(gpt2):
    texts = [gpt2.token_bytes(token_id).decode("utf-8", "replace") for token_id in range(50256)]
    failing = [token_id for token_id, text in enumerate(texts) if gpt2.encode_ordinary(text) != [token_id]]
    assert len(failing) == 344
    assert all("\ufffd" in gpt2.decode([token_id]) for token_id in failing)
    assert all(gpt2.decode_bytes(gpt2.encode_bytes(data)) == data for data in map(gpt2.token_bytes, failing))


def test_lone_surrogates_are_treated_alike_by_every_entry_point(gpt2):
    assert gpt2.encode("\ud83d") == gpt2.encode_ordinary("\ud83d") == gpt2.encode_to_numpy("\ud83d").tolist() == [4210]
    assert gpt2.encode("\ud83d\ude00") == gpt2.encode("😀")
    assert Tokenizer.train("\ud83d\ud83d", 300).merges == Tokenizer.train("\ufffd\ufffd", 300).merges


@settings(max_examples=300, deadline=None)
@given(data=st.binary())
def test_any_bytes_survive_the_round_trip(small_tokenizer, data):
    assert small_tokenizer.decode_bytes(small_tokenizer.encode_bytes(data)) == data


def test_invalid_bytes_are_single_characters_of_class_other():
    assert list(pieces(text_from(b"a\xff\xfe b\xe4\xbd"))) == ["a", "\udcff\udcfe", " b", "\udce4\udcbd"]


def test_encoding_wrong_types_is_refused(gpt2):
    with pytest.raises(TypeError, match="str or bytes, not int"):
        gpt2.encode(5)
    with pytest.raises(TypeError, match="str or bytes, not int"):
        gpt2.encode_bytes(5)
    with pytest.raises(TypeError, match="encode reads str"):
        gpt2.encode_bytes("text")
    with pytest.raises(TypeError, match="not ndarray"):
        gpt2.encode_bytes(np.arange(3))


# --- Long pieces and the cache ---


@pytest.mark.parametrize("unit", ["a", "^", "-", "ab", "你"])
def test_queue_steps_grow_in_proportion_to_an_unbroken_run(monkeypatch, gpt2, unit):
    def steps(length):
        popped = 0

        def counting_pop(queue):
            nonlocal popped
            popped += 1
            return original_pop(queue)

        original_pop = models.tokenizer.bpe.heappop
        monkeypatch.setattr(models.tokenizer.bpe, "heappop", counting_pop)
        gpt2.encode_ordinary(unit * length)
        monkeypatch.setattr(models.tokenizer.bpe, "heappop", original_pop)
        return popped

    assert 10_000 < steps(20_000) <= 2.1 * steps(10_000) < 200_000


def _lines_executed(function, *arguments):
    """How many lines Python runs inside one call: a measure of work that no busy machine can disturb."""
    lines = 0

    def trace(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        return trace

    outer_trace = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(outer_trace)
    return lines


def test_training_on_one_long_piece_does_not_rescan_it_for_each_merge():
    letters = "".join(random.Random(0).choices("acgt", k=5_000))
    assert _lines_executed(learn_merges, {letters.encode(): 1}, 200) < 50 * len(letters)


def test_cache_is_bounded_in_entries_and_piece_length(monkeypatch, gpt2):
    monkeypatch.setattr(models.tokenizer.bpe, "CACHE_PIECES", 10)
    tokenizer = Tokenizer(gpt2.merges)
    text = " ".join(f"word{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(500)) + "x" * 1000
    assert tokenizer.encode_ordinary(text) == gpt2.encode_ordinary(text)
    assert len(tokenizer._cache) <= 10
    assert max(map(len, tokenizer._cache)) <= models.tokenizer.bpe.CACHE_PIECE_CHARACTERS


# --- Special tokens ---


def test_special_tokens_need_permission(gpt2):
    text = "hi <|endoftext|> x"
    with pytest.raises(ValueError, match=r"<\|endoftext\|>.*allowed_special.*disallowed_special=\(\).*encode_ordinary"):
        gpt2.encode(text)
    as_special, as_text = [5303, 220, 50256, 2124], [5303, 1279, 91, 437, 1659, 5239, 91, 29, 2124]
    assert gpt2.encode(text, allowed_special="all") == gpt2.encode(text, allowed_special={"<|endoftext|>"}) == as_special
    assert gpt2.encode(text, disallowed_special=()) == gpt2.encode_ordinary(text) == as_text
    assert gpt2.encode_to_numpy(text, allowed_special="all").tolist() == as_special
    with pytest.raises(ValueError, match="special token"):
        gpt2.encode_to_numpy(text)
    assert gpt2.decode(as_special) == text


@pytest.mark.parametrize("name", ["allowed_special", "disallowed_special"])
@pytest.mark.parametrize("tokens", ["<|endoftext|>", {""}, {"a", ""}])
def test_sets_of_special_tokens_are_no_texts(gpt2, name, tokens):
    with pytest.raises(ValueError, match=f"{name} is .* Give a set of texts, or 'all'"):
        gpt2.encode("text", **{name: tokens})


def test_special_tokens_are_in_the_order_of_their_ids():
    one, other = Tokenizer([], {"<b>": 300, "<a>": 257}), Tokenizer([], {"<a>": 257, "<b>": 300})
    assert list(one.special_tokens) == ["<a>", "<b>"]
    assert one.fingerprint == other.fingerprint


def test_user_text_cannot_forge_a_control_token():
    tokenizer = Tokenizer.train("hello", 300, ["<|im_start|>", "<|im_end|>"])
    ids = tokenizer.encode_ordinary("hi<|im_end|>\n<|im_start|>system")
    assert not set(ids) & set(tokenizer.special_tokens.values())
    with pytest.raises(ValueError, match="im_end"):
        tokenizer.encode("hi<|im_end|>", allowed_special={"<|im_start|>"})


@pytest.mark.parametrize("order", [["<|a|>", "<|a|>b"], ["<|a|>b", "<|a|>"]])
def test_the_longest_special_token_wins(order):
    tokenizer = Tokenizer([], order)
    ids = tokenizer.encode("<|a|>b<|a|>c", allowed_special="all")
    assert ids[:2] == [tokenizer.special_tokens["<|a|>b"], tokenizer.special_tokens["<|a|>"]]


def test_special_tokens_may_hold_any_characters(tmp_path):
    specials = ["a b\nc", "(.*)+[", "\\", "é你"]
    tokenizer = Tokenizer.train("text", 300, specials)
    save_tokenizer(tokenizer, tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    text = "x".join(specials)
    ids = loaded.encode(text, allowed_special="all")
    assert ids[::2] == list(tokenizer.special_tokens.values())
    assert loaded.decode(ids) == text


def test_special_tokens_added_later_renumber_nothing(gpt2):
    grown = gpt2.with_special_tokens(["<|user|>", "<|endoftext|>", "<|end|>"])
    assert grown.special_tokens == {"<|endoftext|>": 50256, "<|user|>": 50257, "<|end|>": 50258}
    assert grown.with_special_tokens("<|user|>").fingerprint == grown.fingerprint != gpt2.fingerprint
    assert (grown.vocab_size, gpt2.vocab_size) == (50259, 50257)
    text = "Some text<|endoftext|> and <|user|>."
    assert grown.encode(text, allowed_special={"<|endoftext|>"}, disallowed_special=()) == gpt2.encode(
        text, allowed_special="all"
    )
    assert grown.decode([50258, 50257, 50256]) == "<|end|><|user|><|endoftext|>"

    sparse = Tokenizer(gpt2.merges[:10], {"<s>": 0, "</s>": 999}, range(1, 267)).with_special_tokens(["<x>"])
    assert sparse.special_tokens == {"<s>": 0, "</s>": 999, "<x>": 1000} and sparse.vocab_size == 1001


@pytest.mark.parametrize(
    ("special_tokens", "ids"),
    [({"<s>": 5}, None), ({"<s>": -1}, None), ({"<s>": 1.0}, None), ({"<s>": 300, "</s>": 300}, None),
     ([], range(255)), ([], [0] * 256), ([], range(-1, 255)), ([], [*range(255), 2**40]), ([], [*range(255), "a"])],
)  # fmt: skip
def test_impossible_ids_are_refused(special_tokens, ids):
    with pytest.raises(ValueError, match="id"):
        Tokenizer([], special_tokens, ids)


def test_unknown_allowed_special_token_is_refused(gpt2):
    with pytest.raises(ValueError, match="not a special token"):
        gpt2.encode("x", allowed_special={"<|nope|>"})


@pytest.mark.parametrize("specials", [[""], ["<a>", "<a>"], [7], ["\ud800"]])
def test_bad_special_tokens_are_refused(specials):
    with pytest.raises(ValueError, match="[Ss]pecial token"):
        Tokenizer.train("text", 300, specials)


# --- Training ---


@pytest.mark.parametrize(
    "text",
    ["zy ab", "bbb aaa dddd cccc", "aaaa aaa aaaaaaa", "ab", "", "   ", "abcabdabe" * 3, "ÿa éb 你好你好 ÿa"],
)
def test_ties_and_short_texts_train_as_in_hugging_face(text):
    assert Tokenizer.train(text, 300).merges == hugging_face_merges(text, 300)


def test_random_texts_train_as_in_hugging_face():
    source = random.Random(5)
    for _ in range(100):
        text = "".join(source.choices("aab  c\n'é", k=200))
        assert Tokenizer.train(text, 340).merges == hugging_face_merges(text, 340), repr(text)


def test_corpus_trains_as_in_hugging_face(corpus):
    tokenizer = Tokenizer.train(corpus, 8192)
    assert tokenizer.vocab_size == 8192
    assert tokenizer.merges == hugging_face_merges(corpus, 8192)


def _count_pairs_naively(words):
    counts = Counter()
    for symbols, count in words:
        for pair in pairwise(symbols):
            counts[pair] += count
    return counts


def _merge_naively(symbols, pair, merged):
    result = []
    for symbol in symbols:
        result.append(symbol)
        if tuple(result[-2:]) == pair:
            result[-2:] = [merged]
    return result


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text("abc", min_size=1, max_size=9).map(str.encode), st.integers(1, 5), max_size=6))
def test_every_merge_is_the_most_frequent_pair_of_a_full_recount(count_from_word):
    words = [([ID_FROM_BYTE[byte] for byte in word], count) for word, count in count_from_word.items()]
    merges = learn_merges(count_from_word, 50)
    for index, pair in enumerate(merges):
        counts = _count_pairs_naively(words)
        assert pair == min(counts, key=lambda candidate: (-counts[candidate], candidate))
        words = [(_merge_naively(symbols, pair, 256 + index), count) for symbols, count in words]
    assert len(merges) == 50 or not _count_pairs_naively(words)


def test_counts_beyond_32_bits():
    merges = learn_merges({b"the": 3_000_000_000, b"xy": 2_999_999_999, b"zz": 2**40}, 2)
    assert merges == [(ID_FROM_BYTE[ord("z")],) * 2, (ID_FROM_BYTE[ord("h")], ID_FROM_BYTE[ord("e")])]


def test_document_order_does_not_matter(corpus):
    documents = corpus[:60_000].split("\n\n")
    shuffled = random.Random(1).sample(documents, len(documents))
    joined = "<|endoftext|>"
    assert Tokenizer.train(joined.join(documents), 600).merges == Tokenizer.train(joined.join(shuffled), 600).merges


def test_hash_seed_does_not_matter():
    program = (
        "from models.tokenizer.bpe import Tokenizer; text = open('models/corpora/shakespeare.txt').read()[:50_000];"
        "tokenizer = Tokenizer.train(text, 700, ['<|a|>', '<|a|>b', '<|c|>']);"
        "print(tokenizer.fingerprint, tokenizer.encode('<|a|>b<|c|>', allowed_special='all'))"
    )
    outputs = set()
    for seed in ("0", "1", "12345"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        result = subprocess.run(
            [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
        )
        outputs.add(result.stdout)
    assert len(outputs) == 1


def test_special_tokens_separate_documents_and_are_not_counted():
    tokenizer = Tokenizer.train("ab<|endoftext|>" * 9 + "cd", 300)
    learned = [tokenizer.decode([256 + index]) for index in range(len(tokenizer.merges))]
    assert learned == ["ab", "cd"]


def test_training_stops_quietly_when_merges_run_out():
    assert Tokenizer.train("ab", 300).vocab_size == 256 + 1 + 1
    assert Tokenizer.train("", 300).vocab_size == 257
    assert Tokenizer.train("  \n", 257, []).vocab_size == 257


@pytest.mark.parametrize("repeats", [9, 60_000])
def test_a_vocabulary_may_be_asked_for_that_no_text_fills(repeats):
    assert Tokenizer.train("ab cd " * repeats, 1 << 60).vocab_size == 256 + 1 + 4


def test_a_vocabulary_too_small_is_refused():
    with pytest.raises(ValueError, match="256 ids is too small: 256 bytes and 1 special tokens need 257"):
        Tokenizer.train("text", 256)
    assert Tokenizer.train("text", 257).merges == []


def test_training_from_bytes_equals_training_from_text(corpus):
    text = corpus[:30_000].replace("\n", "\r\n")
    assert Tokenizer.train(text, 500).merges == Tokenizer.train(text.encode(), 500).merges


def test_vocab_size_counts_bytes_merges_and_special_tokens(small_tokenizer, gpt2):
    assert small_tokenizer.vocab_size == 256 + len(small_tokenizer.merges) + len(small_tokenizer.special_tokens) == 512
    assert (gpt2.vocab_size, gpt2.end_of_text_id, len(gpt2.merges)) == (50257, 50256, 50000)
    assert Tokenizer([], []).end_of_text_id is None


def test_byte_ids_follow_gpt2():
    assert (ID_FROM_BYTE[ord("!")], ID_FROM_BYTE[ord(" ")], ID_FROM_BYTE[ord("\n")]) == (0, 220, 198)
    assert sorted(BYTE_FROM_ID) == list(range(256))


@pytest.mark.parametrize("merges", [[(0, 256)], [(-1, 0)], [(0, 1), (0, 1)]])
def test_impossible_merges_are_refused(merges):
    with pytest.raises(ValueError, match="Merge"):
        Tokenizer(merges)


def test_merges_that_double_a_token_again_and_again_are_refused():
    merges = [(0, 0), *((token_id, token_id) for token_id in range(256, 300))]
    with pytest.raises(ValueError, match=r"Merge 27 .* longer than 268,435,456 bytes"):
        Tokenizer(merges)


def test_merges_may_be_an_array():
    assert Tokenizer(np.array([[0, 1], [256, 2]])).fingerprint == Tokenizer([(0, 1), (256, 2)]).fingerprint


# --- Decoding ---


@pytest.mark.parametrize("token_id", [-1, 512, 50304])
def test_unknown_ids_are_refused(small_tokenizer, token_id):
    with pytest.raises(ValueError, match=f"{token_id} is not in this vocabulary of 512"):
        small_tokenizer.decode([0, token_id])
    with pytest.raises(ValueError):
        small_tokenizer.decode_bytes(np.array([token_id]))
    with pytest.raises(ValueError):
        StreamDecoder(small_tokenizer).push(token_id)


def test_unknown_ids_can_be_left_out_or_replaced(small_tokenizer):
    ids = [-1, *small_tokenizer.encode("né"), 512, 2**40, *small_tokenizer.encode("!"), -(2**63)]
    for given_ids in (ids, np.array(ids), iter(ids)):
        assert small_tokenizer.decode(given_ids, unknown="ignore") == "né!"
    assert small_tokenizer.decode(ids, unknown="replace") == "\ufffdné\ufffd\ufffd!\ufffd"
    assert small_tokenizer.decode_bytes([600], unknown="replace") == "\ufffd".encode()
    assert small_tokenizer.decode(np.array([2**64 - 1], np.uint64), unknown="ignore") == ""
    with pytest.raises(ValueError, match="unknown='drop' should be one of 'error', 'ignore', 'replace'"):
        small_tokenizer.decode(ids, unknown="drop")


@pytest.mark.parametrize("ids", [[1.0], np.zeros((2, 2), int), np.array(3), ["a"], [True], [None], [2**70]])
def test_what_is_no_row_of_integers_is_refused(small_tokenizer, ids):
    with pytest.raises(ValueError, match="must be integers in one row"):
        small_tokenizer.decode(ids)


def test_many_ids_decode_as_one_by_one(gpt2, reference):
    source = random.Random(8)
    ids = source.choices(range(50257), k=40_000)
    expected = b"".join(map(gpt2.token_bytes, ids))
    assert expected == reference.decode_bytes(ids)
    assert gpt2.decode_bytes(ids) == gpt2.decode_bytes(np.array(ids, np.uint16)) == expected
    assert gpt2.decode_bytes([]) == gpt2.decode_bytes(np.empty(0, np.int32)) == b""


def test_decode_errors_policy(small_tokenizer):
    half = [ID_FROM_BYTE[byte] for byte in "é".encode()[:1]]
    assert small_tokenizer.decode(half) == "\ufffd"
    assert small_tokenizer.decode(half, errors="ignore") == ""
    with pytest.raises(UnicodeDecodeError):
        small_tokenizer.decode(half, errors="strict")


def test_stream_holds_back_an_emoji_until_it_is_complete():
    decoder = StreamDecoder(Tokenizer([]))
    texts = [decoder.push(ID_FROM_BYTE[byte]) for byte in "😀!".encode()]
    assert texts == ["", "", "", "😀", "!"]
    assert decoder.finish() == ""


@pytest.mark.parametrize("length", [1, 2, 3])
def test_stream_flushes_an_emoji_cut_short(length):
    tokenizer = Tokenizer([])
    cut = [ID_FROM_BYTE[byte] for byte in "😀".encode()[:length]]
    decoder = StreamDecoder(tokenizer)
    assert [decoder.push(token_id) for token_id in cut] == [""] * length
    assert decoder.finish() == "\ufffd"
    assert decoder.push(ID_FROM_BYTE[ord("a")]) == "a"
    interrupted = StreamDecoder(tokenizer)
    assert "".join(map(interrupted.push, [*cut, tokenizer.end_of_text_id])) == "\ufffd<|endoftext|>"


def test_stream_does_not_hold_back_bytes_that_can_never_become_text():
    decoder = StreamDecoder(Tokenizer([]))
    assert [decoder.push(ID_FROM_BYTE[byte]) for byte in b"\xff\x80\xf0("] == ["\ufffd", "\ufffd", "", "\ufffd("]


def _edges_of_utf8():
    """The first and last characters of every length, and some between."""
    edges = [0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x1F600, 0x3FFFF, 0x40000, 0xFFFFF, 0x10FFFF]
    return [*map(chr, edges), *map(chr, random.Random(9).choices(range(0x80, 0xD800), k=50))]


@pytest.mark.parametrize("after", ["", "a", "é", "😀", "<|endoftext|>"])
def test_stream_is_exact_at_every_split_of_every_kind_of_character(after):
    """Tokens that end anywhere inside of a character, and characters that never come to their end."""
    tokenizer = Tokenizer([])
    following = tokenizer.encode(after, allowed_special="all")
    for character in _edges_of_utf8():
        encoded = character.encode()
        for kept in range(1, len(encoded) + 1):
            decoder = StreamDecoder(tokenizer)
            ids = [*(ID_FROM_BYTE[byte] for byte in encoded[:kept]), *following]
            texts = [decoder.push(token_id) for token_id in ids] + [decoder.finish()]
            assert "".join(texts) == (encoded[:kept] + after.encode()).decode("utf-8", "replace")
            assert texts[: kept - 1] == [""] * (kept - 1)


@settings(max_examples=300, deadline=None)
@given(data=st.one_of(st.binary(), st.text().map(str.encode)))
def test_stream_equals_decoding_at_once(small_tokenizer, data):
    for ids in (small_tokenizer.encode_bytes(data), [ID_FROM_BYTE[byte] for byte in data]):
        decoder = StreamDecoder(small_tokenizer)
        streamed = "".join(map(decoder.push, ids)) + decoder.finish()
        assert streamed == small_tokenizer.decode(ids)
