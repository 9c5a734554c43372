"""Parameters, optimiser moments and counters: named arrays that live outside of graphs and are shared by them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from euler_ir.errors import ExecutionError, GraphError
from euler_ir.graph import Graph, Value


class State(Mapping):
    """Arrays by name. Compiled graphs read them and write their updates into them in place.

    Reading gives the live array; writing copies into it, so that its address never changes.
    """

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __setitem__(self, name: str, array) -> None:
        """Copy ``array`` into ``name``. Raises ExecutionError when its shape or dtype differs from what is there."""
        array = np.asarray(array)
        held = self._arrays.get(name)
        if held is None:
            self._arrays[name] = _owned(array)
            return
        if held.shape != array.shape or held.dtype != array.dtype:
            raise ExecutionError(
                f"state {name!r} is {held.dtype}{list(held.shape)} and cannot take {array.dtype}{list(array.shape)}"
            )
        held[...] = array

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"<State: {len(self)} arrays, {sum(array.nbytes for array in self._arrays.values())} bytes>"

    def add(self, graph: Graph, seed: int = 0) -> State:
        """Begin the parameters and state of ``graph`` that are not here yet; check the types of those that are.

        Raises ExecutionError when a name is here with another shape or dtype.
        """
        begun: dict[str, np.ndarray] = {}

        def begin(leaf: Value) -> None:
            name, initializer = leaf.op.attributes["name"], leaf.op.attributes["initializer"]
            initializer.fill(begun[name], name, seed)

        fresh = []
        for leaf in (*graph.parameters, *graph.states):
            name = leaf.op.attributes["name"]
            if name in self._arrays:
                check_array(self._arrays[name], leaf, name)
            else:
                begun[name] = _zeros(leaf.shape, leaf.dtype.numpy)
                fresh.append(leaf)
        # numpy draws without Python's lock. The largest first, so that no thread is left with it at the end.
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
            for _ in threads.map(begin, sorted(fresh, key=lambda leaf: -leaf.size)):
                pass
        self._arrays |= begun
        return self

    def view(self) -> State:
        """A State of the same arrays, by the same names; what is added to it is not added here."""
        other = State()
        other._arrays = dict(self._arrays)
        return other

    def copy(self) -> State:
        """A State with its own arrays."""
        other = State()
        other._arrays = {name: _owned(array) for name, array in self._arrays.items()}
        return other


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


def _owned(array: np.ndarray) -> np.ndarray:
    """A contiguous copy that begins on a cache line."""
    owned = _zeros(array.shape, array.dtype)
    owned[...] = array
    return owned


def _zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Zeros that begin on a cache line; memory that the system has not handed out before it is used."""
    nbytes = math.prod(shape) * dtype.itemsize
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes].view(dtype).reshape(shape)
