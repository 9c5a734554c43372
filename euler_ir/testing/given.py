"""What a graph is run on to see whether a pass keeps its results: ordinary numbers, and special ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from euler_ir.dtypes import DType
from euler_ir.graph import Graph, Value
from euler_ir.inspect.random_inputs import index_limits
from euler_ir.testing.drawing import special_numbers

ROUNDS = 13
"""How many sets of special numbers there are, as many as such floats: each leaf begins at each of them once, and other
ones meet in each set.
"""
MOST_ELEMENTS = 100_000
"""Leaves with more elements than these, all together, are given one set of special numbers, which all stand in it."""


def input_sets(graph: Graph) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Arrays for all leaves by name, and what they are: random numbers, then special ones.

    Integers that index something stay within it. The arrays are functions of the graph alone.
    """
    leaves = [*graph.inputs, *graph.parameters, *graph.states]
    limits = index_limits(graph)
    generator = np.random.default_rng(0)
    yield "random numbers", {_name(leaf): _random(leaf, limits.get(leaf), generator) for leaf in leaves}
    for number in range(ROUNDS if sum(leaf.size for leaf in leaves) <= MOST_ELEMENTS else 1):
        yield "special numbers", {
            _name(leaf): _special(leaf, limits.get(leaf), number * (place + 1) + place)
            for place, leaf in enumerate(leaves)
        }


def _numbers(dtype: DType) -> list:
    """Of floats special and ordinary ones, of integers the ends and a few."""
    if dtype.name == "bool":
        return [False, True]
    if dtype.is_float:
        return [*special_numbers(dtype), -2.25, 0.1, 7.0]
    info = np.iinfo(dtype.numpy)
    return [0, 1, info.max, info.min, 2, 7, *([-1, -7] if info.min else [])]


def _name(leaf: Value) -> str:
    return leaf.op.attributes["name"]


def _random(leaf: Value, limit: int | None, generator: np.random.Generator) -> np.ndarray:
    if leaf.dtype.is_float:
        array = generator.standard_normal(leaf.shape)
    elif limit is not None:
        array = generator.integers(0, limit, leaf.shape)
    else:
        low = 0 if leaf.dtype.name in ("u8", "bool") else -9
        array = generator.integers(low, 2 if leaf.dtype.name == "bool" else 10, leaf.shape)
    return np.asarray(array).astype(leaf.dtype.numpy)


def _special(leaf: Value, limit: int | None, shift: int) -> np.ndarray:
    numbers = range(limit) if limit is not None else _numbers(leaf.dtype)
    with np.errstate(over="ignore"):
        array = np.array(numbers, np.float64 if leaf.dtype.is_half else leaf.dtype.numpy).astype(leaf.dtype.numpy)
    return np.resize(np.roll(array, -shift), leaf.shape)
