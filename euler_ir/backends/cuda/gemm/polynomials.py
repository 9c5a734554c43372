"""What the scalars of a nest are, as polynomials of what it loads and of functions of such polynomials.

Sums and products have one form whatever their order, and casts between float types are not seen: two scalars of one
polynomial are equal but for rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from euler_ir.index import Index
from euler_ir.loops.kernel import Compute, Constant, Load, Statement

_MOST_TERMS = 64
"""A product of sums with more terms stays a product."""


@dataclass(frozen=True)
class Polynomial:
    """The sum of ``terms``: products of atoms, by their numbers in ascending order, each with its coefficient."""

    terms: frozenset[tuple[tuple[int, ...], float]]

    @staticmethod
    def of(coefficients: Mapping[tuple[int, ...], float]) -> Polynomial:
        return Polynomial(frozenset((atoms, factor) for atoms, factor in coefficients.items() if factor))

    @staticmethod
    def constant(value: float) -> Polynomial:
        return Polynomial.of({(): float(value)})

    @staticmethod
    def atom(number: int) -> Polynomial:
        return Polynomial.of({(number,): 1.0})

    @property
    def coefficients(self) -> dict[tuple[int, ...], float]:
        """By product of atoms; that of the empty product is the constant."""
        return dict(self.terms)

    def is_close(self, other: Polynomial, tolerance: float) -> bool:
        """Whether the two differ by no more than ``tolerance``, relative to each coefficient."""
        own, others = self.coefficients, other.coefficients
        same = own.keys() == others.keys()
        return same and all(abs(own[atoms] - others[atoms]) <= tolerance * abs(own[atoms]) for atoms in own)

    def __add__(self, other: Polynomial) -> Polynomial:
        total = self.coefficients
        for atoms, factor in other.terms:
            total[atoms] = total.get(atoms, 0.0) + factor
        return Polynomial.of(total)

    def __mul__(self, other: Polynomial) -> Polynomial:
        total: dict[tuple[int, ...], float] = {}
        for left, by in self.terms:
            for right, factor in other.terms:
                atoms = tuple(sorted(left + right))
                total[atoms] = total.get(atoms, 0.0) + by * factor
        return Polynomial.of(total)

    def __neg__(self) -> Polynomial:
        return self * Polynomial.constant(-1)


@dataclass(frozen=True)
class Loaded:
    """Element ``index`` of the buffer ``name``."""

    name: str
    index: Index


@dataclass(frozen=True)
class Applied:
    """Operator ``name`` of ``operands``."""

    name: str
    operands: tuple[Polynomial, ...]


Atom = Loaded | Applied


class Polynomials:
    """The polynomial of each scalar that was `add`ed, by its name in ``scalars``, over the atoms ``atoms``."""

    def __init__(self) -> None:
        self.scalars: dict[str, Polynomial] = {}
        self.atoms: list[Atom] = []
        self._numbers: dict[Atom, int] = {}
        self._floats: dict[str, bool] = {}

    def atom(self, atom: Atom) -> Polynomial:
        """``atom`` alone."""
        if atom not in self._numbers:
            self._numbers[atom] = len(self.atoms)
            self.atoms.append(atom)
        return Polynomial.atom(self._numbers[atom])

    def add(self, statement: Statement) -> bool:
        """Note what ``statement`` computes; False if that is not a function of what is loaded unconditionally."""
        if isinstance(statement, Constant):
            value = statement.value
            is_float = statement.dtype.is_float
            found = Polynomial.constant(value) if is_float else self.atom(Applied(f"{statement.dtype} {value}", ()))
        elif isinstance(statement, Load) and not statement.conditions:
            found = self.atom(Loaded(statement.buffer, statement.index))
        elif isinstance(statement, Compute) and statement.operation != "philox":
            found = self._computed(statement)
        else:
            return False
        self.scalars[statement.result] = found
        self._floats[statement.result] = statement.dtype.is_float
        return True

    def _computed(self, statement: Compute) -> Polynomial:
        operands = tuple(self.scalars[name] for name in statement.operands)
        if statement.dtype.is_float and all(self._floats[name] for name in statement.operands):
            match statement.operation, operands:
                case "cast", (operand,):
                    return operand
                case "negative", (operand,):
                    return -operand
                case "add", (left, right):
                    return left + right
                case "subtract", (left, right):
                    return left + -right
                case "multiply", (left, right) if len(left.terms) * len(right.terms) <= _MOST_TERMS:
                    return left * right
        return self.atom(Applied(f"{statement.dtype} {statement.operation}", operands))
