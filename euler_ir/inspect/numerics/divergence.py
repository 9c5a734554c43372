"""A wrong value, as it is told: where, what it should be, what it is made of, who made it, and the user's line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from euler_ir.errors import Location
from euler_ir.graph import Graph, Op, Value
from euler_ir.inspect.find import location_lines, location_record
from euler_ir.inspect.given_arrays import GivenArrays
from euler_ir.inspect.numerics.elements import Operand, as_json, place_text, shown
from euler_ir.inspect.numerics.equations import Equations, Violation, violations
from euler_ir.text.printer import op_text


@dataclass(frozen=True)
class Divergence:
    """A value that is wrong: at ``place`` it is ``got`` and not ``wanted``, by more than rounding explains.

    ``value`` is its ``%name``, or a result such as ``output loss``. ``made_by`` is the pass or the kernel that made it
    so, ``via`` the passes and rules that made the operator, ``read`` what its operands hold there, ``wrong`` how many
    of the ``size`` elements are wrong, and ``others`` how many values more of the stage.
    """

    value: str
    operation: str
    place: tuple[int, ...]
    got: np.generic
    wanted: np.generic
    wrong: int
    size: int
    made_by: str
    via: tuple[str, ...]
    read: tuple[Operand, ...]
    scope: str
    location: Location | None
    others: int

    def record(self) -> dict:
        """All of it as JSON has it."""
        return {
            "value": self.value,
            "operation": self.operation,
            "place": list(self.place),
            "got": as_json(self.got),
            "wanted": as_json(self.wanted),
            "wrong": self.wrong,
            "size": self.size,
            "made_by": self.made_by,
            "via": list(self.via),
            "operands": [each.record() for each in self.read],
            "scope": self.scope,
            "location": location_record(self.location),
            "others": self.others,
        }

    def __str__(self) -> str:
        lines = [
            f"{self.made_by}: {self.value} is wrong",
            f"  {self.operation}",
            f"  at {place_text(self.place)} it is {shown(self.got)}, not {shown(self.wanted)}; "
            f"{self.wrong:,} of {self.size:,} elements are wrong",
            *(f"    {operand}" for operand in self.read),
        ]
        if self.via:
            lines.append(f"  made by {', '.join(self.via)}")
        lines += location_lines(self.location)
        if self.others:
            lines.append(f"  {self.others:,} more values of this stage are wrong")
        return "\n".join(lines)


def of_violations(found: Sequence[Violation], made_by: str) -> Divergence | None:
    """The first of ``found``, those of one stage, or None."""
    if not found:
        return None
    first = found[0]
    value = first.equation.value(first.equation.gives.index(first.name))
    operation = f"{first.name} = %{first.equation.reads[0]}" if first.equation.is_end else operation_text(value.op)
    name = first.name if first.equation.is_end else f"%{first.name}"
    return divergence(value, first, made_by, first.read, len(found) - 1, name, operation)


def of_passes(before: Graph, after: Graph, arrays: GivenArrays, made_by: str) -> Divergence | None:
    """The first value that ``after``, made of ``before`` by passes, computes otherwise; None when all are the same."""
    return of_violations(violations(Equations([before, after]), arrays.arrays), made_by)


def divergence(
    value: Value,
    found,
    made_by: str,
    read: tuple[Operand, ...],
    others: int,
    name: str | None = None,
    operation: str | None = None,
) -> Divergence:
    """What is told of a `Difference` or `Violation` of ``value``, under another name if one is given."""
    op = value.op
    return Divergence(
        name or f"%{value.name}",
        operation or operation_text(op),
        found.place,
        found.got,
        found.wanted,
        found.wrong,
        value.size,
        made_by,
        op.via,
        read,
        op.scope,
        op.location,
        others,
    )


def operation_text(op: Op) -> str:
    """The line of ``op`` in the text of its graph."""
    return op_text(op, {value: f"%{value.name}" for value in (*op.operands, *op.results)})
