"""Legalize: what loops and library calls cannot do becomes what they can, and means the same."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import interpreter
from euler_ir.compiler import lower
from euler_ir.dtypes import bf16, bool_, f16, f32, i8, i32, i64
from euler_ir.passes.dce import RemoveDead
from euler_ir.passes.legalize import Legalize
from euler_ir.passes.views import MAX_BATCH_AXES
from euler_ir.passes.parallelism import SMALL_FRAME
from euler_ir.verify import verify


def legal(build, *types):
    """The graph of ``build`` before and after the pass."""
    with ei.Graph() as graph:
        ei.output(y=build(*(ei.input(f"x{n}", shape, dtype) for n, (shape, dtype) in enumerate(types))))
    after = RemoveDead().run(Legalize().run(graph))
    verify(after)
    assert {name: value.type for name, value in after.outputs.items()} == {"y": graph.outputs["y"].type}
    return graph, after


def same(graph, after, rtol=0.0, **arrays):
    want, got = (interpreter.run(each, arrays)[0]["y"] for each in (graph, after))
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol)


def ops(graph, *names):
    return [op for op in graph.ops if op.name in names]


@pytest.mark.parametrize("dtype", [f16, bf16])
@pytest.mark.parametrize(
    "build",
    [
        lambda x, i: ei.sum(x, axes=0),
        lambda x, i: ei.prod(x),
        lambda x, i: ei.max(x, axes=1),
        lambda x, i: ei.cumsum(x, 0),
        lambda x, i: x @ x,
        lambda x, i: ei.scatter_add(i, x, 5),
    ],
    ids=["sum", "prod", "max", "cumsum", "matmul", "scatter_add"],
)
def test_half_types_are_summed_in_f32(build, dtype):
    graph, after = legal(build, ((4, 4), dtype), ((4,), i32))
    for op in ops(after, "sum", "prod", "max", "cumsum", "matmul", "scatter_add"):
        assert op.result.dtype == f32
    random = np.random.default_rng(0)
    same(graph, after, x0=random.standard_normal((4, 4)).astype(dtype.numpy), x1=np.array([0, 4, 4, 1], np.int32))


def test_f32_is_left_alone():
    graph, after = legal(lambda x: ei.cumsum(ei.max(x @ x, axes=1), 0), ((4, 4), f32))
    assert str(after) == str(graph)


@pytest.mark.parametrize("turned_left", [False, True])
@pytest.mark.parametrize("turned_right", [False, True])
@pytest.mark.parametrize(("left", "right"), [((), ()), ((3,), (3,)), ((), (3,)), ((1, 2), (4, 2)), ((2, 1), (3,))])
def test_a_product_of_one_row_is_a_sum_of_the_matrix_as_it_is_stored(left, right, turned_left, turned_right):
    """Unless several rows share a matrix, as in the last of the batches: then it is read once for all."""
    row, matrix = ((7, 1) if turned_left else (1, 7)), ((5, 7) if turned_right else (7, 5))
    types = ((left + row, f32), (right + matrix, f32))
    graph, after = legal(lambda x, y: ei.matmul(x, y, turned_left, turned_right), *types)
    assert len(ops(after, "matmul")) == (left == (2, 1))
    assert not [op for op in ops(after, "transpose") if op.operands[0] is after.inputs[1]]
    random = np.random.default_rng(0)
    # Small integers: no order of summing them up rounds.
    same(graph, after, **{f"x{n}": random.integers(-9, 9, shape).astype("f") for n, (shape, _) in enumerate(types)})


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((SMALL_FRAME + 1,), None),
        ((2 * SMALL_FRAME,), None),
        ((3, SMALL_FRAME - 1), (1,)),
        ((257, 129), None),
        ((SMALL_FRAME, 17), (0,)),
        ((2, SMALL_FRAME // 2 + 1, 3), (0, 1)),
        ((2, 5003, 3), (1, 2)),
        ((1, 40000, 1), (0, 1, 2)),
    ],
)
@pytest.mark.parametrize("reduce", [ei.sum, ei.prod, ei.max, ei.min])
def test_reductions_with_little_parallel_work_are_cut_in_two(reduce, shape, axes):
    """All numbers are below zero, so that padding with anything but the identity would show."""
    graph, after = legal(lambda x: reduce(x, axes=axes), (shape, i64))
    assert len(ops(after, "sum", "prod", "max", "min")) == 2
    same(graph, after, x0=np.random.default_rng(0).integers(-9, -1, shape))
    same(graph, after, x0=-np.random.default_rng(0).integers(-9, -1, shape))


@pytest.mark.parametrize(
    ("shape", "axes"), [((SMALL_FRAME,), None), ((64, SMALL_FRAME), (1,)), ((SMALL_FRAME, 64), (0,))]
)
def test_reductions_with_enough_parallel_work_stay_one(shape, axes):
    graph, after = legal(lambda x: ei.sum(x, axes=axes), (shape, f32))
    assert str(after) == str(graph)


def test_long_sums_of_bools_and_halves_are_cut_as_well():
    for dtype, build in ((bool_, lambda x: ei.max(x)), (bf16, lambda x: ei.sum(x))):
        _, after = legal(build, ((2 * SMALL_FRAME,), dtype))
        assert len(ops(after, "sum", "max")) == 2
        assert all(op.result.dtype not in (bool_, bf16) for op in ops(after, "sum", "max"))


@pytest.mark.parametrize("transposes", [(False, False), (True, False), (False, True), (True, True)])
def test_integer_products_wrap_around(transposes):
    left, right = (((3, 4), (4, 5))[n][:: -1 if flag else 1] for n, flag in enumerate(transposes))
    graph, after = legal(lambda a, b: ei.matmul(a, b, *transposes), ((2, *left), i8), (right, i8))
    assert not ops(after, "matmul")
    draw = np.random.default_rng(0).integers
    same(graph, after, x0=draw(-128, 128, (2, *left), np.int8), x1=draw(-128, 128, right, np.int8))


@pytest.mark.parametrize("transposes", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("inner", "parts"), [(8192, 8), (3 * 2048, 4), (2048 - 1, 1), (2047 * 5, 1)])
def test_small_products_over_many_steps_become_a_sum_of_products(transposes, inner, parts):
    left, right = ((40, inner), (inner, 48))
    shapes = [shape[::-1] if flag else shape for shape, flag in zip((left, right), transposes)]
    graph, after = legal(lambda a, b: ei.matmul(a, b, *transposes), *((shape, f32) for shape in shapes))
    (matmul,) = ops(after, "matmul")
    assert matmul.result.shape == ((parts, 40, 48) if parts > 1 else (40, 48))
    random = np.random.default_rng(0)
    arrays = {f"x{n}": random.standard_normal(shape).astype(np.float32) for n, shape in enumerate(shapes)}
    wide = [array.T if flag else array for array, flag in zip(arrays.values(), transposes)]
    want = wide[0].astype(np.float64) @ wide[1]
    for threads in (1, 3):
        np.testing.assert_allclose(ei.compile(graph, threads=threads)(**arrays)["y"], want, atol=2e-3)
    # Nothing is copied for it: the parts are read where they lie.
    steps = [type(step).__name__ for step in lower(graph).plan.steps()]
    assert steps == (["MatmulStep", "KernelStep"] if parts > 1 else ["MatmulStep"])


def test_products_over_many_broadcast_batch_axes_get_them_spelled_out():
    shapes = (2, 1, 3, 1, 4, 5), (2, 3, 1, 2, 5, 6)
    graph, after = legal(lambda a, b: a @ b, *((shape, f32) for shape in shapes))
    (matmul,) = ops(after, "matmul")
    assert matmul.operands[0].shape[:-2] == matmul.operands[1].shape[:-2] == (2, 3, 3, 2)
    random = np.random.default_rng(0)
    same(graph, after, 1e-6, **{f"x{n}": random.standard_normal(s).astype(np.float32) for n, s in enumerate(shapes)})
    assert len([size for size in (2, 3, 3, 2) if size != 1]) > MAX_BATCH_AXES


@pytest.mark.parametrize(
    ("build", "shape", "value"),
    [
        (lambda x: ei.sum(x, axes=1), (3, 0), 0),
        (lambda x: ei.prod(x, axes=1), (3, 0), 1),
        (lambda x: ei.matmul(x, x, transpose_right=True), (3, 0), 0),
        (lambda x: ei.scatter_add(ei.cast(x, i32), x, 4), (0,), 0),
        (lambda x: ei.cumsum(x, 0), (0, 3), None),
    ],
)
def test_nothing_is_summed_without_a_loop(build, shape, value):
    graph, after = legal(build, (shape, f32))
    assert not ops(after, "sum", "prod", "matmul", "scatter_add", "cumsum")
    same(graph, after, x0=np.ones(shape, np.float32))
    assert value is None or np.all(interpreter.run(after, {"x0": np.ones(shape, np.float32)})[0]["y"] == value)


def test_what_it_makes_is_blamed_on_the_users_line():
    _, after = legal(lambda x: ei.sum(x), ((2 * SMALL_FRAME,), bf16))  # this line
    assert all("test_legalize.py" in str(op.location) for op in after.ops if op.operands)
