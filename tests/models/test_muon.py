"""Muon against its formula in numpy, in f64, and against torch's."""

import numpy as np
import pytest
import torch

import euler_ir as ei
from euler_ir import optim
from euler_ir.initializers import Normal
from euler_ir.optim.muon import is_hidden_matrix
from models.architectures import PRESETS

HIDDEN_SHAPES = {
    "h.0.wide.weight": (3, 8),
    "h.0.tall.weight": (9, 4),
    "h.0.square.weight": (5, 5),
    "h.0.row.weight": (1, 6),
}
SHAPES = {**HIDDEN_SHAPES, "h.0.mlp.bias": (4,), "wte": (7, 3)}
HIDDEN = list(HIDDEN_SHAPES)


def step_graph(dtype=ei.f32, **options):
    with ei.Graph() as graph:
        gradients = {
            ei.parameter(name, shape, Normal(1.0), dtype): ei.input(f"{name}_gradient", shape, dtype)
            for name, shape in SHAPES.items()
        }
        optim.Muon(ei.input("learning_rate", ()), **options).step(gradients)
    return graph


def orthogonal(matrix):
    """Jordan et al., 2024: the quintic applied to the singular values, which is what its matrix products do."""
    u, s, v = np.linalg.svd(matrix / (np.linalg.norm(matrix) + 1e-7), full_matrices=False)
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return u * s @ v


def test_muon_is_its_formula(backend):
    graph = step_graph(weight_decay=0.1)
    state = ei.initial_state(graph)
    run = ei.compile(graph, backend=backend)
    weights = {name: state[name].astype(np.float64) for name in HIDDEN}
    velocities = dict.fromkeys(HIDDEN, 0.0)
    random = np.random.default_rng(0)
    for step in range(6):
        rate = 0.02 / (1 + step)
        gradients = {name: random.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
        run(state, learning_rate=np.float32(rate), **{f"{name}_gradient": g for name, g in gradients.items()})
        for name in HIDDEN:
            gradient = gradients[name].astype(np.float64)
            velocities[name] = 0.95 * velocities[name] + 0.05 * gradient
            direction = orthogonal(0.95 * velocities[name] + 0.05 * gradient)
            size = 0.2 * np.sqrt(max(gradient.shape))
            weights[name] = (1 - rate * 0.1) * weights[name] - rate * size * direction
            np.testing.assert_allclose(state[name], weights[name], rtol=2e-5, atol=2e-6, err_msg=f"{name}, {step}")


def test_muon_is_torchs_up_to_its_bf16():
    graph = step_graph(weight_decay=0.3, momentum=0.9)
    state = ei.initial_state(graph)
    run = ei.compile(graph)
    parameters = {name: torch.nn.Parameter(torch.from_numpy(state[name].copy())) for name in HIDDEN}
    options = {"momentum": 0.9, "weight_decay": 0.3, "adjust_lr_fn": "match_rms_adamw"}
    reference = torch.optim.Muon(parameters.values(), lr=0.05, **options)
    random = np.random.default_rng(1)
    for _ in range(5):
        gradients = {name: random.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
        run(state, learning_rate=np.float32(0.05), **{f"{name}_gradient": g for name, g in gradients.items()})
        for name, parameter in parameters.items():
            parameter.grad = torch.from_numpy(gradients[name].copy())
        reference.step()
    for name, parameter in parameters.items():
        # Five steps of 0.05 * 0.2 * sqrt(9) at most; bf16 has 8 bits, and the quintic spreads their rounding.
        np.testing.assert_allclose(state[name], parameter.detach().numpy(), atol=0.01, err_msg=name)


def test_all_other_parameters_are_adamws(backend):
    graphs = {"muon": step_graph(betas=(0.8, 0.9), weight_decay=0.2)}
    with ei.Graph() as graphs["adamw"]:
        gradients = {
            ei.parameter(name, shape, Normal(1.0)): ei.input(f"{name}_gradient", shape)
            for name, shape in SHAPES.items()
        }
        optim.AdamW(ei.input("learning_rate", ()), (0.8, 0.9), weight_decay=0.2).step(gradients)
    states = {name: ei.initial_state(graph) for name, graph in graphs.items()}
    inputs = {f"{name}_gradient": np.full(shape, 0.5, np.float32) for name, shape in SHAPES.items()}
    for name, graph in graphs.items():
        ei.compile(graph, backend=backend)(states[name], learning_rate=np.float32(0.1), **inputs)
    for name in ("wte", "h.0.mlp.bias"):
        assert states["muon"][name].tobytes() == states["adamw"][name].tobytes()
    assert {name for name in states["muon"] if name.startswith("optim.momentum.")} == {
        f"optim.momentum.{name}" for name in HIDDEN
    }
    assert not any(f"optim.m.{name}" in states["muon"] for name in HIDDEN), "each parameter has one optimiser"


def test_a_gradient_of_zeros_only_decays(backend):
    graph = step_graph(weight_decay=0.5)
    state = ei.initial_state(graph)
    before = state.copy()
    inputs = {f"{name}_gradient": np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    ei.compile(graph, backend=backend)(state, learning_rate=np.float32(0.1), **inputs)
    for name in HIDDEN:
        np.testing.assert_allclose(state[name], 0.95 * before[name], rtol=1e-6)


@pytest.mark.parametrize("preset", ["nano", "124M"])
def test_the_hidden_matrices_of_a_model_are_those_of_its_blocks(preset):
    config = PRESETS[preset]
    with ei.Graph():
        parameters = config.build().parameters()
        hidden = [each.value for each in parameters if is_hidden_matrix(each.value)]
    assert len(hidden) == 4 * config.layers
    assert sum(value.size for value in hidden) == 12 * config.layers * config.width**2


def test_heads_in_a_list_are_not_hidden():
    config = PRESETS["nanoeuler-cpu"]
    with ei.Graph():
        hidden = [name for name, each in config.build().named_parameters() if is_hidden_matrix(each.value)]
    layers = ("attention.qkv", "attention.output", "mlp.gate", "mlp.up", "mlp.down")
    assert hidden == [f"blocks.{block}.{layer}.weight" for block in range(config.layers) for layer in layers]


def test_only_matrices_are_made_orthogonal():
    with ei.Graph():
        kernel = ei.parameter("conv.0.kernel", (3, 4, 5), ei.initializers.Ones())
        with pytest.raises(ei.GraphError, match=r"Muon is for matrices: conv.0.kernel is f32\[3, 4, 5\]"):
            optim.Muon(0.1, hidden=lambda parameter: True).step((kernel * kernel).sum())


def test_a_momentum_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="momentum must be at least 0 and below 1, not 1.5"):
        optim.Muon(0.1, momentum=1.5)
