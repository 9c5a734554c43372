"""Vector functions against mpmath (f64) and the C library in f64 (f32), over every exponent and at special values."""

from __future__ import annotations

import ctypes
import functools
import math

import mpmath
import numpy as np
import pytest

from euler_ir.backends.cpu import jit, lanes, vector_math

TYPES = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}
LLVM = {"f32": "float", "f64": "double"}
WIDTH = {"f32": 16, "f64": 8}

# The largest error allowed, in units in the last place.
MAX_ULP = {
    "exp": 1.1, "log": 1.0, "tanh": 1.5, "erf": 1.5, "erfc": 2.0, "sin": 1.7, "cos": 1.7, "sqrt": 0.5, "rsqrt": 1.5,
    "pow": 0.6, "sigmoid": 2.0, "normal_pdf": 1.5, "normal_cdf": 3.4, "normal_cdf_tanh": 2.2,
}  # fmt: skip
MAX_ULP_F64 = MAX_ULP | {"erfc": 2.2, "pow": 1.0}
UNARY = [name for name in vector_math.FUNCTIONS if name not in vector_math.BINARY]
ACCURATE = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "sqrt": np.sqrt,
    "erf": np.vectorize(math.erf), "erfc": np.vectorize(math.erfc), "rsqrt": lambda x: 1 / np.sqrt(x), "pow": np.power,
    "sigmoid": np.vectorize(lambda x: math.exp(min(x, 0)) / (1 + math.exp(-abs(x)))),
    "normal_cdf": np.vectorize(lambda x: math.erfc(x * -math.sqrt(0.5)) / 2),
    "normal_pdf": lambda x: np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi),
    "normal_cdf_tanh": lambda x: ACCURATE["sigmoid"](math.sqrt(8 / math.pi) * (x + 0.044715 * x * x * x)),
}  # fmt: skip
EXACT = {
    "exp": mpmath.exp, "log": mpmath.log, "tanh": mpmath.tanh, "sin": mpmath.sin, "cos": mpmath.cos,
    "sqrt": mpmath.sqrt, "erf": mpmath.erf, "erfc": mpmath.erfc, "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "pow": mpmath.power, "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)), "normal_pdf": mpmath.npdf,
    "normal_cdf": lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
    "normal_cdf_tanh": lambda x: EXACT["sigmoid"](mpmath.sqrt(8 / mpmath.pi) * (x + mpmath.mpf(44715) / 10**6 * x**3)),
}  # fmt: skip
FAR = 1e4  # Beyond, functions with exponentials are 0, 1 or infinite, and mpmath takes long.


@functools.cache
def compiled(name, dtype, width):
    """A function that applies ``name`` to arrays whose length is a multiple of ``width``."""
    scalar = LLVM[dtype]
    vector = f"<{width} x {scalar}>" if width > 1 else scalar
    arity = 2 if name in vector_math.BINARY else 1
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


def every_exponent(dtype, mantissas, seed=0):
    """Numbers of each sign and exponent, subnormal ones included: the least, the largest and others at random."""
    kind, form = np.dtype(f"u{TYPES[dtype].itemsize}"), np.finfo(TYPES[dtype])
    exponents = np.arange(2 ** (form.bits - 1 - form.nmant) - 1).astype(kind)
    within = np.random.default_rng(seed).integers(0, 2**form.nmant, (exponents.size, mantissas)).astype(kind)
    within[:, 0] = 0
    within[:, 1] = 2**form.nmant - 1
    positive = ((exponents[:, None] << kind.type(form.nmant)) | within).ravel().view(TYPES[dtype])
    return np.concatenate([positive, -positive])


def where_functions_bend(dtype, count, seed=0):
    """Numbers of ordinary size, and those around which arguments are reduced to the next multiple of ln 2 or pi/2."""
    rng, kind = np.random.default_rng(seed), TYPES[dtype]
    halves = np.arange(-300.5, 301)
    edges = [halves * math.log(2), halves * math.pi / 2, np.sqrt(np.abs(halves) * math.log(4))]
    edges = np.concatenate(edges).astype(kind)
    return np.concatenate([
        rng.normal(0, 1, count).astype(kind), rng.normal(0, 8, count).astype(kind),
        rng.uniform(-15, 15, count).astype(kind), rng.uniform(-800, 800, count).astype(kind),
        (1 + rng.normal(0, 1e-3, count)).astype(kind),
        edges, np.nextafter(edges, kind.type(np.inf)), np.nextafter(edges, -kind.type(np.inf)),
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


def worst_error_f32(name, x):
    """The largest error over ``x`` in units in the last place, against the C library in f64, and where it is."""
    x = in_domain(name, x)
    with np.errstate(all="ignore"):
        exact = ACCURATE[name](x.astype(np.float64))
        errors = ulp_errors(compiled(name, "f32", WIDTH["f32"])(x), exact, "f32")
    worst = int(np.argmax(errors))
    return errors[worst], x[worst]


@pytest.mark.parametrize("name", UNARY)
def test_f32_accuracy(name):
    x = np.concatenate([every_exponent("f32", 32), where_functions_bend("f32", 20_000)])
    error, at = worst_error_f32(name, x)
    print(f"{name} f32: {error:.2f} ulp at {at!r}")
    assert error <= MAX_ULP[name], f"{error:.2f} ulp at {at!r}"


@pytest.mark.slow
@pytest.mark.parametrize("name", UNARY)
def test_f32_accuracy_at_many_mantissas(name):
    for seed in range(8):
        x = np.concatenate([every_exponent("f32", 1_000, seed), where_functions_bend("f32", 200_000, seed)])
        error, at = worst_error_f32(name, x)
        assert error <= MAX_ULP[name], f"{error:.2f} ulp at {at!r}"


def exact_error(name, dtype, got, *arguments):
    with mpmath.workprec(1200 if name in ("sin", "cos") else 160):
        exact = EXACT[name](*[mpmath.mpf(float(a)) for a in arguments])
        with np.errstate(over="ignore"):
            rounded = TYPES[dtype].type(float(exact))
        if np.isinf(rounded):
            return 0.0 if got == rounded else math.inf
        spacing = float(np.spacing(abs(rounded)))
        return float(abs(mpmath.mpf(float(got)) - exact) / spacing)


def check_against_mpmath(name, dtype, x):
    x = in_domain(name, x)
    if name not in ("log", "sqrt", "rsqrt", "sin", "cos"):
        x = x[np.abs(x) < FAR]
    got = compiled(name, dtype, WIDTH[dtype])(x)
    errors = [exact_error(name, dtype, y, at) for at, y in zip(x, got, strict=True)]
    worst = int(np.argmax(errors))
    print(f"{name} {dtype}: {errors[worst]:.2f} ulp at {x[worst]!r}")
    allowed = MAX_ULP if dtype == "f32" else MAX_ULP_F64
    assert errors[worst] <= allowed[name], f"{errors[worst]:.2f} ulp at {x[worst]!r}"


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", UNARY)
def test_accuracy_against_mpmath(name, dtype):
    rng = np.random.default_rng(5)
    spread = rng.choice(every_exponent(dtype, 3), 400, replace=False)
    check_against_mpmath(name, dtype, np.concatenate([spread, rng.choice(where_functions_bend(dtype, 100), 400)]))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", UNARY)
def test_every_exponent_against_mpmath(name, dtype):
    spread = every_exponent(dtype, 12 if dtype == "f32" else 3)
    check_against_mpmath(name, dtype, np.concatenate([spread, where_functions_bend(dtype, 2_000)]))


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
    x, y = np.concatenate([x, x, -x]), np.concatenate([y, np.round(y), np.round(y)])
    got = compiled("pow", dtype, WIDTH[dtype])(x, y)
    errors = [exact_error("pow", dtype, *values) for values in zip(got, x, y, strict=True)]
    assert max(errors) <= (MAX_ULP if dtype == "f32" else MAX_ULP_F64)["pow"]


def pairs_of_special_values(dtype):
    info = np.finfo(TYPES[dtype])
    sizes = [0, 1, 2, 3, 0.5, 1 / 3, 2.5, 7, 1e6, 2.0**30 + 1, info.max, info.tiny, info.smallest_subnormal, np.inf]
    values = np.array([*sizes, *(-size for size in sizes), np.nan], TYPES[dtype])
    return np.repeat(values, values.size), np.tile(values, values.size)


@pytest.mark.parametrize("dtype", TYPES)
def test_pow_of_special_values_is_the_c_librarys(dtype):
    x, y = pairs_of_special_values(dtype)
    got = compiled("pow", dtype, WIDTH[dtype])(x, y)
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), y.astype(np.float64)).astype(TYPES[dtype])
    np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(TYPES[dtype]).eps, atol=0)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("dtype", TYPES)
def test_fmod_is_exact(dtype):
    rng = np.random.default_rng(2)
    x, y = (np.exp(rng.normal(0, spread, 20_000)) * rng.choice([-1, 1], 20_000) for spread in (6, 3))
    near = np.round(y) * rng.integers(1, 1000, y.size)
    special = pairs_of_special_values(dtype)
    x = np.concatenate([x, near, np.nextafter(near.astype(TYPES[dtype]), 0), special[0]]).astype(TYPES[dtype])
    y = np.concatenate([y, np.round(y), np.round(y), special[1]]).astype(TYPES[dtype])
    got = compiled("fmod", dtype, WIDTH[dtype])(x, y)
    with np.errstate(all="ignore"):
        expected = np.fmod(x, y)
    assert_same_bits(got, expected)


INF, NAN = math.inf, math.nan
SPECIAL = {
    "exp": [(0, 1), (-0.0, 1), (INF, INF), (-INF, 0), (1e5, INF), (-1e5, 0)],
    "log": [(0, -INF), (-0.0, -INF), (1, 0), (-1, NAN), (-INF, NAN), (INF, INF)],
    "tanh": [(0, 0), (-0.0, -0.0), (INF, 1), (-INF, -1), (30, 1), (-1e30, -1)],
    "erf": [(0, 0), (-0.0, -0.0), (INF, 1), (-INF, -1), (7, 1), (-1e30, -1)],
    "erfc": [(0, 1), (-0.0, 1), (INF, 0), (-INF, 2), (30, 0), (-30, 2)],
    "sigmoid": [(0, 0.5), (-0.0, 0.5), (INF, 1), (-INF, 0), (800, 1), (-800, 0)],
    "normal_cdf": [(0, 0.5), (-0.0, 0.5), (INF, 1), (-INF, 0), (40, 1), (-40, 0)],
    "normal_pdf": [(INF, 0), (-INF, 0), (40, 0), (-40, 0)],
    "normal_cdf_tanh": [(0, 0.5), (-0.0, 0.5), (INF, 1), (-INF, 0), (40, 1), (-40, 0)],
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
    x = np.concatenate([every_exponent(dtype, 2), where_functions_bend(dtype, 5_000)])
    got = compiled(name, dtype, WIDTH[dtype])(x)
    assert np.all(np.abs(got) <= 1)
    np.testing.assert_array_equal(compiled(name, dtype, WIDTH[dtype])(-x), -got)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", UNARY)
def test_every_width_and_machine_gives_the_same_bits(name, dtype, monkeypatch):
    x = np.concatenate([every_exponent(dtype, 2), where_functions_bend(dtype, 500)])
    expected = compiled(name, dtype, 1)(x)
    for width in (2, 4, 8, 16):
        assert_same_bits(compiled(name, dtype, width)(x), expected)
    for vector_bytes in (32, 64):
        monkeypatch.setattr(lanes, "vector_bytes", lambda width=vector_bytes: width)
        assert_same_bits(compiled.__wrapped__(name, dtype, 4)(x), expected)


def assert_same_bits(left, right):
    unsigned = f"u{left.itemsize}"
    assert np.all((left.view(unsigned) == right.view(unsigned)) | (np.isnan(left) & np.isnan(right)))


def test_unknown_names_are_refused():
    with pytest.raises(KeyError):
        vector_math.emit("gamma", "f32", 8)
