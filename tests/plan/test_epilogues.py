"""Which nests become epilogues of products, and that programs with them compute what they did before."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import compiler
from euler_ir.plan.memory import check_memory
from euler_ir.plan.plan import KernelStep, MatmulStep

ROWS, INNER, COLUMNS = 70, 33, 300


def built(build):
    with ei.Graph("epilogue") as graph:
        x, w = ei.input("x", (ROWS, INNER)), ei.input("w", (INNER, COLUMNS))
        ei.output(**build(x, w))
    return graph


def with_bias(x, w):
    bias = ei.input("bias", (COLUMNS,))
    h = x @ w + bias
    return {"h": h, "activated": ei.gelu(h)}


def with_residual(x, w):
    return {"y": ei.input("residual", (ROWS, COLUMNS)) + x @ w}


def over_a_batch(x, w):
    offset = ei.input("offset", (10, COLUMNS))
    return {"y": ei.tanh((x.reshape(7, 10, INNER) @ w) * offset)}


def reads_another_product(x, w):
    return {"y": (x @ w) * ei.sigmoid(x @ (w + 1))}


def with_another_type(x, w):
    h = x @ w * 2
    return {"narrow": h.cast(ei.bf16), "sign": h > 0, "whole": h}


FUSED = [with_bias, with_residual, over_a_batch, reads_another_product, with_another_type]


@pytest.mark.parametrize("build", FUSED)
def test_an_elementwise_reader_runs_inside_of_its_product(build):
    plan = compiler.lower(built(build)).plan
    check_memory(plan)
    products = [step for step in plan.steps() if isinstance(step, MatmulStep)]
    assert sum(step.epilogue is not None for step in products) == 1
    # Of a product with an epilogue nothing lies in memory beside what the epilogue makes of it.
    assert sum(buffer.name == "matmul" for buffer in plan.buffers) == len(products) - 1


@pytest.mark.parametrize("build", FUSED)
def test_it_gives_what_numpy_gives_whatever_the_number_of_threads(build):
    graph, generator = built(build), np.random.default_rng(0)
    inputs = {
        leaf.op.attributes["name"]: generator.standard_normal(leaf.shape).astype(np.float32) for leaf in graph.inputs
    }
    runs = [ei.compile(graph, threads=threads)(**inputs) for threads in (1, 2, 3)]
    x, w = (inputs[name].astype(np.float64) for name in ("x", "w"))
    product = x @ w
    want = {
        with_bias: lambda: {"h": product + inputs["bias"]},
        with_residual: lambda: {"y": product + inputs["residual"]},
        over_a_batch: lambda: {"y": np.tanh(product.reshape(7, 10, COLUMNS) * inputs["offset"])},
        reads_another_product: lambda: {"y": product / (1 + np.exp(-(x @ (w + 1))))},
        with_another_type: lambda: {"whole": product * 2, "narrow": product * 2},
    }[build]()
    for name, array in want.items():
        tolerance = 2e-2 if name == "narrow" else 2e-5
        np.testing.assert_allclose(runs[0][name].astype(np.float64), array, rtol=tolerance, atol=tolerance)
    for run in runs[1:]:
        for name, array in run.items():
            np.testing.assert_array_equal(array, runs[0][name])


def with_the_product_itself(x, w):
    h = x @ w
    return {"h": h, "y": h + 1}


def read_twice(x, w):
    h = x @ w
    return {"y": ei.relu(h), "sum": ei.sum(h, 0)}


def transposed(x, w):
    return {"y": (x @ w).transpose(1, 0) + 1}


def shifted(x, w):
    h = x @ w
    return {"y": h[:, 1:] - h[:, :-1]}


def narrower(x, w):
    return {"y": (x @ w).cast(ei.bf16)}


def over_columns(x, w):
    return {"y": ei.softmax(x @ w)}


UNFUSED = [with_the_product_itself, read_twice, transposed, shifted, narrower, over_columns]


@pytest.mark.parametrize("build", UNFUSED)
def test_a_product_that_others_need_or_that_moves_has_no_epilogue(build):
    plan = compiler.lower(built(build)).plan
    check_memory(plan)
    assert not [step for step in plan.steps() if isinstance(step, MatmulStep) and step.epilogue is not None]
    assert [step for step in plan.steps() if isinstance(step, KernelStep)]


def test_a_reduction_of_what_is_stored_anyway_leaves_the_epilogue_to_its_product():
    with ei.Graph("layer") as graph:
        x, w = ei.input("x", (64, INNER)), ei.input("w", (INNER, COLUMNS))
        h = ei.relu(x @ w)
        ei.output(h=h, rows=ei.sum(h, 1), columns=ei.sum(h, 0), squares=ei.sum(x @ (w + 1) * h, 0))
    products = [step for step in compiler.lower(graph).plan.steps() if isinstance(step, MatmulStep)]
    # What only a sum reads is not stored: that product and its sum are two steps, with nothing in between.
    assert [step.epilogue is not None for step in products] == [True, False]
    generator = np.random.default_rng(3)
    inputs = {leaf.op.attributes["name"]: generator.standard_normal(leaf.shape, np.float32) for leaf in graph.inputs}
    results = ei.compile(graph, threads=2)(**inputs)
    x, w = (inputs[name].astype(np.float64) for name in ("x", "w"))
    h = np.maximum(x @ w, 0)
    want = {"h": h, "rows": h.sum(1), "columns": h.sum(0), "squares": (x @ (w + 1) * h).sum(0)}
    for name, array in want.items():
        np.testing.assert_allclose(results[name], array, rtol=1e-4, atol=1e-3)


def test_a_product_is_not_written_over_the_parameter_that_its_epilogue_updates():
    """The whole product must be there before the last element of the parameter is read."""
    with ei.Graph("step") as graph:
        x, dy = ei.input("x", (ROWS, INNER)), ei.input("dy", (ROWS, COLUMNS))
        w = ei.parameter("w", (INNER, COLUMNS), ei.initializers.Ones())
        ei.update(w, w - 0.5 * ei.matmul(x, dy, transpose_left=True))
    check_memory(compiler.lower(graph).plan)
    generator = np.random.default_rng(1)
    x = generator.standard_normal((ROWS, INNER)).astype(np.float32)
    dy = generator.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    for backend in ("cpu", "reference"):
        state = ei.initial_state(graph)
        ei.compile(graph, backend=backend)(state, x=x, dy=dy)
        np.testing.assert_allclose(state["w"], 1 - 0.5 * (x.astype(np.float64).T @ dy), rtol=1e-4, atol=1e-4)


def test_an_epilogue_writes_what_replaces_a_state_that_neither_reads():
    with ei.Graph("kept") as graph:
        x, w = ei.input("x", (ROWS, INNER)), ei.input("w", (INNER, COLUMNS))
        kept = ei.state("kept", (ROWS, COLUMNS))
        ei.output(before=kept + 1)
        ei.update(kept, ei.tanh(x @ w))
    plan = compiler.lower(graph).plan
    check_memory(plan)
    assert sum(isinstance(step, MatmulStep) and step.epilogue is not None for step in plan.steps()) == 1
    x = np.random.default_rng(3).standard_normal((ROWS, INNER)).astype(np.float32)
    w = np.ones((INNER, COLUMNS), np.float32) / 8
    for backend in ("cpu", "reference"):
        state, run = ei.initial_state(graph), ei.compile(graph, backend=backend)
        assert (run(state, x=x, w=w)["before"] == 1).all()
        np.testing.assert_allclose(state["kept"], np.tanh(x.astype(np.float64) @ w), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(run(state, x=x, w=w)["before"], state["kept"] + 1)


def test_an_epilogue_may_write_over_what_it_alone_reads_but_not_over_an_operand():
    with ei.Graph("square") as graph:
        x = ei.input("x", (64, 64))
        a = ei.exp(x)
        b = ei.tanh(a @ a + a)
        ei.output(y=ei.relu(b @ b + b))
    check_memory(compiler.lower(graph).plan)
    x = np.random.default_rng(2).standard_normal((64, 64)).astype(np.float32) / 8
    a = np.exp(x.astype(np.float64))
    b = np.tanh(a @ a + a)
    for backend in ("cpu", "reference"):
        (y,) = ei.compile(graph, backend=backend)(x=x).values()
        np.testing.assert_allclose(y, np.maximum(b @ b + b, 0), rtol=1e-4, atol=1e-4)
