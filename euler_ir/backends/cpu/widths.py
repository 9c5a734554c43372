"""How many lanes a vector loop computes at once, and how many vectors make up a task."""

from __future__ import annotations

from collections.abc import Iterator

from euler_ir.backends.cpu.jit import vector_bytes
from euler_ir.backends.cpu.scalar_ops import MATH_OPERATIONS
from euler_ir.loops.kernel import Compute, Load, Loop, Nest, Statement

# Several registers at a time hide the latency of a reduction's additions, and read whole cache lines of each row.
# Bodies with many live values would not fit the register file.
_REGISTERS = 4
_LIGHT_COMPUTES = 8

_VECTORS_PER_TASK = 64


def loop_width(loop: Loop) -> int:
    """The lanes of a vector loop along its last axis."""
    registers = _REGISTERS if loop.reductions and _is_light(loop.body) else 1
    return _width(loop.body, loop.axes[-1].extent, registers)


def nest_width(nest: Nest) -> int:
    """The lanes along the nest's last axis; 1 if that is not a vector."""
    if not nest.vector or not nest.axes:
        return 1
    inner_loop = any(isinstance(statement, Loop) for statement in nest.body)
    registers = _REGISTERS if inner_loop and _is_light(nest.body) else 1
    return _width(nest.body, nest.axes[-1].extent, registers)


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
    for axis in nest.axes[:-1]:
        tasks *= axis.extent
    return tasks


def _width(body: tuple[Statement, ...], extent: int, registers: int) -> int:
    """``registers`` vector registers of the widest element; for a short axis no more than hold it."""
    lanes = vector_bytes() // _element_bytes(body) * registers
    while lanes > 1 and lanes // 2 >= extent:
        lanes //= 2
    return lanes


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


def _is_light(body: tuple[Statement, ...]) -> bool:
    operations = [statement.operation for statement in _statements(body) if isinstance(statement, Compute)]
    heavy = {*MATH_OPERATIONS, "sigmoid", "philox"}
    return len(operations) <= _LIGHT_COMPUTES and not heavy.intersection(operations)


def _statements(body: tuple[Statement, ...]) -> Iterator[Statement]:
    for statement in body:
        yield statement
        if isinstance(statement, Loop):
            yield from _statements(statement.body)
