"""Nudged weights: against GPT-2 in numpy in f64, and that nothing of a nudge is left."""

import os
import signal

import numpy as np
import numpy_gpt2
import pytest

import euler_ir as ei
from models.interpretability.perturbation import Place, nudged, perturb
from models.interpretability.subject import Subject
from models.named_tensors import tensors_digest

TEXT = [10, 200, 31, 7, 99, 150]


def log_probabilities(weights, name, index, delta):
    nudged_weights = {key: array.astype(np.float64) for key, array in weights.items()}
    nudged_weights[name][index] += delta
    return numpy_gpt2.forward(nudged_weights, TEXT, 3)["log_probabilities"][-1]


@pytest.mark.parametrize(
    ("text", "name", "index"),
    [
        ("h.1.mlp.c_fc.weight[3,7]", "h.1.mlp.c_fc.weight", (3, 7)),
        ("h.0.attn.c_attn.weight[:, 2:5]", "h.0.attn.c_attn.weight", np.s_[:, 2:5]),
        ("wte.weight[99]", "wte.weight", 99),
        ("ln_f.bias", "ln_f.bias", ...),
        ("h.1.ln_2.weight[-1]", "h.1.ln_2.weight", -1),
    ],
)
def test_a_nudge_is_that_of_numpy_and_the_slope_that_of_the_limit(subject, micro_weights, text, name, index):
    found = perturb(subject, TEXT, Place.of(text, subject.state), (-0.5, 0.02, 0.5), target=17)
    before = log_probabilities(micro_weights, name, index, 0)
    step = 1e-5
    slope = (
        log_probabilities(micro_weights, name, index, step) - log_probabilities(micro_weights, name, index, -step)
    )[17] / (2 * step)
    assert found.slope == pytest.approx(slope, rel=1e-3, abs=1e-6)
    assert found.log_probability == pytest.approx(before[17], abs=1e-5)
    for nudge in found.nudges:
        after = log_probabilities(micro_weights, name, index, nudge.delta)
        assert nudge.divergence == pytest.approx((np.exp(before) * (before - after)).sum(), rel=2e-2, abs=1e-7)
        assert nudge.entropy == pytest.approx(-(np.exp(after) * after).sum(), abs=1e-5)
        assert nudge.log_probability == pytest.approx(after[17], abs=2e-5)
        assert nudge.predicted == pytest.approx(before[17] + slope * nudge.delta, abs=2e-5)
        token, old, new = nudge.movers[0]
        change = np.abs(np.exp(after) - np.exp(before))
        assert abs(new - old) == pytest.approx(change.max(), rel=2e-2, abs=1e-7)
        assert (old, new) == pytest.approx((np.exp(before[token]), np.exp(after[token])), rel=1e-4)


def test_central_differences_come_nearer_with_the_square_of_the_step(subject):
    found = perturb(subject, TEXT, Place.of("wte.weight[150,0:5]", subject.state), (0.02, 0.04, 0.08), target=17)
    errors = [abs(slope - found.slope) for _, slope in found.differences]
    assert errors[1] / errors[0] == pytest.approx(4, rel=0.1)
    assert errors[2] / errors[1] == pytest.approx(4, rel=0.1)


def test_the_weights_have_their_bits_back(subject):
    before = {name: array.tobytes() for name, array in subject.state.items()}
    perturb(subject, TEXT, Place.of("h.0.mlp.c_proj.weight[1:3]", subject.state), (1e-9, 3e30))
    assert {name: array.tobytes() for name, array in subject.state.items()} == before


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_the_weights_have_their_bits_back_after_what_goes_wrong(subject, error):
    place, before = Place.of("ln_f.weight[3]", subject.state), tensors_digest(subject.state)
    with pytest.raises(error), nudged(subject.state, place, 0.1):
        assert tensors_digest(subject.state) != before
        raise error
    assert tensors_digest(subject.state) == before


def test_the_weights_have_their_bits_back_after_ctrl_c(subject):
    place, before = Place.of("ln_f.weight[3]", subject.state), tensors_digest(subject.state)
    with pytest.raises(KeyboardInterrupt), nudged(subject.state, place, 0.1):
        os.kill(os.getpid(), signal.SIGINT)
        signal.sigtimedwait([], 1)
    assert tensors_digest(subject.state) == before


def test_what_adding_and_taking_away_would_not_restore_is_restored(subject):
    place = Place.of("ln_f.weight[3]", subject.state)
    subject.state["ln_f.weight"][3] = np.float32(1.1)
    with nudged(subject.state, place, 1e10):
        pass
    assert subject.state["ln_f.weight"][3] == np.float32(1.1)


def test_a_state_that_others_have_is_not_touched(subject, micro_weights):
    state = ei.State()
    for name, array in micro_weights.items():
        state[name] = array
    seen = []
    other = Subject(subject.config, state, subject.tokenizer)
    compiled = other.compile

    def watched(graph):
        run = compiled(graph)
        return lambda **inputs: (seen.append(tensors_digest(state)), run(**inputs))[1]

    other.compile = watched
    perturb(other, TEXT, Place.of("ln_f.bias", other.state), (1.0,))
    assert len(seen) > 3 and set(seen) == {tensors_digest(state)}


def test_a_state_that_changes_meanwhile_is_noticed(subject):
    compiled = subject.compile

    def meddling(graph):
        run = compiled(graph)

        def call(**inputs):
            subject.state["ln_f.bias"][0] += 1
            return run(**inputs)

        return call

    subject.compile = meddling
    with pytest.raises(RuntimeError, match="not as they were"):
        perturb(subject, TEXT, Place.of("ln_f.weight[0]", subject.state), (0.1,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("h.9.mlp[0]", "There is no weight 'h.9.mlp' among 28. The nearest are h.\\d.mlp"),
        ("ln_f.bias[24]", "Index 24 in .* is outside of the 24"),
        ("ln_f.bias[1,2]", "has 2 indices, but ln_f.bias has the shape \\[24\\]"),
        ("ln_f.bias[x]", "'x' in 'ln_f.bias\\[x\\]' is no index"),
        ("ln_f.bias[1:2:3:4]", "is no index"),
        ("ln_f.bias[5:5]", "holds no element"),
        ("ln_f.bias[", "names no weight"),
        ("ln_f.bias[]", "is no index"),
        ("", "names no weight"),
        ("ln_f.bias[::0]", "is no index"),
    ],
)
def test_a_place_that_is_none_is_said(subject, text, message):
    with pytest.raises(ValueError, match=message):
        Place.of(text, subject.state)


def test_a_delta_that_is_no_number_and_a_damaged_model_are_said(subject):
    place = Place.of("ln_f.bias[0]", subject.state)
    with pytest.raises(ValueError, match="finite number of its type, not by nan"):
        perturb(subject, TEXT, place, (float("nan"),))
    with pytest.raises(ValueError, match="finite number of its type, not by 1e\\+39"):
        perturb(subject, TEXT, place, (1e39,))
    subject.state["ln_f.bias"][0] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        perturb(subject, TEXT, place, (0.1,))
