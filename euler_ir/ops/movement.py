"""Operators that move elements and compute nothing: each is a map from result indices to operand indices."""

from __future__ import annotations

import math

import numpy as np

from euler_ir import tensor as T
from euler_ir.index import Bound, Index, Multiple, delinearize, linearize
from euler_ir.ops.definition import Source, define, expect, expect_dtype
from euler_ir.shapes import TensorType, broadcast_shapes


def _infer_broadcast(types, attributes):
    (operand,), shape = types, attributes["shape"]
    expect(broadcast_shapes(operand.shape, shape) == shape, f"broadcast: {operand.shape} does not broadcast to {shape}")
    return (TensorType(operand.dtype, shape),)


def _infer_reshape(types, attributes):
    (operand,), shape = types, attributes["shape"]
    expect(
        operand.size == math.prod(shape),
        f"reshape: {operand.shape} has {operand.size} elements, {shape} has {math.prod(shape)}",
    )
    return (TensorType(operand.dtype, shape),)


def _infer_transpose(types, attributes):
    (operand,), permutation = types, attributes["permutation"]
    expect(
        sorted(permutation) == list(range(operand.rank)),
        f"transpose: {permutation} does not permute {operand.rank} axes",
    )
    return (TensorType(operand.dtype, tuple(operand.shape[axis] for axis in permutation)),)


def _infer_flip(types, attributes):
    expect(all(0 <= axis < types[0].rank for axis in attributes["axes"]), f"flip: axes {attributes['axes']} do not fit")
    return (types[0],)


def _infer_slice(types, attributes):
    (operand,) = types
    starts, sizes, steps = attributes["starts"], attributes["sizes"], attributes["steps"]
    expect(len(starts) == len(sizes) == len(steps) == operand.rank, "slice: one start, size and step for each axis")
    for axis, (start, size, step) in enumerate(zip(starts, sizes, steps)):
        last = start + (size - 1) * step
        expect(
            step >= 1 and start >= 0 and size >= 0 and (size == 0 or last < operand.shape[axis]),
            f"slice: start {start}, size {size}, step {step} leave axis {axis} of size {operand.shape[axis]}",
        )
    return (TensorType(operand.dtype, sizes),)


def _slices(attributes):
    triples = zip(attributes["starts"], attributes["sizes"], attributes["steps"])
    return tuple(slice(start, start + size * step, step) if size else slice(0, 0) for start, size, step in triples)


def _infer_pad(types, attributes):
    operand, value = types
    low, high, interior = attributes["low"], attributes["high"], attributes["interior"]
    expect(value.shape == (), f"pad: the value has shape {value.shape}, not ()")
    expect_dtype(value.dtype == operand.dtype, f"pad: a value of {value.dtype} for a tensor of {operand.dtype}")
    expect(len(low) == len(high) == len(interior) == operand.rank, "pad: one width for each axis")
    are_widths = all(width >= 0 for width in (*low, *high, *interior))
    expect(are_widths, "pad: widths are 0 or more", "slice to make it smaller")
    return (TensorType(operand.dtype, _padded_shape(operand.shape, attributes)),)


def _padded_shape(shape, attributes):
    widths = zip(shape, attributes["low"], attributes["high"], attributes["interior"])
    return tuple(low + size + max(size - 1, 0) * interior + high for size, low, high, interior in widths)


def _evaluate_pad(attributes, x, value):
    shape = _padded_shape(x.shape, attributes)
    result = np.full(shape, value, x.dtype)
    places = tuple(
        slice(low, low + size * (interior + 1), interior + 1) if size else slice(0, 0)
        for size, low, interior in zip(x.shape, attributes["low"], attributes["interior"])
    )
    result[places] = x
    return result


def _infer_concatenate(types, attributes):
    axis, first = attributes["axis"], types[0]
    expect(0 <= axis < first.rank, f"concatenate: axis {axis} is out of range for {first}")
    for other in types[1:]:
        expect_dtype(other.dtype == first.dtype, f"concatenate: dtypes {first.dtype} and {other.dtype} differ")
        expect(
            other.rank == first.rank
            and all(a == b for i, (a, b) in enumerate(zip(first.shape, other.shape)) if i != axis),
            f"concatenate: shapes {first.shape} and {other.shape} differ elsewhere than on axis {axis}",
        )
    size = sum(operand.shape[axis] for operand in types)
    return (TensorType(first.dtype, first.shape[:axis] + (size,) + first.shape[axis + 1 :]),)


# -- gradients ---------------------------------------------------------------------------------------------------------


def unbroadcast(value, shape):
    """``value`` summed over what broadcasting from ``shape`` repeated: the one place where that is undone."""
    added = len(value.shape) - len(shape)
    axes = tuple(range(added)) + tuple(
        axis + added for axis, size in enumerate(shape) if size == 1 and value.shape[axis + added] != 1
    )
    return T.reshape(T.sum(value, axes) if axes else value, shape)


def _vjp_slice(op, dy):
    """The cotangent put back between zeros."""
    operand = op.operands[0]
    starts, sizes, steps = op.attributes["starts"], op.attributes["sizes"], op.attributes["steps"]
    if 0 in sizes:
        return (T.full_like(operand, 0),)
    high = tuple(
        size - (start + (count - 1) * step + 1) for size, start, count, step in zip(operand.shape, starts, sizes, steps)
    )
    return (T.pad_with_interior(dy, starts, high, tuple(step - 1 for step in steps)),)


def _vjp_pad(op, dy):
    operand, low, interior = op.operands[0], op.attributes["low"], op.attributes["interior"]
    inner = dy
    if operand.shape != dy.shape:
        starts = tuple(start if size else 0 for start, size in zip(low, operand.shape))
        steps = tuple(between + 1 for between in interior)
        inner = dy.graph.emit("slice", (dy,), starts=starts, sizes=operand.shape, steps=steps)
    return inner, T.sum(dy) - T.sum(inner)


def _vjp_concatenate(op, dy):
    axis = op.attributes["axis"]
    before = (slice(None),) * axis
    gradients, start = [], 0
    for operand in op.operands:
        gradients.append(dy[before + (slice(start, start + operand.shape[axis]),)])
        start += operand.shape[axis]
    return tuple(gradients)


# -- index maps --------------------------------------------------------------------------------------------------------


def _broadcast_source(op, indices):
    shape = op.operands[0].shape
    aligned = indices[len(indices) - len(shape) :]
    return (Source(0, tuple(Index() if size == 1 else index for index, size in zip(aligned, shape))),)


def _reshape_source(op, indices):
    return (Source(0, delinearize(linearize(indices, op.result.shape), op.operands[0].shape)),)


def _transpose_source(op, indices):
    places = dict(zip(op.attributes["permutation"], indices))
    return (Source(0, tuple(places[axis] for axis in range(len(indices)))),)


def _flip_source(op, indices):
    axes, shape = op.attributes["axes"], op.result.shape
    return (Source(0, tuple(index * -1 + (shape[a] - 1) if a in axes else index for a, index in enumerate(indices))),)


def _slice_source(op, indices):
    triples = zip(indices, op.attributes["starts"], op.attributes["steps"])
    return (Source(0, tuple(index * step + start for index, start, step in triples)),)


def _pad_source(op, indices):
    inner, conditions = [], []
    widths = zip(indices, op.operands[0].shape, op.attributes["low"], op.attributes["interior"])
    for index, size, low, interior in widths:
        place = index - low
        conditions.append(Bound(place, 0, (size - 1) * (interior + 1) + 1 if size else 0))
        if interior:
            conditions.append(Multiple(place, interior + 1))
        inner.append(place // (interior + 1))
    needed = tuple(c for c in conditions if not (isinstance(c, Bound) and c.always))
    return Source(0, tuple(inner), needed), Source(1, ())


def _concatenate_source(op, indices):
    axis, start, sources = op.attributes["axis"], 0, []
    for position, operand in enumerate(op.operands):
        place = indices[axis] - start
        inside = Bound(place, 0, operand.shape[axis])
        start += operand.shape[axis]
        if not inside.never:
            sources.append(Source(position, indices[:axis] + (place,) + indices[axis + 1 :], (inside,)))
    return tuple(sources) if len(sources) > 1 else (Source(sources[0].operand, sources[0].indices),)


# -- the table ---------------------------------------------------------------------------------------------------------


define(
    "broadcast",
    "movement",
    _infer_broadcast,
    evaluate=lambda attributes, x: np.broadcast_to(x, attributes["shape"]),
    vjp=lambda op, dy: (unbroadcast(dy, op.operands[0].shape),),
    index_map=_broadcast_source,
    attributes={"shape": "ints"},
    operand_names=("operand",),
    doc="x repeated to a shape, by numpy's rules",
)
define(
    "reshape",
    "movement",
    _infer_reshape,
    evaluate=lambda attributes, x: np.reshape(x, attributes["shape"]),
    vjp=lambda op, dy: (T.reshape(dy, op.operands[0].shape),),
    index_map=_reshape_source,
    attributes={"shape": "ints"},
    operand_names=("operand",),
    doc="the same elements in row-major order in another shape",
)
define(
    "transpose",
    "movement",
    _infer_transpose,
    evaluate=lambda attributes, x: np.transpose(x, attributes["permutation"]),
    vjp=lambda op, dy: (T.transpose(dy, tuple(int(axis) for axis in np.argsort(op.attributes["permutation"]))),),
    index_map=_transpose_source,
    attributes={"permutation": "ints"},
    operand_names=("operand",),
    doc="axis n of the result is axis permutation[n] of x",
)
define(
    # The same tensor. Fusion makes what reads it through this apart from the loops that made it: see `Rematerialize`.
    "later",
    "movement",
    lambda types, attributes: types,
    evaluate=lambda attributes, x: x,
    vjp=lambda op, dy: (dy,),
    index_map=lambda op, indices: (Source(0, indices),),
    operand_names=("operand",),
    doc="x, for operators that are computed a second time: fusion does not move them up",
)
define(
    "flip",
    "movement",
    _infer_flip,
    evaluate=lambda attributes, x: np.flip(x, attributes["axes"]),
    vjp=lambda op, dy: (T.flip(dy, op.attributes["axes"]),),
    index_map=_flip_source,
    attributes={"axes": "ints"},
    operand_names=("operand",),
    doc="x backwards along axes",
)
define(
    "slice",
    "movement",
    _infer_slice,
    evaluate=lambda attributes, x: x[_slices(attributes)],
    vjp=_vjp_slice,
    index_map=_slice_source,
    attributes={"starts": "ints", "sizes": "ints", "steps": "ints"},
    operand_names=("operand",),
    doc="sizes elements along each axis from starts on, steps apart",
)
define(
    "pad",
    "movement",
    _infer_pad,
    evaluate=_evaluate_pad,
    vjp=_vjp_pad,
    index_map=_pad_source,
    attributes={"low": "ints", "high": "ints", "interior": "ints"},
    operand_names=("operand", "value"),
    doc="value put before, behind and between the elements of x; negative widths cut off",
)
define(
    "concatenate",
    "movement",
    _infer_concatenate,
    evaluate=lambda attributes, *arrays: np.concatenate(arrays, axis=attributes["axis"]),
    vjp=_vjp_concatenate,
    index_map=_concatenate_source,
    attributes={"axis": "int"},
    doc="the operands one behind the other along an axis",
)
