"""Functions of the DSL that change the shape or the order of axes, and join tensors."""

from __future__ import annotations

import functools
import math
from numbers import Integral

from euler_ir.dtypes import promote
from euler_ir.errors import ShapeError, user_location
from euler_ir.shapes import as_shape, drop_axes
from euler_ir.tensor.lifting import axes_of, axis_of, cast, constant_like, explained


def reshape(x, *shape):
    """The same elements, row-major, in another shape; one size may be -1. Raises ShapeError when the counts differ."""
    sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], Integral) else shape
    if -1 in sizes:
        rest = math.prod(size for size in sizes if size != -1)
        if sizes.count(-1) > 1 or rest == 0 or x.size % rest:
            raise x.graph.explain(ShapeError(f"cannot reshape {x.size} elements into {sizes}"), (x,))
        sizes = tuple(x.size // rest if size == -1 else size for size in sizes)
    sizes = explained((x,), as_shape, sizes)
    return x if x.shape == sizes else x.graph.emit("reshape", (x,), shape=sizes)


def transpose(x, *permutation):
    """Axes in another order; reversed when none is given."""
    axes = tuple(permutation[0]) if len(permutation) == 1 and not isinstance(permutation[0], Integral) else permutation
    axes = tuple(axis_of(x, axis) for axis in axes) or tuple(reversed(range(len(x.shape))))
    return x if axes == tuple(range(len(x.shape))) else x.graph.emit("transpose", (x,), permutation=axes)


def swap_axes(x, first: int, second: int):
    """``x`` with two axes exchanged."""
    axes = list(range(len(x.shape)))
    first, second = axis_of(x, first), axis_of(x, second)
    axes[first], axes[second] = axes[second], axes[first]
    return transpose(x, axes)


def expand_dims(x, axis: int):
    """``x`` with a new axis of size 1 at ``axis``."""
    axis = axis_of(x, axis, new_axes=1)
    return reshape(x, x.shape[:axis] + (1,) + x.shape[axis:])


def squeeze(x, axes=None):
    """``x`` without axes of size 1: all of them, or ``axes``. Raises ShapeError when one of those has another size."""
    if axes is None:
        axes = tuple(axis for axis, size in enumerate(x.shape) if size == 1)
    axes = axes_of(x, axes)
    for axis in axes:
        if x.shape[axis] != 1:
            raise x.graph.explain(ShapeError(f"cannot squeeze axis {axis} of size {x.shape[axis]}"), (x,))
    return reshape(x, drop_axes(x.shape, axes))


def flip(x, axes=None):
    """``x`` read backwards along ``axes``."""
    axes = axes_of(x, axes)
    return x.graph.emit("flip", (x,), axes=axes) if axes else x


def pad(x, widths, value=0):
    """``x`` with ``value`` around it; ``widths`` holds (before, after) for each axis."""
    widths = tuple((int(low), int(high)) for low, high in widths)
    low, high = tuple(pair[0] for pair in widths), tuple(pair[1] for pair in widths)
    return pad_with_interior(x, low, high, (0,) * len(widths), value)


def pad_with_interior(x, low, high, interior, value=0):
    """``pad`` that also puts ``interior`` copies of ``value`` between neighbours along each axis."""
    return x.graph.emit("pad", (x, constant_like(x, value)), low=low, high=high, interior=interior)


def concatenate(values, axis: int = 0):
    """Tensors joined along ``axis``; their dtypes are promoted. Raises ShapeError for an empty list."""
    values = list(values)
    if not values:
        raise ShapeError("concatenate needs at least one tensor", location=user_location())
    dtype = functools.reduce(promote, (value.dtype for value in values))
    axis = axis_of(values[0], axis)
    values = [cast(value, dtype) for value in values]
    return values[0] if len(values) == 1 else values[0].graph.emit("concatenate", tuple(values), axis=axis)


def stack(values, axis: int = 0):
    """Tensors of one shape joined along a new axis."""
    values = list(values)
    if not values:
        raise ShapeError("stack needs at least one tensor", location=user_location())
    axis = axis_of(values[0], axis, new_axes=1)
    return explained(values, concatenate, [expand_dims(value, axis) for value in values], axis)
