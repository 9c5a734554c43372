"""The operations of Compute by what they take, with the values on which they go wrong and their meaning in numpy."""

import itertools

import ml_dtypes
import numpy as np

from euler_ir.dtypes import DTYPES, bf16, bool_, f16, f32, f64
from euler_ir.index import Axis, Index
from euler_ir.loops.kernel import Buffer, Compute, Load, Nest, Store
from euler_ir.ops import OPS

FLOATS = [f16, bf16, f32, f64]
INTEGERS = [dtype for dtype in DTYPES.values() if dtype.is_integer]

UNARY_FLOAT = [
    "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "erfc", "normal_cdf", "normal_pdf", "normal_cdf_tanh",
    "sigmoid", "floor",
]  # fmt: skip
UNARY = ["negative", "absolute", "sign", "stop_gradient"]
BINARY_FLOAT = ["divide", "power"]
BINARY_NUMBER = ["subtract", "floor_divide", "remainder"]
BINARY = ["add", "multiply", "maximum", "minimum", "equal", "not_equal", "less", "less_equal"]
COMPARISONS = ["equal", "not_equal", "less", "less_equal"]


def meaning(operation, arrays, dtype):
    with np.errstate(all="ignore"):
        return OPS[operation].evaluate({"dtype": dtype}, *arrays)


def float_values(dtype):
    """Special values, denormals and powers of two around them, and numbers of every size."""
    info = ml_dtypes.finfo(dtype.numpy)
    special = [0.0, 1.0, 2.0, 0.5, 3.0, 7.5, float(info.max), float(info.tiny), float(info.smallest_subnormal), np.inf]
    generator = np.random.default_rng(1)
    spread = generator.standard_normal(60) * 10.0 ** generator.uniform(-4, 2, 60)
    values = np.array([*special, *(-value for value in special), np.nan, *spread])
    with np.errstate(all="ignore"):
        return values.astype(dtype.numpy)


def values_of(dtype):
    if dtype.is_float:
        return float_values(dtype)
    if dtype == bool_:
        return np.array([False, True])
    info = np.iinfo(dtype.numpy)
    values = [0, 1, 2, 3, 7, 100, info.max, info.max - 1, info.min, info.min + 1]
    return np.array(values + ([-1, -2, -3, -7, -100] if info.min else [128, 255]), dtype.numpy)


def cast_values(source):
    """What goes wrong in casts: also the edges of each integer type, and of f16."""
    if not source.is_float:
        return values_of(source)
    edges = [127.5, 128, 255.5, 256, -0.5, -1, -128.5, -129, 2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 1e18]
    # Halfway between two f16 but for a little: rounding twice would go wrong.
    edges += [1 + 2.0**-11 + 2.0**-40, 2049.0000001, 65519.999, 65520, 2.0**-25 * 1.0000001, 3 * 2.0**-26]
    with np.errstate(all="ignore"):
        return np.concatenate([values_of(source), np.array(edges).astype(source.numpy)])


def pairs_of(dtype):
    left, right = zip(*itertools.product(values_of(dtype), repeat=2))
    return np.array(left, dtype.numpy), np.array(right, dtype.numpy)


def elementwise(operation, dtype, size, dtypes, vector=True):
    """A nest: ``operation``, of the result ``dtype``, on arrays of ``size`` elements of the given ``dtypes``."""
    v = Axis("v", size)
    buffers = [Buffer(f"a{number}", kind, size, "input") for number, kind in enumerate(dtypes)]
    loads = [Load(f"x{number}", kind, f"a{number}", Index.of(v)) for number, kind in enumerate(dtypes)]
    compute = Compute("r", dtype, operation, tuple(load.result for load in loads))
    body = (*loads, compute, Store("y", Index.of(v), "r"))
    return Nest((*buffers, Buffer("y", dtype, size, "output")), (v,), body, vector)


def ordinals(array):
    """Floats as integers that count them: neighbours differ by 1, both zeros are 0."""
    bits = array.view(np.dtype(f"i{array.itemsize}")).astype(np.int64)
    lowest = np.int64(-(2 ** (8 * array.itemsize - 1)))
    return np.where(bits < 0, lowest - bits, bits)


def is_nan(array):
    """isnan without a warning for signalling NaNs."""
    with np.errstate(invalid="ignore"):
        return np.isnan(array)


def assert_close(ours, theirs, ulp):
    assert ours.dtype == theirs.dtype
    if ours.dtype.kind in "iub":
        np.testing.assert_array_equal(ours, theirs)
        return
    nan = is_nan(theirs)
    np.testing.assert_array_equal(is_nan(ours), nan)
    distance = np.abs(ordinals(ours[~nan]) - ordinals(theirs[~nan]))
    assert np.max(distance, initial=0) <= ulp
    if ulp == 0:
        is_zero = ~nan & (ordinals(theirs) == 0)
        np.testing.assert_array_equal(np.signbit(ours[is_zero]), np.signbit(theirs[is_zero]))
