"""What a graph costs, counted operator by operator, as if nothing were fused: bytes and operations on floats.

Passes are compared by it: fewer bytes here are fewer to fuse away later. What really moves is counted on the plan
(``plan.work``). An operation is one arithmetic operation on floats, whatever it takes: an exp counts as an addition, a
multiply-add as two.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

from euler_ir.graph import Graph, Op, Value
from euler_ir.graph_equality import attributes_key

_NO_ARITHMETIC = ("cast", "where", "stop_gradient", "later")
_ATTENTION = {"attention": False, "attention_gradient": True}


@dataclass(frozen=True)
class Cost:
    """Operators but for leaves such as parameters and constants; the bytes that they read and write; their FLOPs."""

    operators: int = 0
    nbytes: int = 0
    flops: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.operators + other.operators, self.nbytes + other.nbytes, self.flops + other.flops)


def matmul_flops(rows: int, inner: int, columns: int, batch: int = 1) -> int:
    """A multiplication and an addition for each element of the result and of the inner axis."""
    return 2 * batch * rows * inner * columns


def attention_flops(
    items: int, queries: int, keys: int, width: int, value_width: int, causal: bool, backward: bool = False
) -> int:
    """Those of the products of attention for ``items`` heads: two products forward, five backward.

    Backward computes the scores again (Dao et al. 2022, "FlashAttention"). Causal counts the pairs that are not masked;
    what ``visible_from`` hides is known when it runs, and counts.
    """
    pairs = queries * keys if not causal else sum(max(0, keys - queries + row + 1) for row in range(queries))
    return 2 * items * pairs * (3 * width + 2 * value_width if backward else width + value_width)


def cost(graph: Graph) -> Cost:
    """The cost of all operators of ``graph``; what is dead counts too."""
    counter = _Counter()
    return sum(map(counter.cost, graph.ops), Cost())


def op_cost(op: Op) -> Cost:
    """The cost of ``op``: each operand read once, each result written once.

    What only moves elements counts as nothing, and who reads a repeated tensor reads what is repeated. A composite does
    what its decomposition does, but attention counts as its products.
    """
    return _Counter().cost(op)


class _Counter:
    def __init__(self) -> None:
        self.read: dict[Value, int] = {}  # what reading a value that was moved takes, in bytes
        self.composites: dict[Hashable, int] = {}  # FLOPs: those of equal types and attributes are decomposed once

    def cost(self, op: Op) -> Cost:
        if op.definition.family in ("leaf", "movement"):
            return Cost(int(op.definition.family == "movement"))
        read = sum(map(self.read_bytes, dict.fromkeys(op.operands)))
        return Cost(1, read + sum(value.type.nbytes for value in op.results), self.flops(op))

    def read_bytes(self, value: Value) -> int:
        moved = []
        while value not in self.read and value.op.definition.family == "movement" and len(value.op.operands) == 1:
            moved.append(value)
            value = value.op.operands[0]
        least = self.read.get(value, value.type.nbytes)
        for each in reversed(moved):
            least = self.read[each] = min(least, each.type.nbytes)
        return least

    def flops(self, op: Op) -> int:
        if op.name in _ATTENTION:
            query, key, value = (operand.shape for operand in op.operands[:3])
            items, causal = math.prod(query[:-2]), op.attributes["causal"]
            return attention_flops(items, query[-2], key[-2], query[-1], value[-1], causal, _ATTENTION[op.name])
        if op.definition.family == "composite":
            return self.decomposed_flops(op)
        if not op.operands or not op.operands[0].dtype.is_float or op.name in _NO_ARITHMETIC:
            return 0
        match op.definition.family:
            case "elementwise":
                return op.result.size
            case "reduction" | "scan":
                return op.operands[0].size
            case "contraction":
                left, (*batch, rows, columns) = op.operands[0].shape, op.result.shape
                inner = left[-2] if op.attributes["transpose_left"] else left[-1]
                return matmul_flops(rows, inner, columns, math.prod(batch))
        return 0

    def decomposed_flops(self, op: Op) -> int:
        """It recurses as deep as composites are made of composites."""
        key = op.name, tuple(operand.type for operand in op.operands), attributes_key(op.attributes)
        if key not in self.composites:
            scratch = Graph("cost")
            inputs = [scratch.input(f"x{n}", each.shape, each.dtype) for n, each in enumerate(op.operands)]
            scratch.emit(op.name, inputs, **op.attributes)
            whole = scratch.ops[-1]
            whole.definition.decompose(whole)
            self.composites[key] = sum(map(self.flops, scratch.ops[len(inputs) + 1 :]))
        return self.composites[key]
