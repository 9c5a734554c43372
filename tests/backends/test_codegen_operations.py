"""Every operation on every dtype in generated code against its meaning in numpy, with the values that go wrong."""

import numpy as np
import pytest
from native_nests import run_native
from operations import (
    BINARY,
    BINARY_FLOAT,
    BINARY_NUMBER,
    COMPARISONS,
    FLOATS,
    INTEGERS,
    UNARY,
    UNARY_FLOAT,
    assert_close,
    cast_values,
    elementwise,
    float_values,
    is_nan,
    meaning,
    pairs_of,
    values_of,
)

from euler_ir.dtypes import DTYPES, bf16, bool_, f16, f32, f64, i32, i64, u8
from euler_ir.errors import LoweringError
from euler_ir.index import Axis, Index
from euler_ir.loops.kernel import Buffer, Compute, IndexValue, Load, Nest, Store
from euler_ir.ops import OPS
from euler_ir.ops.random import uniform_array

# The largest distance from numpy's result, in units in the last place; numpy's own error included.
ULP = {
    "exp": 2, "log": 2, "sin": 3, "cos": 3, "tanh": 3, "erf": 2, "erfc": 3, "normal_cdf": 5,
    "normal_pdf": 3, "normal_cdf_tanh": 4, "sigmoid": 3, "rsqrt": 1, "power": 2,
}  # fmt: skip


def run_operation(operation, dtype, arrays, dtypes, vector=True):
    """``operation`` on flat arrays of the given dtypes; without ``vector`` one element at a time."""
    (result,), _ = run_native(elementwise(operation, dtype, arrays[0].size, dtypes, vector), *arrays)
    return result


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("operation", UNARY_FLOAT + UNARY)
def test_unary_of_floats(operation, dtype):
    arrays = (float_values(dtype),)
    ours = run_operation(operation, dtype, arrays, (dtype,))
    ulp = ULP.get(operation, 0)
    assert_close(ours, meaning(operation, arrays, dtype), min(ulp, 1) if dtype.is_half else ulp)
    assert_close(run_operation(operation, dtype, arrays, (dtype,), vector=False), ours, 0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("operation", BINARY_FLOAT + BINARY_NUMBER + BINARY)
def test_binary_of_floats(operation, dtype):
    arrays = pairs_of(dtype)
    target = bool_ if operation in COMPARISONS else dtype
    ours = run_operation(operation, target, arrays, (dtype, dtype))
    theirs = meaning(operation, arrays, dtype)
    if operation in ("maximum", "minimum"):
        # Which of two zeros it is depends on numpy's own vectors.
        ours, theirs = ours + dtype.numpy.type(0), theirs + dtype.numpy.type(0)
    ulp = ULP.get(operation, 0)
    assert_close(ours, theirs, min(ulp, 1) if dtype.is_half else ulp)


@pytest.mark.parametrize("dtype", [*INTEGERS, bool_], ids=str)
def test_operations_of_integers_and_bool(dtype):
    for operation in UNARY if dtype != bool_ else ("stop_gradient", "logical_not"):
        arrays = (values_of(dtype),)
        assert_close(run_operation(operation, dtype, arrays, (dtype,)), meaning(operation, arrays, dtype), 0)
    logic = ["logical_and", "logical_or", "logical_xor"]
    for operation in BINARY + (BINARY_NUMBER if dtype != bool_ else logic):
        arrays = pairs_of(dtype)
        target = bool_ if operation in COMPARISONS else dtype
        for vector in (True, False):
            ours = run_operation(operation, target, arrays, (dtype, dtype), vector)
            assert_close(ours, meaning(operation, arrays, dtype), 0)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_where(dtype):
    chosen, other = pairs_of(dtype)
    condition = np.arange(chosen.size) % 3 == 0
    ours = run_operation("where", dtype, (condition, chosen, other), (bool_, dtype, dtype))
    assert ours.tobytes() == np.where(condition, chosen, other).tobytes()


@pytest.mark.parametrize("source", DTYPES.values(), ids=str)
def test_casts(source):
    values = cast_values(source)
    for target in DTYPES.values():
        for vector in (True, False):
            ours = run_operation("cast", target, (values,), (source,), vector)
            assert_close(ours, meaning("cast", (values,), target), 0)


@pytest.mark.parametrize("source", [i64, f32], ids=str)
def test_narrow_tails_stay_in_their_buffer(source):
    """Truncated values under a mask of one lane, and of every other number of lanes."""
    for size in range(1, 34):
        values = np.arange(size).astype(source.numpy)
        for target in (u8, i32, f16, bf16, bool_):
            assert_close(run_operation("cast", target, (values,), (source,)), meaning("cast", (values,), target), 0)


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
def test_every_half_survives_memory_and_casts(dtype):
    values = np.arange(65536, dtype=np.uint16).view(dtype.numpy)
    ours = run_operation("stop_gradient", dtype, (values,), (dtype,))
    nan = is_nan(values)
    assert np.array_equal(ours[~nan].view(np.uint16), values[~nan].view(np.uint16)) and np.all(is_nan(ours[nan]))
    assert_close(run_operation("cast", f32, (values,), (dtype,)), values.astype(np.float32), 0)
    assert_close(run_operation("negative", dtype, (values,), (dtype,)), -values, 0)


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
def test_rounding_to_half(dtype):
    """f32 values at, just below and just above every half and every middle between two."""
    halves = np.arange(65536, dtype=np.uint16).view(dtype.numpy).astype(np.float32)
    with np.errstate(all="ignore"):
        middles = (halves.astype(np.float64) + np.roll(halves, -1)).astype(np.float32) / 2
        exact = np.concatenate([halves, middles])
        up, down = (np.nextafter(exact, np.float32(end)) for end in (np.inf, -np.inf))
        nans = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001], np.uint32).view(np.float32)
        values = np.concatenate([exact, up, down, nans])
        assert_close(run_operation("cast", dtype, (values,), (f32,)), values.astype(dtype.numpy), 0)


def test_half_arithmetic_rounds_once():
    generator = np.random.default_rng(2)
    for dtype in (f16, bf16):
        left, right = generator.standard_normal((2, 5000)).astype(dtype.numpy)
        for operation in ("add", "subtract", "multiply", "divide"):
            ours = run_operation(operation, dtype, (left, right), (dtype, dtype))
            assert_close(ours, meaning(operation, (left, right), dtype), 0)


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("seed, step", [(0, 0), (-1, 2**40 + 3), (2**63 - 1, -5)])
def test_philox(dtype, seed, step):
    size, stream = 1003, 2**32 - 2
    v = Axis("v", size)
    for vector in (True, False):
        body = (
            Load("seed", i64, "seed", Index()),
            Load("step", i64, "step", Index()),
            IndexValue("n", i64, Index.of(v)),
            Compute("r", dtype, "philox", ("seed", "step", "n"), stream),
            Store("y", Index.of(v), "r"),
        )
        buffers = (Buffer("seed", i64, 1, "input"), Buffer("step", i64, 1, "input"), Buffer("y", dtype, size, "output"))
        (ours,), _ = run_native(Nest(buffers, (v,), body, vector), seed, step)
        assert ours.tobytes() == uniform_array((size,), dtype.numpy, stream, seed, step).tobytes()


def test_unknown_operations_are_refused():
    with pytest.raises(LoweringError, match="no operation 'transmogrify' of f32"):
        run_operation("transmogrify", f32, (np.ones(4, np.float32),), (f32,))


def test_every_elementwise_operator_is_tested():
    tested = {*UNARY, *UNARY_FLOAT, *BINARY, *BINARY_FLOAT, *BINARY_NUMBER, "where", "cast"}
    tested |= {"logical_not", "logical_and", "logical_or", "logical_xor"}
    assert tested == {name for name, definition in OPS.items() if definition.family == "elementwise"}
