"""LossScale: what torch's GradScaler does to the scale, and what f16 would lose without it."""

import math

import numpy as np
import pytest
import torch

import euler_ir as ei
from euler_ir import optim
from euler_ir.initializers import Normal, Zeros

MIXED = "mixed-precision{compute=f16},default"


def test_the_scale_follows_as_that_of_torch(backend):
    """Seven finite steps in a row but for two overflows; the interval is three steps."""
    overflows = [0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    with ei.Graph() as graph:
        scale = optim.LossScale(initial=64.0, growth_interval=3)
        weight, slope = ei.parameter("w", (), Zeros()), ei.input("slope", ())
        gradients = scale.gradients(weight * slope)
        finite = ei.absolute(gradients[weight]) < math.inf
        optim.SGD(1.0).step(gradients, condition=finite)
        scale.update(graph, finite)
    state, run = ei.initial_state(graph), ei.compile(graph, backend=backend)

    parameter = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
    for overflow in overflows:
        slope = np.float32(math.inf if overflow else 0.125)
        run(state, slope=slope)
        optimizer.zero_grad()
        scaler.scale(parameter * float(slope)).backward()
        scaler.step(optimizer)
        scaler.update()
        assert state["loss_scale.scale"] == scaler.get_scale()
        assert state["w"] == parameter.item()
    assert state["w"] == -0.125 * overflows.count(0)


def test_the_scale_stays_within_its_bounds(backend):
    with ei.Graph() as graph:
        scale = optim.LossScale(initial=2.0, growth_interval=1)
        scale.update(graph, ei.input("finite", (), ei.bool_))
    state, run = ei.initial_state(graph), ei.compile(graph, backend=backend)
    for _ in range(3):
        run(state, finite=False)
    assert state["loss_scale.scale"] == 1
    for _ in range(30):
        run(state, finite=True)
    assert state["loss_scale.scale"] == 2**24 and state["loss_scale.good_steps"] == 0
    for wrong in ({"initial": 0.5}, {"initial": 2.0**25}, {"initial": math.nan}, {"growth_interval": 0}):
        with pytest.raises(ValueError, match="must be"):
            optim.LossScale(**wrong)


def regression(loss_scale=None, **optimizer):
    """A step of an MLP, and what it gives: mean squares of 8 rows of 16, with AdamW."""
    with ei.Graph() as graph:
        x, y = ei.input("x", (8, 16)), ei.input("y", (8, 4))
        up, down = (ei.parameter(name, shape, Normal(0.3)) for name, shape in (("up", (16, 32)), ("down", (32, 4))))
        loss = ei.mean((ei.gelu(x @ up) @ down - y) ** 2)
        gradients = loss_scale.gradients(loss) if loss_scale else optim.gradients(loss)
        ei.output(loss=loss, **{key.op.attributes["name"]: value for key, value in gradients.items()})
        clipped, norm = optim.clip_by_global_norm(gradients, 1.0)
        finite = norm < math.inf
        optim.AdamW(0.01, **optimizer).step(clipped, condition=finite)
        if loss_scale:
            loss_scale.update(graph, finite)
        ei.output(norm=norm)
    return graph


def test_gradients_too_small_for_f16_come_through():
    """Inputs and errors of 1e-4 make gradients near 1e-9, where f16 has nothing but 0."""
    random = np.random.default_rng(0)
    x, y = (1e-4 * random.standard_normal(shape).astype(np.float32) for shape in ((8, 16), (8, 4)))
    found = {}
    for name, scale, passes in (("f32", None, "default"), ("bare", None, MIXED), ("f16", optim.LossScale(), MIXED)):
        graph = regression(scale)
        found[name] = ei.compile(graph, "reference", passes=passes)(ei.initial_state(graph, seed=1), x=x, y=y)["up"]
    largest = np.abs(found["f32"]).max()
    assert 1e-10 < largest < 1e-7
    assert not found["bare"].any()
    np.testing.assert_allclose(found["f16"], found["f32"], atol=0.01 * largest)


def test_a_step_that_overflows_changes_nothing_but_the_scale_and_training_goes_on():
    """The third batch has inputs of 1e5, which f16 has no numbers for."""
    graph = regression(optim.LossScale(initial=2.0**10, growth_interval=4))
    run, state = ei.compile(graph, passes=MIXED), ei.initial_state(graph, seed=2)
    random = np.random.default_rng(1)
    x = random.standard_normal((8, 16)).astype(np.float32)
    y = np.tanh(x[:, :4])
    losses, scales = [], []
    for step in range(12):
        before = {name: array.tobytes() for name, array in state.items()}
        found = run(state, x=x * np.float32(1e5 if step == 2 else 1), y=y)
        changed = {name for name, array in state.items() if array.tobytes() != before[name]}
        if step == 2:
            assert not math.isfinite(found["norm"])
            assert changed == {"loss_scale.scale", "loss_scale.good_steps"}
        else:
            assert math.isfinite(found["norm"]) and changed >= {"up", "down", "optim.m.up", "optim.step"}
            losses.append(float(found["loss"]))
        scales.append(float(state["loss_scale.scale"]))
    assert scales == [1024] * 2 + [512] * 4 + [1024] * 4 + [2048] * 2
    assert state["optim.step"] == 11
    assert losses[-1] < 0.1 * losses[0]


def test_parameters_of_a_half_type_have_gradients_in_f32():
    with ei.Graph() as graph:
        weight = ei.parameter("w", (3,), Normal(1.0), ei.f16)
        gradients = optim.LossScale(2.0**10).gradients((weight * 2e-5).sum())
        ei.output(w=gradients[weight])
    found = ei.compile(graph)(ei.initial_state(graph))["w"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, 2e-5, rtol=0.02)  # as near as f16 knows 2e-5
