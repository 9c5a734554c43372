"""Two checkpoints side by side: against numpy."""

import numpy as np
import numpy_gpt2
import pytest

from models.interpretability.comparison import bits_per_byte, movements, next_tokens, token_losses

TEXT = [10, 200, 31, 7, 99, 150]


def test_tensors_that_moved_most_come_first():
    both = {"a": np.ones(4, np.float32), "b": np.ones((2, 2)), "zero": np.zeros(2)}
    first = both | {"gone": np.ones(1), "s": np.ones(2)}
    second = both | {"a": np.full(4, 1.5, np.float32), "zero": np.ones(2), "new": np.ones(1), "s": np.ones(3)}
    moved, differences = movements(first, second)
    assert [(each.name, each.relative) for each in moved] == [("zero", np.inf), ("a", 0.5), ("b", 0.0)]
    assert moved[1].change == 1.0 and moved[1].largest == 0.5
    assert differences == [
        "gone is only in the first",
        "new is only in the second",
        "s is [2] in the first and [3] in the second",
    ]


def test_losses_of_tokens_in_windows(subject, micro_weights):
    ids = np.random.default_rng(0).integers(256, size=50).tolist()
    found = token_losses(subject, ids)
    expected = []
    for begin in (0, 32):
        window = ids[begin : begin + 33]
        predicted = numpy_gpt2.forward(micro_weights, window[:-1], 3)["log_probabilities"]
        expected.extend(-predicted[np.arange(len(window) - 1), window[1:]])
    np.testing.assert_allclose(found, expected, atol=5e-5)
    with pytest.raises(ValueError):
        token_losses(subject, [5])


def test_bits_per_byte_and_the_likeliest_tokens(subject, micro_weights):
    ids = subject.ids("any text")
    expected = numpy_gpt2.forward(micro_weights, ids, 3)["log_probabilities"]
    bits = -expected[np.arange(7), ids[1:]].sum() / np.log(2) / 7
    assert bits_per_byte(subject, "any text") == pytest.approx(bits, rel=1e-5)
    tokens = next_tokens(subject, ids, 3)
    order = np.argsort(-expected[-1])[:3]
    assert [token for token, _ in tokens] == order.tolist()
    assert [share for _, share in tokens] == pytest.approx(np.exp(expected[-1][order]), rel=1e-4)
