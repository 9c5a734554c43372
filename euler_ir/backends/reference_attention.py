"""Attention and its gradient in numpy, on strided views of flat buffers: what the other backends are compared with."""

from __future__ import annotations

import numpy as np

from euler_ir.dtypes import accumulation_dtype
from euler_ir.plan.plan import AttentionStep


def attention(step: AttentionStep, operands: list[np.ndarray], results: list[np.ndarray]) -> None:
    """Fill ``results`` from ``operands``, arrays of matrices, in the order of the step. Half types count in f32."""
    sums = accumulation_dtype(step.dtype).numpy
    wide = [each.astype(sums, copy=False) if each.dtype == step.dtype.numpy else each for each in operands]
    with np.errstate(all="ignore"):
        (_forward if step.operator == "attention" else _gradient)(step, wide, results)


def _scores(
    step: AttentionStep, query: np.ndarray, key: np.ndarray, visible_from: np.ndarray | None = None
) -> np.ndarray:
    scores = np.matmul(query, np.swapaxes(key, -1, -2)) * query.dtype.type(step.scale)
    if step.causal:
        seen = np.arange(step.keys) <= np.arange(step.queries)[:, None] + (step.keys - step.queries)
        scores = np.where(seen, scores, query.dtype.type(-np.inf))
    if visible_from is not None:
        scores = np.where(np.arange(step.keys) >= visible_from, scores, query.dtype.type(-np.inf))
    return scores


def _finite(top: np.ndarray) -> np.ndarray:
    """``top``, but 0 where it is -inf: what is subtracted from scores that are all -inf."""
    return np.where(top == -np.inf, 0, top).astype(top.dtype)


def _forward(step: AttentionStep, operands: list[np.ndarray], results: list[np.ndarray]) -> None:
    query, key, value, *visible_from = operands
    output, logsumexp = results
    scores = _scores(step, query, key, *visible_from)
    top = _finite(scores.max(axis=-1, keepdims=True))
    grown = np.exp(scores - top)
    total = grown.sum(axis=-1, keepdims=True)
    output[...] = np.matmul(grown / np.where(total == 0, 1, total), value)
    logsumexp[...] = np.log(total) + top


def _gradient(step: AttentionStep, operands: list[np.ndarray], results: list[np.ndarray]) -> None:
    query, key, value, logsumexp, d_output, delta, *visible_from = operands
    weights = np.exp(_scores(step, query, key, *visible_from) - _finite(logsumexp))
    by_scores = weights * (np.matmul(d_output, np.swapaxes(value, -1, -2)) - delta) * query.dtype.type(step.scale)
    d_query, d_key, d_value = results
    d_query[...] = np.matmul(by_scores, key)
    by_key = np.matmul(np.swapaxes(by_scores, -1, -2), query)
    by_value = np.matmul(np.swapaxes(weights, -1, -2), d_output)
    if step.group > 1:  # all of the axis lie in one place
        by_key, by_value = (np.sum(each, axis=-3, keepdims=True) for each in (by_key, by_value))
    d_key[...], d_value[...] = by_key, by_value
