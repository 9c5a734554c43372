"""Scaled dot-product attention as one operator: output, and the logsumexp of each query's scores."""

from __future__ import annotations

import numpy as np

from euler_ir import tensor as T
from euler_ir.dtypes import accumulation_dtype, i64
from euler_ir.ops.definition import define, expect, expect_dtype
from euler_ir.ops.reduction import is_half, spread
from euler_ir.shapes import TensorType


def _infer_attention(types, attributes):
    query, key, value = types
    for label, other in (("key", key), ("value", value)):
        expect_dtype(other.dtype == query.dtype, f"attention: a query of {query.dtype} and a {label} of {other.dtype}")
        expect(
            other.rank == query.rank and query.rank >= 2 and other.shape[:-2] == query.shape[:-2],
            f"attention: query {query.shape} and {label} {other.shape} differ in their leading axes",
        )
    expect_dtype(query.dtype.is_float, f"attention: needs floats, not {query.dtype}")
    expect(
        key.shape[-1] == query.shape[-1], f"attention: queries of width {query.shape[-1]}, keys of width {key.shape[-1]}"
    )
    expect(key.shape[-2] == value.shape[-2], f"attention: {key.shape[-2]} keys and {value.shape[-2]} values")
    output = TensorType(query.dtype, query.shape[:-1] + value.shape[-1:])
    return output, TensorType(accumulation_dtype(query.dtype), query.shape[:-1])


def _evaluate_attention(attributes, query, key, value):
    wide = np.float32 if is_half(query.dtype) else query.dtype
    scores = np.matmul(query.astype(wide), np.swapaxes(key.astype(wide), -1, -2)) * np.asarray(attributes["scale"], wide)
    if attributes["causal"]:
        queries, keys = scores.shape[-2:]
        seen = np.arange(keys) <= np.arange(queries)[:, None] + (keys - queries)
        scores = np.where(seen, scores, -np.inf).astype(wide)
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
    return output.astype(query.dtype), logsumexp.astype(wide)


def _probabilities(op):
    """Softmax of the masked scores, rows without a key being 0, and their logsumexp; in the accumulation type."""
    query, key, _ = op.operands
    wide = accumulation_dtype(query.dtype)
    query, key = T.cast(query, wide), T.cast(key, wide)
    scores = T.matmul(query, key, transpose_right=True) * op.attributes["scale"]
    axis = len(scores.shape) - 1
    if not scores.shape[-1]:
        return scores, T.full_like(op.results[1], float("-inf"))
    if op.attributes["causal"]:
        queries, keys = scores.shape[-2:]
        grid = dict(shape=scores.shape[-2:], dtype=i64)
        row = scores.graph.emit("iota", (), axis=0, **grid)
        column = scores.graph.emit("iota", (), axis=1, **grid)
        scores = T.where(column <= row + (keys - queries), scores, float("-inf"))
    top = T.max(scores, axis)
    shift = T.where(T.equal(top, float("-inf")), 0, top)
    grown = T.exp(scores - spread(shift, scores, (axis,)))
    total = T.sum(grown, axis)
    logsumexp = T.log(total) + shift
    return grown / spread(T.where(T.equal(total, 0), 1, total), grown, (axis,)), logsumexp


def _decompose_attention(op):
    probabilities, logsumexp = _probabilities(op)
    value = T.cast(op.operands[2], probabilities.dtype)
    return T.cast(T.matmul(probabilities, value), op.result.dtype), logsumexp


def _vjp_attention(op, dy, d_logsumexp):
    query, key, value = op.operands
    probabilities, _ = _probabilities(op)
    wide, axis = probabilities.dtype, len(probabilities.shape) - 1
    query_wide, key_wide, value_wide = (T.cast(operand, wide) for operand in op.operands)
    by_value = T.full_like(value_wide, 0)
    by_scores = T.full_like(probabilities, 0)
    if dy is not None:
        dy = T.cast(dy, wide)
        by_value = T.matmul(probabilities, dy, transpose_left=True)
        by_probabilities = T.matmul(dy, value_wide, transpose_right=True)
        along = T.sum(by_probabilities * probabilities, axis)
        by_scores = probabilities * (by_probabilities - spread(along, probabilities, (axis,)))
    if d_logsumexp is not None:
        by_scores = by_scores + probabilities * spread(d_logsumexp, probabilities, (axis,))
    by_scores = by_scores * op.attributes["scale"]
    by_query = T.matmul(by_scores, key_wide)
    by_key = T.matmul(by_scores, query_wide, transpose_left=True)
    return T.cast(by_query, query.dtype), T.cast(by_key, key.dtype), T.cast(by_value, value.dtype)


define(
    "attention",
    "composite",
    _infer_attention,
    evaluate=_evaluate_attention,
    vjp=_vjp_attention,
    decompose=_decompose_attention,
    attributes={"causal": "bool", "scale": "float"},
    operand_names=("query", "key", "value"),
)
