"""Rematerialisation: the same bits from less memory, nothing repeated without need, a clear word when nothing fits."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import interpreter, optim
from euler_ir.compiler import lower
from euler_ir.initializers import Normal
from euler_ir.passes import PIPELINE, PassManager, Rematerialize
from euler_ir.plan.memory import check_memory
from euler_ir.verify import verify
from models.gpt2 import GPT2Config
from models.language_model import train_graph


def mlp(layers=6, width=32, batch=64):
    """A deep MLP with dropout and its SGD step: most of its memory is activations."""
    with ei.Graph("mlp") as graph:
        x, y = ei.input("x", (batch, width)), ei.input("y", (batch, width))
        step = ei.input("step", (), ei.i64)
        hidden = x
        for layer in range(layers):
            hidden = ei.gelu(hidden @ ei.parameter(f"w{layer}", (width, width), Normal(0.2)))
            hidden = ei.tensor.dropout(hidden, 0.25, 1, step)
        loss = ((hidden - y) ** 2).mean()
        optim.SGD(0.1, momentum=0.9).step(loss)
        ei.output(loss=loss)
    return graph


def gpt2():
    return train_graph(GPT2Config(64, 32, layers=3, heads=2, width=32, dropout=0.1), 4, 32)


def inputs(graph):
    random = np.random.default_rng(3)
    given = {}
    for leaf in graph.inputs:
        if leaf.dtype.is_float:
            given[leaf.name] = random.standard_normal(leaf.shape).astype(np.float32) * np.float32(0.01)
        else:
            given[leaf.name] = random.integers(0, 60, leaf.shape).astype(leaf.dtype.numpy)
    return given


def run(step, graph):
    """Outputs and state after three steps."""
    state, given = ei.initial_state(graph), inputs(graph)
    for _ in range(3):
        outputs = step(state, **given)
    return outputs, {name: state[name].copy() for name in state}


def without_scratch(step):
    return step.memory.total - step.memory.scratch


def multiplications(graph):
    return sum(op.name == "matmul" for op in graph.ops)


@pytest.mark.parametrize("build", [mlp, gpt2])
@pytest.mark.parametrize("share", [0.9, 0.7])
def test_less_memory_gives_the_same_bits(build, share):
    graph = build()
    free = ei.compile(graph, threads=2)
    fixed = without_scratch(free) - free.memory.arena
    budget = fixed + int(share * free.memory.arena)
    step = ei.compile(graph, threads=2, memory_budget=budget)
    check_memory(step.plan)
    assert without_scratch(step) <= budget
    (wanted, wanted_state), (found, state) = run(free, graph), run(step, graph)
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name])
    for name in wanted_state:
        np.testing.assert_array_equal(state[name], wanted_state[name])


def test_a_budget_that_is_enough_changes_nothing():
    graph = mlp()
    plan = lower(graph).plan
    assert str(lower(graph, memory_budget=1 << 40).plan) == str(plan)


@pytest.mark.parametrize("build", [mlp, gpt2])
def test_products_are_repeated_only_when_they_may_be(build):
    optimized = PassManager(PIPELINE).run(build())
    cheap = Rematerialize().run(optimized)
    costly = Rematerialize(products=True, long_pieces=True).run(optimized)
    for graph in (cheap, costly):
        verify(graph)
    once = multiplications(optimized)
    assert multiplications(cheap) == once < multiplications(costly) <= 4 / 3 * once + 1


def test_the_interpreter_finds_the_same_bits():
    graph = PassManager(PIPELINE).run(gpt2())
    random = np.random.default_rng(0)
    leaves = inputs(graph)
    for leaf in (*graph.parameters, *graph.states):
        leaves[leaf.name] = random.standard_normal(leaf.shape).astype(np.float32).astype(leaf.dtype.numpy)
        if leaf.name.startswith("optim."):
            leaves[leaf.name] = abs(leaves[leaf.name])
    wanted = interpreter.run(graph, leaves)
    for each in (Rematerialize(), Rematerialize(True), Rematerialize(True, True)):
        found = interpreter.run(each.run(graph), leaves)
        for before, after in zip(wanted, found, strict=True):
            assert before.keys() == after.keys()
            for name in before:
                np.testing.assert_array_equal(after[name], before[name], err_msg=name)


def test_each_kept_tensor_less_is_worth_its_bytes():
    """Of two ways to the same values the narrow one is kept: a cut through 8 columns instead of 512."""
    with ei.Graph() as graph:
        x = ei.input("x", (64, 8))
        wide = ei.exp(ei.tanh(ei.tensor.broadcast_to(ei.sin(x)[:, :, None], (64, 8, 64))))
        w = ei.parameter("w", (64, 64), Normal(1.0))
        ei.output(gradient=ei.gradient(ei.sum(ei.matmul(wide, w) ** 2), [w])[0])
    optimized = PassManager(PIPELINE).run(graph)
    again = Rematerialize().run(optimized)
    assert sum(op.name == "exp" for op in again.ops) == 2 * sum(op.name == "exp" for op in optimized.ops)
    assert sum(op.name == "matmul" for op in again.ops) == sum(op.name == "matmul" for op in optimized.ops)


def test_what_does_not_fit_is_refused_with_figures_and_owners():
    graph = mlp()
    with pytest.raises(ei.LoweringError) as caught:
        ei.compile(graph, memory_budget=50_000)
    text = str(caught.value)
    assert "'mlp' needs" in text and "the budget is 48.83 KiB" in text
    assert "without a budget it needs" in text and "largest at the peak" in text and "f32[64, 32]" in text


@pytest.mark.parametrize("budget", [0, -1, 2.5, "1 GB", True])
def test_a_budget_that_is_no_number_of_bytes_is_refused(budget):
    with pytest.raises(ValueError, match="memory_budget"):
        ei.compile(mlp(), memory_budget=budget)


def test_a_budget_may_be_a_number_of_numpy():
    graph = mlp()
    plans = [ei.compile(graph, memory_budget=kind(1 << 30)).plan for kind in (int, np.int64)]
    assert str(plans[0]) == str(plans[1])
