"""Functions of the DSL that pick elements: numpy's basic indexing, gather and scatter-add."""

from __future__ import annotations

from numbers import Integral

from euler_ir.dtypes import f32, i32, promote
from euler_ir.errors import ShapeError
from euler_ir.tensor.elementwise import equal
from euler_ir.tensor.lifting import Tensor, as_value, axis_of, cast
from euler_ir.tensor.shape import expand_dims, flip, reshape


def getitem(x, index):
    """numpy's basic indexing (ints, slices, None, Ellipsis), or an integer tensor that gathers along the first axis."""
    if isinstance(index, Tensor):
        return take(x, index, axis=0)
    items = index if isinstance(index, tuple) else (index,)
    for item in items:
        if not (item is None or item is Ellipsis or isinstance(item, (slice, Integral))) or isinstance(item, bool):
            raise x.graph.explain(
                ShapeError(f"a {type(item).__name__} cannot index a tensor"),
                (x,),
                hint="use take to gather by a tensor",
            )
    used = len([item for item in items if item is not None and item is not Ellipsis])
    if used > len(x.shape) or items.count(Ellipsis) > 1:
        raise x.graph.explain(ShapeError(f"{used} indices for a tensor of {len(x.shape)} axes"), (x,))
    if Ellipsis not in items:
        items = items + (Ellipsis,)
    at = items.index(Ellipsis)
    items = items[:at] + (slice(None),) * (len(x.shape) - used) + items[at + 1 :]

    starts, sizes, steps, shape, backwards = [], [], [], [], []
    axis = 0
    for item in items:
        if item is None:
            shape.append(1)
            continue
        size = x.shape[axis]
        if isinstance(item, slice):
            start, stop, step = item.indices(size)
            count = len(range(start, stop, step))
            if step < 0 and count:
                backwards.append(axis)
                start, step = start + (count - 1) * step, -step
            starts.append(start if count else 0)
            sizes.append(count)
            steps.append(abs(step))
            shape.append(count)
        else:
            if not -size <= item < size:
                raise x.graph.explain(ShapeError(f"index {item} is out of range for axis {axis} of size {size}"), (x,))
            starts.append(int(item) % size)
            sizes.append(1)
            steps.append(1)
        axis += 1
    result = x
    if tuple(sizes) != x.shape or any(step != 1 for step in steps):
        result = x.graph.emit("slice", (x,), starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))
    if backwards:
        result = flip(result, tuple(backwards))
    return reshape(result, tuple(shape))


def split(x, sections: int, axis: int = -1):
    """``sections`` equal parts along ``axis``. Raises ShapeError when it does not divide."""
    axis = axis_of(x, axis)
    if sections < 1 or x.shape[axis] % sections:
        raise x.graph.explain(
            ShapeError(f"axis {axis} of size {x.shape[axis]} does not split into {sections} parts"), (x,)
        )
    width = x.shape[axis] // sections
    before = (slice(None),) * axis
    return tuple(getitem(x, before + (slice(i * width, (i + 1) * width),)) for i in range(sections))


def take(x, indices, axis: int = 0):
    """Slices of ``x`` along ``axis`` picked by an integer tensor; its shape replaces that axis.

    An index outside of 0..size-1 raises ExecutionError when the graph runs. Equal indices add up in the gradient.
    """
    return x.graph.emit("take", (x, indices), axis=axis_of(x, axis))


def scatter_add(indices, updates, size: int, axis: int = 0):
    """Zeros of ``size`` along ``axis``, plus each slice of ``updates`` at its index: the adjoint of ``take``."""
    axis = axis_of(updates, axis, new_axes=1 - len(indices.shape))
    return indices.graph.emit("scatter_add", (indices, updates), axis=axis, size=size)


def dynamic_update_slice(x, update, start, axis: int = 0):
    """``x`` with the slice along ``axis`` that begins at ``start``, an integer, replaced by ``update``.

    ``update`` has the sizes of ``x`` on all other axes. ``start`` is 0-d, or has the first axes of ``x``, as many of
    those before ``axis`` as one likes: then each place on them has a start of its own. Unless ``update`` lies inside of
    ``x``, ExecutionError is raised when the graph runs. A state that nothing else reads and whose update this is gets
    written in place: only the slice is touched.
    """
    update, start = as_value(update, x), as_value(start, x)
    return x.graph.emit("dynamic_update_slice", (x, update, start), axis=axis_of(x, axis))


def one_hot(indices, classes: int, dtype=f32):
    """1 at the index along a new last axis, 0 elsewhere; all 0 for an index outside of 0..classes-1."""
    # Narrow index types could not count up to every class.
    indices = expand_dims(cast(indices, promote(indices.dtype, i32)), -1)
    shape = indices.shape[:-1] + (classes,)
    grid = indices.graph.emit("iota", (), shape=shape, axis=len(shape) - 1, dtype=indices.dtype)
    return cast(equal(grid, indices), dtype)
