"""One layout in memory for what attention gives: that of the transpose which its next reader wants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from euler_ir import tensor as T
from euler_ir.graph import Graph, Op, Value
from euler_ir.passes.attention_calls import OPERATORS
from euler_ir.passes.manager import Pass
from euler_ir.rebuild import Rebuild


@dataclass(frozen=True)
class ShareTransposes(Pass):
    """Have all readers of a result of attention read it through its transpose, where some reader transposes it.

    Then the transpose is the only one that reads the result itself, and the call can write it right there. What the
    others read is the transpose of the transpose, which takes no memory. It must come after what merges transposes.
    """

    name = "share-transposes"

    def run(self, graph: Graph) -> Graph:
        uses, results, rebuild = graph.uses(), set(graph.results()), Rebuild(graph, self.name)
        for op in rebuild:
            if op.name == "transpose" and op.result in rebuild.values:
                continue
            rebuild.copy(op)
            if op.name in OPERATORS:
                for value in op.results:
                    moves = list(dict.fromkeys(reader for reader in uses.get(value, ()) if reader.name == "transpose"))
                    if len(moves) == 1 and value not in results and len(uses[value]) > 1:
                        self._share(value, moves[0], rebuild)
        return rebuild.finish()

    def _share(self, value: Value, move: Op, rebuild: Rebuild) -> None:
        moved = rebuild.copy(move).result
        back = tuple(int(axis) for axis in np.argsort(move.attributes["permutation"]))
        with rebuild.derived_from(move):
            rebuild.values[value] = T.transpose(moved, back)
