"""Integer index expressions over named axes: sums of multiples of axes, quotients and remainders, kept in normal form.

They say which element an operator reads. ``reshape`` gives quotients and remainders; most vanish again, because the
range of every expression is known: ``(128 i + j) // 128`` is ``i`` when ``0 <= j < 128``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from euler_ir.shapes import Shape, row_major_strides


@dataclass(frozen=True)
class Axis:
    """A loop variable that runs over ``0 .. extent - 1``."""

    name: str
    extent: int

    def __str__(self) -> str:
        return self.name

    @property
    def bounds(self) -> tuple[int, int]:
        return 0, self.extent - 1


@dataclass(frozen=True)
class Dynamic:
    """An index that is read from memory: the scalar ``name`` of a kernel, checked to be in ``0 .. extent - 1``."""

    name: str
    extent: int

    def __str__(self) -> str:
        return f"%{self.name}"

    @property
    def bounds(self) -> tuple[int, int]:
        return 0, self.extent - 1


@dataclass(frozen=True)
class Quotient:
    """``dividend // divisor``, rounded down; the divisor is positive."""

    dividend: Index
    divisor: int

    def __str__(self) -> str:
        return f"{_grouped(self.dividend)} floordiv {self.divisor}"

    @property
    def bounds(self) -> tuple[int, int]:
        low, high = self.dividend.bounds
        return low // self.divisor, high // self.divisor


@dataclass(frozen=True)
class Remainder:
    """``dividend mod divisor``, in ``0 .. divisor - 1``."""

    dividend: Index
    divisor: int

    def __str__(self) -> str:
        return f"{_grouped(self.dividend)} mod {self.divisor}"

    @property
    def bounds(self) -> tuple[int, int]:
        return 0, self.divisor - 1


Atom = Axis | Dynamic | Quotient | Remainder


@dataclass(frozen=True)
class Index:
    """``constant + sum of coefficient * atom``. Terms have distinct atoms, sorted, so that equal sums are equal."""

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    @staticmethod
    def of(value: int | Axis | Dynamic | Index) -> Index:
        """``value`` as an expression; an axis of extent 1 is the constant 0."""
        if isinstance(value, Index):
            return value
        if isinstance(value, (Axis, Dynamic)):
            return Index() if value.extent == 1 else Index(((value, 1),))
        return Index((), int(value))

    def __str__(self) -> str:
        parts = [_product(factor, atom) for atom, factor in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")

    def __add__(self, other: int | Axis | Dynamic | Index) -> Index:
        other = Index.of(other)
        factors = dict(self.terms)
        for atom, factor in other.terms:
            factors[atom] = factors.get(atom, 0) + factor
        terms = [(atom, factor) for atom, factor in factors.items() if factor]
        if len(terms) > 1:
            terms.sort(key=_position)
        return Index(tuple(terms), self.constant + other.constant)._rejoined()

    def _rejoined(self) -> Index:
        """With ``d (x // d) + x % d`` replaced by ``x``: reshaping there and back leaves nothing."""
        factors = dict(self.terms)
        for atom, factor in self.terms:
            if isinstance(atom, Remainder):
                multiple = atom.dividend // atom.divisor * (atom.divisor * factor)
                if all(factors.get(part) == f for part, f in multiple.terms):
                    return self - multiple - Index(((atom, factor),)) + atom.dividend * factor
        return self

    def __sub__(self, other: int | Axis | Dynamic | Index) -> Index:
        return self + Index.of(other) * -1

    def __mul__(self, factor: int) -> Index:
        if factor == 0:
            return Index()
        return Index(tuple((atom, f * factor) for atom, f in self.terms), self.constant * factor)

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest value it can take (or wider)."""
        low = high = self.constant
        for atom, factor in self.terms:
            ends = tuple(factor * end for end in atom.bounds)
            low, high = low + min(ends), high + max(ends)
        return low, high

    def __floordiv__(self, divisor: int) -> Index:
        multiple, rest = self._split(divisor)
        terms = tuple((atom, factor // divisor) for atom, factor in multiple.terms)
        quotient = Index(terms, multiple.constant // divisor)
        low, high = rest.bounds
        if low // divisor == high // divisor:
            return quotient + low // divisor
        coarse = rest._coarsened(divisor)
        if coarse is not None:
            unit, units, _ = coarse
            return quotient + units // (divisor // unit)
        if len(rest.terms) == 1 and rest.constant == 0:
            atom, factor = rest.terms[0]
            if factor == 1 and isinstance(atom, Quotient):
                return quotient + atom.dividend // (atom.divisor * divisor)
        return quotient + Index(((Quotient(rest, divisor), 1),))

    def __mod__(self, divisor: int) -> Index:
        _, rest = self._split(divisor)
        low, high = rest.bounds
        if low // divisor == high // divisor:
            return rest - low // divisor * divisor
        coarse = rest._coarsened(divisor)
        if coarse is not None:
            unit, units, remainder = coarse
            return units % (divisor // unit) * unit + remainder
        if len(rest.terms) == 1 and rest.constant == 0:
            atom, factor = rest.terms[0]
            if factor == 1 and isinstance(atom, Remainder) and atom.divisor % divisor == 0:
                return atom.dividend % divisor
        return Index(((Remainder(rest, divisor), 1),))

    def _split(self, divisor: int) -> tuple[Index, Index]:
        """This as a multiple of ``divisor`` plus a rest."""
        multiple = tuple((atom, factor) for atom, factor in self.terms if factor % divisor == 0)
        rest = tuple((atom, factor) for atom, factor in self.terms if factor % divisor)
        part = self.constant % divisor
        return Index(multiple, self.constant - part), Index(rest, part)

    def _coarsened(self, divisor: int) -> tuple[int, Index, Index] | None:
        """This as ``unit * units + remainder`` where ``unit`` divides ``divisor`` and 0 <= remainder < unit, or None.

        Then the remainder has no say in the quotient: ``(512 m + k) // 65536`` is ``m // 128`` when ``0 <= k < 512``.
        """
        for factor in sorted({abs(factor) for _, factor in self.terms}, reverse=True):
            unit = math.gcd(factor, divisor)
            if unit in (1, divisor):
                continue
            multiple, remainder = self._split(unit)
            low, high = remainder.bounds
            if multiple.terms and 0 <= low and high < unit:
                units = Index(tuple((atom, f // unit) for atom, f in multiple.terms), multiple.constant // unit)
                return unit, units, remainder
        return None

    def axes(self) -> list[Axis]:
        """The axes in it, also inside quotients and remainders, each once."""
        found: dict[Axis, None] = {}
        pending: list[Index] = [self]
        while pending:
            for atom, _ in pending.pop().terms:
                if isinstance(atom, Axis):
                    found[atom] = None
                elif isinstance(atom, (Quotient, Remainder)):
                    pending.append(atom.dividend)
        return list(found)

    def coefficient(self, axis: Axis) -> int | None:
        """How far the value moves for one step of ``axis``; None when that is not constant."""
        total = 0
        for atom, factor in self.terms:
            if atom == axis:
                total += factor
            elif isinstance(atom, (Quotient, Remainder)) and axis in atom.dividend.axes():
                return None
        return total

    def dynamics(self) -> list[Dynamic]:
        """The dynamic indices in it, each once."""
        found: dict[Dynamic, None] = {}
        pending: list[Index] = [self]
        while pending:
            for atom, _ in pending.pop().terms:
                if isinstance(atom, Dynamic):
                    found[atom] = None
                elif isinstance(atom, (Quotient, Remainder)):
                    pending.append(atom.dividend)
        return list(found)

    def substitute(self, replacement: Mapping[Atom, Index]) -> Index:
        """This with axes or dynamic indices replaced."""
        result = Index((), self.constant)
        for atom, factor in self.terms:
            if isinstance(atom, Quotient):
                value = atom.dividend.substitute(replacement) // atom.divisor
            elif isinstance(atom, Remainder):
                value = atom.dividend.substitute(replacement) % atom.divisor
            else:
                value = replacement.get(atom) or Index.of(atom)
            result = result + value * factor
        return result

    def evaluate(self, values: Mapping[Atom, np.ndarray | int]):
        """Its value, given one (an int or an int64 array) for each axis and dynamic index."""
        total = self.constant
        for atom, factor in self.terms:
            if isinstance(atom, Quotient):
                value = atom.dividend.evaluate(values) // atom.divisor
            elif isinstance(atom, Remainder):
                value = atom.dividend.evaluate(values) % atom.divisor
            else:
                value = values[atom]
            total = total + value * factor
        return total


def _grouped(index: Index) -> str:
    """``index`` as text, in parentheses unless it is one axis or dynamic index."""
    alone = index.constant == 0 and len(index.terms) == 1 and index.terms[0][1] == 1
    return str(index) if alone and isinstance(index.terms[0][0], (Axis, Dynamic)) else f"({index})"


def _product(factor: int, atom: Atom) -> str:
    if factor == 1:
        return str(atom)
    text = str(atom) if isinstance(atom, (Axis, Dynamic)) else f"({atom})"
    return f"-{text}" if factor == -1 else f"{factor} {text}"


def _position(term: tuple[Atom, int]) -> tuple[int, str]:
    """Where a term stands in a sum: axes by name, then dynamic indices, then the rest."""
    atom, _ = term
    rank = 0 if isinstance(atom, Axis) else 1 if isinstance(atom, Dynamic) else 2
    return rank, str(atom)


@dataclass(frozen=True)
class Bound:
    """A condition ``low <= index < high`` under which an element exists (padding, concatenation)."""

    index: Index
    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low} <= {self.index} < {self.high}"

    @property
    def always(self) -> bool:
        low, high = self.index.bounds
        return self.low <= low and high < self.high

    @property
    def never(self) -> bool:
        low, high = self.index.bounds
        return high < self.low or low >= self.high


@dataclass(frozen=True)
class Multiple:
    """A condition ``index mod divisor == 0`` under which an element exists (interior padding)."""

    index: Index
    divisor: int

    def __str__(self) -> str:
        return f"{_grouped(self.index)} mod {self.divisor} == 0"


Condition = Bound | Multiple
Indices = tuple[Index, ...]


def linearize(indices: Indices, shape: Shape) -> Index:
    """The row-major position of ``indices`` in a contiguous tensor of ``shape``."""
    total = Index()
    for index, stride in zip(indices, row_major_strides(shape), strict=True):
        total = total + index * stride
    return total


def delinearize(position: Index, shape: Shape) -> Indices:
    """The indices of the row-major ``position`` in a tensor of ``shape``."""
    indices = []
    for size, stride in zip(shape, row_major_strides(shape), strict=True):
        indices.append(Index() if size <= 1 else (position // max(stride, 1)) % size)
    return tuple(indices)
