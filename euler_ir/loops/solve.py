"""Which points of the axes touch a given element: index expressions solved exactly, quotients and remainders included.

Boxes of points are halved until the bounds of the index over a box say that all of its points are meant, or none. The
bounds of a single point are its value, so the answer is exact; the boxes are kept in arrays and looked at all at once.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from euler_ir.index import Axis, Bound, Condition, Dynamic, Index, Multiple, Quotient, Remainder

Variable = Axis | Dynamic
MOST_BOXES = 1 << 18
"""Boxes that a search keeps: the solutions of one that needs more are only begun."""


@dataclass(frozen=True)
class Solutions:
    """Points of ``axes`` in disjoint boxes: box b is ``low[b, a] .. high[b, a]``, both included, along axis a.

    ``complete`` is False when there are more than a search can hold: what is here are solutions, but not all.
    """

    axes: tuple[Variable, ...]
    low: np.ndarray
    high: np.ndarray
    complete: bool = True

    @property
    def count(self) -> int:
        extents = self.high - self.low + 1
        return sum(math.prod(map(int, box)) for box in extents)

    def points(self, most: int | None = None) -> Iterator[dict[Variable, int]]:
        """The points one by one, in the order of their boxes; the first ``most`` of them."""
        ranges = (
            itertools.product(*(range(first, last + 1) for first, last in zip(low, high)))
            for low, high in zip(self.low.tolist(), self.high.tolist())
        )
        for point in itertools.islice(itertools.chain.from_iterable(ranges), most):
            yield dict(zip(self.axes, point))

    def spread(self, most: int) -> list[dict[Variable, int]]:
        """``most`` points evenly spread over all, the first and the last among them; or all if there are no more."""
        total = self.count
        if total <= most:
            return list(self.points())
        sizes = [math.prod(map(int, box)) for box in self.high - self.low + 1]
        ends = list(itertools.accumulate(sizes))
        chosen = []
        for rank in sorted({number * (total - 1) // max(most - 1, 1) for number in range(most)}):
            box = bisect.bisect_right(ends, rank)
            rest, point = rank - (ends[box] - sizes[box]), {}
            for axis, low, high in reversed(list(zip(self.axes, self.low[box].tolist(), self.high[box].tolist()))):
                rest, step = divmod(rest, high - low + 1)
                point[axis] = low + step
            chosen.append({axis: point[axis] for axis in self.axes})
        return chosen

    def spans(self) -> dict[Variable, tuple[int, int]]:
        """For each axis the least and the largest position of any point; there must be one."""
        lows, highs = self.low.min(axis=0).tolist(), self.high.max(axis=0).tolist()
        return {axis: (low, high) for axis, low, high in zip(self.axes, lows, highs)}


def solve(index: Index, value: int, axes: Sequence[Variable], conditions: tuple[Condition, ...] = ()) -> Solutions:
    """The points of ``axes`` at which ``index`` is ``value`` and all ``conditions`` hold.

    ``axes`` must hold every axis and dynamic index that these mention.
    """
    axes = tuple(axes)
    width = len(axes)
    low = np.zeros((1, width), np.int64)
    high = np.array([[axis.extent - 1 for axis in axes]], np.int64)
    if any(axis.extent == 0 for axis in axes):
        return Solutions(axes, low[:0], high[:0])
    indices = [index, *(condition.index for condition in conditions)]
    reach = np.array([sum(_reach(each, axis) for each in indices) for axis in axes], np.float64)
    found: list[tuple[np.ndarray, np.ndarray]] = []
    kept = 0
    while len(low):
        possible, certain = _tested(index, value, conditions, dict(zip(axes, low.T)), dict(zip(axes, high.T)))
        found.append((low[certain], high[certain]))
        kept += int(certain.sum())
        low, high = low[possible & ~certain], high[possible & ~certain]
        if kept + 2 * len(low) > MOST_BOXES:
            break
        low, high = _halved(low, high, reach)
    lows, highs = (np.concatenate(parts) if parts else np.zeros((0, width), np.int64) for parts in zip(*found))
    order = np.lexsort(lows.T[::-1]) if width else np.arange(len(lows))
    return Solutions(axes, lows[order], highs[order], complete=not len(low))


def _tested(index: Index, value: int, conditions, low: Mapping, high: Mapping) -> tuple[np.ndarray, np.ndarray]:
    """Of each box whether some point may be meant, and whether all are."""
    least, most = _bounds(index, low, high)
    possible, certain = (least <= value) & (value <= most), (least == value) & (most == value)
    for condition in conditions:
        least, most = _bounds(condition.index, low, high)
        match condition:
            case Bound(_, first, end):
                possible = possible & (most >= first) & (least < end)
                certain = certain & (least >= first) & (most < end)
            case Multiple(_, divisor):
                is_one = least == most
                possible = possible & ~(is_one & (least % divisor != 0))
                certain = certain & is_one & (least % divisor == 0)
    shape = np.broadcast_shapes(*(bound.shape for bound in low.values())) if low else (1,)
    return np.broadcast_to(possible, shape), np.broadcast_to(certain, shape)


def _bounds(index: Index, low: Mapping, high: Mapping) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest value of ``index`` over each box, or wider; of a single point they are its value."""
    least = most = np.int64(index.constant)
    for atom, factor in index.terms:
        if isinstance(atom, Quotient):
            first, last = (bound // atom.divisor for bound in _bounds(atom.dividend, low, high))
        elif isinstance(atom, Remainder):
            first, last = _bounds(atom.dividend, low, high)
            is_within = first // atom.divisor == last // atom.divisor
            first = np.where(is_within, first % atom.divisor, 0)
            last = np.where(is_within, last % atom.divisor, atom.divisor - 1)
        else:
            first, last = low[atom], high[atom]
        ends = (first, last) if factor > 0 else (last, first)
        least, most = least + factor * ends[0], most + factor * ends[1]
    return least, most


def _halved(low: np.ndarray, high: np.ndarray, reach: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each box in two, along the axis that moves the index most."""
    if not len(low):
        return low, high
    rows, along = np.arange(len(low)), np.argmax((high - low) * reach, axis=1)
    middle = (low[rows, along] + high[rows, along]) // 2
    below, above = high.copy(), low.copy()
    below[rows, along], above[rows, along] = middle, middle + 1
    return np.concatenate((low, above)), np.concatenate((below, high))


def _reach(index: Index, axis: Variable) -> float:
    """How far one step of ``axis`` moves ``index``, about: 0 only where it does not."""
    total = 0.0
    for atom, factor in index.terms:
        if isinstance(atom, Quotient):
            total += abs(factor) * _reach(atom.dividend, axis) / atom.divisor
        elif isinstance(atom, Remainder):
            total += abs(factor) * min(_reach(atom.dividend, axis), atom.divisor)
        elif atom == axis:
            total += abs(factor)
    return total
