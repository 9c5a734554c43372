"""Texts that are much alike, kept small: a table of distinct lines, and how each text differs from the one before."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class LineTable:
    """Distinct lines by number. ``values[n]`` is the number of the value that line n defines, or -1."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.values: list[int] = []
        self._numbers: dict[tuple[str, int], int] = {}

    def number(self, line: str, value: int = -1) -> int:
        """The number of ``line``, which defines ``value``; a new one where it was not seen before."""
        known = self._numbers.setdefault((line, value), len(self.lines))
        if known == len(self.lines):
            self.lines.append(line)
            self.values.append(value)
        return known

    def record(self) -> dict:
        return {"line": self.lines, "value": self.values}


Splice = tuple[int, int, tuple[int, ...]]
"""Where in the old text, how many lines are removed there, and the numbers of the lines that take their place."""


def splices(old: Sequence[int], new: Sequence[int]) -> list[Splice]:
    """What turns ``old`` into ``new``, in order; positions are those in ``old``.

    The n-th occurrence of a line goes with the n-th: what stays is then a longest increasing sequence of positions
    (Fredman 1975), found in n log n steps.
    """
    result: list[Splice] = []
    at, begin = 0, 0
    for kept_old, kept_new in (*_kept(old, new), (len(old), len(new))):
        if kept_old > at or kept_new > begin:
            result.append((at, kept_old - at, tuple(new[begin:kept_new])))
        at, begin = kept_old + 1, kept_new + 1
    return result


def _kept(old: Sequence[int], new: Sequence[int]) -> list[tuple[int, int]]:
    """Positions in ``old`` and ``new`` of the lines that stay, both increasing."""
    places = {line: position for position, line in enumerate(_numbered(old))}
    common = [(places[line], position) for position, line in enumerate(_numbered(new)) if line in places]
    ends: list[int] = []  # the least end of an increasing sequence of each length
    before: list[int] = []  # of each common line the one in front of it in its sequence
    holders: list[int] = []
    for number, (place, _) in enumerate(common):
        length = bisect_left(ends, place)
        before.append(holders[length - 1] if length else -1)
        ends[length : length + 1] = [place]
        holders[length : length + 1] = [number]
    kept = []
    number = holders[-1] if holders else -1
    while number >= 0:
        kept.append(common[number])
        number = before[number]
    return kept[::-1]


def _numbered(lines: Sequence[int]) -> list[tuple[int, int]]:
    """Each line with how often it came before."""
    seen: dict[int, int] = {}
    numbered = []
    for line in lines:
        seen[line] = seen.get(line, -1) + 1
        numbered.append((line, seen[line]))
    return numbered
