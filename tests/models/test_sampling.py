import numpy as np
import pytest

import euler_ir as ei
from models.generation.predictor import Text
from models.generation.sampling import Sampler, Sampling, probabilities
from models.gpt2 import GPT2Config
from models.language_model import evaluation_graph
from models.tokenizer.bpe import Tokenizer

GOLDEN = np.log([0.5, 0.41, 0.09])


def kept(logits, **options):
    return int((probabilities(logits, Sampling(temperature=1.0, **options)) > 0).sum())


@pytest.mark.parametrize(("top_p", "count"), [(0, 1), (0.3, 1), (0.5, 1), (0.9, 2), (0.95, 3), (1, 3), (None, 3)])
def test_top_p_keeps_the_token_that_crosses_p(top_p, count):
    assert kept(GOLDEN, top_p=top_p) == count
    assert kept(GOLDEN[::-1], top_p=top_p) == count


@pytest.mark.parametrize("top_p", [0.0, 1e-12])
def test_the_likeliest_token_always_stays(top_p):
    flat = np.zeros(50_000)
    assert probabilities(flat, Sampling(1.0, top_p=top_p))[0] == 1


def test_top_k_keeps_exactly_k_lowest_ids_among_equals():
    found = probabilities([1.0, 3.0, 3.0, 3.0, 0.0], Sampling(1.0, top_k=2))
    np.testing.assert_allclose(found, [0, 0.5, 0.5, 0, 0])
    assert kept(GOLDEN, top_k=1000) == 3
    many_ties = np.tile([0.0, 1.0, 0.0], 300)
    assert np.flatnonzero(probabilities(many_ties, Sampling(1.0, top_k=3))).tolist() == [1, 4, 7]


def test_temperature():
    np.testing.assert_allclose(probabilities(GOLDEN, Sampling(1.0)), [0.5, 0.41, 0.09])
    hot = np.sqrt([0.5, 0.41, 0.09])
    np.testing.assert_allclose(probabilities(GOLDEN, Sampling(2.0)), hot / hot.sum())
    np.testing.assert_array_equal(probabilities([1.0, 7.0, 7.0], Sampling(0)), [0, 1, 0])
    np.testing.assert_array_equal(probabilities([1e30, -1e30, 0.0], Sampling(1e-300)), [1, 0, 0])


@pytest.mark.parametrize(
    "options", [{"temperature": -0.1}, {"temperature": float("nan")}, {"top_k": 0}, {"top_p": 1.1}, {"top_p": -0.1}]
)
def test_settings_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match="must be"):
        Sampling(**options)


@pytest.mark.parametrize("logits", [[np.nan, 1.0], [np.inf, 1.0], [-np.inf, -np.inf]])
def test_broken_logits_are_refused_instead_of_giving_noise(logits):
    with pytest.raises(ValueError, match="not finite"):
        probabilities(logits, Sampling())


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


def test_greedy_beyond_the_context_sees_the_last_tokens_only(backend):
    model = sampler(backend, Tokenizer([], special_tokens=()), vocab_size=256)
    prompt = list(range(60, 80))
    long, short = (list(model.tokens(ids, 6, Sampling(0))) for ids in (prompt, prompt[-8:]))
    assert long == short
    assert list(model.tokens(prompt[-7:], 1, Sampling(0))) != [] and long != list(model.tokens([1, 2], 6, Sampling(0)))


def test_text_comes_in_whole_characters(backend):
    tokenizer = Tokenizer([], special_tokens=())
    model = sampler(backend, tokenizer, vocab_size=256)
    ids = tokenizer.encode("né 你好 🙂")
    model.tokens = lambda *_: iter(ids + ids[-4:-1])
    pieces = list(model.text("x", 0))
    assert "".join(pieces) == "né 你好 🙂\ufffd"
    assert pieces[:2] == ["n", "é"] and "🙂" in pieces


def test_end_of_text_ends_the_sample(backend, monkeypatch):
    tokenizer = Tokenizer([])
    model = sampler(backend, tokenizer, vocab_size=257)
    monkeypatch.setattr(Text, "read", lambda text, ids: np.eye(257)[256] * 100)
    assert list(model.tokens([65], 5)) == [256]
    assert list(model.text("A", 5)) == []


def test_prompts_that_cannot_be_continued_are_refused(backend):
    model = sampler(backend, Tokenizer([], special_tokens=()), vocab_size=256)
    with pytest.raises(ValueError, match="prompt is empty"):
        list(model.text("", 3))
    with pytest.raises(ValueError, match="Token id 256"):
        list(model.tokens([256], 3))
