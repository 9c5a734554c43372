"""Matrix multiplication: batched, broadcast, either operand read transposed."""

from __future__ import annotations

import math

import numpy as np

from euler_ir import tensor as T
from euler_ir.ops.definition import define, expect, expect_dtype
from euler_ir.ops.movement import unbroadcast
from euler_ir.ops.reduction import is_half
from euler_ir.shapes import TensorType, broadcast_shapes


def _infer_matmul(types, attributes):
    left, right = types
    expect_dtype(left.dtype == right.dtype, f"matmul: dtypes {left.dtype} and {right.dtype} differ")
    expect_dtype(left.dtype.kind != "bool", "matmul: bool cannot be multiplied", "cast it first")
    expect(left.rank >= 2 and right.rank >= 2, f"matmul: needs two axes each, not {left.shape} and {right.shape}")
    rows, inner = left.shape[-2:][:: -1 if attributes["transpose_left"] else 1]
    inner_right, columns = right.shape[-2:][:: -1 if attributes["transpose_right"] else 1]
    expect(
        inner == inner_right,
        f"matmul: the left operand has {inner} columns{_transposed(attributes['transpose_left'])}, "
        f"the right one {inner_right} rows{_transposed(attributes['transpose_right'])}",
        "the inner sizes must be equal",
    )
    batch = broadcast_shapes(left.shape[:-2], right.shape[:-2])
    return (TensorType(left.dtype, batch + (rows, columns)),)


def _transposed(flag: bool) -> str:
    return " (read transposed)" if flag else ""


def _evaluate_matmul(attributes, left, right):
    dtype = left.dtype
    if is_half(dtype):
        left, right = left.astype(np.float32), right.astype(np.float32)
    # In rows too: a product with a transposed matrix has the bits of the product that reads the matrix transposed.
    left = np.ascontiguousarray(np.swapaxes(left, -1, -2)) if attributes["transpose_left"] else left
    right = np.ascontiguousarray(np.swapaxes(right, -1, -2)) if attributes["transpose_right"] else right
    return np.matmul(left, right).astype(dtype)


def _vjp_matmul(op, dy):
    left, right = op.operands
    transpose_left, transpose_right = op.attributes["transpose_left"], op.attributes["transpose_right"]
    if transpose_left:
        by_left = T.matmul(right, dy, transpose_right, True)
    else:
        by_left = T.matmul(dy, right, False, not transpose_right)
    if len(right.shape) == 2 and len(left.shape) > 2 and not transpose_left:
        # A weight shared by a batch: one product over all rows, instead of one a batch item and their sum.
        rows = T.reshape(left, (math.prod(left.shape[:-1]), left.shape[-1]))
        dy_rows = T.reshape(dy, rows.shape[:1] + dy.shape[-1:])
        by_right = T.matmul(dy_rows, rows, True, False) if transpose_right else T.matmul(rows, dy_rows, True, False)
    elif transpose_right:
        by_right = T.matmul(dy, left, True, transpose_left)
    else:
        by_right = T.matmul(left, dy, not transpose_left, False)
    return unbroadcast(by_left, left.shape), unbroadcast(by_right, right.shape)


define(
    "matmul",
    "contraction",
    _infer_matmul,
    evaluate=_evaluate_matmul,
    vjp=_vjp_matmul,
    attributes={"transpose_left": "bool", "transpose_right": "bool"},
    operand_names=("left", "right"),
    doc="matrix products over the last two axes, batches broadcast, either side read transposed",
)
