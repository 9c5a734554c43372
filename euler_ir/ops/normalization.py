"""Normalisations of rows along the last axis. Statistics of half types are f32; the result is rounded once."""

from __future__ import annotations

import numpy as np

from euler_ir import tensor as T
from euler_ir.dtypes import accumulation_dtype
from euler_ir.ops.definition import define, expect, expect_dtype
from euler_ir.ops.reduction import is_half, spread

# -- layer norm --------------------------------------------------------------------------------------------------------


def _infer_norm(name):
    def infer(types, attributes):
        x, *factors = types
        expect(x.rank >= 1, f"{name}: needs at least one axis")
        for label, other in zip(("weight", "bias"), factors):
            expect(other.shape == x.shape[-1:], f"{name}: the {label} has shape {other.shape}, the rows {x.shape[-1:]}")
            expect_dtype(other.dtype == x.dtype, f"{name}: a {label} of {other.dtype} for rows of {x.dtype}")
        expect_dtype(x.dtype.is_float, f"{name}: needs floats, not {x.dtype}")
        return (x,)

    return infer


def _evaluate_layer_norm(attributes, x, weight, bias):
    wide = np.float32 if is_half(x.dtype) else x.dtype
    rows = x.astype(wide)
    if not rows.size:
        return x
    centered = rows - np.mean(rows, axis=-1, keepdims=True)
    variance = np.mean(centered * centered, axis=-1, keepdims=True)
    scale = 1 / np.sqrt(variance + np.asarray(attributes["epsilon"], wide))
    return (centered * scale * weight.astype(wide) + bias.astype(wide)).astype(x.dtype)


def _normalized(op):
    """The rows with mean 0 and variance 1, and one over their deviation, by two passes (variance is never negative)."""
    x = op.operands[0]
    x = T.cast(x, accumulation_dtype(x.dtype))
    axis = len(x.shape) - 1
    centered = x - spread(T.mean(x, axis), x, (axis,))
    variance = T.mean(centered * centered, axis)
    scale = T.rsqrt(variance + op.attributes["epsilon"])
    return centered * spread(scale, x, (axis,)), scale


def _decompose_layer_norm(op):
    x, weight, bias = op.operands
    normalized, _ = _normalized(op)
    wide = normalized.dtype
    return (T.cast(normalized * T.cast(weight, wide) + T.cast(bias, wide), x.dtype),)


def _vjp_layer_norm(op, dy):
    x, weight, bias = op.operands
    normalized, scale = _normalized(op)
    wide, axis = normalized.dtype, len(x.shape) - 1
    rows = tuple(range(axis))
    dy = T.cast(dy, wide)
    flow = dy * T.cast(weight, wide)
    mean_flow = spread(T.mean(flow, axis), flow, (axis,))
    mean_along = spread(T.mean(flow * normalized, axis), flow, (axis,))
    by_x = spread(scale, flow, (axis,)) * (flow - mean_flow - normalized * mean_along)
    by_weight = T.sum(dy * normalized, rows) if rows else dy * normalized
    by_bias = T.sum(dy, rows) if rows else dy
    return T.cast(by_x, x.dtype), T.cast(by_weight, weight.dtype), T.cast(by_bias, bias.dtype)


# -- RMS norm ----------------------------------------------------------------------------------------------------------


def _evaluate_rms_norm(attributes, x, weight):
    wide = np.float32 if is_half(x.dtype) else x.dtype
    rows = x.astype(wide)
    if not rows.size:
        return x
    scale = 1 / np.sqrt(np.mean(rows * rows, axis=-1, keepdims=True) + np.asarray(attributes["epsilon"], wide))
    return (rows * scale * weight.astype(wide)).astype(x.dtype)


def _scaled(op):
    """The rows with a mean square of 1, and what they were multiplied by."""
    x = op.operands[0]
    x = T.cast(x, accumulation_dtype(x.dtype))
    axis = len(x.shape) - 1
    scale = T.rsqrt(T.mean(x * x, axis) + op.attributes["epsilon"])
    return x * spread(scale, x, (axis,)), scale


def _decompose_rms_norm(op):
    scaled, _ = _scaled(op)
    return (T.cast(scaled * T.cast(op.operands[1], scaled.dtype), op.result.dtype),)


def _vjp_rms_norm(op, dy):
    x, weight = op.operands
    scaled, scale = _scaled(op)
    wide, axis = scaled.dtype, len(x.shape) - 1
    rows = tuple(range(axis))
    dy = T.cast(dy, wide)
    flow = dy * T.cast(weight, wide)
    mean_along = spread(T.mean(flow * scaled, axis), flow, (axis,))
    by_x = spread(scale, flow, (axis,)) * (flow - scaled * mean_along)
    by_weight = T.sum(dy * scaled, rows) if rows else dy * scaled
    return T.cast(by_x, x.dtype), T.cast(by_weight, weight.dtype)


# -- the table ---------------------------------------------------------------------------------------------------------


define(
    "layer_norm",
    "composite",
    _infer_norm("layer_norm"),
    evaluate=_evaluate_layer_norm,
    vjp=_vjp_layer_norm,
    decompose=_decompose_layer_norm,
    attributes={"epsilon": "float"},
    operand_names=("x", "weight", "bias"),
    doc="x along the last axis with mean 0 and variance 1, times weight plus bias",
)
define(
    "rms_norm",
    "composite",
    _infer_norm("rms_norm"),
    evaluate=_evaluate_rms_norm,
    vjp=_vjp_rms_norm,
    decompose=_decompose_rms_norm,
    attributes={"epsilon": "float"},
    operand_names=("x", "weight"),
    doc="x along the last axis with a mean square of 1, times weight",
)
