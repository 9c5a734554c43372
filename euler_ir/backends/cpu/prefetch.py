"""Fetching rows ahead: while a nest goes over a row for the second time, which is in cache by then, memory is idle."""

from __future__ import annotations

from collections.abc import Iterable

from euler_ir.index import Axis
from euler_ir.loops.kernel import Load, Loop, Nest, Statement

SMALLEST_BUFFER = 1 << 20
"""Bytes of a buffer that is worth it: smaller ones stay in cache."""


def rows_ahead(nest: Nest, body: tuple[Statement, ...]) -> tuple[Loop | None, tuple[Load, ...]]:
    """The second loop over the rows of ``nest``, and the reads of the first whose next row it can fetch by the way."""
    loops = [statement for statement in body if isinstance(statement, Loop) and statement.vector]
    if len(loops) < 2 or not nest.axes or loops[0].axes != loops[1].axes:
        return None, ()
    rows, columns = nest.axes[-1], loops[0].axes[-1]
    large = {buffer.name for buffer in nest.parameters if buffer.size * buffer.dtype.itemsize > SMALLEST_BUFFER}
    loads = (load for load in _loads(loops[0].body) if load.buffer in large)
    return loops[1], tuple(load for load in loads if _is_row(load, rows, columns))


def _loads(body: Iterable[Statement]) -> Iterable[Load]:
    return (statement for statement in body if isinstance(statement, Load) and not statement.conditions)


def _is_row(load: Load, rows: Axis, columns: Axis) -> bool:
    return load.index.coefficient(columns) == 1 and bool(load.index.coefficient(rows))
