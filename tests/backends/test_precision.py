"""GPT-2's loss and every gradient, compiled, against the f64 interpreter: how much is rounding and nothing else."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import interpreter, optim
from euler_ir.widen import in_f64
from models.gpt2 import GPT2, GPT2Config
from models.language_model import WholeTexts

CONFIG = GPT2Config(vocab_size=67, context=24, layers=2, heads=3, width=48)


@pytest.fixture(scope="module")
def problem():
    """The graph of the loss and all gradients in f32, its leaves, and the results of the f64 interpreter."""
    model = GPT2(CONFIG)
    with ei.Graph("gradients") as graph:
        tokens, targets = ei.input("tokens", (3, 24), ei.i32), ei.input("targets", (3, 24), ei.i32)
        loss = ei.cross_entropy(model.logits(model(tokens, WholeTexts(24))), targets).mean()
        gradients = optim.gradients(loss)
        ei.output(loss=loss, **{parameter.name: gradient for parameter, gradient in gradients.items()})
    state = ei.initial_state(graph, seed=1)
    random = np.random.default_rng(5)
    for name in state:  # zero biases would hide their part
        state[name] = state[name] + random.normal(0, 0.02, state[name].shape).astype(np.float32)
    inputs = dict(zip(("tokens", "targets"), random.integers(0, 67, (2, 3, 24)).astype(np.int32)))
    wide = {name: array.astype(np.float64) for name, array in state.items()}
    exact, _ = interpreter.run(in_f64(graph), {**wide, **inputs})
    return graph, state, inputs, wide, exact


def test_f64_agrees_to_ten_digits(problem, backend):
    graph, _, inputs, wide, exact = problem
    state = ei.State()
    for name, array in wide.items():
        state[name] = array
    found = ei.compile(in_f64(graph), backend)(state, **inputs)
    for name, array in exact.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-10, atol=1e-10 * np.abs(array).max(), err_msg=name)


def test_f32_is_as_near_as_numpys_f32(problem, backend):
    """The compiled code may err by a few times what numpy's own f32 does, tensor by tensor; more would not be rounding."""
    graph, state, inputs, _, exact = problem
    numpys, _ = interpreter.run(graph, {**state, **inputs})
    found = ei.compile(graph, backend)(state, **inputs)
    for name, array in exact.items():
        allowed = 4 * np.abs(numpys[name] - array).max() + np.finfo(np.float32).eps * np.abs(array).max()
        assert np.abs(found[name] - array).max() <= allowed, name
