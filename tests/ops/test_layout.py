"""What an operator gives depends on what its operands hold, to the last bit, and not on how they lie in memory."""

import numpy as np
import pytest
from cases import CASES
from harness import arrays_of, build, feeds

import euler_ir as ei
from euler_ir import interpreter
from euler_ir.ops import OPS


def layouts(array):
    """The same numbers: column after column, with gaps between them, and backwards."""
    yield np.array(array, order="F")
    gaps = np.zeros([2 * size for size in array.shape], array.dtype)[(..., *[slice(None, None, 2)] * array.ndim)]
    gaps[...] = array
    yield gaps
    yield np.flip(np.flip(array).copy())


def assert_same_bits(op, operands, others):
    for want, got in zip(interpreter.apply(op, operands), interpreter.apply(op, others), strict=True):
        assert want.tobytes() == got.tobytes(), f"{op} of strides {[array.strides for array in others]}"


def assert_no_layout_matters(graph, leaves):
    arrays = interpreter.evaluate(graph, leaves, [value for op in graph.ops for value in op.results])
    for op in graph.ops:
        operands = [arrays[value] for value in op.operands]
        if op.definition.family == "leaf" or not operands:
            continue
        rows = [np.array(array, order="C") for array in operands]
        for others in zip(*map(layouts, rows)):
            assert_same_bits(op, rows, others)
        if op.definition.family != "indexing":  # which may refuse an index that is repeated
            repeated = [np.broadcast_to(array[..., :1], array.shape) if array.ndim else array for array in rows]
            assert_same_bits(op, [np.array(array, order="C") for array in repeated], repeated)


@pytest.mark.parametrize("family", sorted({case.family for case in CASES}))
def test_every_case(family):
    for index, case in enumerate(CASES):
        if case.family == family:
            graph = ei.Graph(case.name)
            build(graph, index, case)
            state = ei.initial_state(graph) if graph.parameters or graph.states else {}
            assert_no_layout_matters(graph, dict(state) | feeds(index, case, arrays_of(case)))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (7, 9), (3, 17, 33), (130, 140)], ids=str)
def test_sizes_that_numpy_sums_in_runs_and_blas_in_tiles(shape, dtype):
    with ei.Graph("layout") as graph:
        x = ei.input("x", shape, dtype)
        products = ei.matmul(x, ei.transpose(x, (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)))
        ei.output(y=ei.sum(products), s=ei.sum(x, 0), p=ei.prod(x, -1), c=ei.cumsum(x, 0), w=ei.softmax(x), e=ei.exp(x))
    leaves = {"x": np.random.default_rng(0).standard_normal(shape).astype(dtype.replace("f", "float"))}
    assert_no_layout_matters(graph, leaves)


@pytest.mark.parametrize("shape", [(1, 1, 4), (2, 1, 2), (5, 17, 1), (64, 130, 5)], ids=str)
def test_a_product_that_reads_a_matrix_transposed_has_the_bits_of_one_with_its_transpose(shape):
    rows, inner, columns = shape
    random, matmul = np.random.default_rng(0), OPS["matmul"].evaluate
    left, right = random.standard_normal((rows, inner)), random.standard_normal((inner, columns))
    want = matmul({"transpose_left": False, "transpose_right": False}, left, right)
    for flags in ((True, False), (False, True), (True, True)):
        turned = [array.T.copy() if flag else array for flag, array in zip(flags, (left, right))]
        got = matmul(dict(zip(("transpose_left", "transpose_right"), flags)), *turned)
        assert got.tobytes() == want.tobytes()
