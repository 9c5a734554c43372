"""Composite operators of neural networks along one axis: softmax, log-softmax, cross-entropy.

Statistics of half types are f32; the result is rounded once.
"""

from __future__ import annotations

import numpy as np

from euler_ir import tensor as T
from euler_ir.dtypes import accumulation_dtype, i32, promote
from euler_ir.ops.definition import define, expect, expect_dtype
from euler_ir.ops.elementwise import infer_float
from euler_ir.ops.reduction import in_accumulation_dtype, is_half, spread
from euler_ir.shapes import TensorType

# -- softmax and log-softmax -------------------------------------------------------------------------------------------


def _infer_along(name):
    def infer(types, attributes):
        axis = attributes["axis"]
        expect(0 <= axis < types[0].rank, f"{name}: axis {axis} is out of range for {types[0]}")
        return infer_float(name)(types, attributes)

    return infer


def _softmax(x, attributes):
    axis = attributes["axis"]
    if not x.size:
        return x
    grown = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return grown / np.sum(grown, axis=axis, keepdims=True)


def _log_softmax(x, attributes):
    axis = attributes["axis"]
    if not x.size:
        return x
    shifted = x - np.max(x, axis=axis, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def _shifted(op):
    """The operand in the accumulation type minus its largest along the axis, and the axis."""
    x, axis = op.operands[0], op.attributes["axis"]
    x = T.cast(x, accumulation_dtype(x.dtype))
    return x - spread(T.max(x, axis), x, (axis,)), axis


def _decompose_softmax(op):
    if not op.result.size:
        return (op.operands[0],)
    shifted, axis = _shifted(op)
    grown = T.exp(shifted)
    # The sum is at least 1: one division a row instead of one an element.
    return (T.cast(grown * spread(1 / T.sum(grown, axis), grown, (axis,)), op.result.dtype),)


def _decompose_log_softmax(op):
    if not op.result.size:
        return (op.operands[0],)
    shifted, axis = _shifted(op)
    return (T.cast(shifted - spread(T.log(T.sum(T.exp(shifted), axis)), shifted, (axis,)), op.result.dtype),)


def _vjp_softmax(op, dy):
    wide, axis = accumulation_dtype(dy.dtype), op.attributes["axis"]
    y, dy_wide = T.cast(op.result, wide), T.cast(dy, wide)
    along = spread(T.sum(y * dy_wide, axis), y, (axis,))
    return (T.cast(y * (dy_wide - along), dy.dtype),)


def _vjp_log_softmax(op, dy):
    wide, axis = accumulation_dtype(dy.dtype), op.attributes["axis"]
    y, dy_wide = T.cast(op.result, wide), T.cast(dy, wide)
    return (T.cast(dy_wide - T.exp(y) * spread(T.sum(dy_wide, axis), y, (axis,)), dy.dtype),)


# -- cross-entropy -----------------------------------------------------------------------------------------------------


def _infer_cross_entropy(types, attributes):
    logits, labels = types
    expect_dtype(logits.dtype.is_float, f"cross_entropy: needs float logits, not {logits.dtype}")
    expect_dtype(labels.dtype.is_integer, f"cross_entropy: needs integer labels, not {labels.dtype}")
    expect(
        logits.rank == labels.rank + 1 and logits.shape[:-1] == labels.shape,
        f"cross_entropy: logits {logits.shape} do not fit labels {labels.shape}",
        "logits have the shape of the labels and one more axis for the classes",
    )
    return (TensorType(accumulation_dtype(logits.dtype), labels.shape),)


def _evaluate_cross_entropy(attributes, logits, labels):
    wide = logits.astype(np.float32) if is_half(logits.dtype) else logits
    classes = wide.shape[-1]
    ignored = labels == attributes["ignore_index"]
    valid = (labels >= 0) & (labels < classes)
    if not classes or not labels.size:
        return np.where(ignored, 0, np.nan).astype(wide.dtype)
    scores = _log_softmax(wide, {"axis": wide.ndim - 1})
    picked = np.take_along_axis(scores, np.where(valid, labels, 0)[..., None].astype(np.int64), axis=-1)[..., 0]
    return np.where(ignored, 0, np.where(valid, -picked, np.nan)).astype(wide.dtype)


I32_CLASSES = 2**31 - 1


def _label_masks(op):
    """Whether each position counts, whether its label is a class, and the one-hot grid of labels (all bool)."""
    logits, labels = op.operands
    labels = T.cast(labels, promote(labels.dtype, i32))  # of the narrow ones i8 holds no ignore_index beyond -128
    ignored = T.equal(labels, op.attributes["ignore_index"])
    valid = T.logical_and(labels >= 0, labels < logits.shape[-1])
    if logits.shape[-1] <= I32_CLASSES:
        labels = T.cast(labels, i32)  # twice as many at once as of i64; what wraps around is not valid
    grid = logits.graph.emit("iota", (), shape=logits.shape, axis=len(logits.shape) - 1, dtype=labels.dtype)
    return ignored, valid, T.equal(grid, spread(labels, logits, (len(logits.shape) - 1,)))


def _decompose_cross_entropy(op):
    logits, _ = op.operands
    ignored, valid, hit = _label_masks(op)
    if not logits.size:
        return (T.where(ignored, 0, T.full_like(op.result, float("nan"))),)
    x, axis = T.cast(logits, op.result.dtype), len(logits.shape) - 1
    shifted = x - spread(T.max(x, axis), x, (axis,))
    picked = T.sum(T.where(hit, shifted, 0), axis)
    loss = T.log(T.sum(T.exp(shifted), axis)) - picked
    return (T.where(ignored, 0, T.where(valid, loss, float("nan"))),)


def _vjp_cross_entropy(op, dy):
    logits, _ = op.operands
    ignored, valid, hit = _label_masks(op)
    axis = len(logits.shape) - 1
    probabilities = T.softmax(T.cast(logits, op.result.dtype), axis)
    weight = T.where(ignored, 0, T.where(valid, dy, float("nan")))
    gradient = spread(weight, probabilities, (axis,)) * (probabilities - T.cast(hit, probabilities.dtype))
    kept = T.where(spread(ignored, logits, (axis,)), 0, gradient)
    return T.cast(kept, logits.dtype), None


# -- the table ---------------------------------------------------------------------------------------------------------


define(
    "softmax",
    "composite",
    _infer_along("softmax"),
    evaluate=in_accumulation_dtype(_softmax),
    vjp=_vjp_softmax,
    decompose=_decompose_softmax,
    attributes={"axis": "int"},
    operand_names=("operand",),
    doc="exp(x) over its sum along an axis, without overflow",
)
define(
    "log_softmax",
    "composite",
    _infer_along("log_softmax"),
    evaluate=in_accumulation_dtype(_log_softmax),
    vjp=_vjp_log_softmax,
    decompose=_decompose_log_softmax,
    attributes={"axis": "int"},
    operand_names=("operand",),
    doc="log(softmax(x)), exact where that is small",
)
define(
    "cross_entropy",
    "composite",
    _infer_cross_entropy,
    evaluate=_evaluate_cross_entropy,
    vjp=_vjp_cross_entropy,
    decompose=_decompose_cross_entropy,
    attributes={"ignore_index": "int"},
    operand_names=("logits", "labels"),
    doc="-log_softmax(logits) at each label; 0 where the label is ignore_index",
)
