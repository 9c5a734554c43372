"""Sensitivities: against finite differences of GPT-2 in numpy, and scaled weights."""

import numpy as np
import numpy_gpt2
import pytest

from models.interpretability.sensitivity import scaling_slope, sensitivity

EXAMPLES = np.array([[10, 200, 31, 7, 99, 150], [5, 5, 250, 17, 80, 2], [1, 2, 3, 4, 5, 6]])


def loss(weights, example, edits={}):
    found = numpy_gpt2.forward(weights, example[:-1], 3, edits)["log_probabilities"]
    return -np.mean(found[np.arange(len(example) - 1), example[1:]])


def test_the_gradient_is_that_of_finite_differences(subject, micro_weights):
    found = sensitivity(subject, EXAMPLES)
    random, step = np.random.default_rng(0), 1e-5
    for name in subject.parameters:
        direction = random.standard_normal(micro_weights[name].shape)
        at = [
            np.mean([loss(micro_weights | {name: micro_weights[name] + move * direction}, each) for each in EXAMPLES])
            for move in (step, -step)
        ]
        assert (found.gradient[name] * direction).sum() == pytest.approx((at[0] - at[1]) / (2 * step), rel=1e-3), name


def test_fisher_is_the_mean_of_squares_over_single_examples(subject):
    together = sensitivity(subject, EXAMPLES)
    alone = [sensitivity(subject, [example]) for example in EXAMPLES]
    for name in subject.parameters:
        gradients = np.stack([each.gradient[name] for each in alone])
        np.testing.assert_allclose(together.gradient[name], gradients.mean(0), rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(together.fisher[name], (gradients**2).mean(0), rtol=1e-6, atol=1e-12)
        assert (together.fisher[name] >= together.gradient[name] ** 2 - 1e-12).all()
    heads = np.stack([each.head_gradient for each in alone])
    np.testing.assert_allclose(together.head_fisher, (heads**2).mean(0), rtol=1e-6)
    assert together.examples == 3 and together.loss == pytest.approx(np.mean([each.loss for each in alone]))


def test_a_gate_of_a_head_is_the_slope_by_its_scale(subject, micro_weights):
    found = sensitivity(subject, EXAMPLES)
    assert found.attentions == ("h.0.attn", "h.1.attn") and found.head_gradient.shape == (2, 3)
    step = 1e-5
    for layer in range(2):
        for head in range(3):

            def at(gate):
                def gated(mixed):
                    mixed = mixed.copy()
                    mixed[head] *= gate
                    return mixed

                return np.mean([loss(micro_weights, example, {f"{layer}.mixed": gated}) for example in EXAMPLES])

            slope = (at(1 + step) - at(1 - step)) / (2 * step)
            assert found.head_gradient[layer, head] == pytest.approx(slope, rel=1e-3, abs=1e-7)


def test_a_gate_of_a_head_is_the_sum_over_the_rows_that_read_it(subject):
    """Scaling what a head gives is scaling the rows of the projection behind it: 8 rows a head here."""
    found = sensitivity(subject, EXAMPLES)
    for layer in range(2):
        name = f"h.{layer}.attn.c_proj.weight"
        products = found.gradient[name] * found.weights[name]
        by_head = products.reshape(3, 8, 24).sum(axis=(1, 2))
        np.testing.assert_allclose(found.head_gradient[layer], by_head, rtol=1e-4, atol=1e-8)


def test_the_sum_of_gradient_times_weight_foretells_a_uniform_scaling(subject, micro_weights):
    predicted = sensitivity(subject, EXAMPLES).row(subject.parameters)[3]
    wide, step = {name: array.astype(np.float64) for name, array in micro_weights.items()}, 1e-5
    scaled = [
        np.mean([loss({name: scale * array for name, array in wide.items()}, each) for each in EXAMPLES])
        for scale in (1 + step, 1 - step)
    ]
    slope = (scaled[0] - scaled[1]) / (2 * step)
    assert predicted == pytest.approx(slope, rel=1e-4)
    assert scaling_slope(subject, EXAMPLES) == pytest.approx(slope, rel=1e-3)


def test_rows_and_blocks(subject):
    found = sensitivity(subject, EXAMPLES)
    blocks = found.by_block(subject.blocks())
    assert list(blocks) == ["wte", "wpe", "h.0", "h.1", "ln_f"]
    assert sorted(name for names in blocks.values() for name in names) == sorted(subject.parameters)
    count, size, product, signed, fisher = found.row(["ln_f.bias", "ln_f.weight"])
    g = np.concatenate([found.gradient["ln_f.bias"], found.gradient["ln_f.weight"]])
    w = np.concatenate([subject.state["ln_f.bias"], subject.state["ln_f.weight"]]).astype(np.float64)
    f = np.concatenate([found.fisher["ln_f.bias"], found.fisher["ln_f.weight"]])
    expected = [48, np.abs(g).sum(), np.abs(g * w).sum(), (g * w).sum(), f.sum()]
    np.testing.assert_allclose([count, size, product, signed, fisher], expected)


@pytest.mark.parametrize("examples", [[], [[1]], [1, 2, 3]])
def test_examples_that_are_none_are_said(subject, examples):
    with pytest.raises(ValueError, match="two tokens or more"):
        sensitivity(subject, examples)
