"""Gather and its adjoint, scatter-add, by an integer tensor along one axis; and slices written at a place."""

from __future__ import annotations

import math

import numpy as np

from euler_ir import tensor as T
from euler_ir.dtypes import i64
from euler_ir.errors import ExecutionError
from euler_ir.ops.definition import define, expect, expect_dtype
from euler_ir.ops.reduction import is_half
from euler_ir.shapes import TensorType


def _infer_take(types, attributes):
    source, indices = types
    axis = attributes["axis"]
    expect(0 <= axis < source.rank, f"take: axis {axis} is out of range for {source}")
    expect_dtype(indices.dtype.is_integer, f"take: the indices are {indices.dtype}, not integers")
    return (TensorType(source.dtype, source.shape[:axis] + indices.shape + source.shape[axis + 1 :]),)


def _infer_scatter_add(types, attributes):
    indices, updates = types
    axis, size = attributes["axis"], attributes["size"]
    expect_dtype(indices.dtype.is_integer, f"scatter_add: the indices are {indices.dtype}, not integers")
    expect_dtype(updates.dtype.kind != "bool", "scatter_add: bool cannot be summed")
    inner = updates.shape[axis : axis + indices.rank]
    expect(
        size >= 0 and axis >= 0 and inner == indices.shape,
        f"scatter_add: updates {updates.shape} do not hold indices {indices.shape} at axis {axis}",
    )
    return (TensorType(updates.dtype, updates.shape[:axis] + (size,) + updates.shape[axis + indices.rank :]),)


def _infer_dynamic_update_slice(types, attributes):
    operand, update, start = types
    axis = attributes["axis"]
    expect(0 <= axis < operand.rank, f"dynamic_update_slice: axis {axis} is out of range for {operand}")
    expect_dtype(
        update.dtype == operand.dtype, f"dynamic_update_slice: {update.dtype} cannot be written into {operand.dtype}"
    )
    expect_dtype(start.dtype.is_integer, f"dynamic_update_slice: the start is {start.dtype}, not an integer")
    expect(
        start.rank <= axis and start.shape == operand.shape[: start.rank],
        f"dynamic_update_slice: starts {start.shape} for {operand.shape} along axis {axis}",
        "a start is 0-d, or has the first axes of what is written into, as far as that axis",
    )
    fits = update.rank == operand.rank and all(
        size == whole if place != axis else size <= whole
        for place, (size, whole) in enumerate(zip(update.shape, operand.shape))
    )
    expect(
        fits,
        f"dynamic_update_slice: an update of {update.shape} does not fit into {operand.shape} along axis {axis}",
        "all axes but that one have the same size",
    )
    return (operand,)


def _infer_index_add(types, attributes):
    operand, indices, updates = types
    (scattered,) = _infer_scatter_add((indices, updates), {**attributes, "size": operand.shape[attributes["axis"]]})
    expect(scattered == operand, f"index_add: updates of {updates} at {indices} make {scattered}, not {operand}")
    return (operand,)


def starts_of(op) -> int:
    """How many places a dynamic_update_slice may start at: 0 to this, excluded."""
    axis = op.attributes["axis"]
    return op.operands[0].shape[axis] - op.operands[1].shape[axis] + 1


def check_indices(indices: np.ndarray, size: int, operator: str) -> None:
    """Raise ExecutionError when an index is outside of 0..size-1."""
    bad = (indices < 0) | (indices >= size)
    if bad.any():
        place = tuple(int(position) for position in np.argwhere(bad)[0])
        raise ExecutionError(
            f"{operator}: index {indices[place]} at {place} is outside of 0..{size - 1}",
            hint="indices never wrap around and are never clamped",
        )


def _evaluate_take(attributes, source, indices):
    check_indices(indices, source.shape[attributes["axis"]], "take")
    return np.take(source, indices, axis=attributes["axis"])


def _evaluate_scatter_add(attributes, indices, updates):
    axis, size = attributes["axis"], attributes["size"]
    check_indices(indices, size, "scatter_add")
    wide = np.float32 if is_half(updates.dtype) else updates.dtype
    last = axis + indices.ndim
    flat = updates.astype(wide).reshape(updates.shape[:axis] + (indices.size,) + updates.shape[last:])
    result = np.zeros(updates.shape[:axis] + (size,) + updates.shape[last:], wide)
    np.add.at(np.moveaxis(result, axis, 0), indices.reshape(-1), np.moveaxis(flat, axis, 0))
    return result.astype(updates.dtype)


def _evaluate_dynamic_update_slice(attributes, operand, update, start):
    axis = attributes["axis"]
    size = update.shape[axis]
    result = operand.copy()
    if not update.size:
        return result
    start = np.asarray(start)
    check_indices(start, operand.shape[axis] - size + 1, "dynamic_update_slice")
    first = start.astype(np.int64).reshape(start.shape + (1,) * (update.ndim - start.ndim))
    rows = np.arange(size).reshape((size,) + (1,) * (update.ndim - axis - 1))
    np.put_along_axis(result, np.broadcast_to(first + rows, update.shape), update, axis)
    return result


def _decompose_dynamic_update_slice(op):
    """A choice between the two for every element."""
    operand, update, _ = op.operands
    axis, size = op.attributes["axis"], update.shape[op.attributes["axis"]]
    if not update.size:
        return (operand,)
    row = _rows(op, operand.shape[axis]) - _first_rows(op)
    inside = T.logical_and(row >= 0, row < size)
    spread = _take_along(update, T.where(inside, row, 0), axis)
    inside = T.reshape(inside, inside.shape + (1,) * (len(operand.shape) - axis - 1))
    return (T.where(inside, spread, operand),)


def _vjp_dynamic_update_slice(op, dy):
    _, update, start = op.operands
    axis = op.attributes["axis"]
    outside = T.dynamic_update_slice(dy, T.full_like(update, 0), start, axis)
    return outside, _take_along(dy, _first_rows(op) + _rows(op, update.shape[axis]), axis), None


def _rows(op, count):
    return op.graph.emit("iota", (), shape=(count,), axis=0, dtype=i64)


def _first_rows(op):
    """The starts, i64, with as many axes as lead to a row. They are read out of all that they may be, as a check."""
    start, axis = op.operands[2], op.attributes["axis"]
    checked = T.take(_rows(op, starts_of(op)), start)
    return T.reshape(checked, start.shape + (1,) * (axis + 1 - len(start.shape)))


def _take_along(x, rows, axis):
    """Of each slice of ``x`` that its first ``axis`` axes lead to, the rows ``rows``, [those axes or 1, count]."""
    before = x.shape[:axis]
    slices = x.graph.emit("iota", (), shape=(math.prod(before),), axis=0, dtype=i64)
    places = T.reshape(slices * x.shape[axis], before + (1,)) + rows
    return T.take(T.reshape(x, (math.prod(x.shape[: axis + 1]),) + x.shape[axis + 1 :]), places)


def _as_scatter_add(op):
    """The updates of an index_add, summed by themselves."""
    operand, indices, updates = op.operands
    return T.scatter_add(indices, updates, operand.shape[op.attributes["axis"]], op.attributes["axis"])


def _vjp_take(op, dy):
    source, indices = op.operands
    axis = op.attributes["axis"]
    return T.scatter_add(indices, dy, source.shape[axis], axis), None


define(
    "take",
    "indexing",
    _infer_take,
    evaluate=_evaluate_take,
    vjp=_vjp_take,
    attributes={"axis": "int"},
    operand_names=("source", "indices"),
    doc="the slices of source along an axis that indices name; out of range is an error",
)
define(
    "scatter_add",
    "indexing",
    _infer_scatter_add,
    evaluate=_evaluate_scatter_add,
    vjp=lambda op, dy: (None, T.take(dy, op.operands[0], op.attributes["axis"])),
    attributes={"axis": "int", "size": "int"},
    operand_names=("indices", "updates"),
    doc="zeros of size along an axis, with each of updates added at its index",
)
define(
    "dynamic_update_slice",
    "indexing",
    _infer_dynamic_update_slice,
    evaluate=_evaluate_dynamic_update_slice,
    vjp=_vjp_dynamic_update_slice,
    decompose=_decompose_dynamic_update_slice,
    attributes={"axis": "int"},
    operand_names=("operand", "update", "start"),
    doc="x with update written over it from start, one or one a row, on along an axis",
)
define(
    # What the pass `legalize` makes of a sum: the updates are added where the operand lies.
    "index_add",
    "indexing",
    _infer_index_add,
    evaluate=lambda attributes, x, indices, updates: (
        x + _evaluate_scatter_add({**attributes, "size": x.shape[attributes["axis"]]}, indices, updates)
    ),
    vjp=lambda op, dy: (dy, None, T.take(dy, op.operands[1], op.attributes["axis"])),
    decompose=lambda op: (op.operands[0] + _as_scatter_add(op),),
    attributes={"axis": "int"},
    operand_names=("operand", "indices", "updates"),
    doc="x with each of updates added at its index along an axis",
)
