"""Merges neighbouring axes of a nest, or of a loop in it, that every index walks through as if they were one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from euler_ir.index import Atom, Axis, Condition, Index
from euler_ir.loops.kernel import CheckIndex, IndexValue, Load, Loop, Nest, Statement, Store


def merge_axes(nest: Nest, columns: int | None = None) -> Nest:
    """``nest`` with as few axes as its indices allow: contiguous elementwise work becomes a single long axis.

    With ``columns`` the last axes, ``columns`` points together, stay apart from those before them.
    """
    axes, body = _merge(nest.axes, nest.body, columns)
    body = tuple(_merge_loop(statement) for statement in body)
    return replace(nest, axes=axes, body=body, vector=nest.vector and bool(axes))


def _merge_loop(statement: Statement) -> Statement:
    if not isinstance(statement, Loop):
        return statement
    axes, body = _merge(statement.axes, statement.body)
    return replace(statement, axes=axes, body=tuple(_merge_loop(inner) for inner in body))


def _merge(
    axes: tuple[Axis, ...], body: tuple[Statement, ...], columns: int | None = None
) -> tuple[tuple[Axis, ...], tuple[Statement, ...]]:
    kept = [axis for axis in axes if axis.extent != 1] or list(axes[-1:])
    position = len(kept) - 2
    while position >= 0:
        outer, inner = kept[position], kept[position + 1]
        is_edge = math.prod(axis.extent for axis in kept[position + 1 :]) == columns
        if not is_edge and all(_walks_as_one(index, outer, inner) for index in _indices(body)):
            merged = Axis(inner.name, outer.extent * inner.extent)
            replacement: dict[Atom, Index] = {outer: Index(), inner: Index.of(merged)}
            body = tuple(_map(statement, lambda index: index.substitute(replacement)) for statement in body)
            kept[position : position + 2] = [merged]
        position -= 1
    return tuple(kept), body


def _walks_as_one(index: Index, outer: Axis, inner: Axis) -> bool:
    far, near = index.coefficient(outer), index.coefficient(inner)
    return far is not None and near is not None and far == near * inner.extent


def _indices(body: tuple[Statement, ...]) -> Iterator[Index]:
    """Every index in ``body``, also in its loops and conditions."""
    for statement in body:
        if isinstance(statement, Loop):
            yield from _indices(statement.body)
            continue
        if isinstance(statement, (IndexValue, Load, Store)):
            yield statement.index
        if isinstance(statement, (Load, CheckIndex)):
            yield from (condition.index for condition in statement.conditions)


def _map(statement: Statement, change: Callable[[Index], Index]) -> Statement:
    """``statement`` with each index changed."""
    if isinstance(statement, Loop):
        return replace(statement, body=tuple(_map(inner, change) for inner in statement.body))
    if isinstance(statement, (IndexValue, Store)):
        return replace(statement, index=change(statement.index))
    if isinstance(statement, Load):
        conditions = tuple(_map_condition(condition, change) for condition in statement.conditions)
        return replace(statement, index=change(statement.index), conditions=conditions)
    if isinstance(statement, CheckIndex):
        return replace(statement, conditions=tuple(_map_condition(c, change) for c in statement.conditions))
    return statement


def _map_condition(condition: Condition, change: Callable[[Index], Index]) -> Condition:
    return replace(condition, index=change(condition.index))


