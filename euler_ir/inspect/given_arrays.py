"""The arrays that a command runs a graph on: from safetensors files, and drawn at random where no file gives one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from euler_ir.errors import ExecutionError, did_you_mean
from euler_ir.graph import Graph, Value
from euler_ir.inspect.random_inputs import random_inputs
from euler_ir.inspect.tensor_file import read_tensors
from euler_ir.state import State, check_array, initial_state


@dataclass(frozen=True)
class GivenArrays:
    """An array for each leaf of a graph by name. ``drawn`` are those that ``seed`` made: nobody gave them."""

    arrays: dict[str, np.ndarray]
    drawn: tuple[str, ...]
    seed: int

    def __str__(self) -> str:
        """Where the arrays come from, in one line."""
        given = len(self.arrays) - len(self.drawn)
        if not self.arrays:
            return "the graph takes no arrays"
        if not self.drawn:
            return f"arrays: all {given} from files"
        return f"arrays: {given} from files, {len(self.drawn)} drawn with seed {self.seed}"

    def of(self, kinds: Iterable[Value]) -> dict[str, np.ndarray]:
        """The arrays of some leaves."""
        return {leaf.op.attributes["name"]: self.arrays[leaf.op.attributes["name"]] for leaf in kinds}

    def state(self, graph: Graph) -> State:
        """A new State that holds copies of the parameters and the state of ``graph``."""
        state = State()
        for name, array in self.of((*graph.parameters, *graph.states)).items():
            state[name] = array
        return state


def given_arrays(
    graph: Graph, inputs: Path | None = None, state: Path | None = None, seed: int = 0
) -> GivenArrays:
    """Arrays for ``graph``: inputs from the safetensors file ``inputs``, parameters and state from ``state``.

    ``state`` may hold more than the graph asks for, as a checkpoint does; ``inputs`` may not, but may hold parameters
    and state as well. What neither gives is drawn: inputs by `random_inputs`, the rest as its initializer says. Raises
    ExecutionError for a file that is no safetensors file, an unknown input, or an array of another type; OSError.
    """
    leaves = {leaf.op.attributes["name"]: leaf for leaf in (*graph.inputs, *graph.parameters, *graph.states)}
    found: dict[str, np.ndarray] = {}
    if state is not None:
        found |= {name: array for name, array in read_tensors(state).items() if name in leaves}
    if inputs is not None:
        given = read_tensors(inputs)
        for name in given.keys() - leaves.keys():
            hint = did_you_mean(name, leaves) or f"it has {', '.join(leaves) or 'none'}"
            raise ExecutionError(f"{inputs} gives {name!r}, which is no input of {graph.name!r}", hint=hint)
        found |= given
    for name, array in found.items():
        check_array(array, leaves[name], name)
    drawn = tuple(name for name in leaves if name not in found)
    arrays = dict(found)
    if any(leaf.op.attributes["name"] in drawn for leaf in graph.inputs):
        arrays = random_inputs(graph, seed) | arrays
    if any(leaf.op.attributes["name"] in drawn for leaf in (*graph.parameters, *graph.states)):
        arrays = dict(initial_state(graph, seed=seed)) | arrays
    return GivenArrays({name: arrays[name] for name in leaves}, drawn, seed)
