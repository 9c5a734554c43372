"""Matrix products of the CPU backend against numpy in f64: every layout, odd sizes, batches, any number of threads."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.backends.cpu.gemm import product, tile
from euler_ir.backends.cpu.gemm.product import choose_blocks, choose_grid
from euler_ir.backends.cpu.gemm.tile import best_tile
from euler_ir.backends.cpu.product_choice import is_for_openblas
from euler_ir.backends.cpu.program import CpuProgram
from euler_ir.compiler import lower
from euler_ir.dtypes import f32, f64
from euler_ir.plan.memory import check_memory

SIZES = [(2, 2, 2), (12, 7, 32), (13, 64, 33), (70, 1000, 45), (257, 3, 129), (300, 385, 70)]
LAYOUTS = [(False, False), (False, True), (True, False), (True, True)]


def operands(rows, inner, columns, layout, dtype, batch=(), seed=0):
    generator = np.random.default_rng(seed)
    left = (inner, rows) if layout[0] else (rows, inner)
    right = (columns, inner) if layout[1] else (inner, columns)
    return [generator.standard_normal((*batch, *shape)).astype(dtype.numpy) for shape in (left, right)]


def graph_of(left, right, layout, dtype):
    with ei.Graph("product") as graph:
        a, b = ei.input("a", left.shape, dtype), ei.input("b", right.shape, dtype)
        ei.output(c=ei.matmul(a, b, transpose_left=layout[0], transpose_right=layout[1]))
    return graph


def multiplied(left, right, layout):
    """The product in f64, and for each element the sum of the magnitudes of its terms, by which its error is judged."""
    left, right = (
        np.swapaxes(array, -1, -2).astype(np.float64) if flip else array.astype(np.float64)
        for array, flip in zip((left, right), layout)
    )
    return left @ right, np.abs(left) @ np.abs(right)


def check(result, left, right, layout, dtype):
    want, magnitude = multiplied(left, right, layout)
    # One rounding a term, all the same way, would be far more than what a sum of many terms gathers.
    error = np.abs(result - want) / (magnitude * np.finfo(dtype.numpy).eps)
    assert error.max() <= 4 + 0.2 * left.shape[-1 if not layout[0] else -2] ** 0.5, error.max()


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", SIZES)
def test_every_layout_and_odd_size(sizes, layout, dtype):
    left, right = operands(*sizes, layout, dtype)
    graph = graph_of(left, right, layout, dtype)
    results = [ei.compile(graph, threads=threads)(a=left, b=right)["c"] for threads in (1, 2, 3)]
    check(results[0], left, right, layout, dtype)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("batch", [(1,), (2,), (3,), (8,), (3, 5)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_batches(batch, layout):
    left, right = operands(40, 50, 33, layout, f32, batch)
    graph = graph_of(left, right, layout, f32)
    results = [ei.compile(graph, threads=threads)(a=left, b=right)["c"] for threads in (1, 3)]
    check(results[0], left, right, layout, f32)
    np.testing.assert_array_equal(*results)


def test_a_batch_of_one_matrix_that_all_items_share():
    (left, _), (_, right) = operands(20, 30, 40, (False, False), f32, (6,)), operands(20, 30, 40, (False, False), f32)
    with ei.Graph("shared") as graph:
        a, b = ei.input("a", left.shape), ei.input("b", right.shape)
        ei.output(c=a @ b, d=ei.matmul(b, a, transpose_left=True, transpose_right=True))
    results = ei.compile(graph, threads=2)(a=left, b=right)
    check(results["c"], left, np.broadcast_to(right, (6, *right.shape)), (False, False), f32)
    check(results["d"], np.broadcast_to(right, (6, *right.shape)), left, (True, True), f32)


@pytest.mark.parametrize("nbytes", [16, 32])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_narrower_vectors_than_this_machine_may_have(nbytes, layout, monkeypatch):
    monkeypatch.setattr(tile, "vector_bytes", lambda: nbytes)
    assert best_tile(f32).lanes * 4 == nbytes
    for sizes in SIZES:
        left, right = operands(*sizes, layout, f32)
        graph = graph_of(left, right, layout, f32)
        check(ei.compile(graph, threads=2)(a=left, b=right)["c"], left, right, layout, f32)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e38])
def test_what_is_not_a_number_reaches_its_row_and_column_and_no_other(bad):
    left, right = operands(50, 60, 70, (False, False), f32)
    left[20, 30] = bad
    graph = graph_of(left, right, (False, False), f32)
    result = ei.compile(graph, threads=2)(a=left, b=right)["c"]
    with np.errstate(all="ignore"):
        want = left.astype(np.float64) @ right
    clean = np.delete(np.arange(50), 20)
    check(result[clean], left[clean], right, (False, False), f32)
    if np.isfinite(bad):
        np.testing.assert_allclose(result[20], want[20].astype(np.float32), rtol=1e-5)
    else:
        np.testing.assert_array_equal(result[20], want[20].astype(np.float32))


def test_small_blocks_meet_every_edge(monkeypatch):
    """With tiny blocks one product has several along each axis, the last ones not full."""
    monkeypatch.setattr(product, "_INNER", 20)
    monkeypatch.setattr(product, "_LEFT_BYTES", 30 * 20 * 4)
    monkeypatch.setattr(product, "_RIGHT_BYTES", 70 * 20 * 4)
    left, right = operands(200, 93, 301, (False, True), f32)
    with ei.Graph("blocks") as graph:
        a, b = ei.input("a", left.shape), ei.input("b", right.shape)
        bias = ei.input("bias", (301,))
        ei.output(c=ei.relu(ei.matmul(a, b, transpose_right=True) + bias))
    bias = np.linspace(-3, 3, 301, dtype=np.float32)
    want = np.maximum(multiplied(left, right, (False, True))[0] + bias, 0)
    results = [ei.compile(graph, threads=threads)(a=left, b=right, bias=bias)["c"] for threads in (1, 2, 3)]
    np.testing.assert_allclose(results[0], want, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 6, 16])
@pytest.mark.parametrize("rows, columns", [(1, 1), (256, 50257), (2048, 768), (13, 100_000)])
def test_the_grid_gives_each_thread_one_part_and_evenly(threads, rows, columns):
    shape = best_tile(f32)
    high, wide = choose_grid(shape, rows, columns, threads)
    assert high * wide == threads
    largest = -(-rows // high) * -(-columns // wide)
    assert largest <= 1.2 * rows * columns / threads + shape.rows * columns + shape.columns * rows


@pytest.mark.parametrize("sizes", [(1, 1, 1), (256, 50257, 768), (2048, 768, 3072), (5, 7, 100_000)])
def test_blocks_cover_a_piece_and_fit_the_scratch_memory(sizes):
    for dtype in (f32, f64):
        shape = best_tile(dtype)
        blocks = choose_blocks(shape, *sizes)
        assert blocks.rows % shape.rows == 0 and blocks.columns % shape.columns == 0 and blocks.inner >= 1
        left, right = blocks.scratch(shape)
        assert left >= blocks.rows * blocks.inner and right >= blocks.columns * blocks.inner
        assert (left + right) * dtype.itemsize < 8 << 20


# -- generated code or OpenBLAS ----------------------------------------------------------------------------------------


def step_of(rows, inner, columns, layout=(False, False)):
    left, right = operands(rows, inner, columns, layout, f32)
    (step,) = lower(graph_of(left, right, layout, f32)).plan.steps()
    return step


def timing(generated, by_library):
    """What `is_for_openblas` asks for the times, and what it was asked."""
    asked = []

    def seconds(plan, by_openblas):
        asked.append((plan, by_openblas))
        return by_library if by_openblas else generated

    return seconds, asked


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EULER_IR_CACHE", str(tmp_path))


@pytest.mark.parametrize("times, wins", [((1.0, 0.5), True), ((1.0, 0.95), False), ((0.5, 1.0), False)])
def test_openblas_gets_a_large_product_when_it_is_clearly_faster_and_the_cache_remembers(times, wins, empty_cache):
    step = step_of(512, 300, 512)
    seconds, asked = timing(*times)
    assert is_for_openblas(step, seconds) is wins
    assert [by_openblas for _, by_openblas in asked] == [False, True]
    assert is_for_openblas(step, seconds) is wins
    assert len(asked) == 2


def test_nothing_is_tried_for_small_products_nor_without_a_cache(empty_cache, monkeypatch):
    seconds, asked = timing(1.0, 0.1)
    assert not is_for_openblas(step_of(64, 64, 64), seconds)
    assert is_for_openblas(step_of(64, 64, 1), seconds)
    monkeypatch.setenv("EULER_IR_CACHE", "off")
    assert not is_for_openblas(step_of(512, 300, 512), seconds)
    assert not asked


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", [(130, 65, 257), (30, 40, 1)])
def test_both_give_the_product(sizes, layout):
    left, right = operands(*sizes, layout, f32)
    plan = lower(graph_of(left, right, layout, f32)).plan
    numbers = {buffer.name: number for number, buffer in enumerate(plan.buffers)}
    for by_openblas in (False, True):
        result = np.full((sizes[0], sizes[2]), np.nan, np.float32)
        program = CpuProgram(plan, 2, by_openblas=by_openblas)
        program.run({numbers["a"]: left, numbers["b"]: right, numbers["c"]: result})
        check(result, left, right, layout, f32)


def test_what_is_tried_is_the_product_alone(empty_cache):
    seconds, asked = timing(1.0, 1.0)
    is_for_openblas(step_of(512, 300, 512, (True, True)), seconds)
    plan, _ = asked[0]
    check_memory(plan)
    (step,) = plan.steps()
    assert (step.rows, step.inner, step.columns, step.left.transposed) == (512, 300, 512, True)
    assert [buffer.type.size for buffer in plan.buffers] == [512 * 300, 300 * 512, 512 * 512]
