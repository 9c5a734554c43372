"""Optimisers against torch's, schedules and clipping against golden values."""

import math

import numpy as np
import pytest
import torch

import euler_ir as ei
from euler_ir import optim
from euler_ir.initializers import Normal, Zeros

SHAPES = {"matrix": (3, 5), "vector": (7,), "scalar": (), "empty": (0, 4), "tall": (2, 3, 4)}


def step_graph(make_optimizer, max_norm=None, dtype=ei.f32):
    """Gradients are inputs `<name>_gradient`; the optimiser acts on one parameter of each shape."""
    with ei.Graph() as graph:
        gradients = {
            ei.parameter(name, shape, Normal(1.0), dtype): ei.input(f"{name}_gradient", shape, dtype)
            for name, shape in SHAPES.items()
        }
        rate = ei.input("learning_rate", ())
        if max_norm is not None:
            gradients, norm = optim.clip_by_global_norm(gradients, max_norm)
            ei.output(norm=norm)
        make_optimizer(rate).step(gradients)
    return graph


def torch_parameters(state):
    return {name: torch.nn.Parameter(torch.from_numpy(state[name].copy())) for name in SHAPES}


def decaying_groups(parameters, weight_decay):
    matrices = [parameter for parameter in parameters.values() if parameter.ndim >= 2]
    others = [parameter for parameter in parameters.values() if parameter.ndim < 2]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def run_both(backend, graph, parameters_to_torch_optimizer, steps=30, max_norm=None):
    state = ei.initial_state(graph)
    parameters = torch_parameters(state)
    reference = parameters_to_torch_optimizer(parameters)
    run = ei.compile(graph, backend=backend)
    random = np.random.default_rng(0)
    for step in range(steps):
        rate = 0.05 / (1 + step)
        gradients = {name: np.asarray(random.standard_normal(shape), np.float32) for name, shape in SHAPES.items()}
        inputs = {f"{name}_gradient": gradient for name, gradient in gradients.items()}
        found = run(state, learning_rate=np.float32(rate), **inputs)
        for name, parameter in parameters.items():
            parameter.grad = torch.from_numpy(gradients[name].copy())
        if max_norm is not None:
            norm = torch.nn.utils.clip_grad_norm_(parameters.values(), max_norm)
            np.testing.assert_allclose(found["norm"], norm.item(), rtol=1e-6)
        for group in reference.param_groups:
            group["lr"] = rate
        reference.step()
        for name, parameter in parameters.items():
            np.testing.assert_allclose(
                state[name], parameter.detach().numpy(), rtol=2e-5, atol=2e-6, err_msg=f"{name} after step {step + 1}"
            )
    return state


@pytest.mark.parametrize("max_norm", [None, 0.5, 100.0])
def test_adamw_is_torchs(backend, max_norm):
    graph = step_graph(lambda rate: optim.AdamW(rate, (0.8, 0.97), 1e-6, 0.3), max_norm)
    state = run_both(
        backend,
        graph,
        lambda parameters: torch.optim.AdamW(decaying_groups(parameters, 0.3), betas=(0.8, 0.97), eps=1e-6),
        max_norm=max_norm,
    )
    assert state["optim.step"] == 30
    assert {name for name in state if name.startswith("optim.")} == {
        "optim.step",
        *(f"optim.{moment}.{name}" for moment in "mv" for name in SHAPES),
    }


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_torchs(backend, momentum):
    graph = step_graph(lambda rate: optim.SGD(rate, momentum))
    run_both(backend, graph, lambda parameters: torch.optim.SGD(parameters.values(), lr=1.0, momentum=momentum))


def test_bias_correction_does_not_cancel(backend):
    """The first step of Adam is the learning rate itself, whatever the gradient and however close beta is to 1."""
    with ei.Graph() as graph:
        parameter = ei.parameter("p", (2,), Zeros())
        optim.AdamW(0.5, (0.9, 0.99999), 0.0).step({parameter: ei.constant([3.0, -1e-3])})
    state = ei.initial_state(graph)
    ei.compile(graph, backend=backend)(state)
    np.testing.assert_allclose(state["p"], [-0.5, 0.5], rtol=1e-6)


def test_half_parameters_keep_moments_in_f32(backend):
    graph = step_graph(optim.AdamW, dtype=ei.bf16)
    state = ei.initial_state(graph)
    assert state["optim.v.matrix"].dtype == np.float32
    inputs = {f"{name}_gradient": np.full(shape, 1e-4, ei.bf16.numpy) for name, shape in SHAPES.items()}
    ei.compile(graph, backend=backend)(state, learning_rate=np.float32(0.1), **inputs)
    assert (state["optim.v.matrix"] > 0).all() and state["matrix"].dtype == ei.bf16.numpy


def test_a_parameter_that_the_loss_does_not_reach_stays(backend):
    with ei.Graph() as graph:
        used, unused = ei.parameter("used", (), Normal(1.0)), ei.parameter("unused", (3,), Normal(1.0))
        counter = ei.parameter("counter", (), Zeros(), ei.i64)
        optim.AdamW(0.1).step(used * used)
    assert counter.op.attributes["name"] not in graph.updates
    state = ei.initial_state(graph)
    before = state.copy()
    ei.compile(graph, backend=backend)(state)
    assert np.array_equal(state["unused"], before["unused"]) and state["used"] != before["used"]
    assert unused.name in graph.updates


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_shows_in_the_norm_and_names_itself(backend, bad):
    with ei.Graph() as graph:
        gradients = {ei.parameter(name, shape, Zeros()): ei.input(name + "_g", shape) for name, shape in SHAPES.items()}
        ei.output(norm=optim.clip_by_global_norm(gradients, 1.0)[1], norms=optim.gradient_norms(gradients))
    inputs = {f"{name}_g": np.ones(shape, np.float32) for name, shape in SHAPES.items()}
    inputs["vector_g"][3] = bad
    found = ei.compile(graph, backend=backend)(ei.initial_state(graph), **inputs)
    assert not np.isfinite(found["norm"])
    assert [bool(np.isfinite(norm)) for norm in found["norms"]] == [name != "vector" for name in SHAPES]


def test_the_norm_is_summed_in_f64(backend):
    """Squares of these gradients overflow, or vanish, in f32."""
    for scale in (1e30, 1e-30):
        with ei.Graph() as graph:
            parameter = ei.parameter("p", (2,), Zeros())
            gradient = ei.constant(np.asarray([3 * scale, 4 * scale], np.float32))
            ei.output(norm=optim.clip_by_global_norm({parameter: gradient}, 1.0)[1])
        found = ei.compile(graph, backend=backend)(ei.initial_state(graph))
        np.testing.assert_allclose(found["norm"], 5 * scale, rtol=1e-6)


def test_accumulated_gradients_are_means_over_examples_not_means_of_means(backend):
    """Losses [1, 2, 3, 4] and [10] have the mean 4, not 6.25; here the gradient of each is its loss."""
    graphs = {}
    for size in (4, 1):
        with ei.Graph() as graphs[size]:
            parameter, slopes = ei.parameter("p", (), Zeros()), ei.input("slopes", (size,))
            optim.accumulate(optim.gradients((parameter * slopes).sum()), ei.constant(size))
    with ei.Graph() as apply:
        means, count = optim.accumulated([ei.parameter("p", (), Zeros())])
        optim.SGD(1.0).step(means)
        ei.output(count=count)
    state = ei.initial_state(apply, *graphs.values())
    for slopes in ([1, 2, 3, 4], [10]):
        ei.compile(graphs[len(slopes)], backend=backend)(state, slopes=np.asarray(slopes, np.float32))
    assert ei.compile(apply, backend=backend)(state)["count"] == 5
    assert state["p"] == -4 and state["accumulator.p"] == 0 and state["accumulator.count"] == 0


def test_settings_that_cannot_work_are_refused():
    with ei.Graph() as graph:
        parameter = ei.parameter("p", (), Zeros())
        gradients = optim.gradients(parameter * parameter)
    for max_norm in (0, -1.0, math.nan):
        with pytest.raises(ValueError, match="above 0"):
            optim.clip_by_global_norm(gradients, max_norm)
    with pytest.raises(ValueError, match="betas"):
        optim.AdamW(0.1, (0.9, 1.0))
    for nothing in (lambda: optim.clip_by_global_norm({}, 1.0), lambda: optim.AdamW(0.1).step({})):
        with pytest.raises(ei.GraphError):
            nothing()
    assert not graph.updates


@pytest.mark.parametrize(
    ("step", "rate"),
    [(0, 5.4545e-5), (9, 5.4545e-4), (10, 6e-4), (55, 3.3e-4), (100, 6e-5), (143, 6e-5)],
)
def test_warmup_and_cosine(step, rate):
    assert optim.warmup_cosine(step, peak=6e-4, floor=6e-5, warmup=10, total=100) == pytest.approx(rate, rel=1e-4)


def test_a_schedule_shorter_than_its_warmup_is_finite():
    assert [optim.warmup_cosine(step, 1.0, 0.0, 2, 1) for step in range(4)] == pytest.approx([1 / 3, 2 / 3, 1, 0])


# --- Schedules ---

GOLDEN = {  # peak 6e-4, floor 6e-5, warm-up 10, total 100
    "cosine": {0: 6e-4 / 11, 9: 6e-4 * 10 / 11, 10: 6e-4, 55: 3.3e-4, 100: 6e-5, 1000: 6e-5},
    "linear": {0: 6e-4 / 11, 9: 6e-4 * 10 / 11, 10: 6e-4, 55: 3.3e-4, 91: 1.14e-4, 100: 6e-5, 1000: 6e-5},
    "constant": {0: 6e-4 / 11, 9: 6e-4 * 10 / 11, 10: 6e-4, 99: 6e-4, 1000: 6e-4},
    "wsd": {0: 6e-4 / 11, 9: 6e-4 * 10 / 11, 10: 6e-4, 80: 6e-4, 90: 3.3e-4, 100: 6e-5, 1000: 6e-5},
}


@pytest.mark.parametrize("name", optim.SCHEDULES)
def test_schedules(name):
    for step, rate in GOLDEN[name].items():
        found = optim.SCHEDULES[name](step, peak=6e-4, floor=6e-5, warmup=10, total=100)
        assert found == pytest.approx(rate, rel=1e-12), step


@pytest.mark.parametrize("name", optim.SCHEDULES)
@pytest.mark.parametrize(("warmup", "total"), [(0, 1), (5, 3), (0, 7), (3, 3)])
def test_schedules_stay_between_0_and_the_peak(name, warmup, total):
    rates = [optim.SCHEDULES[name](step, 1.0, 0.0, warmup, total) for step in range(12)]
    assert all(0 <= rate <= 1 for rate in rates) and rates[0] > 0
    falling = rates[warmup:]
    assert falling == sorted(falling, reverse=True)


def test_a_step_held_back_by_its_condition_changes_nothing(backend):
    for make in (optim.AdamW, optim.SGD, optim.Muon):
        with ei.Graph() as graph:
            shapes = SHAPES.items()
            gradients = {ei.parameter(name, shape, Normal(1.0)): ei.input(name + "_g", shape) for name, shape in shapes}
            make(ei.input("learning_rate", ())).step(gradients, condition=ei.input("condition", (), ei.bool_))
        state = ei.initial_state(graph)
        before = state.copy()
        run = ei.compile(graph, backend=backend)
        inputs = {f"{name}_g": np.full(shape, np.nan, np.float32) for name, shape in SHAPES.items()}
        run(state, learning_rate=np.float32(0.1), condition=np.bool_(False), **inputs)
        assert {name: array.tobytes() for name, array in state.items()} == {n: a.tobytes() for n, a in before.items()}
        run(state, learning_rate=np.float32(0.1), condition=np.bool_(True), **inputs)
        assert np.isnan(state["vector"]).all()


def test_every_parameter_is_decayed_or_not_just_once():
    """A rule by axes, and a table that is read at both ends of the model is one parameter."""
    from models.gpt2 import GPT2Config
    from models.language_model import train_graph

    config = GPT2Config(300, 8, layers=2, heads=2, width=8)
    graph = train_graph(config, 2, 8)
    shapes = {leaf.op.attributes["name"]: leaf.shape for leaf in graph.parameters}
    assert set(shapes) <= set(graph.updates)
    assert sum(map(math.prod, shapes.values())) == config.build().parameter_count()
    decayed = {name for name, shape in shapes.items() if len(shape) >= 2}
    assert decayed == {name for name in shapes if not ("bias" in name or ".ln_" in name or name.startswith("ln_f"))}
    assert [name for name in graph.updates if name.startswith("optim.m.")] == [f"optim.m.{name}" for name in shapes]
