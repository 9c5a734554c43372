"""Operands made alike: numbers and arrays become constants, casts and broadcasts are spelled out as operators."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np

from euler_ir.dtypes import DType, as_dtype, bool_, promote, promote_scalar
from euler_ir.errors import DTypeError, EulerError, user_location
from euler_ir.shapes import as_shape, broadcast_shapes, normalize_axes, normalize_axis


class Tensor:
    """What every tensor of a graph is; see TensorMethods for what it can do."""

    __slots__ = ()


def is_number(value) -> bool:
    return isinstance(value, (bool, np.bool_, Real)) and not isinstance(value, np.ndarray)


def plain_number(value):
    """A numpy or Python number as the plain Python one of its kind."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    return int(value) if isinstance(value, Integral) else float(value)


def explained(values, rule, *arguments):
    """``rule(*arguments)``; what it refuses is reported with the names and types of ``values`` and the user's line."""
    try:
        return rule(*arguments)
    except EulerError as error:
        error.details = ()  # the rule may have spoken of what was made of the values
        raise values[0].graph.explain(error, values) from None


def axis_of(x, axis, new_axes: int = 0) -> int:
    """``axis`` of ``x`` counted from the front, where the result has ``new_axes`` more."""
    return explained((x,), normalize_axis, axis, len(x.shape) + new_axes)


def axes_of(x, axes) -> tuple[int, ...]:
    return explained((x,), normalize_axes, axes, len(x.shape))


def constant_like(value, number, dtype: DType | None = None):
    """A 0-d constant in the graph of ``value``; its dtype is that of ``value`` unless given.

    Raises DTypeError for a number that the dtype cannot hold: a float beside integers, an int out of their range.
    """
    dtype = dtype or value.dtype
    if dtype.is_integer and (isinstance(number, Real) and not isinstance(number, Integral)):
        raise value.graph.explain(DTypeError(f"{number!r} is no {dtype}", hint="cast the tensor to a float"), (value,))
    try:
        array = np.asarray(number, dtype.numpy)
    except OverflowError:
        error = DTypeError(f"{number} is out of the range of {dtype}", hint="cast the tensor to a wider type")
        raise value.graph.explain(error, (value,)) from None
    return value.graph.emit("constant", (), value=array)


def full_like(value, number):
    """A tensor of the type of ``value`` filled with ``number``."""
    return broadcast_to(constant_like(value, number), value.shape)


def lift(operands: Sequence, near=None) -> list:
    """Operands as values of one dtype and one shape: numbers become constants, casts and broadcasts are spelled out.

    Tensors and arrays decide the dtype, numbers only its kind. ``near`` is a value of the graph, needed when no operand
    is one. Raises DTypeError when there is none, or an operand is neither a value, a number, nor an array.
    """
    near = next((operand for operand in operands if isinstance(operand, Tensor)), near)
    if near is None:
        raise DTypeError(
            "none of the operands is a tensor of a graph",
            location=user_location(),
            hint="make one with input, parameter or constant",
        )
    operands = [operand if is_number(operand) else as_value(operand, near) for operand in operands]
    dtypes = [operand.dtype for operand in operands if isinstance(operand, Tensor)]
    dtype = functools.reduce(promote, dtypes) if dtypes else bool_
    for operand in operands:
        if is_number(operand):
            dtype = promote_scalar(dtype, plain_number(operand))
    values = [
        constant_like(near, plain_number(operand), dtype) if is_number(operand) else cast(operand, dtype)
        for operand in operands
    ]
    shape = broadcast_shapes_of(values)
    return [broadcast_to(value, shape) for value in values]


def refuse_bool(operand, near) -> None:
    """Raise DTypeError for a Python bool: it comes from ``==``, which says whether two names mean one tensor."""
    if isinstance(operand, bool):
        hint = "== compares names; compare elements with equal or not_equal"
        error = DTypeError(f"{operand} is no tensor", hint=hint)
        raise near.graph.explain(error, (near,))


def as_value(operand, near):
    """A tensor as it is; a number or an array as a constant in the graph of ``near``."""
    if isinstance(operand, Tensor):
        return operand
    if is_number(operand) or isinstance(operand, (np.ndarray, list, tuple)):
        return near.graph.constant(operand)
    error = DTypeError(
        f"a {type(operand).__name__} cannot be an operand", hint="use a tensor, a number or a numpy array"
    )
    raise near.graph.explain(error, (near,))


def broadcast_shapes_of(values):
    """The broadcast shape of ``values``; a mismatch is reported with their names, types and the user's line."""
    return explained(values, broadcast_shapes, *(value.shape for value in values))


def cast(x, dtype):
    """``x`` as another element type; float to integer truncates and stays within the range, and NaN gives 0."""
    dtype = explained((x,), as_dtype, dtype)
    return x if x.dtype == dtype else x.graph.emit("cast", (x,), dtype=dtype)


def broadcast_to(x, shape):
    """``x`` repeated to ``shape``, as numpy's broadcast_to."""
    shape = explained((x,), as_shape, shape)
    return x if x.shape == shape else x.graph.emit("broadcast", (x,), shape=shape)
