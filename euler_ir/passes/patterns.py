"""Patterns are data: what to look for in a graph. Matching binds each part of one to a value, or notes why it cannot.

Apply(("multiply",), (Anything("x"), Number(1)))      x * 1
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from euler_ir.dtypes import DTYPES, DType, bool_
from euler_ir.graph import Op, Value


@dataclass(frozen=True, eq=False)
class Anything:
    """Any value, of one of ``dtypes`` if given; the same ``name`` twice means the same value twice."""

    name: str
    dtypes: tuple[DType, ...] = ()

    @property
    def key(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Number:
    """A tensor all of whose elements are the constant ``number``, as its dtype holds it; 0.0 is not -0.0.

    Without a number, any constant number. One within ``tolerance`` of it, relative to it, is taken for it.
    """

    number: bool | int | float | None = None
    name: str | None = None
    tolerance: float = 0.0

    @functools.cached_property
    def key(self) -> str | int:
        return self.name or id(self)


@dataclass(frozen=True, eq=False)
class Apply:
    """Result number ``index`` of one of the operators ``names`` on ``operands``, tried in both orders where it is
    commutative.

    With ``once`` nothing else may use it.
    """

    names: tuple[str, ...]
    operands: tuple[Pattern, ...]
    once: bool = False
    index: int = 0

    @functools.cached_property
    def key(self) -> int:
        return id(self)

    @functools.cached_property
    def needs(self) -> frozenset[str]:
        """Some of what ``makers_of`` an op's operands must be for this to match the op."""
        applied = (each.names[0] for each in self.operands if isinstance(each, Apply) and len(each.names) == 1)
        return frozenset((*applied, *(_NUMBER for each in self.operands if isinstance(each, Number))))

    @functools.cached_property
    def selective_first(self) -> tuple[int, ...]:
        """The positions of the operands, those before others that match less."""
        return tuple(sorted(range(len(self.operands)), key=lambda n: isinstance(self.operands[n], Anything)))


@dataclass(frozen=True, eq=False)
class Either:
    """Whichever of ``patterns`` matches first."""

    patterns: tuple[Pattern, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The operators with which one of them begins."""
        return tuple(dict.fromkeys(name for pattern in self.patterns for name in pattern.names))

    @functools.cached_property
    def needs(self) -> frozenset[str]:
        """As of ``Apply``."""
        return frozenset.intersection(*(pattern.needs for pattern in self.patterns))


Pattern = Anything | Number | Apply | Either


def apply(names: str, *operands: Pattern, once: bool = False) -> Apply:
    """``Apply`` with the operators in one string, separated by spaces."""
    return Apply(tuple(names.split()), operands, once)


_NUMBER, _CARRY_NUMBERS = "a number", ("broadcast", "reshape")


def makers_of(op: Op) -> frozenset[str]:
    """The operators that make the operands of ``op``; a mark too when one may be a constant number."""
    makers = frozenset([operand.op.name for operand in op.operands])
    if "constant" in makers or (not makers.isdisjoint(_CARRY_NUMBERS) and any(map(_is_constant, op.operands))):
        return makers | {_NUMBER}
    return makers


def _is_constant(value: Value) -> bool:
    while value.op.name in _CARRY_NUMBERS:
        value = value.op.operands[0]
    return value.op.name == "constant"


# -- matching ----------------------------------------------------------------------------------------------------------

Bound = Mapping[str | int, Value]
"""The value that each part of a pattern stands for so far, by the key of that part."""


@dataclass(frozen=True)
class Mismatch:
    """``reason``: why ``value`` is not what ``pattern`` wants, when the parts ``bound`` had been found."""

    pattern: Pattern
    value: Value
    bound: Bound
    status: str
    reason: str


class Matcher:
    """Matches patterns against values of which ``uses`` says how often each is used; unknown ones are used once.

    With ``mismatches`` it notes there why each attempt failed. It recurses as deep as a pattern, not as a graph.
    """

    def __init__(self, uses: Mapping[Value, int], mismatches: list[Mismatch] | None = None) -> None:
        self.uses = uses
        self.mismatches = mismatches
        self._makers: dict[Op, frozenset[str]] = {}
        self._numbers: dict[Op, bool | int | float | None] = {}

    def makers(self, op: Op) -> frozenset[str]:
        """``makers_of`` that remembers."""
        makers = self._makers.get(op)
        if makers is None:
            makers = self._makers[op] = makers_of(op)
        return makers

    def number(self, value: Value) -> bool | int | float | None:
        """``number_of`` that remembers."""
        op = value.op
        if op not in self._numbers:
            self._numbers[op] = number_of(value)
        return self._numbers[op]

    def match(self, pattern: Pattern, value: Value, bound: Bound) -> Bound | None:
        """``bound`` and what ``value`` adds to it, or None."""
        if isinstance(pattern, Apply):
            op = value.op
            if op.name not in pattern.names or value.index != pattern.index:
                return self.fail(pattern, value, bound, "operator")
            if self.mismatches is None and not pattern.needs <= self.makers(op):
                return None
            if pattern.once and self.uses.get(value, 1) != 1:
                return self.fail(pattern, value, bound, "use")
            return self.match_operands(pattern, op, {**bound, pattern.key: value})
        if isinstance(pattern, Anything):
            held = bound.get(pattern.name)
            if held is None:
                if pattern.dtypes and value.dtype not in pattern.dtypes:
                    return self.fail(pattern, value, bound, "dtype")
                return {**bound, pattern.name: value}
            return bound if held is value else self.fail(pattern, value, bound, "same")
        if isinstance(pattern, Number):
            number = self.number(value)
            if number is None or not is_number(number, pattern, value.dtype):
                return self.fail(pattern, value, bound, "number")
            held = bound.get(pattern.key)
            same = held is None or self.number(held) == number
            return {**bound, pattern.key: value} if same else self.fail(pattern, value, bound, "same")
        for each in pattern.patterns:
            found = self.match(each, value, bound)
            if found is not None:
                return found
        return None

    def match_operands(self, pattern: Apply, op: Op, bound: Bound) -> Bound | None:
        if len(op.operands) != len(pattern.operands):
            return self.fail(pattern, op.results[pattern.index], bound, "count")
        found = self.match_each(pattern, op.operands, bound)
        if found is None and op.definition.commutative:
            found = self.match_each(pattern, op.operands[::-1], bound)
        return found

    def match_each(self, pattern: Apply, operands: tuple[Value, ...], bound: Bound) -> Bound | None:
        for position in pattern.selective_first:
            bound = self.match(pattern.operands[position], operands[position], bound)
            if bound is None:
                return None
        return bound

    def fail(self, pattern: Pattern, value: Value, bound: Bound, status: str) -> None:
        if self.mismatches is not None:
            reason = _REASONS[status](pattern, value, self.uses)
            self.mismatches.append(Mismatch(pattern, value, bound, status, reason))


_REASONS = {
    "operator": lambda pattern, value, uses: (
        f"it is made by {value.op.name}, and the rule wants {' or '.join(pattern.names)}"
        if value.op.name not in pattern.names
        else f"it is result {value.index} of {value.op.name}, and the rule wants result {pattern.index}"
    ),
    "use": lambda pattern, value, uses: f"it is used {uses.get(value, 1)} times, and the rule wants it used once",
    "count": lambda pattern, value, uses: (
        f"{value.op.name} has {len(value.op.operands)} operands here, and {len(pattern.operands)} in the rule"
    ),
    "dtype": lambda pattern, value, uses: f"it is {value.type}, and the rule wants {_dtypes_text(pattern.dtypes)}",
    "same": lambda pattern, value, uses: f"the rule wants the same {show(pattern)} here as elsewhere",
    "number": lambda pattern, value, uses: f"it is {_number_text(value)}, and the rule wants {show(pattern)}",
}
"""Why a part of a pattern does not match, for readers, by status."""

STATUS = {
    "operator": "no such operator",
    "use": "another use",
    "count": "other operands",
    "dtype": "operand differs",
    "same": "operand differs",
    "number": "operand differs",
    "guard": "refused by a guard",
    "matches": "it matches",
}
"""What became of a rule at a value, by status: of a mismatch, and when the whole pattern is there."""


DTYPES_OF = {
    "float": tuple(dtype for dtype in DTYPES.values() if dtype.is_float),
    "integer": tuple(dtype for dtype in DTYPES.values() if dtype.is_integer),
    "bool": (bool_,),
}
"""Dtypes by what readers call them together."""


# -- numbers -----------------------------------------------------------------------------------------------------------


def number_of(value: Value) -> bool | int | float | None:
    """The number that every element of ``value`` is, if it is a constant, perhaps broadcast or reshaped; or None."""
    while value.op.name in _CARRY_NUMBERS:
        value = value.op.operands[0]
    if value.op.name != "constant" or value.size != 1:
        return None
    number = value.op.attributes["value"].reshape(-1)[0]
    return float(number) if value.dtype.is_float else number.item()


def is_number(found: bool | int | float, wanted: Number, dtype: DType) -> bool:
    """Whether ``found``, an element of ``dtype``, is the number that ``wanted`` says."""
    return wanted.number is None or same_number(found, wanted.number, dtype, wanted.tolerance)


def same_number(found: float, wanted: float, dtype: DType, tolerance: float = 0.0) -> bool:
    """Whether ``found`` is ``wanted`` as ``dtype`` holds it, or near enough; 0.0 is not -0.0, and NaN is NaN."""
    if found == wanted:
        return math.copysign(1, found) == math.copysign(1, wanted)
    if not dtype.is_float:
        return False
    if abs(found - wanted) <= tolerance * abs(wanted):
        return True
    held = _held(wanted, dtype)
    return held == found or (held != held and found != found)


@functools.lru_cache(4096)
def _held(number: float, dtype: DType) -> float:
    with np.errstate(all="ignore"):
        return float(np.array(number, dtype.numpy))


# -- for readers -------------------------------------------------------------------------------------------------------

_INFIX = {"add": ("+", 1), "subtract": ("-", 1), "multiply": ("*", 2), "divide": ("/", 2), "power": ("**", 4)}


def show(pattern: Pattern) -> str:
    """``pattern`` as an expression: ``0.5 * x * (1 + erf(x))``."""
    return _show(pattern, 0)


def _show(pattern: Pattern, outside: int) -> str:
    match pattern:
        case Anything(name):
            return name
        case Number(number, name):
            return name or ("a constant number" if number is None else _short(number))
        case Either(patterns):
            text = " or ".join(_show(each, 0) for each in patterns)
            return f"({text})" if outside else text
        case Apply(names, operands):
            name = "|".join(names)
            if name in _INFIX and len(operands) == 2:
                sign, strength = _INFIX[name]
                text = f"{_show(operands[0], strength)} {sign} {_show(operands[1], strength + 1)}"
                return f"({text})" if strength < outside else text
            if name == "negative":
                text = f"-{_show(operands[0], 4)}"
                return f"({text})" if outside > 3 else text
            return f"{name}({', '.join(_show(operand, 0) for operand in operands)})"


def _short(number: bool | int | float) -> str:
    return f"{number:.9g}" if isinstance(number, float) else str(number).lower()


def _number_text(value: Value) -> str:
    number = number_of(value)
    return "not a constant number" if number is None else _short(number)


def _dtypes_text(dtypes: tuple[DType, ...]) -> str:
    return next((f"{name}s" for name, held in DTYPES_OF.items() if held == dtypes), " or ".join(map(str, dtypes)))


def merged(patterns: Sequence[Pattern]) -> list[Pattern]:
    """Fewer patterns that match the same: those that differ in one operand become one with ``Either`` in its place."""
    found: list[Pattern] = []
    for pattern in patterns:
        place = next((n for n, other in enumerate(found) if _one_difference(other, pattern) is not None), None)
        if place is None:
            found.append(pattern)
        else:
            found[place] = _joined(found[place], pattern)
    return found


def _joined(pattern: Pattern, other: Pattern) -> Pattern:
    where = _one_difference(pattern, other)
    if where is None:
        alternatives = pattern.patterns if isinstance(pattern, Either) else (pattern,)
        return Either(tuple(merged((*alternatives, other))))
    operands = list(pattern.operands)
    operands[where] = _joined(operands[where], other.operands[where])
    return Apply(pattern.names, tuple(operands), pattern.once, pattern.index)


def _one_difference(pattern: Pattern, other: Pattern) -> int | None:
    """The only operand in which two applications differ, or None when they differ otherwise."""
    if not (isinstance(pattern, Apply) and isinstance(other, Apply)):
        return None
    if (pattern.names, pattern.once, pattern.index) != (other.names, other.once, other.index):
        return None
    pairs = list(zip(pattern.operands, other.operands))
    differing = [n for n, pair in enumerate(pairs) if not _is_same(*pair)]
    return differing[0] if len(pattern.operands) == len(other.operands) and len(differing) == 1 else None


def _is_same(pattern: Pattern, other: Pattern) -> bool:
    if isinstance(pattern, Apply) and isinstance(other, Apply):
        alike = (pattern.names, pattern.once, pattern.index) == (other.names, other.once, other.index)
        return (
            alike
            and len(pattern.operands) == len(other.operands)
            and all(map(_is_same, pattern.operands, other.operands))
        )
    if isinstance(pattern, Anything) and isinstance(other, Anything):
        return (pattern.name, pattern.dtypes) == (other.name, other.dtypes)
    if isinstance(pattern, Number) and isinstance(other, Number):
        fields = ((each.name, repr(each.number), each.tolerance) for each in (pattern, other))
        return next(fields) == next(fields)
    return False


def parts(pattern: Pattern) -> Iterator[Pattern]:
    """``pattern`` and all that it is made of, outside first."""
    yield pattern
    inner = pattern.operands if isinstance(pattern, Apply) else pattern.patterns if isinstance(pattern, Either) else ()
    for each in inner:
        yield from parts(each)
