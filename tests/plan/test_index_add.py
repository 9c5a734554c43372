"""A scatter that is added to a tensor which nothing else reads changes that tensor where it lies."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.compiler import lower
from euler_ir.graph_equality import structurally_equal
from euler_ir.passes import optimize
from euler_ir.plan.memory import check_memory


def tied(extra=lambda graph, product, total: None):
    """The gradient of a matrix that is looked up and multiplied by: a product plus a scatter."""
    with ei.Graph("tied") as graph:
        rows, y = ei.input("rows", (9,), ei.i32), ei.input("y", (12, 30))
        x, updates = ei.input("x", (12, 6)), ei.input("updates", (9, 6))
        product = ei.matmul(y, x, transpose_left=True)
        total = product + ei.scatter_add(rows, updates, 30)
        ei.output(y=total * 2)
        extra(graph, product, total)
    return graph


def arrays():
    random = np.random.default_rng(2)
    shapes = {"y": (12, 30), "x": (12, 6), "updates": (9, 6)}
    given = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return given | {"rows": np.array([0, 29, 3, 3, 7, 7, 7, 1, 0], np.int32)}


def in_f64(given):
    given = {
        name: array.astype(np.float64 if array.dtype.kind == "f" else array.dtype) for name, array in given.items()
    }
    total = given["y"].T @ given["x"]
    np.add.at(total, given["rows"], given["updates"])
    return total


def changed(graph):
    return [op for op in lower(graph).optimized.ops if op.name == "index_add"]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_the_sum_is_that_of_float64_in_the_memory_of_the_product(backend):
    graph = tied()
    plan = lower(graph).plan
    check_memory(plan)
    assert len(changed(graph)) == 1
    assert plan.arena_bytes == 30 * 6 * 4 + 48  # whole cache lines
    found = ei.compile(graph, backend=backend)(**arrays())["y"]
    np.testing.assert_allclose(found, 2 * in_f64(arrays()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "extra",
    [
        lambda graph, product, total: ei.output(also=product),
        lambda graph, product, total: ei.output(also=ei.exp(product)),
        lambda graph, product, total: ei.output(also=total.op.operands[1] * 3),
    ],
    ids=["an output", "read elsewhere", "the scatter is read elsewhere"],
)
def test_what_is_read_elsewhere_is_not_changed(extra):
    graph = tied(extra)
    assert not changed(graph)
    check_memory(lower(graph).plan)
    found = ei.compile(graph)(**arrays())
    np.testing.assert_allclose(found["y"], 2 * in_f64(arrays()), rtol=1e-5, atol=1e-6)


def test_the_result_may_be_read_often_and_be_an_output():
    graph = tied(lambda graph, product, total: ei.output(also=total, norm=ei.sum(total * total)))
    assert len(changed(graph)) == 1
    check_memory(lower(graph).plan)
    found, total = ei.compile(graph)(**arrays()), in_f64(arrays())
    np.testing.assert_allclose(found["also"], total, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["norm"], np.sum(total * total), rtol=1e-5)


def test_an_index_out_of_range_is_an_error():
    given = arrays()
    given["rows"][4] = 30
    with pytest.raises(ei.ExecutionError, match=r"0\.\.29"):
        ei.compile(tied())(**given)


def test_a_sum_in_place_that_something_else_reads_too_makes_a_new_tensor():
    optimized = lower(tied()).optimized
    assert structurally_equal(optimize(optimized), optimized)
    (op,) = (op for op in optimized.ops if op.name == "index_add")
    with optimized:
        ei.output(also=op.operands[0])
    assert [op.name for op in optimize(optimized).ops].count("index_add") == 0
    found = ei.compile(optimized)(**arrays())
    np.testing.assert_allclose(found["y"], 2 * in_f64(arrays()), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["also"], arrays()["y"].T @ arrays()["x"], rtol=1e-5, atol=1e-6)
