"""Scaled dot-product attention as one operator: output, and the logsumexp of each query's scores; and its gradient.

The gradient computes the weights again from the logsumexp, so that nothing of the size of all scores is kept from one
to the other. What a query must not see has weight 0, by numpy's arithmetic: an infinite or NaN value there gives NaN.
A backend may pass over it.

Keys and values may have fewer heads, on the axis before the last two: so many queries' heads in turn share one (grouped
queries; Ainslie et al., arXiv:2305.13245). Here the queries of heads that share are rows of one matrix.

``visible_from``, if given, is for each query the first key that it may see: texts that share a row stay apart.
"""

from __future__ import annotations

import numpy as np

from euler_ir import tensor as T
from euler_ir.dtypes import accumulation_dtype, i64
from euler_ir.ops.definition import define, expect, expect_dtype
from euler_ir.ops.reduction import is_half, spread
from euler_ir.shapes import TensorType


def _infer_attention(types, attributes):
    query, key, value, *visible_from = types
    for label, other in (("key", key), ("value", value)):
        expect_dtype(other.dtype == query.dtype, f"attention: a query of {query.dtype} and a {label} of {other.dtype}")
        expect(
            other.rank == query.rank and query.rank >= 2 and other.shape[:-3] == query.shape[:-3],
            f"attention: query {query.shape} and {label} {other.shape} differ in their leading axes",
        )
        expect(
            other.shape[-3:-2] == query.shape[-3:-2]
            or (0 < other.shape[-3] <= query.shape[-3] and query.shape[-3] % other.shape[-3] == 0),
            f"attention: query {query.shape} has no multiple of the heads of {label} {other.shape}",
        )
    expect_dtype(query.dtype.is_float, f"attention: needs floats, not {query.dtype}")
    expect(
        key.shape[-1] == query.shape[-1],
        f"attention: queries of width {query.shape[-1]}, keys of width {key.shape[-1]}",
    )
    expect(key.shape[:-2] == value.shape[:-2], f"attention: key {key.shape} and value {value.shape} differ in heads")
    expect(key.shape[-2] == value.shape[-2], f"attention: {key.shape[-2]} keys and {value.shape[-2]} values")
    for each in visible_from:
        expect_dtype(each.dtype == i64, f"attention: visible_from is of {each.dtype}, not i64")
        expect(each.shape == query.shape[:-1], f"attention: visible_from is {each.shape}, not {query.shape[:-1]}")
    output = TensorType(query.dtype, query.shape[:-1] + value.shape[-1:])
    return output, TensorType(accumulation_dtype(query.dtype), query.shape[:-1])


def _shared(shape, key_shape):
    """``shape``, which begins as that of the query, with the queries of all heads that share a key's head as rows."""
    heads = len(key_shape) - 2
    if tuple(shape[:heads]) == tuple(key_shape[:heads]):
        return tuple(shape)
    rows = shape[heads - 1] // key_shape[heads - 1] * shape[heads]
    return (*key_shape[:heads], rows, *shape[heads + 1 :])


def _evaluate_scores(attributes, query, key, visible_from=None):
    """Scaled scores in the accumulation type; -inf for keys that a query must not see."""
    count = query.shape[-2]
    query = query.reshape(_shared(query.shape, key.shape))
    wide = np.float32 if is_half(query.dtype) else query.dtype
    products = np.matmul(query.astype(wide), np.swapaxes(key.astype(wide), -1, -2))
    scores = products * np.asarray(attributes["scale"], wide)
    if attributes["causal"]:
        rows, keys = scores.shape[-2:]
        seen = np.arange(keys) <= np.arange(rows)[:, None] % max(count, 1) + (keys - count)
        scores = np.where(seen, scores, -np.inf).astype(wide)
    if visible_from is not None:
        seen = np.arange(scores.shape[-1]) >= visible_from.reshape(scores.shape[:-1])[..., None]
        scores = np.where(seen, scores, -np.inf).astype(wide)
    return scores


def _evaluate_attention(attributes, query, key, value, visible_from=None):
    scores = _evaluate_scores(attributes, query, key, visible_from)
    wide = scores.dtype
    if not scores.shape[-1]:
        top = np.full(scores.shape[:-1] + (1,), -np.inf, wide)
    else:
        top = np.max(scores, axis=-1, keepdims=True)
    shift = np.where(top == -np.inf, 0, top)
    grown = np.exp(scores - shift)
    total = np.sum(grown, axis=-1, keepdims=True)
    output = np.matmul(grown / np.where(total == 0, 1, total), value.astype(wide))
    with np.errstate(divide="ignore"):
        logsumexp = (np.log(total) + shift)[..., 0]
    return (
        output.astype(query.dtype).reshape(*query.shape[:-1], value.shape[-1]),
        logsumexp.astype(wide).reshape(query.shape[:-1]),
    )


def _scores(op, visible_from=None):
    """Scaled scores in the accumulation type; -inf for keys that a query must not see."""
    query, key = op.operands[:2]
    wide, count = accumulation_dtype(query.dtype), query.shape[-2]
    query = T.reshape(query, _shared(query.shape, key.shape))
    scores = T.matmul(T.cast(query, wide), T.cast(key, wide), transpose_right=True) * op.attributes["scale"]
    rows, keys = scores.shape[-2:]

    def places(axis):
        return scores.graph.emit("iota", (), axis=axis, shape=(rows, keys), dtype=i64)

    if op.attributes["causal"]:
        row = places(0)
        row = row if rows == count else row % count
        scores = T.where(places(1) <= row + (keys - count), scores, float("-inf"))
    if visible_from is not None:
        by_row = T.reshape(visible_from, (*scores.shape[:-1], 1))
        scores = T.where(T.greater_equal(places(1), by_row), scores, float("-inf"))
    return scores


def _grown(scores, top):
    """exp(scores - top) row by row, and what is subtracted: 0 where ``top`` is -inf, so that all there are 0."""
    shift = T.where(T.equal(top, float("-inf")), 0, top)
    return T.exp(scores - spread(shift, scores, (len(scores.shape) - 1,))), shift


def _as_results(op, values):
    return tuple(T.reshape(T.cast(value, result.dtype), result.shape) for value, result in zip(values, op.results))


def _decompose_attention(op):
    scores = _scores(op, *op.operands[3:])
    axis = len(scores.shape) - 1
    if not scores.shape[-1]:
        return T.full_like(op.results[0], 0), T.full_like(op.results[1], float("-inf"))
    grown, shift = _grown(scores, T.max(scores, axis))
    total = T.sum(grown, axis)
    weights = grown / spread(T.where(T.equal(total, 0), 1, total), grown, (axis,))
    output = T.matmul(weights, T.cast(op.operands[2], weights.dtype))
    return _as_results(op, (output, T.log(total) + shift))


def _vjp_attention(op, d_output, d_logsumexp):
    output, logsumexp = op.results
    wide = logsumexp.dtype
    delta = T.full_like(logsumexp, 0)
    if d_output is None:
        d_output = T.full_like(output, 0)
    else:
        delta = T.sum(T.cast(d_output, wide) * T.cast(output, wide), len(output.shape) - 1)
    if d_logsumexp is not None:
        delta = delta - d_logsumexp
    operands, visible_from = op.operands[:3], op.operands[3:]
    found = output.graph.emit(
        "attention_gradient", (*operands, logsumexp, d_output, delta, *visible_from), **op.attributes
    )
    return *found, *(None for _ in visible_from)


define(
    "attention",
    "composite",
    _infer_attention,
    evaluate=_evaluate_attention,
    vjp=_vjp_attention,
    decompose=_decompose_attention,
    attributes={"causal": "bool", "scale": "float"},
    operand_names=("query", "key", "value", "visible_from"),
    optional=1,
    doc="softmax(scale * query @ key.T) @ value, causal or from a key on, and the scores' logsumexp",
)


# -- the gradient ------------------------------------------------------------------------------------------------------


def _infer_gradient(types, attributes):
    query, key, value, logsumexp, d_output, delta, *visible_from = types
    output, rows = _infer_attention((query, key, value, *visible_from), attributes)
    operands = ("logsumexp", logsumexp, rows), ("d_output", d_output, output), ("delta", delta, rows)
    for label, given, wanted in operands:
        message = f"attention_gradient: {label} is {given}, not {wanted}"
        expect_dtype(given.dtype == wanted.dtype, message)
        expect(given.shape == wanted.shape, message)
    return query, key, value


def _evaluate_gradient(attributes, query, key, value, logsumexp, d_output, delta, visible_from=None):
    scores = _evaluate_scores(attributes, query, key, visible_from)
    wide, given = scores.dtype, query.shape
    query, logsumexp, d_output, delta = (
        each.reshape(_shared(each.shape, key.shape)) for each in (query, logsumexp, d_output, delta)
    )
    weights = np.exp(scores - np.where(logsumexp == -np.inf, 0, logsumexp)[..., None])
    by_output = d_output.astype(wide)
    by_weights = np.matmul(by_output, np.swapaxes(value.astype(wide), -1, -2)) - delta[..., None]
    by_scores = weights * by_weights * np.asarray(attributes["scale"], wide)
    return (
        np.matmul(by_scores, key.astype(wide)).astype(query.dtype).reshape(given),
        np.matmul(np.swapaxes(by_scores, -1, -2), query.astype(wide)).astype(key.dtype),
        np.matmul(np.swapaxes(weights, -1, -2), by_output).astype(value.dtype),
    )


def _gradient_parts(op):
    """The weights, what the loss gains by each weight more than by its row's mean, and operands in their type."""
    query, key, value, logsumexp, d_output, delta, *visible_from = op.operands
    query, logsumexp, d_output, delta = (
        T.reshape(each, _shared(each.shape, key.shape)) for each in (query, logsumexp, d_output, delta)
    )
    scores = _scores(op, *visible_from)
    weights, _ = _grown(scores, logsumexp)
    query, key, value, d_output = (T.cast(operand, scores.dtype) for operand in (query, key, value, d_output))
    along = spread(delta, scores, (len(scores.shape) - 1,))
    return weights, T.matmul(d_output, value, transpose_right=True) - along, query, key, value, d_output


def _decompose_gradient(op):
    weights, by_weights, query, key, _, d_output = _gradient_parts(op)
    by_scores = weights * by_weights * op.attributes["scale"]
    found = (
        T.matmul(by_scores, key),
        T.matmul(by_scores, query, transpose_left=True),
        T.matmul(weights, d_output, transpose_left=True),
    )
    return _as_results(op, found)


def _vjp_gradient(op, *cotangents):
    """The second derivative; a, b, c are cotangents of dq = s S k, dk = s S' q, dv = W' g, S being W (g v' - delta)."""
    weights, by_weights, query, key, value, d_output = _gradient_parts(op)
    wide, axis, scale = weights.dtype, len(weights.shape) - 1, op.attributes["scale"]
    a, b, c = (
        T.full_like(operand, 0) if given is None else T.reshape(T.cast(given, wide), operand.shape)
        for given, operand in zip(cotangents, (query, key, value))
    )
    by_scores = weights * by_weights * scale
    of_by_scores = (T.matmul(a, key, transpose_right=True) + T.matmul(query, b, transpose_right=True)) * scale
    of_weights = T.matmul(d_output, c, transpose_right=True) + of_by_scores * by_weights
    of_by_weights = of_by_scores * weights
    of_scores = of_weights * weights
    by_query = T.matmul(of_scores, key) * scale + T.matmul(by_scores, b)
    by_key = T.matmul(of_scores, query, transpose_left=True) * scale + T.matmul(by_scores, a, transpose_left=True)
    found = (
        by_query,
        by_key,
        T.matmul(of_by_weights, d_output, transpose_left=True),
        T.negative(T.sum(of_scores, axis)),
        T.matmul(weights, c) + T.matmul(of_by_weights, value),
        T.negative(T.sum(of_by_weights, axis)),
    )
    by_operand = (T.reshape(T.cast(value, each.dtype), each.shape) for value, each in zip(found, op.operands))
    return *by_operand, *(None for _ in op.operands[len(found) :])


define(
    "attention_gradient",
    "composite",
    _infer_gradient,
    evaluate=_evaluate_gradient,
    vjp=_vjp_gradient,
    decompose=_decompose_gradient,
    attributes={"causal": "bool", "scale": "float"},
    operand_names=("query", "key", "value", "logsumexp", "d_output", "delta", "visible_from"),
    optional=1,
    doc="the gradients of attention by query, key and value, with the weights computed again",
)
