"""The same ids as tiktoken for any text, on every path: a character at a time in Python, and compiled."""

import gzip
import hashlib
import json
import random
from pathlib import Path

import numpy as np
import pytest

import models.tokenizer.compiled
from models.tokenizer.bpe import Tokenizer
from models.tokenizer.unicode_classes import SPACE, class_table

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
ALL_TEXTS = 1 << 62


@pytest.fixture(params=["python", "compiled"])
def path(request, monkeypatch):
    """Sends texts of every length one way."""
    monkeypatch.setattr(models.tokenizer.compiled, "SMALLEST_INPUT", 0 if request.param == "compiled" else ALL_TEXTS)
    if request.param == "compiled" and not models.tokenizer.compiled.is_worth_it("text"):
        pytest.skip("nothing can be compiled on this machine")


def rows(name):
    with gzip.open(DATA / name, "rt", encoding="utf-8", newline="\n") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.usefixtures("path")
def test_the_parity_file_encodes_equally(gpt2):
    for row in rows("parity_encode.jsonl.gz"):
        assert gpt2.encode_ordinary(row["text"]) == row["gpt2"], row["text"]


def test_the_parity_file_decodes_equally(gpt2):
    for row in rows("parity_decode.jsonl.gz"):
        assert gpt2.decode_bytes(row["gpt2_ids"]) == bytes.fromhex(row["bytes_hex"])
        assert gpt2.decode(row["gpt2_ids"]) == row["text_replace"]


@pytest.mark.usefixtures("path")
def test_all_languages_and_naughty_strings(gpt2, reference):
    texts = [row["text"] for row in rows("udhr_sample.jsonl.gz")]
    assert len(texts) == 532
    texts += json.loads((DATA / "blns.json").read_text(encoding="utf-8"))
    for text in [*texts, "\n".join(texts)]:
        ids = gpt2.encode_ordinary(text)
        assert ids == reference.encode_ordinary(text)
        assert gpt2.decode(ids) == text


@pytest.mark.usefixtures("path")
def test_the_corpus_has_the_published_digest(gpt2, corpus):
    """Tokens and SHA-256 of their u32 little-endian ids, which tiktoken and tokenizers both gave."""
    ids = gpt2.encode_to_numpy(corpus)
    assert (ids.dtype, len(ids)) == (np.int32, 351_828)
    digest = hashlib.sha256(ids.astype("<u4").tobytes()).hexdigest()
    assert digest == "8873d493f9a6cc13c7f6ba5eb228fe2770551881f37615b9cc3b88c5d628f57b"


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("unit", ["a", "^", "ab", "你", "qwzx", " ", "\n", "'s", "😀"])
def test_long_runs(gpt2, reference, unit):
    assert gpt2.encode_ordinary(unit * 5_000) == reference.encode_ordinary(unit * 5_000)


@pytest.mark.slow
@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("unit", ["a", "^", " ", "你"])
def test_a_million_without_a_break(gpt2, unit):
    assert gpt2.decode(gpt2.encode_ordinary(unit * 1_000_000)) == unit * 1_000_000


SPACES = "".join(map(chr, np.flatnonzero(class_table() == SPACE)))
ALPHABETS = (
    "aZstmdrevl''  \t\n\r\x0b\x1c\x85\xa0\u200b\u2003\u2028.,-_<|>09٣Ⅷ½ée\u0301你😀\u200d\ufeff\ud83d\ude00\0",
    "".join(map(chr, range(128))),
    SPACES + " \n\na1.",
    "'stmdrevlSTMDREVL ’",
    ["'s", "'re", " ", "  ", "\n", "The", " the", "<|endoftext|>", "12", "你好", "\u0300", "🙂", "\ud800", "ing"],
)


def fuzzed(count, seed):
    """`count` strings of 0 to 60 parts: tricky characters, words, white space, any code points, unbroken runs."""
    source = random.Random(seed)
    for index in range(count):
        kind = index % (len(ALPHABETS) + 2)
        length = source.randrange(60)
        if kind < len(ALPHABETS):
            yield "".join(source.choices(ALPHABETS[kind], k=length))
        elif kind == len(ALPHABETS):
            yield "".join(map(chr, source.choices(range(0x110000), k=length)))
        else:
            runs = source.choices("a .\n你'1😀", k=5)
            yield "".join(character * source.randrange(40) for character in runs)


def assert_encodes_as_tiktoken(gpt2, reference, texts):
    for text in texts:
        assert gpt2.encode_ordinary(text) == reference.encode_ordinary(text), ascii(text)


@pytest.mark.usefixtures("path")
def test_fuzzed_strings(gpt2, reference):
    assert_encodes_as_tiktoken(gpt2, reference, fuzzed(3_500, seed=1))


@pytest.mark.slow
@pytest.mark.usefixtures("path")
def test_a_hundred_thousand_fuzzed_strings(gpt2, reference):
    assert_encodes_as_tiktoken(gpt2, reference, fuzzed(100_000, seed=2))


@pytest.mark.usefixtures("path")
def test_fuzzed_strings_as_one_long_text(gpt2, reference):
    text = "".join(fuzzed(10_000, seed=3))
    ids = gpt2.encode_to_numpy(text, disallowed_special=())
    assert np.array_equal(ids, reference.encode_ordinary(text))
    clean = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert gpt2.decode(ids) == clean


@pytest.mark.slow
@pytest.mark.usefixtures("path")
def test_ten_megabytes_of_mixed_text(gpt2, reference, corpus):
    """Verse, programs, languages, naughty and fuzzed strings, each time in another order."""
    source = random.Random(7)
    parts = [*corpus.splitlines(keepends=True), *fuzzed(10_000, seed=8)]
    parts += [file.read_text(encoding="utf-8") for file in sorted((ROOT / "euler_ir").rglob("*.py"))]
    parts += [row["text"] for row in rows("udhr_sample.jsonl.gz")]
    parts += json.loads((DATA / "blns.json").read_text(encoding="utf-8"))
    text = ""
    while len(text.encode("utf-8", "surrogatepass")) < 10_000_000:
        source.shuffle(parts)
        text += "".join(parts)
    assert np.array_equal(gpt2.encode_to_numpy(text, disallowed_special=()), reference.encode_ordinary(text))


def fuzzed_bytes(count, seed):
    """Bytes that are mostly not UTF-8: characters cut anywhere, continuations alone, overlong and surrogate forms."""
    source = random.Random(seed)
    parts = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80", b" ", b"a", b"'s", b"\n", b"\xe2\x80\x83"]
    for _ in range(count):
        text = "".join(source.choices(ALPHABETS[0][:-3], k=8)).encode()
        yield text[source.randrange(4) : len(text) - source.randrange(4)] + b"".join(source.choices(parts, k=6))


@pytest.mark.usefixtures("path")
def test_bytes_that_are_not_utf8_survive(gpt2):
    for data in fuzzed_bytes(2_000, seed=4):
        assert gpt2.decode_bytes(gpt2.encode_bytes(data)) == data


def test_both_paths_agree_on_bytes_that_are_not_utf8(monkeypatch, gpt2):
    texts = list(fuzzed_bytes(2_000, seed=5))
    ids = []
    for smallest in (0, ALL_TEXTS):
        monkeypatch.setattr(models.tokenizer.compiled, "SMALLEST_INPUT", smallest)
        ids.append([gpt2.encode_bytes(data) for data in texts])
    assert ids[0] == ids[1]


@pytest.mark.usefixtures("path")
def test_special_tokens_among_fuzzed_strings(gpt2):
    """Every allowed token is cut out first, the longest where several begin; what stands between is ordinary text."""
    specials = ["<|a|>", "<|a|>b", " x\ny ", "é", "(.*)+["]
    tokenizer = gpt2.with_special_tokens(specials)
    source = random.Random(6)
    for _ in range(500):
        parts = source.choices([*specials, " ", "b", "'s", "<|", "a|>", "\n", "你", "end "], k=12)
        text, expected, start = "".join(parts), [], 0
        while start <= len(text):
            places = {token: text.find(token, start) for token in specials}
            found = [token for token, place in places.items() if place >= 0]
            token = min(found, key=lambda token: (places[token], -len(token)), default=None)
            end = places[token] if token else len(text)
            expected += gpt2.encode_ordinary(text[start:end])
            if token is None:
                break
            expected.append(tokenizer.special_tokens[token])
            start = end + len(token)
        assert tokenizer.encode(text, allowed_special=specials, disallowed_special=()) == expected, ascii(text)


@pytest.mark.usefixtures("path")
def test_ids_of_another_order_go_through_every_path(gpt2, corpus):
    ranks = range(256 + len(gpt2.merges))
    renumbered = Tokenizer(gpt2.merges, {"<|endoftext|>": 0}, [2 * rank + 1 for rank in ranks])
    text = corpus[:20_000] + "<|endoftext|>" + "né 你好"
    ids = gpt2.encode(text, allowed_special="all")
    expected = [0 if token_id == gpt2.end_of_text_id else 2 * token_id + 1 for token_id in ids]
    assert renumbered.encode(text, allowed_special="all") == expected
    assert renumbered.encode_to_numpy(text, allowed_special="all").tolist() == expected
    assert renumbered.decode(expected) == text


@pytest.mark.parametrize(
    ("letter", "ids"),
    [
        ("\U0001e030", [172, 252, 222, 108, 338]),  # modifier Cyrillic A, a letter since Unicode 15
        ("\U00010d4a", [172, 238, 113, 232, 338]),  # Garay A, a letter since Unicode 16
        ("\U00010940", [172, 238, 98, 222, 6, 82]),  # Sidetic A, a letter since Unicode 17 and so not one here
    ],
)
@pytest.mark.usefixtures("path")
def test_the_classes_are_those_of_unicode_16(gpt2, letter, ids):
    """After a letter 's is a piece of its own; an apostrophe after anything else joins it. Ids of tiktoken 0.14."""
    assert gpt2.encode_ordinary(letter + "'s") == ids
