"""Attributions to tokens: against finite differences and a dense path integral of GPT-2 in numpy, in f64."""

import numpy as np
import numpy_gpt2
import pytest

import euler_ir as ei
from models.interpretability.attribution import gradient_times_activation, integrated_gradients
from models.interpretability.subject import Subject

TEXT = [10, 200, 31, 7, 99, 150]
TARGET = 17


def value(weights, embedded):
    return numpy_gpt2.forward(weights, TEXT, 3, embedded=embedded)["log_probabilities"][-1, TARGET]


def slopes(weights, embedded, direction):
    """By central differences, along `direction` of one token after the other: f64[tokens]."""
    found, step = [], 1e-5
    for position in range(len(TEXT)):
        move = np.zeros_like(embedded)
        move[position] = step * direction[position]
        found.append((value(weights, embedded + move) - value(weights, embedded - move)) / (2 * step))
    return np.array(found)


def test_gradient_times_activation_keeps_its_sign(subject, micro_weights):
    rows = micro_weights["wte.weight"].astype(np.float64)[TEXT]
    found = gradient_times_activation(subject, TEXT, TARGET)
    expected = slopes(micro_weights, rows, rows)
    np.testing.assert_allclose(found.scores, expected, rtol=1e-3, atol=1e-5)
    assert (found.scores < 0).any() and (found.scores > 0).any()
    assert found.value == pytest.approx(value(micro_weights, rows), abs=1e-5) and found.error is None


def test_any_value_with_a_row_a_token_has_scores(subject, micro_weights):
    found = gradient_times_activation(subject, TEXT, TARGET, value="h.0.mlp.gelu")
    expected, step = [], 1e-5
    for position in range(len(TEXT)):

        def at(scale):
            def scaled(hidden):
                hidden = hidden.copy()
                hidden[position] *= scale
                return hidden

            return numpy_gpt2.forward(micro_weights, TEXT, 3, {"0.gelu": scaled})["log_probabilities"][-1, TARGET]

        expected.append((at(1 + step) - at(1 - step)) / (2 * step))
    np.testing.assert_allclose(found.scores, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("baseline", [None, 256])
def test_integrated_gradients_are_the_integral_and_complete(subject, micro_weights, baseline):
    rows = micro_weights["wte.weight"].astype(np.float64)[TEXT]
    start = np.zeros_like(rows) if baseline is None else micro_weights["wte.weight"].astype(np.float64)[[baseline] * 6]
    found = integrated_gradients(subject, TEXT, TARGET, baseline)
    points = (start + (number + 0.5) / 150 * (rows - start) for number in range(150))
    expected = np.mean([slopes(micro_weights, point, rows - start) for point in points], axis=0)
    np.testing.assert_allclose(found.scores, expected, rtol=1e-2, atol=1e-4)
    difference = value(micro_weights, rows) - value(micro_weights, start)
    assert found.scores.sum() == pytest.approx(difference, rel=2e-3)
    assert abs(found.error) <= 1e-3 * abs(difference) * 1.001
    assert found.baseline_value == pytest.approx(value(micro_weights, start), abs=1e-5)


def test_the_first_token_counts_like_the_others(subject, micro_weights):
    found = integrated_gradients(subject, TEXT, TARGET)
    assert len(found.scores) == len(TEXT) and abs(found.scores[0]) > 1e-4


def test_repeated_tokens_have_scores_each(subject):
    """To ids both places would be one: their embedding's row."""
    scores = gradient_times_activation(subject, [10, 7, 10], TARGET).scores
    assert len(scores) == 3 and abs(scores[0] - scores[2]) > 1e-5


def test_no_way_to_go_is_no_contribution(subject):
    found = integrated_gradients(subject, [99, 99], TARGET, baseline=99)
    assert not found.scores.any() and found.error == 0


def test_an_integral_that_misses_is_said(subject, monkeypatch):
    monkeypatch.setattr("models.interpretability.attribution.MOST_POINTS", 16)
    with pytest.raises(ArithmeticError, match="with 16 points"):
        integrated_gradients(subject, TEXT, TARGET, tolerance=1e-12)


def test_values_without_a_row_a_token_are_said(subject):
    with pytest.raises(ValueError, match="no row for each of the 6 tokens"):
        gradient_times_activation(subject, TEXT, value="h.0.attn.attention")
    with pytest.raises(ei.GraphError, match="did you mean h.0.mlp.gelu"):
        gradient_times_activation(subject, TEXT, value="h.0.mlp.gel")


def test_the_tied_head_is_no_part_of_the_embedding(micro_weights, subject):
    """The embedding's row of the target also makes its logit: scores are of what is read, not of the tied head."""
    text = [*TEXT[:-1], TARGET]
    found = gradient_times_activation(Subject(subject.config, micro_weights, subject.tokenizer), text, TARGET)
    rows = micro_weights["wte.weight"].astype(np.float64)[text]
    step = 1e-5
    at = [
        numpy_gpt2.forward(micro_weights, text, 3, embedded=np.vstack([rows[:-1], rows[-1] * scale]))
        for scale in (1 + step, 1 - step)
    ]
    slope = np.subtract(*(each["log_probabilities"][-1, TARGET] for each in at)) / (2 * step)
    assert found.scores[-1] == pytest.approx(slope, rel=1e-3)
