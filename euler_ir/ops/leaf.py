"""Operators without operands: inputs, parameters, state, constants, and index grids."""

from __future__ import annotations

import numpy as np

from euler_ir.dtypes import as_dtype
from euler_ir.ops.definition import define, expect, expect_dtype
from euler_ir.shapes import TensorType


def _declared(types, attributes):
    return (TensorType(attributes["dtype"], attributes["shape"]),)


def _infer_constant(types, attributes):
    value = attributes["value"]
    return (TensorType(as_dtype(value.dtype), value.shape),)


def _infer_iota(types, attributes):
    shape, axis, dtype = attributes["shape"], attributes["axis"], attributes["dtype"]
    expect(0 <= axis < len(shape), f"iota: axis {axis} is out of range for shape {shape}")
    expect_dtype(dtype.kind != "bool", "iota: bool cannot count")
    return (TensorType(dtype, shape),)


def _evaluate_iota(attributes):
    shape, axis = attributes["shape"], attributes["axis"]
    counts = np.arange(shape[axis]).astype(attributes["dtype"].numpy)
    column = counts.reshape([-1 if position == axis else 1 for position in range(len(shape))])
    return np.broadcast_to(column, shape)


define(
    "input",
    "leaf",
    _declared,
    attributes={"name": "str", "shape": "ints", "dtype": "dtype"},
    doc="a tensor that every call is given by its name",
)
for _name, _meaning in (
    ("parameter", "a tensor that training changes"),
    ("state", "a tensor that is kept from call to call"),
):
    define(
        _name,
        "leaf",
        _declared,
        attributes={"name": "str", "shape": "ints", "dtype": "dtype", "initializer": "initializer"},
        doc=f"{_meaning}, kept in a State by its name",
    )
define(
    "constant",
    "leaf",
    _infer_constant,
    evaluate=lambda attributes: np.asarray(attributes["value"]),
    attributes={"value": "array"},
    doc="an array that is part of the graph",
)
define(
    "iota",
    "leaf",
    _infer_iota,
    evaluate=_evaluate_iota,
    attributes={"shape": "ints", "axis": "int", "dtype": "dtype"},
    doc="each element is its index along an axis",
)
