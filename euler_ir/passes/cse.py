"""Common subexpression elimination by value numbering."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from euler_ir.graph import Graph, Op, Value
from euler_ir.graph_equality import attributes_key
from euler_ir.passes.manager import Pass
from euler_ir.rebuild import Rebuild

_ZERO_SIGN_BY_ORDER = ("maximum", "minimum")
"""Commutative but for numpy's choice between 0.0 and -0.0, which follows the order of the operands."""


@dataclass(frozen=True)
class MergeEqual(Pass):
    """Merge ops that compute the same: one operator, equal attributes bit for bit, the same operands.

    Operands of commutative operators are compared in either order. Inputs, parameters and states are never merged,
    as they differ in their name, nor are random ops, which differ in their stream.
    """

    name = "cse"

    def run(self, graph: Graph) -> Graph:
        rebuild = Rebuild(graph, self.name)
        numbers: dict[Value, int] = {}
        first: dict[Hashable, Op] = {}
        for op in rebuild:
            operands = rebuild.operands(op)
            key = _key(op, [numbers[operand] for operand in operands])
            if key in first:
                rebuild.replace(op, first[key].results)
                continue
            first[key] = rebuild.copy(op, operands)
            for value in first[key].results:
                numbers[value] = len(numbers)
        return rebuild.finish()


def _key(op: Op, operands: list[int]) -> Hashable:
    ordered = op.name in _ZERO_SIGN_BY_ORDER and op.result.dtype.is_float
    if op.definition.commutative and not ordered:
        operands = sorted(operands)
    return op.name, attributes_key(op.attributes), tuple(operands)
