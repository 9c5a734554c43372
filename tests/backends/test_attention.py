"""Attention and its gradient in generated code, against numpy in f64: edges, layouts, special values, threads."""

from __future__ import annotations

import ctypes
import functools
import itertools

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.backends.cpu import jit
from euler_ir.backends.cpu.attention import tiles
from euler_ir.backends.cpu.attention.blocks import KEYS_PER_TILE, AttentionVariant
from euler_ir.backends.cpu.attention.calls import attention_function
from euler_ir.dtypes import DTYPES

EXTENTS = (1, 5, 63, 64, 65, 130, 257)
WIDTHS = ((1, 1), (8, 8), (40, 40), (64, 64), (80, 80), (128, 128), (20, 33))
NAN, INF = np.nan, np.inf


@functools.cache
def loaded(operator, variant, vector_bytes):
    """The function of ``variant`` and its code; ``vector_bytes`` is part of what it is made for."""
    function = attention_function.__wrapped__(operator, variant)
    return function, jit.LoadedCode([jit.compile_object(function.text)], [function.symbol])


def run(operator, causal, scale, views, tasks=None):
    """Call the function on arrays [batch, heads, rows, columns] of any strides along the first three axes.

    Keys and values may have fewer heads. ``visible_from``, if there is one, is i64[batch, heads, queries, 1].
    """
    query, key, value = views[:3]
    dtype, size = DTYPES[{4: "f32", 8: "f64"}[query.itemsize]], query.itemsize
    has_visible_from = any(view.dtype == np.int64 for view in views)
    variant = AttentionVariant(dtype, query.shape[3], value.shape[3], causal, has_visible_from)
    function, code = loaded(operator, variant, tiles.vector_bytes())
    scalar = ctypes.c_float if size == 4 else ctypes.c_double
    view_types = [ctypes.c_void_p] + [ctypes.c_int64] * 4
    types = [ctypes.c_int64] * 2 + [ctypes.c_void_p] + [ctypes.c_int64] * 4 + [scalar] + view_types * len(views)
    heads, queries, keys = key.shape[1], query.shape[2], key.shape[2]
    group = query.shape[1] // heads
    count = query.shape[0] * heads * (group * -(-queries // function.block) if function.block else 1)
    scratch = np.full(function.scratch // size + 16, NAN, query.dtype)
    aligned = -(-scratch.ctypes.data // 64) * 64
    arguments = []
    for view in views:
        batch, head, row = (stride // view.itemsize for stride in view.strides[:3])
        per_key = view.shape[1] // heads
        arguments += [view.ctypes.data, batch, head * per_key, head if per_key > 1 else 0, row]
    call = ctypes.CFUNCTYPE(None, *types)(code.address(function.symbol))
    for begin, end in tasks or ((0, count),):
        call(begin, end, aligned, heads, group, queries, keys, scale, *arguments)


def reference(query, key, value, d_output, causal, scale, visible_from=None):
    """Output, logsumexp, and for a cotangent of the output delta and the gradients, all in f64."""
    query, key, value, d_output = (array.astype(np.float64) for array in (query, key, value, d_output))
    key_heads, group = key.shape[1], query.shape[1] // key.shape[1]
    key, value = (np.repeat(each, group, axis=1) for each in (key, value))
    with np.errstate(all="ignore"):
        scores = query @ key.swapaxes(-1, -2) * scale
        queries, keys = scores.shape[-2:]
        seen = np.arange(keys) <= np.arange(queries)[:, None] + keys - queries if causal else np.bool_(True)
        if visible_from is not None:
            seen = seen & (np.arange(keys) >= visible_from)
        scores = np.where(seen, scores, -INF)
        top = scores.max(-1, keepdims=True)
        top = np.where(top == -INF, 0, top)
        grown = np.exp(scores - top)
        total = grown.sum(-1, keepdims=True)
        weights = grown / np.where(total == 0, 1, total)
        output, logsumexp = weights @ value, np.log(total) + top
        delta = (d_output * output).sum(-1, keepdims=True)
        by_scores = weights * (d_output @ value.swapaxes(-1, -2) - delta) * scale
        by_query = by_scores @ key
        by_key, by_value = by_scores.swapaxes(-1, -2) @ query, weights.swapaxes(-1, -2) @ d_output
        shared = [each.reshape(each.shape[0], key_heads, group, *each.shape[2:]).sum(2) for each in (by_key, by_value)]
    return output, logsumexp, delta, by_query, *shared


def side_by_side(random, dtype, batch, heads, *extents):
    """Arrays [batch, heads, rows, columns] whose heads lie side by side in rows, as projections give them."""
    for rows, columns in extents:
        yield random.standard_normal((batch, rows, heads, columns)).astype(dtype).transpose(0, 2, 1, 3)


def empty_like(*arrays):
    """Arrays of the same shapes and layouts, full of NaN."""
    for array in arrays:
        yield np.full(array.transpose(0, 2, 1, 3).shape, NAN, array.dtype).transpose(0, 2, 1, 3)


def compute(query, key, value, d_output, causal, scale, visible_from=None):
    """What ``reference`` gives, by the generated functions; delta is the reference's."""
    output, d_query, d_key, d_value = empty_like(d_output, query, key, value)
    logsumexp = np.full((*query.shape[:3], 1), NAN, query.dtype)
    last = () if visible_from is None else (visible_from,)
    run("attention", causal, scale, (query, key, value, *last, output, logsumexp))
    delta = reference(query, key, value, d_output, causal, scale, visible_from)[2].astype(query.dtype)
    views = (query, key, value, logsumexp, d_output, delta, *last, d_query, d_key, d_value)
    run("attention_gradient", causal, scale, views)
    return output, logsumexp, delta, d_query, d_key, d_value


def assert_close(got, want, steps):
    """Equal but for ``steps`` unit roundoffs of the largest element."""
    for label, found, exact in zip(("output", "logsumexp", "delta", "d_query", "d_key", "d_value"), got, want):
        same = (found == exact) | (np.isnan(found) & np.isnan(exact))
        finite = np.where(np.isfinite(exact), exact, 0)
        reach = steps * np.finfo(found.dtype).eps / 2 * max(1.0, np.abs(finite).max(initial=0))
        with np.errstate(invalid="ignore"):
            close = same | (np.abs(found - exact) <= reach)
        assert close.all(), (label, np.argwhere(~close)[:3], float(np.nanmax(np.abs(found - finite))), reach)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("width", "value_width"), WIDTHS)
def test_every_pair_of_extents(dtype, causal, width, value_width):
    random = np.random.default_rng(width)
    for number, (queries, keys) in enumerate(itertools.product(EXTENTS, EXTENTS)):
        batch, heads = ((1, 1), (2, 1), (1, 3))[number % 3]
        shapes = ((queries, width), (keys, width), (keys, value_width), (queries, value_width))
        operands = tuple(side_by_side(random, dtype, batch, heads, *shapes))
        scale = width**-0.5
        got, want = (each(*operands, causal, scale) for each in (compute, reference))
        assert_close(got, want, steps=2 * (width + 64))


@pytest.mark.parametrize("vector_bytes", [16, 32])
@pytest.mark.parametrize("causal", [False, True])
def test_narrower_vectors(vector_bytes, causal, monkeypatch):
    monkeypatch.setattr(tiles, "vector_bytes", lambda: vector_bytes)
    random = np.random.default_rng(0)
    for dtype, (width, value_width), (queries, keys) in itertools.product(
        (np.float32, np.float64), ((40, 40), (20, 33)), ((1, 1), (65, 130), (130, 65))
    ):
        shapes = ((queries, width), (keys, width), (keys, value_width), (queries, value_width))
        operands = tuple(side_by_side(random, dtype, 1, 2, *shapes))
        assert_close(compute(*operands, causal, 0.3), reference(*operands, causal, 0.3), steps=256)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("heads", "key_heads"), [(6, 2), (3, 1), (4, 4)])
def test_heads_of_queries_that_share_one_of_keys(heads, key_heads, causal):
    random = np.random.default_rng(heads)
    for queries, keys in ((1, 1), (70, 70), (5, 130), (130, 5)):
        query, d_output = side_by_side(random, np.float32, 2, heads, (queries, 20), (queries, 33))
        key, value = side_by_side(random, np.float32, 2, key_heads, (keys, 20), (keys, 33))
        operands = query, key, value, d_output
        assert_close(compute(*operands, causal, 0.3), reference(*operands, causal, 0.3), steps=512)


def of_texts(random, batch, heads, queries):
    """``visible_from`` for rows of texts of random lengths, alike for all heads, with some numbers out of range."""
    starts = np.maximum.accumulate(np.where(random.random((batch, queries)) < 0.03, np.arange(queries), 0), axis=1)
    wild = random.random((batch, queries)) < 0.05
    starts[wild] = random.choice([-(2**63), -1, queries - 1, 2**63 - 1], wild.sum())
    return np.broadcast_to(starts[:, None, :, None], (batch, heads, queries, 1))


@pytest.mark.parametrize("vector_bytes", [16, 32, None])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_visible_from(dtype, causal, vector_bytes, monkeypatch):
    if vector_bytes:
        monkeypatch.setattr(tiles, "vector_bytes", lambda: vector_bytes)
    random = np.random.default_rng(0)
    for number, (queries, keys) in enumerate(((1, 1), (5, 63), (64, 64), (130, 257), (257, 257), (257, 130))):
        heads, key_heads = ((1, 1), (4, 2))[number % 2]
        query, d_output = side_by_side(random, dtype, 2, heads, (queries, 20), (queries, 33))
        key, value = side_by_side(random, dtype, 2, key_heads, (keys, 20), (keys, 33))
        operands = query, key, value, d_output, causal, 0.3, of_texts(random, 2, heads, queries)
        assert_close(compute(*operands), reference(*operands), steps=512)


def test_visible_from_of_each_head():
    random = np.random.default_rng(0)
    operands = tuple(side_by_side(random, np.float32, 2, 3, *[(100, 8)] * 4))
    visible_from = random.integers(0, 90, (2, 3, 100, 1))
    got, want = (each(*operands, True, 0.3, visible_from) for each in (compute, reference))
    assert_close(got, want, steps=256)


def test_a_query_that_sees_no_key_gives_0():
    random = np.random.default_rng(0)
    operands = tuple(side_by_side(random, np.float32, 1, 2, *[(100, 8)] * 4))
    visible_from = np.broadcast_to(np.where(np.arange(100) < 70, np.arange(100) + 1, 0)[:, None], (1, 2, 100, 1))
    output, logsumexp, _, d_query, *others = compute(*operands, True, 0.3, visible_from)
    assert (output[:, :, :70] == 0).all() and (logsumexp[:, :, :70] == -INF).all() and (d_query[:, :, :70] == 0).all()
    assert all(np.isfinite(each).all() for each in (output, logsumexp[:, :, 70:], d_query, *others))


def test_tiles_that_no_query_of_a_block_sees_are_passed_over():
    """A NaN there would reach all results, as the weight 0 times NaN."""
    random = np.random.default_rng(0)
    query, key, value, d_output = side_by_side(random, np.float32, 1, 1, *[(300, 8)] * 4)
    visible_from = np.full((1, 1, 300, 1), 2 * KEYS_PER_TILE + 5)
    hidden = slice(0, 2 * KEYS_PER_TILE)
    clean = reference(query, key, value, d_output, False, 0.5, visible_from)
    key[:, :, hidden], value[:, :, hidden] = NAN, NAN
    output, d_query, d_key, d_value = empty_like(d_output, query, key, value)
    logsumexp = np.full((1, 1, 300, 1), NAN, np.float32)
    run("attention", False, 0.5, (query, key, value, visible_from, output, logsumexp))
    delta = clean[2].astype(np.float32)
    views = (query, key, value, logsumexp, d_output, delta, visible_from, d_query, d_key, d_value)
    run("attention_gradient", False, 0.5, views)
    assert_close((output, logsumexp, delta, d_query, d_key, d_value), clean, steps=256)
    assert (d_key[:, :, hidden] == 0).all() and (d_value[:, :, hidden] == 0).all()


@pytest.mark.parametrize("causal", [False, True])
def test_huge_scores(causal):
    """Scores of up to 10,000, which are integers and so exact in f32; only the logsumexp rounds them."""
    random = np.random.default_rng(0)
    query, key = (random.integers(-25, 26, (1, 2, 70, 16)).astype(np.float32) for _ in range(2))
    value, d_output = (random.standard_normal((1, 2, 70, 16)).astype(np.float32) for _ in range(2))
    got, want = (each(query, key, value, d_output, causal, 1.0) for each in (compute, reference))
    assert np.abs(want[1]).max() > 2000
    assert_close(got[:2], want[:2], steps=16)
    assert_close(got[3:], want[3:], steps=4 * np.abs(want[1]).max())


def test_rows_without_a_key():
    random = np.random.default_rng(0)
    operands = tuple(side_by_side(random, np.float32, 1, 2, (70, 8), (30, 8), (30, 8), (70, 8)))
    output, logsumexp, _, d_query, d_key, d_value = compute(*operands, True, 0.5)
    assert (output[:, :, :40] == 0).all() and (logsumexp[:, :, :40] == -INF).all() and (d_query[:, :, :40] == 0).all()
    assert np.isfinite(d_key).all() and np.isfinite(d_value).all() and np.isfinite(logsumexp[:, :, 40:]).all()


def test_keys_whose_scores_are_all_minus_infinity():
    random = np.random.default_rng(0)
    query, key, value, d_output = side_by_side(random, np.float32, 1, 1, (50, 8), (70, 8), (70, 8), (50, 8))
    query[:, :, :, 0], key[:, :, :60, 0] = 1, -INF
    got = compute(query, key, value, d_output, False, 1.0)
    assert_close(got[:2], reference(query, key, value, d_output, False, 1.0)[:2], steps=64)
    key[:, :, :, 0] = -INF
    output, logsumexp, *_ = compute(query, key, value, d_output, False, 1.0)
    assert (output == 0).all() and (logsumexp == -INF).all()


@pytest.mark.parametrize("special", [NAN, INF, -INF])
@pytest.mark.parametrize("operand", [0, 1, 2])
@pytest.mark.parametrize("place", [0, 3, 66, 99])
def test_special_values_reach_those_who_see_them(special, operand, place):
    random = np.random.default_rng(0)
    operands = list(side_by_side(random, np.float32, 1, 1, *[(100, 8)] * 4))
    clean = reference(*operands, True, 0.5)[:2]
    operands[operand][0, 0, place, 3] = special
    got, want = compute(*operands, True, 0.5)[:2], reference(*operands, True, 0.5)[:2]
    for found, exact, before in zip(got, want, clean):
        # What a query does not see may be passed over: then it is as if nothing special were there.
        same = (np.isnan(found) & np.isnan(exact)) | (found == exact)
        with np.errstate(invalid="ignore"):
            close = same | (np.abs(found - exact) < 1e-5)
            unseen = np.arange(100)[:, None] < (place if operand else 0)
            close |= unseen & (np.abs(found - before) < 1e-5)
        assert close.all()


def test_nothing_else_is_written():
    """Results inside of one larger tensor, with room around them."""
    random = np.random.default_rng(0)
    fused = np.full((2, 70, 3, 4, 24), 7, np.float32)
    query, key, value, d_output = side_by_side(random, np.float32, 2, 2, *[(70, 20)] * 4)
    results = [fused[:, :, part, 1:3, 2:22].transpose(0, 2, 1, 3) for part in range(3)]
    _, logsumexp, delta, *gradients = compute(query, key, value, d_output, True, 0.5)
    run("attention_gradient", True, 0.5, (query, key, value, logsumexp, d_output, delta, *results))
    for result, gradient in zip(results, gradients):
        np.testing.assert_array_equal(result, gradient)
        result[...] = 7
    output, logsumexp_again = results[0], np.full((2, 4, 72, 1), 7, np.float32)
    run("attention", True, 0.5, (query, key, value, output, logsumexp_again[:, 1:3, 1:71]))
    np.testing.assert_array_equal(logsumexp_again[:, 1:3, 1:71], logsumexp)
    output[...], logsumexp_again[:, 1:3, 1:71] = 7, 7
    assert (fused == 7).all() and (logsumexp_again == 7).all()


def test_a_task_is_computed_alike_wherever_it_runs():
    random = np.random.default_rng(0)
    operands = tuple(side_by_side(random, np.float32, 1, 3, *[(130, 40)] * 3))
    function = attention_function("attention", AttentionVariant(DTYPES["f32"], 40, 40, True))
    count = 3 * -(-130 // function.block)
    found = []
    for tasks in (((0, count),), tuple((task, task + 1) for task in reversed(range(count)))):
        (output,), logsumexp = empty_like(operands[0]), np.full((1, 3, 130, 1), NAN, np.float32)
        run("attention", True, 0.2, (*operands, output, logsumexp), tasks)
        found.append((output, logsumexp))
    for first, second in zip(*found):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("heads", [3, 6])
def test_programs_of_any_number_of_threads_give_the_same_bits(dtype, heads):
    random = np.random.default_rng(0)
    with ei.Graph() as graph:
        x = ei.input("x", (2, 70, (heads + 6) * 8), dtype)
        by_head = x.reshape(2, 70, heads + 6, 8).transpose(0, 2, 1, 3)
        query, key, value = by_head[:, :heads], by_head[:, heads : heads + 3], by_head[:, heads + 3 :]
        mixed = ei.attention(query, key, value).transpose(0, 2, 1, 3).reshape(2, 70, heads * 8)
        ei.output(mixed=mixed, gradient=ei.gradient(ei.sum(mixed.cast(ei.f64) * mixed.cast(ei.f64)), [x])[0])
    array = random.standard_normal((2, 70, (heads + 6) * 8)).astype(DTYPES[dtype].numpy)
    first, *others = (ei.compile(graph, threads=threads)(x=array) for threads in (1, 2, 3))
    interpreted = ei.compile(graph, backend="reference")(x=array)
    for name, want in first.items():
        for other in others:
            np.testing.assert_array_equal(want.view(np.uint8), other[name].view(np.uint8))
        exact = interpreted[name].astype(np.float64)
        tolerance = {"f32": 1e-5, "f64": 1e-13, "bf16": 1e-1}[dtype]
        np.testing.assert_allclose(want.astype(np.float64), exact, atol=tolerance, rtol=tolerance)
