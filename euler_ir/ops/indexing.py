"""Gather and its adjoint, scatter-add, by an integer tensor along one axis."""

from __future__ import annotations

import numpy as np

from euler_ir import tensor as T
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
)
define(
    "scatter_add",
    "indexing",
    _infer_scatter_add,
    evaluate=_evaluate_scatter_add,
    vjp=lambda op, dy: (None, T.take(dy, op.operands[0], op.attributes["axis"])),
    attributes={"axis": "int", "size": "int"},
    operand_names=("indices", "updates"),
)
