"""Tiles of a nest: as many rows as a vector has lanes, so that strided reads become contiguous ones along the rows.

A read that walks through memory by large steps from lane to lane, but by ones from row to row, fetches each cache line
once for a whole tile; the square of elements is transposed in registers.
"""

from __future__ import annotations

from euler_ir.backends.cpu import memory
from euler_ir.backends.cpu.indexing import Scope
from euler_ir.backends.cpu.writer import Code, Register
from euler_ir.index import Axis, Index
from euler_ir.loops.kernel import Load, Loop, Nest

MAX_STATEMENTS = 16
"""Statements of a body that is written out for each row of a tile."""


def tile_axis(nest: Nest) -> Axis | None:
    """The axis of ``nest`` along whose neighbours some strided read is contiguous; None where tiles are no use."""
    if not nest.vector or len(nest.axes) < 2 or len(nest.body) > MAX_STATEMENTS:
        return None
    if any(isinstance(statement, Loop) for statement in nest.body):
        return None
    for axis in reversed(nest.axes[:-1]):
        if any(is_transposed(statement, axis, nest.axes[-1]) for statement in nest.body):
            return axis
    return None


def is_transposed(statement, rows: Axis, lanes: Axis) -> bool:
    """Whether ``statement`` is an unconditional load that is contiguous along ``rows`` and strided along ``lanes``."""
    if not isinstance(statement, Load) or statement.conditions or statement.index.dynamics():
        return False
    return statement.index.coefficient(rows) == 1 and statement.index.coefficient(lanes) not in (None, 0, 1)


def load_tile(scope: Scope, place: memory.Place, index: Index) -> list[Register]:
    """The vectors along the scope's axis of ``place[index]``, for the scope's row and those after it."""
    step = index.coefficient(scope.axis)
    lines = [memory.load_line(scope, place, index, lane * step) for lane in range(scope.width)]
    return [memory.from_memory(scope.code, row, place.dtype) for row in _transposed(scope.code, lines)]


def _transposed(code: Code, lines: list[Register]) -> list[Register]:
    """Vectors of first elements, of second ones ...: blocks of 1, 2, 4 ... lanes beside the diagonal change places."""
    count = len(lines)
    lines = list(lines)
    block = 1
    while block < count:
        for first in (line for line in range(count) if not line & block):
            low, high = lines[first], lines[first + block]
            kept = [lane if not lane & block else count + lane - block for lane in range(count)]
            moved = [lane + block if not lane & block else count + lane for lane in range(count)]
            lines[first], lines[first + block] = code.shuffle(low, high, kept), code.shuffle(low, high, moved)
        block *= 2
    return lines
