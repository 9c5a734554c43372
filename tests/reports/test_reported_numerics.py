"""Numbers that other compilers were reported to get wrong: docs/reports.md says where."""

import math

import ml_dtypes
import mpmath
import numpy as np
import pytest

import euler_ir as ei

F32 = np.float32
INF, NAN = np.inf, np.nan


def test_a_row_of_minus_infinities(run):
    x = np.array([[-INF, -INF], [0, -INF]], F32)
    softmax, logsumexp = run(lambda x: (ei.softmax(x, 1), ei.logsumexp(x, 1)), x)
    np.testing.assert_array_equal(softmax, [[NAN, NAN], [1, 0]])  # 0 / 0, by IEEE and as in torch and jax
    np.testing.assert_array_equal(logsumexp, [-INF, 0])
    gradient = run(lambda x: ei.gradient(ei.sum(ei.logsumexp(x, 1)), [x])[0], x)
    np.testing.assert_array_equal(gradient, [[0, 0], [1, 0]])


def test_a_query_without_keys_poisons_nothing(run):
    # Causal attention of three queries on two keys: the first query sees none.
    q, weight = np.ones((1, 3, 4), F32), np.ones((4, 4), F32)
    attend = lambda q, w: ei.attention(q @ w, q[:, :2] @ w, q[:, :2] @ w)  # noqa: E731
    value, gradient = run(lambda q, w: (attend(q, w), ei.gradient(ei.sum(attend(q, w) ** 2), [w])[0]), q, weight)
    np.testing.assert_array_equal(value[0, 0], 0)
    assert (value[0, 1:] == 4).all() and np.isfinite(gradient).all() and gradient.any()


@pytest.mark.parametrize("x", [-12.0, -6.0, -5.5, -5.0, -1.0, 3.0])
def test_the_tail_of_gelu(run, x):
    exact = lambda z: z * mpmath.ncdf(z)  # noqa: E731
    value, slope = float(exact(mpmath.mpf(x))), float(mpmath.diff(exact, mpmath.mpf(x)))
    found = run(lambda x: (ei.gelu(x, "none"), ei.gradient(ei.sum(ei.gelu(x, "none")), [x])[0]), np.array([x], F32))
    np.testing.assert_allclose(np.concatenate(found), [value, slope], rtol=2e-5)


def test_the_tail_of_a_gelu_that_is_spelled_out(run):
    x = np.array([-6.0, -5.5, -5.0], F32)
    spelled = lambda x: 0.5 * x * (1 + ei.erf(x * F32(math.sqrt(0.5))))  # noqa: E731
    exact = np.array([float(z * mpmath.ncdf(z)) for z in map(mpmath.mpf, x.tolist())])
    with ei.Graph("spelled") as graph:
        ei.output(y=spelled(ei.input("x", (3,))))
    np.testing.assert_allclose(ei.compile(graph)(x=x)["y"], exact, rtol=1e-4)


def test_functions_stay_within_their_range_and_never_turn_back(run):
    x = np.unique(np.concatenate([np.linspace(3.5, 4.2, 4000), np.linspace(-20, 20, 4000), [3.9004288]]).astype(F32))
    for function, low, high in ((ei.erf, -1, 1), (ei.tanh, -1, 1), (ei.sigmoid, 0, 1)):
        y = run(function, x)
        assert y.min() >= low and y.max() <= high
        assert np.diff(y.astype(np.float64)).min() >= -2 * np.spacing(F32(1))
    exp = run(ei.exp, np.array([88.7, 88.8, -104, -100], F32))
    assert np.isfinite(exp[0]) and exp[1] == INF and exp[2] == 0 and 0 < exp[3] < 1e-43


def test_rows_that_hardly_vary(run):
    rows = (1e4 + 1e-3 * np.arange(8 * 64).reshape(8, 64)).astype(F32)
    rows[0] = 1e4
    found = run(lambda x, w, b: ei.layer_norm(x, w, b), rows, np.ones(64, F32), np.zeros(64, F32))
    wide = rows.astype(np.float64)
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    # The mean is rounded to f32, which is a twentieth of these deviations; squares less squares would lose all of them.
    np.testing.assert_allclose(found, want, atol=np.spacing(F32(1e4)) / wide[1:].std(1).max())
    np.testing.assert_allclose(found[0], 0, atol=1e-6)
    variance = run(lambda x: ei.mean((x - ei.mean(x, 1, keepdims=True)) ** 2, 1), rows)
    assert (variance >= 0).all()


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_halves_are_summed_wide_and_rounded_once(run, dtype):
    ones, hundreds = np.ones(2000, dtype), np.full(4096, 100, dtype)
    total, mean, running = run(lambda x, y: (ei.sum(x), ei.mean(y), ei.cumsum(x, 0)), ones, hundreds)
    assert float(total) == float(np.array(2000).astype(dtype)) and float(mean) == 100
    assert float(running[-1]) == float(total)
    assert total.dtype == mean.dtype == running.dtype == dtype


def test_norms_of_large_halves(run):
    x = np.array([[300, -300, 600, -600]], np.float16)
    found = run(lambda x, w, b: ei.layer_norm(x, w, b), x, np.ones(4, np.float16), np.zeros(4, np.float16))
    wide = x.astype(np.float64)
    np.testing.assert_allclose(found.astype(np.float64), wide / wide.std(), rtol=2e-3)


def test_ten_million_tenths():
    x = np.full(10_000_000, 0.1, F32)
    with ei.Graph("sum") as graph:
        ei.output(y=ei.sum(ei.input("x", x.shape)))
    exact = float(F32(0.1)) * x.size
    first = ei.compile(graph, threads=1)(x=x)["y"]
    assert abs(first - exact) <= 1e-6 * exact and ei.compile(graph, threads=2)(x=x)["y"] == first


def test_algebra_keeps_nan_infinity_and_the_sign_of_zero(run):
    x = np.array([NAN, INF, -INF, -0.0, 0.0, 4.0], F32)
    y = run(lambda x: (x * 0, x - x, x / x, 0 / x, ei.equal(x, x), 1 / (x + 0.0), ei.sqrt(x) ** 2), x)
    with np.errstate(all="ignore"):
        want = (x * 0, x - x, x / x, 0 / x, x == x, 1 / (x + F32(0)), np.sqrt(x) ** 2)
    for found, wanted in zip(y, want, strict=True):
        np.testing.assert_array_equal(found, wanted)
        if found.dtype != bool:
            ordered = ~np.isnan(wanted)
            np.testing.assert_array_equal(np.signbit(found)[ordered], np.signbit(wanted)[ordered])


def test_a_narrowing_cast_is_meant(run):
    x = np.array([0.1, 1 / 3, 70000], F32)
    with np.errstate(over="ignore"):
        want = x.astype(np.float16).astype(F32)
    np.testing.assert_array_equal(run(lambda x: x.cast(ei.f16).cast(ei.f32), x), want)


def test_a_chain_of_halves_rounds_at_every_operator(run):
    x, y = np.random.default_rng(0).standard_normal((2, 1000)).astype(np.float16)
    with np.errstate(all="ignore"):
        want = ((x * y).astype(np.float16) + x).astype(np.float16) - (x * y).astype(np.float16)
    np.testing.assert_array_equal(run(lambda x, y: x * y + x - x * y, x, y), want)


def test_comparisons_know_nan(run):
    x = np.array([NAN, 1, INF], F32)
    found = run(lambda x: (ei.isnan(x), ei.not_equal(x, x), ei.equal(x, x), x < x, ~(x >= 1)), x)
    want = ([1, 0, 0], [1, 0, 0], [0, 1, 1], [0, 0, 0], [1, 0, 0])
    for one, other in zip(found, want, strict=True):
        np.testing.assert_array_equal(one, np.array(other, bool))


def test_denormals_stay(run):
    x = np.array([1e-40, 1e-45, -3e-39], F32)
    np.testing.assert_array_equal(run(lambda x: x * 2, x), x * 2)
    assert F32(1e-40) * F32(2) > 0, "and the process still has them"


def test_extrema_of_nan(run):
    x = np.array([[1, NAN, 3], [NAN, 1, 2], [5, 4, 3]], F32)
    found = run(lambda x: (ei.max(x, 1), ei.min(x, 1), ei.argmax(x, 1), ei.maximum(x, 2), ei.minimum(2, x)), x)
    np.testing.assert_array_equal(found[0], [NAN, NAN, 5])
    np.testing.assert_array_equal(found[1], [NAN, NAN, 3])
    np.testing.assert_array_equal(found[2], [1, 0, 0])
    np.testing.assert_array_equal(found[3], np.maximum(x, 2))
    np.testing.assert_array_equal(found[4], np.minimum(2, x))


def test_extrema_of_nan_are_the_same_in_vectors_and_behind_them(run):
    x = np.arange(37, dtype=F32)
    for place in (0, 15, 16, 36):
        y = x.copy()
        y[place] = NAN
        largest, position = run(lambda x: (ei.max(x), ei.argmax(x)), y)
        assert np.isnan(largest) and position == place


def test_integers_round_and_wrap_as_numpy(run):
    x, y = np.array([-7, 7, -7, 110], np.int32), np.array([2, -2, 3, 55], np.int32)
    quotient, rest = run(lambda x, y: (ei.floor_divide(x, y), ei.remainder(x, y)), x, y)
    np.testing.assert_array_equal(quotient, x // y)
    np.testing.assert_array_equal(rest, x % y)
    bytes_ = np.array([200, 100], np.uint8)
    total = run(lambda x: x + x, bytes_)
    assert total.dtype == np.uint8
    np.testing.assert_array_equal(total, bytes_ + bytes_)
    eight = np.full((2, 2), 100, np.int8)
    product = run(lambda x: x @ x, eight)
    np.testing.assert_array_equal(product, (eight @ eight).astype(product.dtype))
    count, flags = run(lambda x, f: (ei.sum(x), ei.sum(f)), bytes_, np.array([True, True]))
    assert (count, flags) == (300, 2) and count.dtype == flags.dtype == np.int64


def test_the_wider_type_wins_whatever_the_order(run):
    whole, real = np.array([1, 2], np.int32), np.array([0.5, 0.25], F32)
    left, right, power = run(lambda n, x: (n * x, x * n, n**x), whole, real)
    assert left.dtype == right.dtype == np.float32 and power.dtype == np.float32
    np.testing.assert_array_equal(left, [0.5, 0.5])
    np.testing.assert_array_equal(right, left)
    np.testing.assert_allclose(power, whole**real, rtol=1e-6)
    big, small = np.array([2**40], np.int64), np.array([1], np.int32)
    assert run(lambda x, y: x + y, big, small)[0] == 2**40 + 1
    assert run(lambda x, y: y + x, big, small)[0] == 2**40 + 1


def test_the_variance_of_many_halves(run):
    x = np.tile(np.array([1, 3], np.float16), 35_000)
    assert float(run(lambda x: ei.mean((x - ei.mean(x)) ** 2), x)) == 1


def test_small_constants_keep_their_digits(run):
    x = np.array([INF, 3e8], F32)
    np.testing.assert_array_equal(run(lambda x: x * 1e-10, x), x * F32(1e-10))
    with ei.Graph("constant") as graph:
        ei.output(y=ei.input("x", (2,)) * 1e-10)
    assert "1e-10" in str(graph)


def test_masked_keys_do_not_matter(run):
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 4, 8)).astype(F32)
    clean = run(lambda q, k, v: ei.attention(q, k, v, causal=True), q, k, v)
    k, v = k.copy(), v.copy()
    k[0, 3], v[0, 3] = 1e18, -1e30  # only the last query looks at the last key
    found = run(lambda q, k, v: ei.attention(q, k, v, causal=True), q, k, v)
    np.testing.assert_allclose(found[0, :3], clean[0, :3], rtol=1e-6)
