"""Proofs that an index stays inside of a buffer."""

from __future__ import annotations

import numpy as np

from euler_ir.index import Atom, Axis, Bound, Condition, Dynamic, Index, Multiple, Quotient

_MOST_POINTS = 1 << 16
"""How many points of the axes are tried one by one where intervals prove nothing."""


def within(index: Index, size: int, conditions: tuple[Condition, ...] = ()) -> bool:
    """Whether ``0 <= index < size`` wherever all ``conditions`` hold.

    Intervals decide, and small iteration spaces are tried point by point. What neither proves counts as inside if there
    are conditions, for they may say more than is seen here, and as outside if there are none.
    """
    bounds = tuple(condition for condition in conditions if isinstance(condition, Bound))
    low, high = interval(index, bounds)
    if 0 <= low and high < size:
        return True
    outcome = _tried(index, size, conditions)
    return bool(conditions) if outcome is None else outcome


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


def _tried(index: Index, size: int, conditions: tuple[Condition, ...]) -> bool | None:
    """Whether the index is inside at every point where the conditions hold; None when there are too many points."""
    indices = (index, *(condition.index for condition in conditions))
    variables = list(dict.fromkeys(atom for part in indices for atom in (*part.axes(), *part.dynamics())))
    if np.prod([float(variable.extent) for variable in variables]) > _MOST_POINTS:
        return None
    grid = np.meshgrid(*(np.arange(variable.extent) for variable in variables), indexing="ij", sparse=True)
    values = dict(zip(variables, grid))
    position = index.evaluate(values)
    outside = (position < 0) | (position >= size)
    return not np.any(outside & holds(conditions, values))


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
