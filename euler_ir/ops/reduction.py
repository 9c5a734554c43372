"""Reductions over axes, the running sum, and what is built from them.

Half types are accumulated in f32 and rounded once.
"""

from __future__ import annotations

import numpy as np

from euler_ir import tensor as T
from euler_ir.dtypes import accumulation_dtype, i64
from euler_ir.ops.definition import define, expect, expect_dtype
from euler_ir.shapes import TensorType, drop_axes, keep_axes


def _axes(types, attributes):
    axes = attributes["axes"]
    expect(
        tuple(sorted(set(axes))) == axes and all(0 <= axis < types[0].rank for axis in axes),
        f"axes {axes} do not fit a tensor of {types[0].rank} axes",
    )
    return axes


def _infer_reduction(name, empty_is_error=False, numbers=True):
    def infer(types, attributes):
        (operand,) = types
        axes = _axes(types, attributes)
        if numbers:
            expect_dtype(operand.dtype.kind != "bool", f"{name}: bool cannot be reduced", "cast it first")
        for axis in axes if empty_is_error else ():
            expect(operand.shape[axis] > 0, f"{name}: axis {axis} has size 0, and nothing has no {name}")
        return (TensorType(operand.dtype, drop_axes(operand.shape, axes)),)

    return infer


def _infer_logsumexp(types, attributes):
    expect_dtype(types[0].dtype.is_float, f"logsumexp: needs a float tensor, not {types[0].dtype}")
    return (TensorType(types[0].dtype, drop_axes(types[0].shape, _axes(types, attributes))),)


def _infer_arg(name):
    def infer(types, attributes):
        (operand,) = types
        axis = attributes["axis"]
        expect(0 <= axis < operand.rank, f"{name}: axis {axis} is out of range for {operand}")
        expect(operand.shape[axis] > 0, f"{name}: axis {axis} has size 0, and nothing has no {name}")
        return (TensorType(i64, drop_axes(operand.shape, (axis,))),)

    return infer


def _infer_cumsum(types, attributes):
    (operand,) = types
    expect(0 <= attributes["axis"] < operand.rank, f"cumsum: axis {attributes['axis']} is out of range for {operand}")
    expect_dtype(operand.dtype.kind != "bool", "cumsum: bool cannot be summed", "cast it first")
    return (operand,)


def is_half(dtype: np.dtype) -> bool:
    """Whether a numpy dtype is f16 or bf16."""
    return dtype.itemsize == 2 and dtype.kind not in "iu"


def in_accumulation_dtype(function):
    """``function(array, attributes)`` in f32 for half types, rounded once."""

    def evaluate(attributes, x):
        if is_half(x.dtype):
            return np.asarray(function(x.astype(np.float32), attributes)).astype(x.dtype)
        return np.asarray(function(x, attributes), x.dtype)

    return evaluate


def _logsumexp(x, attributes):
    axes = attributes["axes"]
    if not x.size:
        return np.full(drop_axes(x.shape, axes), -np.inf, x.dtype)
    top = np.max(x, axis=axes, keepdims=True)
    shift = np.where(np.isfinite(top), top, 0)
    total = np.log(np.sum(np.exp(x - shift), axis=axes))
    return np.reshape(shift, total.shape) + total


def _cumsum(x, attributes):
    axis = attributes["axis"]
    if attributes["reverse"]:
        return np.flip(np.cumsum(np.flip(x, axis), axis=axis), axis)
    return np.cumsum(x, axis=axis)


# -- gradients and decompositions --------------------------------------------------------------------------------------


def spread(value, like, axes):
    """``value`` with ``axes`` put back and repeated to the shape of ``like``."""
    return T.broadcast_to(T.reshape(value, keep_axes(like.shape, axes)), like.shape)


def _vjp_sum(op, dy):
    return (spread(dy, op.operands[0], op.attributes["axes"]),)


def _vjp_extremum(op, dy):
    x, axes = op.operands[0], op.attributes["axes"]
    if not x.dtype.is_float:
        return (None,)
    wide = accumulation_dtype(x.dtype)
    tied = T.equal(x, spread(op.result, x, axes))
    ties = T.maximum(T.sum(tied, axes), 1)
    share = spread(T.cast(dy, wide) / T.cast(ties, wide), x, axes)
    return (T.cast(T.where(tied, share, 0), x.dtype),)


def _vjp_prod(op, dy):
    """The product of the elements before times that of those after: no division, so zeros need no care in any order."""
    x, axes = op.operands[0], op.attributes["axes"]
    if not x.dtype.is_float:
        return (None,)
    if not x.size:
        return (T.full_like(x, 0),)
    wide = accumulation_dtype(x.dtype)
    order = tuple(axis for axis in range(len(x.shape)) if axis not in axes) + axes
    moved = T.transpose(T.cast(x, wide), order)
    rows = T.reshape(moved, (*op.result.shape, -1))
    others = _products_before(rows) * T.flip(_products_before(T.flip(rows, -1)), -1)
    back = tuple(order.index(axis) for axis in range(len(order)))
    others = T.transpose(T.reshape(others, moved.shape), back)
    return (T.cast(spread(T.cast(dy, wide), x, axes) * others, x.dtype),)


def _products_before(rows):
    """For each element of the last axis the product of those before it, by doubling (Hillis and Steele, 1986)."""
    size = rows.shape[-1]

    def shifted(value, distance):
        return T.pad(value[..., : size - distance], ((0, 0),) * (len(rows.shape) - 1) + ((distance, 0),), 1)

    products, distance = shifted(rows, 1), 1
    while distance < size:
        products, distance = products * shifted(products, distance), 2 * distance
    return products


def _vjp_logsumexp(op, dy):
    x, axes = op.operands[0], op.attributes["axes"]
    share = T.exp(x - spread(op.result, x, axes))
    return (T.where(T.equal(x, float("-inf")), 0, spread(dy, x, axes) * share),)


def _decompose_logsumexp(op):
    x, axes = op.operands[0], op.attributes["axes"]
    wide = accumulation_dtype(x.dtype)
    x_wide = T.cast(x, wide)
    if 0 in (x.shape[axis] for axis in axes):
        return (T.full_like(op.result, float("-inf")),)
    top = T.max(x_wide, axes)
    shift = T.where(T.absolute(top) < float("inf"), top, 0)
    total = T.sum(T.exp(x_wide - spread(shift, x, axes)), axes)
    return (T.cast(T.log(total) + shift, x.dtype),)


def _decompose_arg(op):
    """The least index at which the extremum or a NaN stands."""
    x, axis = op.operands[0], op.attributes["axis"]
    best = (T.max if op.name == "argmax" else T.min)(x, axis)
    hit = T.logical_or(T.equal(x, spread(best, x, (axis,))), T.isnan(x))
    grid = x.graph.emit("iota", (), shape=x.shape, axis=axis, dtype=i64)
    return (T.min(T.where(hit, grid, x.shape[axis]), axis),)


def _vjp_cumsum(op, dy):
    return (T.cumsum(dy, op.attributes["axis"], reverse=not op.attributes["reverse"]),)


def _reduction(name, function, vjp, *, doc, **infer):
    define(
        name,
        "reduction",
        _infer_reduction(name, **infer),
        evaluate=in_accumulation_dtype(lambda x, attributes: function(x, axis=attributes["axes"])),
        vjp=vjp,
        attributes={"axes": "ints"},
        operand_names=("operand",),
        doc=doc,
    )


_reduction("sum", np.sum, _vjp_sum, doc="the sum over axes, which disappear")
_reduction("prod", np.prod, _vjp_prod, doc="the product over axes, which disappear")
_reduction(
    "max",
    np.max,
    _vjp_extremum,
    empty_is_error=True,
    numbers=False,
    doc="the largest over axes, which disappear; NaN if any is",
)
_reduction(
    "min",
    np.min,
    _vjp_extremum,
    empty_is_error=True,
    numbers=False,
    doc="the smallest over axes, which disappear; NaN if any is",
)
define(
    "logsumexp",
    "composite",
    _infer_logsumexp,
    evaluate=in_accumulation_dtype(_logsumexp),
    vjp=_vjp_logsumexp,
    decompose=_decompose_logsumexp,
    attributes={"axes": "ints"},
    operand_names=("operand",),
    doc="log(sum(exp(x))) over axes, without overflow",
)
for _name, _function, _which in (("argmax", np.argmax, "largest"), ("argmin", np.argmin, "smallest")):
    define(
        _name,
        "composite",
        _infer_arg(_name),
        evaluate=lambda attributes, x, function=_function: function(
            x.astype(np.float32) if is_half(x.dtype) else x, axis=attributes["axis"]
        ),
        decompose=_decompose_arg,
        attributes={"axis": "int"},
        operand_names=("operand",),
        doc=f"the index of the {_which} along an axis: the first of equal ones, or of the NaNs",
    )
define(
    "cumsum",
    "scan",
    _infer_cumsum,
    evaluate=in_accumulation_dtype(_cumsum),
    vjp=_vjp_cumsum,
    attributes={"axis": "int", "reverse": "bool"},
    operand_names=("operand",),
    doc="running sums along an axis, from its end with reverse",
)
