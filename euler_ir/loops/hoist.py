"""Moving statements out of loops in which they give the same value each time: Loop IR to Loop IR."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from euler_ir.index import Axis, Index
from euler_ir.loops.kernel import CheckIndex, Compute, Constant, IndexValue, Load, Loop, Statement, Store


def hoist(body: tuple[Statement, ...], stored: Collection[str]) -> tuple[Statement, ...]:
    """``body`` with whatever does not change within a loop standing before it, from the innermost loop outwards.

    Buffers in ``stored`` count as written in every loop.
    """
    result: list[Statement] = []
    for statement in body:
        if isinstance(statement, Loop) and all(axis.extent for axis in statement.axes):
            inner = hoist(statement.body, stored)
            carried = {carry.name for carry in statement.carries}
            written = {*stored, *buffers_stored(inner)}
            invariant, variant = split_invariant(inner, statement.axes, written, carried)
            result.extend(invariant)
            statement = replace(statement, body=variant)
        result.append(statement)
    return tuple(result)


def split_invariant(
    body: tuple[Statement, ...], axes: Collection[Axis], stored: Collection[str], changing: Collection[str] = ()
) -> tuple[tuple[Statement, ...], tuple[Statement, ...]]:
    """The statements that depend on neither ``axes``, ``stored`` buffers nor names in ``changing``; and the others."""
    changing = set(changing)
    invariant, variant = [], []
    for statement in body:
        movable = isinstance(statement, (Constant, IndexValue, CheckIndex, Compute, Load))
        if isinstance(statement, Load) and statement.buffer in stored:
            movable = False
        if movable and not changing.intersection(_names_read(statement)) and not _depends(statement, axes):
            invariant.append(statement)
            continue
        variant.append(statement)
        if isinstance(statement, Loop):
            changing.update(reduction.result for reduction in statement.reductions)
        elif not isinstance(statement, Store):
            changing.add(statement.result)
    return tuple(invariant), tuple(variant)


def buffers_stored(body: tuple[Statement, ...], beside: Collection[str] | None = None) -> set[str]:
    """The buffers that ``body`` stores to, in loops too; given operations, only where one of ``beside`` is computed."""
    counts = beside is None or any(isinstance(s, Compute) and s.operation in beside for s in body)
    found = {statement.buffer for statement in body if counts and isinstance(statement, Store)}
    return found.union(*(buffers_stored(loop.body, beside) for loop in body if isinstance(loop, Loop)))


def buffers_loaded(body: tuple[Statement, ...]) -> set[str]:
    """The buffers that ``body`` loads from, in loops too."""
    found = {statement.buffer for statement in body if isinstance(statement, Load)}
    return found.union(*(buffers_loaded(loop.body) for loop in body if isinstance(loop, Loop)))


def indices(statement: Statement) -> Iterator[Index]:
    """The index expressions in a statement that is not a loop."""
    if isinstance(statement, (IndexValue, Load, Store)):
        yield statement.index
    if isinstance(statement, (CheckIndex, Load)):
        yield from (condition.index for condition in statement.conditions)


def _names_read(statement: Statement) -> Iterator[str]:
    if isinstance(statement, Compute):
        yield from statement.operands
    if isinstance(statement, CheckIndex):
        yield statement.value
    for index in indices(statement):
        yield from (dynamic.name for dynamic in index.dynamics())


def _depends(statement: Statement, axes: Collection[Axis]) -> bool:
    return any(axis in axes for index in indices(statement) for axis in index.axes())
