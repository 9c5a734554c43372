"""Matrices inside of buffers: how a call reads a value, or writes one, through the movements between it and memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from euler_ir.graph import Value
from euler_ir.index import Axis, Index, Indices, linearize

MAX_BATCH_AXES = 2
"""Batch axes that one call can step over."""

MAX_LEADING = 2**31 - 1
"""Distance between rows that BLAS can count."""


@dataclass(frozen=True)
class MatrixView:
    """Matrices inside the buffer of ``source``: element (r, c) of one is at ``offset + batch steps + r leading + c``.

    With ``transposed`` the buffer holds the matrix with rows and columns exchanged: (r, c) is at ``c leading + r``.
    """

    source: Value
    offset: int
    batch_strides: tuple[int, ...]
    leading: int
    transposed: bool


@dataclass(frozen=True)
class Strides:
    """Steps of a matrix view along (batch axes, rows, columns) in the buffer of ``source``, before axes are merged."""

    source: Value
    offset: int
    batch: tuple[int, ...]
    row: int
    column: int


def aligned_indices(value: Value, batch: Sequence[Axis], stored_order: Sequence[Axis]) -> Indices:
    """Where a point is in ``value``, whose last axes are ``stored_order``, those before them the last of ``batch``."""
    aligned = batch[len(batch) - (len(value.shape) - len(stored_order)) :]
    return tuple(Index() if size == 1 else Index.of(axis) for axis, size in zip((*aligned, *stored_order), value.shape))


def views_of(
    value: Value,
    indices: Indices,
    batch: Sequence[Axis],
    order: tuple[Axis, Axis],
    is_stored: Callable[[Value], bool],
) -> list[Strides]:
    """Views of ``value`` at ``indices`` in its own buffer and, through movements, in those it is made from, as far as
    regular.

    ``order`` are the rows and columns of the view. Movements are looked through until ``is_stored`` says that a value
    has a buffer of its own.
    """
    views = [strides_of(value, indices, batch, order)]
    while not is_stored(value) and value.op.definition.family == "movement":
        sources = value.op.definition.index_map(value.op, indices)
        if len(value.op.operands) != 1 or sources[0].conditions:
            break  # of joined tensors a part may show one alone, but its group would seem to read them all
        value, indices = value.op.operands[sources[0].operand], sources[0].indices
        view = strides_of(value, indices, batch, order)
        if view is None:
            continue
        views.append(view)
    return views


def strides_of(value: Value, indices: Indices, batch: Sequence[Axis], order: tuple[Axis, Axis]) -> Strides | None:
    """Steps of a view, or None when they are irregular or neither rows nor columns are adjacent."""
    position = linearize(indices, value.shape)
    if not all(isinstance(atom, Axis) for atom, _ in position.terms):
        return None
    row, column = (position.coefficient(axis) for axis in order)
    view = Strides(value, position.constant, tuple(position.coefficient(axis) for axis in batch), row, column)
    return view if layout_of(view, order[0].extent, order[1].extent) is not None else None


def layout_of(view: Strides, rows: int, columns: int) -> tuple[int, bool] | None:
    """(leading, transposed) of a view, or None when BLAS cannot read it."""
    if columns <= 1 or view.column == 1:
        leading = view.row if rows > 1 else max(columns, 1)
        if max(columns, 1) <= leading <= MAX_LEADING:
            return leading, False
    if rows <= 1 or view.row == 1:
        leading = view.column if columns > 1 else max(rows, 1)
        if max(rows, 1) <= leading <= MAX_LEADING:
            return leading, True
    return None


def merged_batch(batch: Sequence[Axis], views: Sequence[Strides]) -> list[tuple[int, ...]]:
    """The extent of each batch axis and its step in each of ``views``; neighbours are one where all step evenly."""
    merged: list[tuple[int, ...]] = []
    for axis, *steps in zip(batch, *(view.batch for view in views)):
        if axis.extent == 1:
            continue
        if merged and all(outer == inner * axis.extent for outer, inner in zip(merged[-1][1:], steps)):
            merged.append((merged.pop()[0] * axis.extent, *steps))
        else:
            merged.append((axis.extent, *steps))
    return merged
