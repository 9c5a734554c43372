"""Composite operators into simpler ones."""

from __future__ import annotations

from dataclasses import dataclass

from euler_ir.errors import GraphError
from euler_ir.graph import Graph, Op
from euler_ir.ops.definition import OPS
from euler_ir.passes.manager import Pass
from euler_ir.rebuild import Rebuild


@dataclass(frozen=True)
class Decompose(Pass):
    """Replace composite ops by their decompositions, except those that the backend keeps whole.

    ``keep`` holds names of operators; one that reads something without elements is decomposed all the same. What a
    decomposition is made of carries the location and scope of its op. Raises GraphError for a decomposition that never
    ends or that gives other types than its op.
    """

    name = "decompose"
    numerics = "reassociating"
    keep: frozenset[str] = frozenset()

    def run(self, graph: Graph) -> Graph:
        for _ in range(len(OPS)):
            if not any(self._is_wanted(op) for op in graph.ops):
                return graph
            graph = self._once(graph)
        names = sorted({op.name for op in graph.ops if self._is_wanted(op)})
        raise GraphError(f"the decomposition of {', '.join(names)} never ends", hint="it is made of itself")

    def _is_wanted(self, op: Op) -> bool:
        is_kept = op.name in self.keep and all(operand.size for operand in op.operands)
        return op.definition.family == "composite" and not is_kept

    def _once(self, graph: Graph) -> Graph:
        rebuild = Rebuild(graph, self.name)
        for op in rebuild:
            if not self._is_wanted(op):
                rebuild.copy(op)
                continue
            values = op.definition.decompose(rebuild.apart(op))
            if tuple(value.type for value in values) != tuple(value.type for value in op.results):
                given = ", ".join(str(value.type) for value in values)
                raise GraphError(f"the decomposition of {op!r} gives {given}", location=op.location)
            rebuild.replace(op, values)
        return rebuild.finish()
