"""Index expressions and conditions in generated code.

Along the vector axis an index is uniform, or moves by a constant step from lane to lane, or neither; only the last
needs a vector of indices. Vectors begin at multiples of their width, so that also quotients and remainders by multiples
of the width, as reshapes make them, are uniform or move by a step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from euler_ir.backends.cpu.writer import Code, Register, constant, lane_constants
from euler_ir.index import Atom, Axis, Bound, Condition, Dynamic, Index, Quotient, Remainder

_I32 = range(-(2**31), 2**31)


@dataclass
class Scope:
    """What is known at a point of the function: where axes stand, the values of names, and the vector being computed.

    ``width`` is the number of lanes along ``axis``, whose position is that of the first lane; ``mask`` says which lanes
    are there at all, None if all are.
    """

    code: Code
    width: int = 1
    axis: Axis | None = None
    mask: Register | None = None
    positions: dict[Axis, Register] = field(default_factory=dict)
    values: dict[str, Register] = field(default_factory=dict)


def lane_step(scope: Scope, index: Index) -> int | None:
    """How far ``index`` moves from lane to lane; None if not by a constant."""
    total = 0
    for atom, factor in index.terms:
        step = _atom_step(scope, atom)
        if step is None:
            return None
        total += factor * step
    return total


def _atom_step(scope: Scope, atom: Atom) -> int | None:
    if isinstance(atom, Axis):
        return int(atom == scope.axis)
    if isinstance(atom, Dynamic):
        return 0 if scope.values[atom.name].lanes == 1 else None
    step = lane_step(scope, atom.dividend)
    if not step:
        return step
    # The first lane stands at a multiple of the span of all lanes, so none crosses a multiple of the divisor.
    span = step * scope.width
    others = atom.dividend - Index.of(scope.axis) * step
    starts_at_multiple = not others.constant % span and not any(factor % span for _, factor in others.terms)
    if step < 0 or atom.divisor % span or not starts_at_multiple:
        return None
    return step if isinstance(atom, Remainder) else 0


def scalar_index(scope: Scope, index: Index) -> Register:
    """The i64 value of ``index`` in the first lane; its dynamic indices are uniform."""
    code = scope.code
    total = None
    for atom, factor in index.terms:
        if isinstance(atom, Axis):
            value = scope.positions[atom]
        elif isinstance(atom, Dynamic):
            value = scope.values[atom.name]
        else:
            value = _divided(code, atom, scalar_index(scope, atom.dividend))
        total = _plus(code, total, value, factor)
    if total is None:
        return constant(index.constant, "i64")
    return _plus(code, total, constant(index.constant, "i64"), 1) if index.constant else total


def vector_index(scope: Scope, index: Index) -> Register:
    """The value of ``index`` in each lane: i32 where that is wide enough, else i64."""
    return _vector(scope, index, "i32" if _fits_i32(index) else "i64")


def _vector(scope: Scope, index: Index, element: str) -> Register:
    code = scope.code
    step = lane_step(scope, index)
    if step is not None:
        first = code.splat(_narrowed(code, scalar_index(scope, index), element), scope.width)
        steps = lane_constants([step * lane for lane in range(scope.width)], element)
        return code.binary("add", first, steps) if step else first
    terms = [(atom, factor) for atom, factor in index.terms if _atom_step(scope, atom) is None]
    total = _vector(scope, Index(tuple(term for term in index.terms if term not in terms), index.constant), element)
    for atom, factor in terms:
        if isinstance(atom, Dynamic):
            value = _narrowed(code, scope.values[atom.name], element)
        else:
            value = _divided(code, atom, _vector(scope, atom.dividend, element))
        total = _plus(code, total, value, factor)
    return total


def _fits_i32(index: Index) -> bool:
    low, high = index.bounds
    return low in _I32 and high in _I32 and all(
        _fits_i32(atom.dividend) for atom, _ in index.terms if isinstance(atom, (Quotient, Remainder))
    )


def _narrowed(code: Code, value: Register, element: str) -> Register:
    if value.element == element:
        return value
    if not value.text.startswith("%"):
        return Register(value.text, element)
    return code.convert("trunc", value, element)


def _plus(code: Code, total: Register | None, value: Register, factor: int) -> Register:
    if factor != 1:
        value = code.binary("mul", value, constant(factor, value.element))
    return value if total is None else code.binary("add", total, value)


def _divided(code: Code, atom: Quotient | Remainder, dividend: Register) -> Register:
    """Unsigned division of the dividend, shifted by a multiple of the divisor that makes it positive."""
    shift = max(0, -(atom.dividend.bounds[0] // atom.divisor))
    divisor = constant(atom.divisor, dividend.element)
    if shift:
        dividend = code.binary("add", dividend, constant(shift * atom.divisor, dividend.element))
    if isinstance(atom, Remainder):
        return code.binary("urem", dividend, divisor)
    quotient = code.binary("udiv", dividend, divisor)
    return code.binary("sub", quotient, constant(shift, dividend.element)) if shift else quotient


def condition(scope: Scope, conditions: tuple[Condition, ...]) -> Register | None:
    """Whether all ``conditions`` hold, in each lane where that differs; None if they always do."""
    result = None
    for single in conditions:
        result = scope.code.both(result, _single_condition(scope, single))
    return result


def _single_condition(scope: Scope, single: Condition) -> Register | None:
    code, uniform = scope.code, lane_step(scope, single.index) == 0
    if isinstance(single, Bound) and single.always:
        return None
    value = scalar_index(scope, single.index) if uniform else vector_index(scope, single.index)
    if not isinstance(single, Bound):
        # Of a negative number the remainder is 0 as well if and only if it is a multiple.
        rest = code.binary("srem", value, constant(single.divisor, value.element))
        return code.compare("icmp eq", rest, constant(0, value.element))
    low, high = single.index.bounds
    result = None
    if low < single.low:
        result = code.compare("icmp sge", value, constant(single.low, value.element))
    if high >= single.high:
        result = code.both(result, code.compare("icmp slt", value, constant(single.high, value.element)))
    return result
