"""From a graph to something that runs."""

from __future__ import annotations

import numpy as np

from euler_ir import interpreter
from euler_ir.errors import ExecutionError
from euler_ir.graph import Graph
from euler_ir.state import State, check_array


class Executable:
    """A compiled graph. ``executable(state, name=array, ...)`` runs it once and returns its outputs by name."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __call__(self, state: State | None = None, **inputs) -> dict[str, np.ndarray]:
        leaves = dict(inputs)
        for leaf in (*self.graph.parameters, *self.graph.states):
            name = leaf.op.attributes["name"]
            check_array(state[name], leaf, name)
            leaves[name] = state[name]
        outputs, updates = interpreter.run(self.graph, leaves)
        for name, array in updates.items():
            state[name] = array
        return outputs


def compile(graph: Graph, backend: str = "cpu", threads: int | None = None) -> Executable:
    return Executable(graph)
