"""Shapes: tuples of non-negative ints, and the arithmetic that every level shares."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from euler_ir.dtypes import DType
from euler_ir.errors import ShapeError

Shape = tuple[int, ...]

MAX_AXES = 64
"""Axes of a tensor at most: numpy's arrays have no more."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """The type of a value: element type and static shape. ``str`` gives ``f32[2, 3]``."""

    dtype: DType
    shape: Shape

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


def as_shape(value: int | Iterable[int]) -> Shape:
    """A shape from an int or a sequence of ints. Raises ShapeError for a negative or a non-integer size."""
    sizes = (value,) if isinstance(value, int) else tuple(value)
    for size in sizes:
        if isinstance(size, bool) or not hasattr(size, "__index__") or size < 0:
            raise ShapeError(f"{size!r} is not a size in shape {sizes}", hint="sizes are integers of 0 or more")
    return tuple(int(size) for size in sizes)


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape that numpy's broadcasting gives. Raises ShapeError naming the axis that does not fit."""
    rank = max(map(len, shapes), default=0)
    result = []
    for axis in range(-rank, 0):
        sizes = {shape[axis] for shape in shapes if len(shape) >= -axis}
        wide = sizes - {1}
        if len(wide) > 1:
            raise ShapeError(
                f"shapes {' and '.join(map(str, shapes))} do not broadcast: axis {axis} has sizes "
                f"{' and '.join(map(str, sorted(wide)))}",
                hint="sizes must be equal or 1, counted from the last axis",
            )
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def normalize_axis(axis: int, rank: int) -> int:
    """``axis`` counted from the front. Raises ShapeError when it is outside of -rank..rank-1."""
    if isinstance(axis, bool) or not hasattr(axis, "__index__"):
        raise ShapeError(f"{axis!r} is not an axis", hint="axes are integers")
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} is out of range for a tensor of {rank} axes")
    return int(axis) % rank


def normalize_axes(axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Sorted distinct axes counted from the front; ``None`` means all. Raises ShapeError for a repeated axis."""
    if axes is None:
        return tuple(range(rank))
    given = (axes,) if hasattr(axes, "__index__") else tuple(axes)
    normal = tuple(sorted(normalize_axis(axis, rank) for axis in given))
    if len(set(normal)) != len(normal):
        raise ShapeError(f"axes {given} name an axis twice")
    return normal


def row_major_strides(shape: Shape) -> tuple[int, ...]:
    """Element strides of a contiguous tensor of ``shape``."""
    strides = []
    stride = 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= size
    return tuple(reversed(strides))


def drop_axes(shape: Shape, axes: Iterable[int]) -> Shape:
    """``shape`` without ``axes``."""
    removed = set(axes)
    return tuple(size for axis, size in enumerate(shape) if axis not in removed)


def keep_axes(shape: Shape, axes: Iterable[int]) -> Shape:
    """``shape`` with size 1 at ``axes``."""
    kept = set(axes)
    return tuple(1 if axis in kept else size for axis, size in enumerate(shape))
