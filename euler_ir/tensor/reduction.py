"""Functions of the DSL that reduce over axes or run along one."""

from __future__ import annotations

import math

from euler_ir.dtypes import accumulation_dtype, f32, i64
from euler_ir.shapes import keep_axes
from euler_ir.tensor.elementwise import divide
from euler_ir.tensor.lifting import axes_of, axis_of, cast
from euler_ir.tensor.shape import reshape


def _reduce(name: str, x, axes, keepdims: bool):
    axes = axes_of(x, axes)
    result = x.graph.emit(name, (x,), axes=axes)
    return reshape(result, keep_axes(x.shape, axes)) if keepdims else result


def _countable(x):
    """Integers and bools are summed and multiplied in i64, as in numpy."""
    return x if x.dtype.is_float else cast(x, i64)


def sum(x, axes=None, keepdims: bool = False):
    """Sum over ``axes`` (all by default). Integers and bools give i64; half types are accumulated in f32."""
    return _reduce("sum", _countable(x), axes, keepdims)


def prod(x, axes=None, keepdims: bool = False):
    """Product over ``axes``; of nothing it is 1."""
    return _reduce("prod", _countable(x), axes, keepdims)


def max(x, axes=None, keepdims: bool = False):
    """Largest over ``axes``; NaN propagates; ties share the gradient evenly. Raises ShapeError over no elements."""
    return _reduce("max", x, axes, keepdims)


def min(x, axes=None, keepdims: bool = False):
    """Smallest over ``axes``; NaN propagates; ties share the gradient evenly. Raises ShapeError over no elements."""
    return _reduce("min", x, axes, keepdims)


def mean(x, axes=None, keepdims: bool = False):
    """Mean over ``axes``, accumulated in f32 for half types; of nothing it is NaN. Integers give f32."""
    x = x if x.dtype.is_float else cast(x, f32)
    axes = axes_of(x, axes)
    count = math.prod(x.shape[axis] for axis in axes)
    wide = accumulation_dtype(x.dtype)
    total = sum(cast(x, wide), axes, keepdims)
    return cast(divide(total, float(count)), x.dtype)


def logsumexp(x, axes=None, keepdims: bool = False):
    """``log(sum(exp(x)))`` without overflow; of all -inf it is -inf, with gradient 0."""
    return _reduce("logsumexp", x if x.dtype.is_float else cast(x, f32), axes, keepdims)


def argmax(x, axis=None, keepdims: bool = False):
    """Index (i64) of the first largest along ``axis``, or in the flattened tensor; the first NaN wins."""
    return _arg("argmax", x, axis, keepdims)


def argmin(x, axis=None, keepdims: bool = False):
    """Index (i64) of the first smallest along ``axis``, or in the flattened tensor; the first NaN wins."""
    return _arg("argmin", x, axis, keepdims)


def _arg(name: str, x, axis, keepdims: bool):
    if axis is None:
        result = x.graph.emit(name, (reshape(x, (-1,)),), axis=0)
        return reshape(result, (1,) * len(x.shape)) if keepdims else result
    axis = axis_of(x, axis)
    result = x.graph.emit(name, (x,), axis=axis)
    return reshape(result, keep_axes(x.shape, (axis,))) if keepdims else result


def cumsum(x, axis: int, reverse: bool = False):
    """Running sum along ``axis``, from the end with ``reverse``. Integers and bools give i64."""
    x = _countable(x)
    return x.graph.emit("cumsum", (x,), axis=axis_of(x, axis), reverse=reverse)


def softmax(x, axis: int = -1):
    """``exp(x) / sum(exp(x))`` along ``axis``, without overflow. A row of all -inf gives NaN, as IEEE says."""
    x = x if x.dtype.is_float else cast(x, f32)
    return x.graph.emit("softmax", (x,), axis=axis_of(x, axis))


def log_softmax(x, axis: int = -1):
    """``x - logsumexp(x)`` along ``axis``."""
    x = x if x.dtype.is_float else cast(x, f32)
    return x.graph.emit("log_softmax", (x,), axis=axis_of(x, axis))
