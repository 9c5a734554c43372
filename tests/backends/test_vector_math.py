"""Vector functions against mpmath (f64) and the C library in f64 (f32), over every exponent and at special values."""

from __future__ import annotations

import ctypes
import functools
import math

import mpmath
import numpy as np
import pytest

from euler_ir.backends.cpu import jit, vector_math

TYPES = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}
LLVM = {"f32": "float", "f64": "double"}
WIDTH = {"f32": 16, "f64": 8}

# The largest error allowed, in units in the last place.
MAX_ULP = {
    "exp": 1.1, "log": 1.0, "tanh": 1.5, "erf": 1.5, "erfc": 3.9, "sin": 1.7, "cos": 1.7, "sqrt": 0.5, "rsqrt": 1.5,
    "pow": 1.0,
}  # fmt: skip
UNARY = [name for name in vector_math.FUNCTIONS if name != "pow"]
ACCURATE = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "sqrt": np.sqrt,
    "erf": np.vectorize(math.erf), "erfc": np.vectorize(math.erfc), "rsqrt": lambda x: 1 / np.sqrt(x), "pow": np.power,
}  # fmt: skip
EXACT = {
    "exp": mpmath.exp, "log": mpmath.log, "tanh": mpmath.tanh, "sin": mpmath.sin, "cos": mpmath.cos,
    "sqrt": mpmath.sqrt, "erf": mpmath.erf, "erfc": mpmath.erfc, "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "pow": mpmath.power,
}  # fmt: skip


@functools.cache
def compiled(name, dtype, width):
    """A function that applies ``name`` to arrays whose length is a multiple of ``width``."""
    scalar = LLVM[dtype]
    vector = f"<{width} x {scalar}>" if width > 1 else scalar
    arity = 2 if name == "pow" else 1
    pointers = ", ".join(f"ptr %in{i}" for i in range(arity))
    loads = "\n".join(
        f"  %p{i} = getelementptr {scalar}, ptr %in{i}, i64 %at\n  %x{i} = load {vector}, ptr %p{i}, align 4"
        for i in range(arity)
    )
    operands = ", ".join(f"{vector} %x{i}" for i in range(arity))
    text = f"""
{vector_math.emit(name, dtype, width)}
define void @apply(i64 %n, ptr %out, {pointers}) {{
entry:
  br label %loop
loop:
  %at = phi i64 [ 0, %entry ], [ %next, %loop ]
{loads}
  %y = call {vector} {vector_math.symbol(name, dtype, width)}({operands})
  %q = getelementptr {scalar}, ptr %out, i64 %at
  store {vector} %y, ptr %q, align 4
  %next = add i64 %at, {width}
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
    code = jit.LoadedCode([jit.compile_object(text)], ["apply"])
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (1 + arity))(code.address("apply"))

    def apply(*arrays):
        size = arrays[0].size
        padded = [np.resize(np.asarray(a, TYPES[dtype]), -(-size // width) * width) for a in arrays]
        out = np.empty_like(padded[0])
        function(out.size, out.ctypes.data, *[a.ctypes.data for a in padded])
        assert code is not None  # the closure keeps the code mapped
        return out[:size]

    return apply


def points(dtype, count, seed=0):
    """Random numbers over every exponent, subnormal ones included, and more of them where functions bend."""
    rng = np.random.default_rng(seed)
    kind = TYPES[dtype]
    unsigned = np.dtype(f"u{kind.itemsize}")
    bits = rng.integers(0, np.iinfo(unsigned).max, count, dtype=unsigned, endpoint=True)
    wide = bits.view(kind)
    return np.concatenate([
        wide[np.isfinite(wide)], rng.normal(0, 1, count).astype(kind), rng.normal(0, 8, count).astype(kind),
        rng.uniform(-800, 800, count).astype(kind), (1 + rng.normal(0, 1e-3, count)).astype(kind),
    ])  # fmt: skip


def in_domain(name, x):
    return x[x > 0] if name in ("log", "sqrt", "rsqrt") else x


def ulp_errors(got, exact_float64, dtype):
    """|got - exact| in units in the last place of the exact value; infinite where only one is infinite."""
    kind = TYPES[dtype]
    with np.errstate(over="ignore"):
        rounded = exact_float64.astype(kind)
        spacing = np.spacing(np.abs(rounded)).astype(np.float64)
        both_infinite = np.isinf(rounded) & (got == rounded)
        return np.where(both_infinite, 0, np.abs(got.astype(np.float64) - exact_float64) / spacing)


@pytest.mark.parametrize("name", UNARY)
def test_f32_accuracy(name):
    x = in_domain(name, points("f32", 200_000))
    with np.errstate(all="ignore"):
        exact = ACCURATE[name](x.astype(np.float64))
        errors = ulp_errors(compiled(name, "f32", WIDTH["f32"])(x), exact, "f32")
    worst = int(np.argmax(errors))
    print(f"{name} f32: {errors[worst]:.2f} ulp at {x[worst]!r}")
    assert errors[worst] <= MAX_ULP[name], f"{errors[worst]:.2f} ulp at {x[worst]!r}"


def exact_error(name, dtype, got, *arguments):
    with mpmath.workprec(1200 if name in ("sin", "cos") else 160):
        exact = EXACT[name](*[mpmath.mpf(float(a)) for a in arguments])
        rounded = float(exact)
        if math.isinf(rounded):
            return 0.0 if got == rounded else math.inf
        spacing = float(np.spacing(abs(TYPES[dtype].type(rounded))))
        return float(abs(mpmath.mpf(float(got)) - exact) / spacing)


@pytest.mark.parametrize("name", UNARY)
def test_f64_accuracy(name):
    x = in_domain(name, points("f64", 1_000))
    if name in ("exp", "tanh", "erf", "erfc"):
        x = x[np.abs(x) < 1e4]  # beyond, mpmath takes long or overflows
    got = compiled(name, "f64", WIDTH["f64"])(x)
    errors = [exact_error(name, "f64", y, at) for at, y in zip(x, got, strict=True)]
    worst = int(np.argmax(errors))
    print(f"{name} f64: {errors[worst]:.2f} ulp at {x[worst]!r}")
    assert errors[worst] <= MAX_ULP[name], f"{errors[worst]:.2f} ulp at {x[worst]!r}"


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_reduction_close_to_multiples_of_half_pi(name, dtype):
    multiples = np.arange(0, 41_000, 97) * (math.pi / 2)
    x = multiples.astype(TYPES[dtype])
    x = np.concatenate([x, np.nextafter(x, np.inf), -x, [65536, 65537, 1e22, 1e30]]).astype(TYPES[dtype])
    got = compiled(name, dtype, WIDTH[dtype])(x)
    assert max(exact_error(name, dtype, y, at) for at, y in zip(x, got, strict=True)) <= MAX_ULP[name]


@pytest.mark.parametrize("dtype", TYPES)
def test_pow(dtype):
    rng = np.random.default_rng(1)
    x, y = np.exp(rng.normal(0, 3, 500)).astype(TYPES[dtype]), rng.normal(0, 5, 500).astype(TYPES[dtype])
    got = compiled("pow", dtype, WIDTH[dtype])(x, y)
    errors = [exact_error("pow", dtype, *values) for values in zip(got, x, y, strict=True)]
    assert max(errors) <= MAX_ULP["pow"]
    special_x = np.array([-8, -2, 0, -0.0, 1, np.nan, np.inf, 2], TYPES[dtype])
    special_y = np.array([1 / 3, 3, -1, -1, np.nan, 0, -1, 2000], TYPES[dtype])
    expected = [np.nan, -8, np.inf, -np.inf, 1, 1, 0, np.inf]
    np.testing.assert_array_equal(compiled("pow", dtype, WIDTH[dtype])(special_x, special_y), expected)


INF, NAN = math.inf, math.nan
SPECIAL = {
    "exp": [(0, 1), (-0.0, 1), (INF, INF), (-INF, 0), (1e5, INF), (-1e5, 0)],
    "log": [(0, -INF), (-0.0, -INF), (1, 0), (-1, NAN), (-INF, NAN), (INF, INF)],
    "tanh": [(0, 0), (-0.0, -0.0), (INF, 1), (-INF, -1), (30, 1), (-1e30, -1)],
    "erf": [(0, 0), (-0.0, -0.0), (INF, 1), (-INF, -1), (7, 1), (-1e30, -1)],
    "erfc": [(0, 1), (-0.0, 1), (INF, 0), (-INF, 2), (30, 0), (-30, 2)],
    "sin": [(0, 0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "cos": [(0, 1), (-0.0, 1), (INF, NAN), (-INF, NAN)],
    "sqrt": [(0, 0), (-0.0, -0.0), (4, 2), (-1, NAN), (INF, INF)],
    "rsqrt": [(0, INF), (-0.0, -INF), (4, 0.5), (-1, NAN), (INF, 0)],
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", UNARY)
def test_special_values(name, dtype):
    x, expected = np.array([*SPECIAL[name], (NAN, NAN)], TYPES[dtype]).T
    got = compiled(name, dtype, WIDTH[dtype])(np.ascontiguousarray(x))
    np.testing.assert_array_equal(got, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(expected[numbers]))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_bounded_and_odd(name, dtype):
    x = points(dtype, 5_000, seed=2)
    got = compiled(name, dtype, WIDTH[dtype])(x)
    assert np.all(np.abs(got) <= 1)
    np.testing.assert_array_equal(compiled(name, dtype, WIDTH[dtype])(-x), -got)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", UNARY)
def test_every_width_gives_the_same_bits(name, dtype):
    x = points(dtype, 500, seed=3)
    unsigned = f"u{TYPES[dtype].itemsize}"
    scalar = compiled(name, dtype, 1)(x)
    for width in (2, 4, 8, 16):
        got = compiled(name, dtype, width)(x)
        same = (got.view(unsigned) == scalar.view(unsigned)) | (np.isnan(got) & np.isnan(scalar))
        assert np.all(same)


def test_unknown_names_are_refused():
    with pytest.raises(KeyError):
        vector_math.emit("gamma", "f32", 8)
