"""Texts that are drawn: seeds, ends, batches, and the whole way from text to ids beside transformers."""

import numpy as np
import pytest

import euler_ir as ei
from models.generation.reader import Reader
from models.generation.sampler import Sampler
from models.generation.sampling import Sampling
from models.gpt2 import GPT2Config
from models.language_model import evaluation_graph
from models.tokenizer.bpe import Tokenizer

pytestmark = pytest.mark.usefixtures("compiled_once")


def sampler(backend, tokenizer, vocab_size, context=8):
    config = GPT2Config(vocab_size, context, layers=1, heads=2, width=8)
    state = ei.initial_state(evaluation_graph(config, 1, 1))
    # Larger weights than at the start of training, so that continuations depend on the prompt.
    for name in state:
        if name.endswith("weight") and "ln" not in name:
            state[name] = state[name] * np.float32(20)
    return Sampler(config, state, tokenizer, backend=backend)


def test_a_seed_decides_and_ids_beyond_the_tokenizer_never_come(backend):
    tokenizer = Tokenizer([], special_tokens=())
    model = sampler(backend, tokenizer, vocab_size=400)
    first, again, other = (list(model.tokens([65], 40, Sampling(2.0), seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert len(first) == 40 and max(first) < 256


def test_ids_in_gaps_of_a_vocabulary_never_come(monkeypatch):
    tokenizer = Tokenizer([], {"<|endoftext|>": 299})
    model = sampler("cpu", tokenizer, vocab_size=300)
    said = np.zeros((1, 300), np.float32)
    said[0, 270], said[0, 65] = 9, 8
    monkeypatch.setattr(Reader, "logits", lambda reader, texts: said.copy())
    assert list(model.tokens([1], 2, Sampling(0))) == [65, 65]


def test_greedy_beyond_the_context_sees_the_last_tokens_only(backend):
    model = sampler(backend, Tokenizer([], special_tokens=()), vocab_size=256)
    prompt = list(range(60, 80))
    long, short = (list(model.tokens(ids, 6, Sampling(0))) for ids in (prompt, prompt[-8:]))
    assert long == short
    assert list(model.tokens(prompt[-7:], 1, Sampling(0))) != [] and long != list(model.tokens([1, 2], 6, Sampling(0)))


def test_text_comes_in_whole_characters(backend, monkeypatch):
    tokenizer = Tokenizer([])
    model = sampler(backend, tokenizer, vocab_size=257)
    speaks(monkeypatch, [[*tokenizer.encode("né 你好 🙂"), *tokenizer.encode("🙂")[:-1]]])
    pieces = list(model.text("x", 20))
    assert "".join(pieces) == "né 你好 🙂\ufffd"
    assert pieces[:2] == ["n", "é"] and "🙂" in pieces


def speaks(monkeypatch, texts, vocab_size=257):
    """Let the model be certain of the ids that follow in each of `texts`, one a row; then of end of text."""

    class Said:
        def __init__(self, predictor, count=1):
            self._rows, self._prompts = list(texts), None

        def logits(self, given):
            self._prompts = self._prompts or [len(ids) for ids in given]
            places = [len(ids) - prompt for ids, prompt in zip(given, self._prompts, strict=True)]
            said = [row[place] if place < len(row) else 256 for row, place in zip(self._rows, places, strict=True)]
            return np.eye(vocab_size)[said].astype(np.float32) * 100

        def keep(self, rows):
            self._rows, self._prompts = ([each[row] for row in rows] for each in (self._rows, self._prompts))

    monkeypatch.setattr("models.generation.sampler.Reader", Said)


def test_end_of_text_ends_the_sample(backend, monkeypatch):
    model = sampler(backend, Tokenizer([]), vocab_size=257)
    speaks(monkeypatch, [[]])
    assert list(model.tokens([65], 5)) == [256]
    assert list(model.text("A", 5)) == []


def test_any_id_may_end_the_sample(backend, monkeypatch):
    model = sampler(backend, Tokenizer([]), vocab_size=257)
    speaks(monkeypatch, [[1, 2, 3, 4]])
    assert list(model.tokens([65], 9, stop_ids={3})) == [1, 2, 3]
    assert list(model.tokens([65], 9, stop_ids=())) == [1, 2, 3, 4, 256, 256, 256, 256, 256]


def test_stop_strings_end_each_text_by_itself(backend, monkeypatch):
    tokenizer = Tokenizer([])
    model = sampler(backend, tokenizer, vocab_size=257)
    speaks(monkeypatch, [tokenizer.encode(text) for text in ("one. two", "1, 2", "a much longer one; and more", "..")])
    found = [""] * 4
    for number, piece in model.texts(list("abcd"), 18, stop=["; ", ". "]):
        found[number] += piece
    assert found == ["one", "1, 2", "a much longer one;", ".."]


@pytest.mark.parametrize("settings", [Sampling(0), Sampling(1.0, repetition_penalty=1.5), Sampling(1.3, top_k=9)])
def test_texts_of_a_batch_are_those_of_each_prompt_alone(backend, settings):
    """Prompts of different lengths, past the context of 8, of which some end at one of three characters."""
    model = sampler(backend, Tokenizer([]), vocab_size=257)
    prompts = ["a", "the third one", "né", "abcdefg", "x y"]
    together = [""] * len(prompts)
    for number, piece in model.texts(prompts, 14, settings, seed=5, stop=["e", "~", "9"]):
        together[number] += piece
    alone = ["".join(model.text(prompt, 14, settings, 5 + n, ["e", "~", "9"])) for n, prompt in enumerate(prompts)]
    assert together == alone and len(set(map(len, together))) > 1


def test_a_reader_that_is_kept_changes_no_token(backend):
    model = sampler(backend, Tokenizer([]), vocab_size=257)
    reader = model.reader()
    ids = [1, 2, 3]
    for turn in range(4):
        kept = list(model.tokens(ids, 3, Sampling(1.0), turn, reader=reader))
        assert kept == list(model.tokens(ids, 3, Sampling(1.0), turn))
        ids = [*ids, *kept, 7][-6:]


def test_the_repetition_penalty_counts_the_prompt_unless_told_otherwise(backend, monkeypatch):
    model = sampler(backend, Tokenizer([]), vocab_size=257)
    flat = np.ones((1, 257), np.float32) * np.linspace(2.0, 1.9, 257, dtype=np.float32)
    monkeypatch.setattr(Reader, "logits", lambda reader, texts: flat)
    assert list(model.tokens([0, 1], 3, Sampling(0, repetition_penalty=2.0))) == [2, 3, 4]
    assert list(model.tokens([0, 1], 3, Sampling(0, repetition_penalty=2.0, penalize_prompt=False))) == [0, 1, 2]
    assert list(model.tokens([0, 1], 3, Sampling(0))) == [0, 0, 0]


def test_prompts_that_cannot_be_continued_are_refused(backend):
    model = sampler(backend, Tokenizer([], special_tokens=()), vocab_size=256)
    with pytest.raises(ValueError, match="prompt is empty"):
        list(model.text("", 3))
    with pytest.raises(ValueError, match="Token id 256"):
        list(model.tokens([256], 3))
    with pytest.raises(ValueError, match="seed must be 0 or above, not -1"):
        list(model.tokens([1], 3, seed=-1))
