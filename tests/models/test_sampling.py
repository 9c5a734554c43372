"""Which token may come next and with which probability, beside transformers' processors of logits."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.generation import sampling
from models.generation.sampling import Sampling, distribution, draw

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformers.generation import logits_process as hf

GOLDEN = np.log([0.5, 0.41, 0.09])


def probabilities(logits, settings, seen=()):
    """Of all tokens, f64[vocab]."""
    result = np.zeros(len(logits))
    ids, of_ids = distribution(logits, settings, seen)
    assert np.all(np.diff(ids) > 0)
    result[ids] = of_ids
    return result


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


def test_top_p_of_a_flat_distribution_keeps_more_than_are_sorted_at_first():
    """The lowest ids: a little more than 0.7 of 3000 equals."""
    assert sampling.FIRST_CANDIDATES < 2000
    found = probabilities(np.zeros(3000), Sampling(1.0, top_p=0.70001))
    assert np.flatnonzero(found).tolist() == list(range(2101))


def test_temperature():
    np.testing.assert_allclose(probabilities(GOLDEN, Sampling(1.0)), [0.5, 0.41, 0.09])
    hot = np.sqrt([0.5, 0.41, 0.09])
    np.testing.assert_allclose(probabilities(GOLDEN, Sampling(2.0)), hot / hot.sum())
    np.testing.assert_array_equal(probabilities([1.0, 7.0, 7.0], Sampling(0)), [0, 1, 0])
    np.testing.assert_array_equal(probabilities([1e30, -1e30, 0.0], Sampling(1e-300)), [1, 0, 0])


def test_the_repetition_penalty_lowers_positive_and_negative_logits_once_and_before_the_temperature():
    logits = np.array([3.0, -1.0, 0.0, 2.0])
    expected = np.exp(np.array([1.5, -2.0, 0.0, 2.0]) / 0.5)
    found = probabilities(logits, Sampling(0.5, repetition_penalty=2.0), seen=[0, 1, 2])
    np.testing.assert_allclose(found, expected / expected.sum())
    assert logits.tolist() == [3.0, -1.0, 0.0, 2.0]
    np.testing.assert_array_equal(probabilities(logits, Sampling(0, repetition_penalty=2.0), [0]), [0, 0, 0, 1])


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 999),
    temperature=st.sampled_from([0.3, 1.0, 1.7]),
    top_k=st.sampled_from([None, 1, 5, 49, 50, 300]),
    top_p=st.sampled_from([None, 0.12, 0.57, 0.93, 1.0]),
    penalty=st.sampled_from([1.0, 1.3, 0.8, 5.0]),
)
def test_probabilities_are_those_of_transformers(seed, temperature, top_k, top_p, penalty):
    random = np.random.default_rng(seed)
    logits, ids = random.normal(0, 3, 50), random.integers(0, 50, 20)
    scores, ids = torch.tensor(logits)[None], torch.tensor(ids)[None]
    processors = [hf.RepetitionPenaltyLogitsProcessor(penalty), hf.TemperatureLogitsWarper(temperature)]
    processors += [hf.TopKLogitsWarper(top_k)] if top_k else []
    processors += [hf.TopPLogitsWarper(top_p)] if top_p else []
    for processor in processors:
        scores = processor(ids, scores)
    settings = Sampling(temperature, top_k, top_p, penalty)
    found = probabilities(logits, settings, np.unique(ids.numpy()))
    np.testing.assert_allclose(found, torch.softmax(scores, -1)[0].numpy(), rtol=1e-9, atol=1e-15)


def test_draws_have_the_frequencies_of_the_probabilities():
    random = np.random.Generator(np.random.Philox(3))
    ids = np.array([2, 5, 7, 9])
    drawn = [draw(ids, np.array([0.1, 0.0, 0.6, 0.3]), random) for _ in range(4000)]
    frequencies = [drawn.count(each) / 4000 for each in ids]
    np.testing.assert_allclose(frequencies, [0.1, 0.0, 0.6, 0.3], atol=0.03)


@pytest.mark.parametrize("uniform", [0.0, 0.3, 1 - 2**-53])
def test_a_token_without_probability_is_never_drawn(uniform):
    class Random:
        def random(self):
            return uniform

    assert draw(np.array([1, 2, 3]), np.array([0.0, 1.0, 0.0]), Random()) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_k": 0},
        {"top_p": 1.1},
        {"top_p": -0.1},
        {"repetition_penalty": 0},
        {"repetition_penalty": -1.1},
        {"repetition_penalty": float("inf")},
    ],
)
def test_settings_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match="must be"):
        Sampling(**options)


@pytest.mark.parametrize("logits", [[np.nan, 1.0], [np.inf, 1.0], [-np.inf, -np.inf]])
def test_broken_logits_are_refused_instead_of_giving_noise(logits):
    with pytest.raises(ValueError, match="not finite"):
        distribution(logits, Sampling())
