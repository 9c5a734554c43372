"""Matrix products by OpenBLAS from our threads, against numpy in f64."""

from __future__ import annotations

import ctypes
import functools

import numpy as np
import pytest

from euler_ir.backends.cpu import jit, openblas, worker_pool

SCALARS = {"f32": ("float", ctypes.c_float, np.float32), "f64": ("double", ctypes.c_double, np.float64)}
INTEGERS = ("m", "n", "k", "lda", "ldb", "ldc", "batch0", "batch1", "a0", "a1", "b0", "b1", "c0", "c1")


@functools.cache
def gemm_function(dtype):
    """A pool function whose argument is INTEGERS, transpose_a, transpose_b, a, b, c, alpha, beta, eight bytes each."""
    scalar = SCALARS[dtype][0]
    names = [*INTEGERS, "ta", "tb", "a", "b", "c", "alpha", "beta"]
    types = ["i64"] * len(INTEGERS) + ["i1"] * 2 + ["ptr"] * 3 + [scalar] * 2
    loads = "\n".join(
        f"  %{name}.at = getelementptr i64, ptr %argument, i64 {i}\n  %{name} = load {kind}, ptr %{name}.at"
        for i, (name, kind) in enumerate(zip(names, types, strict=True))
    )
    text = f"""
{openblas.gemm_ir()}
define void @run(i32 %thread, i32 %threads, ptr %argument, ptr %barrier) {{
{loads}
  call void @eir_gemm_{dtype}(i32 %thread, i32 %threads, i1 %ta, i1 %tb, i64 %m, i64 %n, i64 %k,
    {scalar} %alpha, ptr %a, i64 %lda, ptr %b, i64 %ldb, {scalar} %beta, ptr %c, i64 %ldc, i64 %batch0, i64 %batch1,
    i64 %a0, i64 %a1, i64 %b0, i64 %b1, i64 %c0, i64 %c1)
  ret void
}}
"""
    return jit.LoadedCode([jit.compile_object(text)], ["run"])


def prepare(a, b, c, *, transpose_a=False, transpose_b=False, alpha=1.0, beta=0.0, threads=2):
    """A callable for c[...] = alpha op(a) @ op(b) + beta c; arrays have two batch axes, then those of a matrix."""
    dtype = "f32" if c.dtype == np.float32 else "f64"
    size = c.itemsize
    for x in (a, b, c):
        assert x.ndim == 4 and x.dtype == c.dtype
        assert x.size == 0 or x.shape[3] == 1 or x.strides[3] == size
    k = a.shape[2] if transpose_a else a.shape[3]
    values = [c.shape[2], c.shape[3], k, *(max(x.strides[2] // size, x.shape[3], 1) for x in (a, b, c)), *c.shape[:2]]
    for x in (a, b, c):
        values += [x.strides[0] // size, x.strides[1] // size]
    argument = np.zeros(len(values) + 7, np.int64)
    argument[: len(values)] = values
    argument[len(values) : -2] = [transpose_a, transpose_b, a.ctypes.data, b.ctypes.data, c.ctypes.data]
    bits = argument[-2:].view(c.dtype)
    bits[0], bits[bits.size // 2] = alpha, beta
    code, pool = gemm_function(dtype), worker_pool.get_pool(threads)
    return lambda: pool.run(code.address("run"), argument.ctypes.data)


def gemm(a, b, c, **options):
    prepare(a, b, c, **options)()
    return c


def reference(a, b, c, transpose_a=False, transpose_b=False, alpha=1.0, beta=0.0):
    a, b, c = (np.asarray(x, np.float64) for x in (a, b, c))
    a = np.swapaxes(a, 2, 3) if transpose_a else a
    b = np.swapaxes(b, 2, 3) if transpose_b else b
    return alpha * (a @ b) + (beta * c if beta else 0)


def operands(batch, m, n, k, dtype, transpose_a=False, transpose_b=False):
    rng = np.random.default_rng(m * n + k)
    kind = SCALARS[dtype][2]
    a = rng.normal(size=(*batch, k, m) if transpose_a else (*batch, m, k)).astype(kind)
    b = rng.normal(size=(*batch, n, k) if transpose_b else (*batch, k, n)).astype(kind)
    return a, b, rng.normal(size=(*batch, m, n)).astype(kind)


def assert_close(got, expected, k):
    tolerance = np.finfo(got.dtype).eps * 4 * np.sqrt(k + 1)
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * (1 + np.sqrt(k)))


@pytest.mark.parametrize("dtype", SCALARS)
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(
    ("batch", "m", "n", "k"),
    [((1, 1), 1, 1, 1), ((1, 1), 2, 2, 2),
     ((1, 1), 300, 517, 65), ((1, 1), 1, 2051, 33), ((1, 1), 2049, 1, 20), ((3, 5), 17, 19, 23),
     ((2, 1), 200, 130, 40), ((1, 1), 70, 1030, 400)],
)  # fmt: skip
def test_products(dtype, transpose_a, transpose_b, batch, m, n, k):
    flags = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    a, b, c = operands(batch, m, n, k, dtype, **flags)
    expected = reference(a, b, c, **flags, alpha=0.5, beta=-2.0)
    assert_close(gemm(a, b, c, **flags, alpha=0.5, beta=-2.0), expected, k)


def test_heads_are_read_in_place():
    batch, tokens, heads, width = 2, 33, 3, 16
    qkv = np.random.default_rng(0).normal(size=(batch, tokens, 3, heads, width)).astype(np.float32)
    q, k, v = (np.moveaxis(qkv[:, :, i], 1, 2) for i in range(3))
    scores = gemm(q, k, np.empty((batch, heads, tokens, tokens), np.float32), transpose_b=True, alpha=0.25)
    assert_close(scores, reference(q, k, scores, transpose_b=True, alpha=0.25), width)
    merged = np.full((batch, tokens, heads, width), np.nan, np.float32)
    out = gemm(scores, v, np.moveaxis(merged, 1, 2))
    assert_close(out, reference(scores, v, out), tokens)
    assert not np.isnan(merged).any()


def test_writes_only_its_matrix():
    a, b, _ = operands((1, 1), 130, 140, 9, "f32")
    wide = np.full((1, 1, 132, 200), 7, np.float32)
    c = wide[:, :, 1:131, 30:170]
    assert_close(gemm(a, b, c), reference(a, b, c), 9)
    wide[:, :, 1:131, 30:170] = 7
    assert np.all(wide == 7)


def test_batch_items_may_share_an_operand():
    a, b, c = operands((4, 2), 20, 30, 10, "f64")
    b = np.broadcast_to(b[:1, :1], b.shape)
    assert_close(gemm(a, b, c), reference(a, b, c), 10)


@pytest.mark.parametrize("dtype", SCALARS)
@pytest.mark.parametrize("shape", [(1, 1, 40, 50), (3, 2, 200, 300), (2, 1, 1, 600), (1, 2, 600, 1), (1, 1, 1, 1)])
def test_beta_zero_overwrites_nan(dtype, shape):
    a, b, c = operands(shape[:2], *shape[2:], 8, dtype)
    c[...] = np.nan
    assert_close(gemm(a, b, c), reference(a, b, c), 8)


@pytest.mark.parametrize("dtype", SCALARS)
@pytest.mark.parametrize("shape", [(150, 140), (1, 600), (600, 1)])
def test_an_empty_sum_leaves_beta_c(dtype, shape):
    a, b, c = operands((2, 1), *shape, 0, dtype)
    expected = 3 * c
    np.testing.assert_array_equal(gemm(a, b, c, beta=3.0), expected)
    c[...] = np.nan
    np.testing.assert_array_equal(gemm(a, b, c), np.zeros_like(c))


@pytest.mark.parametrize("shape", [(1, 1, 0, 5), (1, 1, 5, 0), (0, 3, 5, 5), (3, 0, 5, 5)])
def test_empty_results(shape):
    a, b, c = operands(shape[:2], *shape[2:], 4, "f32")
    gemm(a, b, c)


@pytest.mark.parametrize("dtype", SCALARS)
@pytest.mark.parametrize(
    ("batch", "m", "n", "k"),
    [((1, 1), 700, 500, 300), ((1, 1), 257, 129, 800), ((5, 1), 100, 130, 60),
     ((1, 1), 1, 3001, 50), ((1, 1), 3001, 1, 50)],
)  # fmt: skip
def test_the_bits_do_not_depend_on_the_number_of_threads(dtype, batch, m, n, k):
    a, b, c = operands(batch, m, n, k, dtype)
    one = gemm(a, b, c.copy(), threads=1)
    for threads in (2, 3, 7):
        np.testing.assert_array_equal(gemm(a, b, c.copy(), threads=threads), one)
