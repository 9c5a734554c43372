"""Index expressions and conditions in CUDA C++: in 32 bits where all of the expression fits, else in 64."""

from __future__ import annotations

from collections.abc import Callable

from euler_ir.index import Atom, Axis, Condition, Dynamic, Index, Multiple, Quotient, Remainder

_MOST = 2**31 - 1

NameOf = Callable[[Axis | Dynamic], str]
"""The variable that holds an axis or a dynamic index."""


def is_wide_axis(axis: Axis) -> bool:
    """Whether a variable that counts along ``axis``, in steps of up to its length, needs 64 bits."""
    return 2 * axis.extent > _MOST


def counter_type(count: int) -> str:
    """The type of a variable that counts up to ``count``, in steps of up to that."""
    return "long long" if 2 * count > _MOST else "int"


def is_wide(index: Index) -> bool:
    """Whether ``index``, or a part of it on the way, may leave the range of an int."""
    reach = abs(index.constant)
    for atom, factor in index.terms:
        if isinstance(atom, (Quotient, Remainder)) and is_wide(_shifted(atom)):
            return True
        low, high = atom.bounds
        reach += abs(factor) * max(abs(low), abs(high), 1)
    return reach > _MOST


def index_text(index: Index, name_of: NameOf) -> str:
    """The value of ``index``: an int, or a long long where it is wide."""
    wide = is_wide(index)
    parts = [_term(atom, factor, wide, name_of) for atom, factor in index.terms]
    if index.constant or not parts:
        parts.append(f"{index.constant}LL" if wide and not parts else str(index.constant))
    return " + ".join(parts).replace("+ -", "- ")


def _term(atom: Atom, factor: int, wide: bool, name_of: NameOf) -> str:
    value = _atom(atom, wide, name_of)
    return value if factor == 1 else f"-{value}" if factor == -1 else f"{factor} * {value}"


def _atom(atom: Atom, wide: bool, name_of: NameOf) -> str:
    if isinstance(atom, Dynamic):
        return name_of(atom) if wide else f"int({name_of(atom)})"
    if isinstance(atom, Axis):
        return f"(long long)({name_of(atom)})" if wide and not is_wide_axis(atom) else name_of(atom)
    dividend = _shifted(atom)
    is_narrow = wide and not is_wide(dividend)
    text = index_text(dividend, name_of)
    if isinstance(atom, Remainder):
        text = f"eir::modulo({text}, {_divisor(atom.divisor, dividend)})"
    else:
        text = f"eir::quotient({text}, {_divisor(atom.divisor, dividend)})"
        shift = _shift(atom)
        text = f"({text} - {shift})" if shift else text
    return f"(long long)({text})" if is_narrow else text


def _divisor(divisor: int, dividend: Index) -> str:
    return f"{divisor}LL" if is_wide(dividend) else str(divisor)


def _shift(atom: Quotient | Remainder) -> int:
    """How many divisors make the dividend positive."""
    return max(0, -(atom.dividend.bounds[0] // atom.divisor))


def _shifted(atom: Quotient | Remainder) -> Index:
    return atom.dividend + _shift(atom) * atom.divisor


def condition_text(conditions: tuple[Condition, ...], name_of: NameOf) -> str | None:
    """Whether all ``conditions`` hold, as operands of &&; None if they always do."""
    tests = [test for condition in conditions for test in _tests(condition, name_of)]
    return " && ".join(dict.fromkeys(tests)) or None


def _tests(condition: Condition, name_of: NameOf) -> list[str]:
    value = index_text(condition.index, name_of)
    if isinstance(condition, Multiple):
        # Of a negative number the remainder is 0 as well if and only if it is a multiple.
        return [f"({value}) % {condition.divisor} == 0"]
    if condition.never:
        return ["false"]
    low, high = condition.index.bounds
    tests = []
    if low < condition.low:
        tests.append(f"{value} >= {_bound(condition.low)}")
    if high >= condition.high:
        tests.append(f"{value} < {_bound(condition.high)}")
    return tests


def _bound(number: int) -> str:
    return f"{number}LL" if abs(number) > _MOST else str(number)


