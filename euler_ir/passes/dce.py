"""Dead code elimination."""

from __future__ import annotations

from dataclasses import dataclass

from euler_ir.graph import Graph
from euler_ir.passes.manager import Pass
from euler_ir.rebuild import Rebuild


@dataclass(frozen=True)
class RemoveDead(Pass):
    """Remove the ops that no output or update needs.

    Inputs, parameters and states stay, so that a graph is called in the same way before and after.
    """

    name = "dce"

    def run(self, graph: Graph) -> Graph:
        needed = set(graph.needed(graph.results()))
        kept = [op for op in graph.ops if op.definition.has_identity or op in needed]
        if len(kept) == len(graph.ops):
            return graph
        rebuild = Rebuild(graph, self.name)
        for op in kept:
            rebuild.copy(op)
        return rebuild.finish()
