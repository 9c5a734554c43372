"""Operands that products make themselves: which, and that programs with them compute what they did before."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import compiler
from euler_ir.backends.cpu.gemm import product
from euler_ir.plan.memory import check_memory
from euler_ir.plan.plan import MadeOperand, MatmulStep

ROWS, INNER, COLUMNS = 70, 90, 45
LAYOUTS = [(False, False), (False, True), (True, False), (True, True)]


def steps_of(graph):
    plan = compiler.lower(graph).plan
    check_memory(plan)
    return list(plan.steps())


def made(graph):
    """For each product whether it makes its left and its right operand."""
    products = [step for step in steps_of(graph) if isinstance(step, MatmulStep)]
    return [tuple(isinstance(operand, MadeOperand) for operand in (step.left, step.right)) for step in products]


def normalized(x):
    x = x.astype(np.float64)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_both_operands_in_every_layout(layout, monkeypatch):
    left = (INNER, ROWS) if layout[0] else (ROWS, INNER)
    right = (COLUMNS, INNER) if layout[1] else (INNER, COLUMNS)
    with ei.Graph("made") as graph:
        a, b, scale = ei.input("a", left), ei.input("b", right, ei.bf16), ei.input("scale", (left[1],))
        ei.output(c=ei.matmul(a * scale + 1, b.cast(ei.f32), transpose_left=layout[0], transpose_right=layout[1]))
    assert made(graph) == [(True, True)]
    generator = np.random.default_rng(0)
    inputs = {
        leaf.op.attributes["name"]: generator.standard_normal(leaf.shape).astype(leaf.dtype.numpy)
        for leaf in graph.inputs
    }
    a = inputs["a"].astype(np.float64) * inputs["scale"] + 1
    b = inputs["b"].astype(np.float64)
    want = (a.T if layout[0] else a) @ (b.T if layout[1] else b)
    for blocks in (None, 20):
        if blocks:  # several blocks along each axis, the last ones not full
            monkeypatch.setattr(product, "_INNER", blocks)
            monkeypatch.setattr(product, "_LEFT_BYTES", 30 * blocks * 4)
            monkeypatch.setattr(product, "_RIGHT_BYTES", 33 * blocks * 4)
        runs = [ei.compile(graph, threads=threads)(**inputs)["c"] for threads in (1, 2, 3)]
        np.testing.assert_allclose(runs[0], want, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(runs[0], runs[1])
        np.testing.assert_array_equal(runs[0], runs[2])
    np.testing.assert_allclose(ei.compile(graph, backend="reference")(**inputs)["c"], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rows, columns", [(70, 90), (31, 90), (70, 41), (31, 41)])
def test_an_operand_may_be_the_first_rows_and_columns_of_what_is_made(rows, columns, transposed, side):
    shape = (columns, rows) if transposed else (rows, columns)
    with ei.Graph("part") as graph:
        x = ei.input("x", (70, 90))
        part = (x * 2 + 1)[:rows, :columns]
        if side == "left":
            ei.output(y=ei.matmul(part, ei.input("w", (shape[1], 40)), transpose_left=transposed))
        else:
            ei.output(y=ei.matmul(ei.input("w", (40, shape[0])), part, transpose_right=transposed))
    assert made(graph) == [(side == "left", side == "right")]
    generator = np.random.default_rng(4)
    inputs = {leaf.op.attributes["name"]: generator.standard_normal(leaf.shape, np.float32) for leaf in graph.inputs}
    part = (inputs["x"].astype(np.float64) * 2 + 1)[:rows, :columns]
    part = part.T if transposed else part
    want = part @ inputs["w"] if side == "left" else inputs["w"] @ part
    for backend in ("cpu", "reference"):
        np.testing.assert_allclose(ei.compile(graph, backend=backend)(**inputs)["y"], want, rtol=1e-4, atol=1e-3)


def test_a_layer_norm_before_products_is_stored_as_its_statistics():
    with ei.Graph("layer norm") as graph:
        x, v, w = ei.input("x", (4, 30, 64)), ei.input("v", (64, 48)), ei.input("w", (64, 50))
        gain, bias = ei.input("gain", (64,)), ei.input("bias", (64,))
        y = ei.layer_norm(x, gain, bias)
        ei.output(a=y @ v, b=y @ w)
    assert made(graph) == [(True, False), (True, False)]
    in_arena = [buffer for buffer in compiler.lower(graph).plan.buffers if buffer.place == "arena"]
    assert in_arena and all(buffer.type.size == 4 * 30 for buffer in in_arena)
    generator = np.random.default_rng(1)
    inputs = {leaf.op.attributes["name"]: generator.standard_normal(leaf.shape, np.float32) for leaf in graph.inputs}
    want = normalized(inputs["x"]) * inputs["gain"] + inputs["bias"]
    results = ei.compile(graph)(**inputs)
    np.testing.assert_allclose(results["a"], want @ inputs["v"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(results["b"], want @ inputs["w"], rtol=1e-4, atol=1e-4)


def expensive(x, w):
    return {"y": ei.exp(x) @ w}


def read_elsewhere(x, w):
    h = x * 2
    return {"y": h @ w, "h": h}


def of_a_sum(x, w):
    h = x * 2
    return {"y": h @ w, "sum": ei.sum(h * h)}


def moved(x, w):
    return {"y": ei.concatenate([x * 2, x], 0) @ w}


def in_a_batch(x, w):
    return {"y": (x.reshape(7, 10, INNER) * 2) @ (ei.input("v", (7, INNER, COLUMNS)))}


def of_one_column(x, w):
    return {"y": (ei.input("column", (ROWS, 1)) * 2) @ ei.input("row", (1, 30))}


def times_itself(x, w):
    h = x * 2
    return {"y": ei.matmul(h, h, transpose_right=True)}


def of_a_product(x, w):
    return {"y": ei.relu(x @ w) @ ei.input("v", (COLUMNS, 30))}


@pytest.mark.parametrize(
    "build", [expensive, read_elsewhere, of_a_sum, moved, in_a_batch, of_one_column, times_itself, of_a_product]
)
def test_what_is_dear_or_needed_elsewhere_or_no_plain_matrix_is_stored(build):
    with ei.Graph("stored") as graph:
        ei.output(**build(ei.input("x", (ROWS, INNER)), ei.input("w", (INNER, COLUMNS))))
    assert not any(True in operands for operands in made(graph))


def test_what_a_prologue_reads_is_not_overwritten_by_the_epilogue():
    with ei.Graph("in place") as graph:
        x, w = ei.input("x", (64, 64)), ei.input("w", (64, 64))
        h = ei.exp(x)
        ei.output(y=ei.tanh((h * 0.5) @ w + h))
    steps_of(graph)
    generator = np.random.default_rng(2)
    x, w = (generator.standard_normal((64, 64), np.float32) / 4 for _ in range(2))
    h = np.exp(x.astype(np.float64))
    for backend in ("cpu", "reference"):
        y = ei.compile(graph, backend=backend)(x=x, w=w)["y"]
        np.testing.assert_allclose(y, np.tanh(0.5 * h @ w + h), rtol=1e-4, atol=1e-5)
