"""Attention and its gradient as calls: heads are read and written as strided views, wherever they lie.

A fused projection holds queries, keys and values of all heads side by side; the output goes straight into the layout
that the next projection reads, and the three gradients into one tensor if all that follows is to put them together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from euler_ir.dtypes import DType
from euler_ir.errors import LoweringError
from euler_ir.graph import Op, Value
from euler_ir.index import Axis, Index, Indices
from euler_ir.passes.views import (
    MAX_BATCH_AXES,
    MatrixView,
    Strides,
    layout_of,
    merged_batch,
    strides_of,
    views_of,
)

OPERATORS = ("attention", "attention_gradient")

_MATRICES = {
    "query": "md", "key": "nd", "value": "ne", "logsumexp": "m1", "d_output": "me", "delta": "m1",
    "visible_from": "m1",
}  # fmt: skip
_RESULTS = {"attention": ("me", "m1"), "attention_gradient": ("md", "nd", "ne")}


@dataclass(frozen=True)
class AttentionCall:
    """The operator ``operator`` for each point of ``batch``: ``operands`` and ``results`` in its order, as views.

    ``group`` heads of queries share one of keys and values; if there are more than 1, they are the last axis of
    ``batch``, along which views of keys and values have the step 0.
    Vectors are views of one column, their elements side by side. Rows of matrices are contiguous. ``ops`` are the
    operators that the call does: also those that only move its results.
    """

    operator: str
    dtype: DType
    causal: bool
    scale: float
    batch: tuple[int, ...]
    group: int
    queries: int
    keys: int
    width: int
    value_width: int
    operands: tuple[MatrixView, ...]
    result_views: tuple[MatrixView, ...]
    ops: tuple[Op, ...]

    @property
    def sources(self) -> tuple[Value, ...]:
        return tuple(view.source for view in self.operands)

    @property
    def results(self) -> tuple[Value, ...]:
        return tuple(view.source for view in self.result_views)


@dataclass(frozen=True)
class _Place:
    """Where a result lies: in the buffer of ``value``, made of it by ``ops``, its elements at ``indices``."""

    value: Value
    indices: Indices
    ops: tuple[Op, ...] = ()


def match_attention(
    op: Op, uses: Mapping[Value, Sequence[Op]], results: frozenset[Value], is_stored: Callable[[Value], bool]
) -> AttentionCall:
    """The call for ``op``, one of ``OPERATORS``.

    Operands are read through movements as long as ``is_stored`` says that a value has no buffer of its own and their
    rows stay contiguous. Results go through the movements that alone read them.
    """
    query, key, value = op.operands[:3]
    heads = tuple(Axis(f"b{position}", size) for position, size in enumerate(key.shape[:-2]))
    group = Axis("g", math.prod(query.shape[:-2]) // math.prod(key.shape[:-2]))
    batch = (*heads, group)
    sizes = {"m": query.shape[-2], "n": key.shape[-2], "d": query.shape[-1], "e": value.shape[-1], "1": 1}
    axes = {name: Axis(name, size) for name, size in sizes.items()}

    operands = []
    named = list(zip(op.operands, op.definition.operand_names))
    for operand, name in named:
        order = tuple(axes[axis] for axis in _MATRICES[name])
        views = views_of(operand, _indices(heads, group, order), batch, order, is_stored)
        operands.append([view for view in views if _is_readable(view, order)])
    orders = [tuple(axes[axis] for axis in names) for names in _RESULTS[op.name]]
    near = [_Place(result, _indices(heads, group, order)) for result, order in zip(op.results, orders)]
    far = _far_places(near, uses, results)
    # The last view of each list reaches furthest through movements; the first is always contiguous.
    for views, places in (([v[-1] for v in operands], far), ([v[0] for v in operands], near)):
        result_views = [strides_of(place.value, place.indices, batch, order) for place, order in zip(places, orders)]
        if not all(_is_readable(view, order) for view, order in zip(result_views, orders)):
            continue
        merged = merged_batch(heads, (*views, *result_views))
        if len(merged) <= MAX_BATCH_AXES:
            break
    else:
        raise LoweringError(f"{op.name} of {query.type}: rows too far apart", location=op.location)

    if group.extent > 1:
        merged.append((group.extent, *(view.batch[-1] for view in (*views, *result_views))))
    all_orders = [tuple(axes[axis] for axis in _MATRICES[name]) for _, name in named] + orders
    matrices = [
        MatrixView(
            view.source, view.offset, tuple(step[place + 1] for step in merged),
            *layout_of(view, order[0].extent, order[1].extent),
        )
        for place, (view, order) in enumerate(zip((*views, *result_views), all_orders))
    ]  # fmt: skip
    ops = dict.fromkeys((op, *(moved for place in places for moved in place.ops)))
    return AttentionCall(
        op.name, query.dtype, op.attributes["causal"], op.attributes["scale"], tuple(step[0] for step in merged),
        group.extent, sizes["m"], sizes["n"], sizes["d"], sizes["e"],
        tuple(matrices[: len(operands)]), tuple(matrices[len(operands) :]), tuple(ops),
    )  # fmt: skip


def _is_readable(view: Strides | None, order: tuple[Axis, Axis]) -> bool:
    """Whether rows of the view are contiguous; of a vector, which is one column, that it is."""
    if view is None:
        return False
    rows, columns = (axis.extent for axis in order)
    leading, transposed = layout_of(view, rows, columns)
    return not transposed and (order[1].name != "1" or leading == 1)


def _indices(heads: Sequence[Axis], group: Axis, order: tuple[Axis, Axis]) -> Indices:
    """Where an element is in an operand or result: ``heads`` are those of keys, each shared by ``group`` of queries."""
    at = [Index.of(axis) for axis in heads]
    if at and order[0].name == "m":
        at[-1] = at[-1] * group.extent + group
    return (*at, *(Index.of(axis) for axis in order if axis.name != "1"))


def _far_places(near: Sequence[_Place], uses, results) -> list[_Place]:
    """Places after all movements that alone read each result. Concatenated results must make up the whole together."""
    far = [_moved(place, uses, results, ("transpose", "concatenate")) for place in near]
    whole = {place.value for place in far}
    if len(whole) == 1 and sum(place.value.size for place in near) == far[0].value.size:
        return far
    return [_moved(place, uses, results, ("transpose",)) for place in near]


def _moved(place: _Place, uses, results, movements: tuple[str, ...]) -> _Place:
    value, indices, ops = place.value, place.indices, place.ops
    while value not in results and len(readers := uses.get(value, ())) == 1 and readers[0].name in movements:
        reader = readers[0]
        if reader.name == "transpose":
            indices = tuple(indices[axis] for axis in reader.attributes["permutation"])
        else:
            axis, position = reader.attributes["axis"], reader.operands.index(value)
            start = sum(operand.shape[axis] for operand in reader.operands[:position])
            indices = (*indices[:axis], indices[axis] + start, *indices[axis + 1 :])
        value, ops = reader.result, (*ops, reader)
    return _Place(value, indices, ops)
