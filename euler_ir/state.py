"""Parameters, optimiser moments and counters: named arrays that live outside of graphs and are shared by them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from euler_ir.errors import ExecutionError, GraphError
from euler_ir.graph import Graph, Value
from euler_ir.pages import allocate_pages
from euler_ir.residence import Kept


class State(Mapping):
    """Arrays by name. Compiled graphs read them and write their updates into them in place.

    Reading gives the live array; writing copies into it, so that its address never changes. There is no lock: while a
    step updates a State, another Python thread sees some arrays or elements as they were and some as they will be. Let
    only one thread at a time use a State that is updated; any number may read one that is not. A fork waits for the end
    of the steps that run, so that a child finds each State between two steps.

    A graph compiled for a GPU takes the arrays that it uses into the GPU's memory, where all such graphs share them.
    Reading one waits for the steps that write it and brings it back; the next step takes it again. In between, an array
    that was read before is read-only and shows what it held then: read it from the State again.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        return self._kept[name].at_home()

    def __setitem__(self, name: str, array) -> None:
        """Copy ``array`` into ``name``. Raises ExecutionError when its shape or dtype differs from what is there."""
        array = np.asarray(array)
        if name not in self._kept:
            self._keep(_owned({name: array}))
            return
        held = self._kept[name].array
        if held.shape != array.shape or held.dtype != array.dtype:
            raise ExecutionError(
                f"state {name!r} is {held.dtype}{list(held.shape)} and cannot take {array.dtype}{list(array.shape)}"
            )
        self._kept[name].overwrite(array)

    def __contains__(self, name: object) -> bool:
        return name in self._kept

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def __repr__(self) -> str:
        return f"<State: {len(self)} arrays, {sum(kept.array.nbytes for kept in self._kept.values())} bytes>"

    def kept(self, leaf: Value) -> Kept:
        """What holds the array of ``leaf``, a parameter or state of a graph, wherever its newest elements are.

        Raises ExecutionError when there is none, or one of another type.
        """
        name = leaf.op.attributes["name"]
        if name not in self._kept:
            raise ExecutionError(
                f"{leaf.op.name} {name!r} is not in the State",
                location=leaf.op.location,
                hint="state.add(graph) begins what is missing",
            )
        check_array(self._kept[name].array, leaf, name)
        return self._kept[name]

    def add(self, graph: Graph, seed: int = 0) -> State:
        """Begin the parameters and state of ``graph`` that are not here yet; check the types of those that are.

        Raises ExecutionError when a name is here with another shape or dtype.
        """
        fresh = {}
        for leaf in (*graph.parameters, *graph.states):
            name = leaf.op.attributes["name"]
            if name in self._kept:
                self.kept(leaf)
            else:
                fresh[name] = leaf
        begun = _zeros({name: (leaf.shape, leaf.dtype.numpy) for name, leaf in fresh.items()})

        def begin(name: str) -> None:
            fresh[name].op.attributes["initializer"].fill(begun[name], name, seed)

        # numpy draws without Python's lock. The largest first, so that no thread is left with it at the end.
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
            for _ in threads.map(begin, sorted(fresh, key=lambda name: -fresh[name].size)):
                pass
        self._keep(begun)
        return self

    def view(self) -> State:
        """A State of the same arrays, by the same names; what is added to it is not added here."""
        other = State()
        other._kept = dict(self._kept)
        return other

    def copy(self) -> State:
        """A State with its own arrays."""
        other = State()
        other._keep(_owned(self))
        return other

    def _keep(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._kept |= {name: Kept(array) for name, array in arrays.items()}


def initial_state(*graphs: Graph, seed: int = 0) -> State:
    """The first parameters and state of ``graphs``: a function of ``seed`` and the names alone."""
    state = State()
    for graph in graphs:
        if not isinstance(graph, Graph):
            raise GraphError(f"initial_state needs graphs, not {graph!r}")
        state.add(graph, seed)
    return state


def check_array(array: np.ndarray, leaf: Value, name: str) -> None:
    """Raise ExecutionError unless ``array`` has the type of ``leaf``."""
    if array.shape != leaf.shape or array.dtype != leaf.dtype.numpy:
        raise ExecutionError(
            f"{leaf.op.name} {name!r} is {leaf.type} in the graph but {array.dtype}{list(array.shape)} here",
            location=leaf.op.location,
        )


def _owned(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Contiguous copies that begin on cache lines."""
    owned = _zeros({name: (array.shape, array.dtype) for name, array in arrays.items()})
    for name, array in arrays.items():
        owned[name][...] = array
    return owned


def block_offsets(graph: Graph) -> dict[str, int]:
    """The byte at which each parameter and state begins in the block of a State that ``graph`` alone has begun."""
    return _placed(_types(graph))[0]


def _types(graph: Graph) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    return {
        leaf.op.attributes["name"]: (leaf.shape, leaf.dtype.numpy) for leaf in (*graph.parameters, *graph.states)
    }


def _zeros(types: Mapping[str, tuple[tuple[int, ...], np.dtype]]) -> dict[str, np.ndarray]:
    """Zeros of each shape and dtype in one block: in huge pages, most arrays would end in the middle of one."""
    places, end = _placed(types)
    block = allocate_pages(end)
    return {name: np.ndarray(shape, dtype, block, places[name]) for name, (shape, dtype) in types.items()}


def _placed(types: Mapping[str, tuple[tuple[int, ...], np.dtype]]) -> tuple[dict[str, int], int]:
    """Where each array begins, on a cache line, and where the block ends."""
    places, end = {}, 0
    for name, (shape, dtype) in types.items():
        places[name] = end
        end += -(-math.prod(shape) * dtype.itemsize // 64) * 64
    return places, end
