"""How many lanes a vector loop computes at once, and how many vectors make up a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from euler_ir.backends.cpu.jit import vector_bytes
from euler_ir.backends.cpu.scalar_ops import MATH_OPERATIONS
from euler_ir.backends.cpu.tiles import tile_axis
from euler_ir.index import Axis, Quotient, Remainder
from euler_ir.loops.hoist import indices
from euler_ir.loops.kernel import Compute, Load, Loop, Nest, Statement

# Several registers at a time hide the latency of one: of a reduction's additions, and most of all of functions such as
# exp, which are long chains. Of functions four fit where there are 32 registers, as with the widest vectors.
_REGISTERS = 2
_REGISTERS_OF_REDUCTION = 4
_REGISTERS_OF_FUNCTION = 4
# Columns summed over rows far apart: longer pieces of each row come faster out of memory, if tasks enough remain.
_REGISTERS_OF_COLUMNS = 8
_TASKS_OF_COLUMNS = 16
_LIGHT_COMPUTES = 8

# How much of a row's vectors may be padding before fewer registers at a time are better.
_PADDING = 0.25

_VECTORS_PER_TASK = 64


def loop_width(loop: Loop) -> int:
    """The lanes of a vector loop along its last axis."""
    return _width(loop.body, loop.axes[-1], _registers(loop.body, bool(loop.reductions)))


def nest_width(nest: Nest) -> int:
    """The lanes along the nest's last axis; 1 if that is not a vector."""
    if not nest.vector or not nest.axes:
        return 1
    if tile_of(nest) is not None:
        return _register_lanes(nest.body)
    registers = _registers(nest.body, any(isinstance(statement, Loop) for statement in nest.body))
    pieces = nest.axes[-1].extent // (_REGISTERS_OF_COLUMNS * _register_lanes(nest.body))
    if registers == _REGISTERS_OF_REDUCTION and pieces >= _TASKS_OF_COLUMNS and _reduces(nest.body):
        registers = _REGISTERS_OF_COLUMNS
    return _width(nest.body, nest.axes[-1], registers)


def tile_of(nest: Nest) -> Axis | None:
    """The axis along which a task takes as many rows as a vector has lanes, if that serves; see `tiles`."""
    rows = tile_axis(nest)
    if rows is None or min(rows.extent, nest.axes[-1].extent) < _register_lanes(nest.body):
        return None
    return rows


def vectors_per_task(nest: Nest) -> int:
    """How many vectors along the nest's last axis one task takes; all tasks take about equally many."""
    if any(isinstance(statement, Loop) for statement in nest.body):
        return 1
    vectors = vector_count(nest)
    return max(-(-vectors // max(-(-vectors // _VECTORS_PER_TASK), 1)), 1)


def vector_count(nest: Nest) -> int:
    """The vectors along the nest's last axis, the last one perhaps not full."""
    return -(-nest.axes[-1].extent // nest_width(nest))


def task_count(nest: Nest) -> int:
    """How many tasks the function of ``nest`` can be asked to run; the same on every machine with equal vectors."""
    if not nest.vector or not nest.axes:
        return nest.points
    tasks = -(-vector_count(nest) // vectors_per_task(nest))
    rows = tile_of(nest)
    for axis in nest.axes[:-1]:
        tasks *= -(-axis.extent // nest_width(nest)) if axis == rows else axis.extent
    return tasks


@dataclass(frozen=True)
class Lane:
    """Where a point is computed: by which of the `task_count` tasks, and in which of the ``width`` lanes of its vector,
    number ``vector`` along the last axis; ``masked`` says that the vector is not full.
    """

    task: int
    vector: int
    lane: int
    width: int
    masked: bool


def lane_of(nest: Nest, point: Mapping[Axis, int]) -> Lane:
    """Where the function of ``nest`` computes ``point``, a position on each of its axes."""
    width = nest_width(nest)
    rows, task = tile_of(nest), 0
    for axis in nest.axes[:-1] if width > 1 else nest.axes:
        size = width if axis == rows else 1
        task = task * -(-axis.extent // size) + point[axis] // size
    if width == 1:
        return Lane(task, 0, 0, 1, False)
    inner = nest.axes[-1]
    vector, lane = divmod(point[inner], width)
    size = vectors_per_task(nest)
    task = task * -(-vector_count(nest) // size) + vector // size
    return Lane(task, vector, lane, width, point[inner] >= inner.extent // width * width)


def _reduces(body: tuple[Statement, ...]) -> bool:
    return any(isinstance(statement, Loop) and statement.reductions for statement in body)


def _width(body: tuple[Statement, ...], axis: Axis, registers: int) -> int:
    """So many vector registers of the widest element; for a short axis no more than hold it."""
    narrowest = _register_lanes(body)
    lanes = narrowest * registers
    divisors = _divisors(body, axis)
    while lanes > narrowest and (_padding(axis.extent, lanes) or any(divisor % lanes for divisor in divisors)):
        lanes //= 2
    while lanes > 1 and lanes // 2 >= axis.extent:
        lanes //= 2
    return lanes


def _register_lanes(body: tuple[Statement, ...]) -> int:
    return vector_bytes() // _element_bytes(body)


def _registers(body: tuple[Statement, ...], reduces: bool) -> int:
    operations = [statement.operation for statement in _statements(body) if isinstance(statement, Compute)]
    if not MATH_OPERATIONS.keys().isdisjoint(operations):
        return _REGISTERS_OF_FUNCTION if vector_bytes() == 64 else _REGISTERS
    return _REGISTERS_OF_REDUCTION if reduces and len(operations) <= _LIGHT_COMPUTES else _REGISTERS


def _padding(extent: int, lanes: int) -> bool:
    """Whether vectors of so many lanes along ``extent`` are too much padding."""
    return -extent % lanes > _PADDING * extent


def _divisors(body: tuple[Statement, ...], axis: Axis) -> set[int]:
    """By what index expressions divide ``axis``. Vectors that do not straddle multiples of them need no gathers."""
    found = set()
    pending = [index for statement in _statements(body) for index in indices(statement)]
    while pending:
        for atom, _ in pending.pop().terms:
            if isinstance(atom, (Quotient, Remainder)) and axis in atom.dividend.axes():
                found.add(atom.divisor)
                pending.append(atom.dividend)
    return found


def _element_bytes(body: tuple[Statement, ...]) -> int:
    """The widest element in registers. An i64 that is only read is most often an index: it does not halve the lanes."""
    widest = 1
    for statement in _statements(body):
        if isinstance(statement, (Compute, Load)):
            size = 4 if statement.dtype.is_half else statement.dtype.itemsize
            if isinstance(statement, Load) and statement.dtype.is_integer:
                size = min(size, 4)
            widest = max(widest, size)
    return widest


def _statements(body: tuple[Statement, ...]) -> Iterator[Statement]:
    for statement in body:
        yield statement
        if isinstance(statement, Loop):
            yield from _statements(statement.body)
