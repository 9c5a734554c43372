"""Proofs that an index stays inside of a buffer, and that points do not meet in one of its elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from euler_ir.index import Atom, Axis, Bound, Condition, Dynamic, Index, Multiple, Quotient

_MOST_POINTS = 1 << 16
"""How many points of the axes are tried one by one where intervals prove nothing."""


def within(index: Index, size: int, conditions: tuple[Condition, ...] = ()) -> bool:
    """Whether ``0 <= index < size`` wherever all ``conditions`` hold.

    Intervals decide, and small iteration spaces are tried point by point. What neither proves counts as outside.
    """
    bounds = tuple(condition for condition in conditions if isinstance(condition, Bound))
    low, high = interval(index, bounds)
    if 0 <= low and high < size:
        return True
    return _tried(index, size, conditions)


def interval(index: Index, bounds: tuple[Bound, ...]) -> tuple[int, int]:
    """The least and the largest value of ``index`` (or wider) where ``bounds`` hold.

    An index that contains a multiple of a bounded expression is that multiple plus a rest.
    """
    low = high = 0
    for bound in bounds:
        factor = _multiple(index, bound.index)
        if factor:
            least, most = bound.index.bounds
            ends = (factor * max(bound.low, least), factor * min(bound.high - 1, most))
            low, high = low + min(ends), high + max(ends)
            index = index - bound.index * factor
    low, high = low + index.constant, high + index.constant
    for atom, factor in index.terms:
        ends = tuple(factor * end for end in _atom_interval(atom, bounds))
        low, high = low + min(ends), high + max(ends)
    return low, high


def _multiple(index: Index, part: Index) -> int:
    """How often all of ``part`` is contained in ``index``, or 0. Any number is sound: the rest is what is left."""
    factors = dict(index.terms)
    ratios = {factors.get(atom, 0) // factor for atom, factor in part.terms}
    return ratios.pop() if len(ratios) == 1 else 0


def _atom_interval(atom: Atom, bounds: tuple[Bound, ...]) -> tuple[int, int]:
    if isinstance(atom, (Axis, Dynamic)):
        return atom.bounds
    low, high = interval(atom.dividend, bounds)
    if isinstance(atom, Quotient):
        return low // atom.divisor, high // atom.divisor
    if low // atom.divisor == high // atom.divisor:
        return low % atom.divisor, high % atom.divisor
    return atom.bounds


def _tried(index: Index, size: int, conditions: tuple[Condition, ...]) -> bool:
    """Whether the index is inside at every point where the conditions hold, and there are few enough to try."""
    indices = (index, *(condition.index for condition in conditions))
    variables = list(dict.fromkeys(atom for part in indices for atom in (*part.axes(), *part.dynamics())))
    if math.prod(variable.extent for variable in variables) > _MOST_POINTS:
        return False
    grid = np.meshgrid(*(np.arange(variable.extent) for variable in variables), indexing="ij", sparse=True)
    values = dict(zip(variables, grid))
    position = index.evaluate(values)
    outside = (position < 0) | (position >= size)
    return not np.any(outside & holds(conditions, values))


def apart(indices: Sequence[Index], points: Sequence[Axis]) -> bool:
    """Whether no two points of the axes ``points`` ever meet in one element: neither at one of ``indices``, whatever
    the other axes in them are, nor at two.

    Where each multiple of an axis is larger than all smaller ones together can make up for, equal sums have equal
    parts. What that does not prove is tried point by point, and counts as meeting where there are too many. Whether
    points meet at two indices is only tried: where there are too many, each index alone is looked at.
    """
    variables = list(dict.fromkeys((*points, *(axis for index in indices for axis in index.axes()))))
    if math.prod(axis.extent for axis in variables) * len(indices) > _MOST_POINTS:
        return all(_is_one_to_one(index, points) for index in indices)
    if len(indices) == 1 and _is_one_to_one(indices[0], points):
        return True
    grid = dict(zip(variables, np.meshgrid(*(np.arange(axis.extent) for axis in variables), indexing="ij")))
    number = np.zeros(tuple(axis.extent for axis in variables), np.int64)
    for axis in points:
        number = number * axis.extent + grid[axis]
    owners: dict[int, int] = {}
    for index in indices:
        elements = np.broadcast_to(index.evaluate(grid), number.shape)
        for element, owner in zip(elements.ravel().tolist(), number.ravel().tolist()):
            if owners.setdefault(element, owner) != owner:
                return False
    return True


def unwritten(indices: Sequence[Index], size: int) -> bool:
    """Whether it is sure that some of ``size`` elements lie at none of ``indices``, wherever their axes are.

    Small spaces are tried; of a large one it is sure where there are fewer points than elements.
    """
    points = [math.prod(axis.extent for axis in index.axes()) for index in indices]
    if sum(points) < size or sum(points) > _MOST_POINTS:
        return sum(points) < size
    found = np.zeros(size, bool)
    for index in indices:
        grid = np.meshgrid(*(np.arange(axis.extent) for axis in index.axes()), indexing="ij", sparse=True)
        found[np.ravel(index.evaluate(dict(zip(index.axes(), grid))))] = True
    return not found.all()


def _is_one_to_one(index: Index, points: Sequence[Axis]) -> bool:
    """Whether multiples of axes alone show that points differ in the element at ``index``."""
    factors = {atom: factor for atom, factor in index.terms if isinstance(atom, Axis)}
    if len(factors) < len(index.terms) or any(axis.extent > 1 and axis not in factors for axis in points):
        return False
    reach, met = 0, False
    for axis in sorted(factors, key=lambda axis: abs(factors[axis])):
        met = met or axis in points
        if met and abs(factors[axis]) <= reach:
            return False
        reach += abs(factors[axis]) * (axis.extent - 1)
    return True


def holds(conditions: tuple[Condition, ...], values) -> np.ndarray | bool:
    """Whether all ``conditions`` hold, given a value for each axis and dynamic index as for ``Index.evaluate``."""
    result: np.ndarray | bool = True
    for condition in conditions:
        position = condition.index.evaluate(values)
        match condition:
            case Bound(_, low, high):
                result = result & (low <= position) & (position < high)
            case Multiple(_, divisor):
                result = result & (position % divisor == 0)
    return result
