"""Products through the same calls of cuBLASLt as on a GPU, done by the emulator's library, against numpy in f64."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from euler_ir.backends.cuda.calls import BufferPointer, Fill
from euler_ir.backends.cuda.emulator import cublaslt as emulated
from euler_ir.backends.cuda.gemm import Product, ProductOptions, product_calls
from euler_ir.backends.cuda.gemm.api import Api
from euler_ir.backends.cuda.gemm.cublaslt import CublasLt
from euler_ir.dtypes import bf16, f16, f32, f64
from euler_ir.plan.plan import MatmulStep, Origin, PlannedView

TOLERANCE = {f64: 1e-13, f32: 2e-6, f16: 2.0**-11, bf16: 2.0**-8}
"""Relative to the sum of the magnitudes of all terms, which bounds what rounding can do."""
ORIGIN = (Origin("matmul", ("matmul",), "", ()),)


@pytest.fixture(scope="module")
def library():
    return CublasLt(Api(emulated.load()), 1 << 20)


def aligned(nbytes, offset=0):
    """u8[nbytes] that begins ``offset`` bytes after a multiple of 256, filled with NaN."""
    memory = np.full(nbytes + 512, 0xFF, np.uint8)
    start = -memory.ctypes.data % 256 + offset
    return memory[start : start + nbytes]


def run(library, step, arrays, tf32=False):
    """Do ``step`` on ``arrays``, flat ones, in place."""
    workspace = aligned(library.workspace_bytes)
    for call in product_calls(step, None, ProductOptions(tf32)).calls:
        if isinstance(call, Fill):
            assert isinstance(call.target, BufferPointer)
            arrays[call.target.number].view(np.uint8)[call.target.offset :][: call.nbytes] = call.byte
            continue
        assert isinstance(call, Product)
        addresses = [arrays[pointer.number].ctypes.data + pointer.offset for pointer in call.pointers]
        call.prepare(library, addresses, workspace.ctypes.data)(0)


class Matrices:
    """Matrices in a flat array of ``dtype``, ``padding`` elements longer than they need be from row to row.

    ``shared`` are the batch axes along which they are the same. With ``side_by_side`` the rows of all lie one after
    the other, before the next row of any.
    """

    def __init__(
        self,
        number,
        dtype,
        batch,
        rows,
        columns,
        transposed=False,
        padding=0,
        offset=0,
        shared=(),
        side_by_side=False,
    ):
        height, width = (columns, rows) if transposed else (rows, columns)
        leading = width + padding
        span = leading if side_by_side else height * leading
        strides = [0] * len(batch)
        for axis in reversed(range(len(batch))):
            if axis not in shared:
                strides[axis] = span
                span *= batch[axis]
        if side_by_side:
            leading, span = span, span * height
        self.view = PlannedView(number, offset, tuple(strides), leading, transposed)
        self.flat = aligned((offset + span) * dtype.itemsize).view(dtype.numpy)
        steps = (*strides, *((1, leading) if transposed else (leading, 1)))
        self.array = np.lib.stride_tricks.as_strided(
            self.flat[offset:], (*batch, rows, columns), [step * dtype.itemsize for step in steps]
        )


def problem(dtype, batch, rows, columns, inner, left={}, right={}, result={}, running=False):
    """A step, the arrays of its operands and result, filled, and what is there before of the result."""
    random = np.random.default_rng(rows * 100 + columns * 10 + inner)
    matrices = (
        Matrices(0, dtype, batch, rows, inner, **left),
        Matrices(1, dtype, batch, inner, columns, **right),
        Matrices(2, dtype, batch, rows, columns, **result),
    )
    for each in matrices[: 3 if running else 2]:
        each.array[...] = random.normal(size=each.array.shape)
    views = [each.view for each in matrices]
    step = MatmulStep(dtype, batch, rows, columns, inner, *views, ORIGIN, running=2 if running else None)
    return step, matrices


def expect_product(library, step, matrices, tf32=False, tolerance=None):
    """Run ``step`` and compare with f64. Nothing else of the result's memory changes."""
    left, right, before = (each.array.astype(np.float64) for each in matrices)
    result = matrices[2]
    run(library, step, [each.flat for each in matrices], tf32)
    found = result.array.astype(np.float64)
    wanted, size = left @ right, abs(left) @ abs(right)
    if step.running is not None:
        wanted, size = wanted + before, size + abs(before)
    assert np.isfinite(found).all()
    assert (abs(found - wanted) <= (tolerance or TOLERANCE[step.dtype]) * size).all()
    result.array[...] = np.nan
    assert np.isnan(result.flat.astype(np.float64)).all()


DTYPES = pytest.mark.parametrize("dtype", [f32, f64, f16, bf16], ids=str)
SIZES = [(1, 1, 1), (5, 3, 7), (64, 48, 32), (3, 65, 129), (2, 3, 300)]


@DTYPES
@pytest.mark.parametrize("transposed", list(itertools.product([False, True], repeat=2)), ids=str)
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)], ids=str)
def test_products(library, dtype, transposed, batch):
    for rows, columns, inner in SIZES:
        left, right = ({"transposed": each} for each in transposed)
        expect_product(library, *problem(dtype, batch, rows, columns, inner, left, right))


@DTYPES
def test_views_with_offsets_and_gaps(library, dtype):
    for padding, offset in ((3, 1), (8, 16), (1, 0), (0, 5)):
        gap = {"padding": padding, "offset": offset}
        step, matrices = problem(dtype, (2, 3), 5, 7, 9, gap, {**gap, "transposed": True}, gap)
        expect_product(library, step, matrices)


@DTYPES
def test_an_operand_that_all_items_share(library, dtype):
    for left, right in itertools.product([(), (0,), (1,), (0, 1)], repeat=2):
        expect_product(library, *problem(dtype, (4, 2), 5, 7, 9, {"shared": left}, {"shared": right}))


@DTYPES
def test_matrices_side_by_side(library, dtype):
    """As heads of attention lie: a transpose of the result that the product does itself."""
    beside = {"side_by_side": True}
    expect_product(library, *problem(dtype, (2, 3), 5, 7, 9, beside, {**beside, "transposed": True}, beside))
    expect_product(library, *problem(dtype, (3,), 5, 7, 9, beside, beside, {**beside, "padding": 4}))


@DTYPES
def test_running_adds_to_what_is_there_and_rounds_once(library, dtype):
    expect_product(library, *problem(dtype, (), 33, 17, 65, result={"padding": 3}, running=True))
    expect_product(library, *problem(dtype, (2, 3), 4, 5, 6, running=True))


def test_the_longer_of_two_batch_axes_is_stepped_over_in_one_call():
    step, _ = problem(f32, (2, 12), 4, 5, 6, {"shared": (1,)})
    assert [call.items for call in product_calls(step, None).calls] == [12, 12]
    step, _ = problem(f32, (12, 2), 4, 5, 6, {"shared": (1,)})
    assert [call.items for call in product_calls(step, None).calls] == [12, 12]


@DTYPES
@pytest.mark.parametrize(
    "batch, rows, columns, inner", [((2, 2), 3, 4, 0), ((), 0, 4, 5), ((0,), 3, 4, 5), ((), 3, 0, 0)]
)
def test_nothing_to_sum_or_to_make(library, dtype, batch, rows, columns, inner):
    for padding in (0, 3):
        step, matrices = problem(dtype, batch, rows, columns, inner, result={"padding": padding})
        expect_product(library, step, matrices)
        assert not any(isinstance(call, Product) for call in product_calls(step, None).calls)


def test_a_sum_of_nothing_leaves_what_it_is_added_to(library):
    expect_product(library, *problem(f32, (), 3, 4, 0, running=True))


def test_f16_sums_beyond_its_largest_number_are_in_f32(library):
    step, matrices = problem(f16, (), 1, 1, 4096)
    matrices[0].array[...] = 100
    matrices[1].array[:2048] = 8  # the sum rises to 1,638,400
    matrices[1].array[2048:] = -8
    run(library, step, [each.flat for each in matrices])
    assert matrices[2].array.item() == 0


def test_f32_is_not_rounded_to_tf32_unless_asked(library):
    step, matrices = problem(f32, (), 16, 16, 64)
    expect_product(library, step, matrices)
    expect_product(library, step, matrices, tf32=True, tolerance=2.0**-10)
    with pytest.raises(AssertionError):
        expect_product(library, step, matrices, tf32=True)


def test_heuristics_are_asked_for_all_that_an_algorithm_may_depend_on(monkeypatch):
    library, asked = CublasLt(Api(emulated.load()), 1 << 16), []
    choose = library._choose
    monkeypatch.setattr(library, "_choose", lambda *given: asked.append(given) or choose(*given))
    step, _ = problem(f32, (2,), 4, 8, 6)
    (product,) = product_calls(step, None).calls
    apart = replace(product.result, leading=16, batch_stride=64)
    others = [
        replace(product, dtype=bf16),
        replace(product, tf32=True),
        replace(product, items=1),
        replace(product, beta=1.0),
        replace(product, right=replace(product.right, batch_stride=64)),
        replace(product, left=replace(product.left, leading=7)),
        replace(product, left=replace(product.left, transposed=True)),
        replace(product, result=apart, addend=apart),
    ]
    for each in (product, *others, product, *others):
        assert each.is_supported(library)
    assert len(asked) == 1 + len(others)
