"""A graph while it is drawn at random: choices, leaves, and the arrays that it will be called with."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np

from euler_ir import tensor as T
from euler_ir.dtypes import DTYPES, DType, f32, f64, i32, i64
from euler_ir.graph import Graph, Value
from euler_ir.initializers import Zeros
from euler_ir.shapes import Shape
from euler_ir.testing.case import Case

SIZES = (2, 1, 3, 4, 5, 7, 8, 17, 33, 0)
ALIKE = ((1, 4), (2, 8), (3,), (4, 4, 1, 17), (6, 2, 3))
"""Sizes of graphs whose values fit together well, so that much is fused."""
MOST_ELEMENTS = 1500
"""No value that operators go on with has more elements."""

Number = Callable[[int, int], int]
"""A choice between two integers, both included: all that is random comes from here. The first is the simplest."""


class Drawing:
    """A graph so far. ``values`` are those that operators may still be applied to, in the order in which they came."""

    def __init__(self, number: Number) -> None:
        self.number = number
        self.graph = Graph("random")
        self.inputs: dict[str, np.ndarray] = {}
        self.kept: dict[str, np.ndarray] = {}
        self.values: list[Value] = []
        self.sizes = self.choose((SIZES, SIZES, *ALIKE))
        self.random = np.random.default_rng(self.number(0, 2**32 - 1))

    def case(self) -> Case:
        return Case(self.graph, self.inputs, self.kept)

    # -- choices -------------------------------------------------------------------------------------------------------

    def choose(self, options):
        return options[self.number(0, len(options) - 1)]

    def chance(self, one_in: int) -> bool:
        return self.number(1, one_in) == one_in

    def value(self) -> Value:
        """One of the values so far, mostly the last: operators follow on each other in long rows."""
        if self.chance(2):
            return self.values[-1]
        back = min(self.number(0, len(self.values) - 1), self.number(0, len(self.values) - 1))
        return self.values[len(self.values) - 1 - back]

    def shape(self) -> Shape:
        shape = tuple(self.choose(self.sizes) for _ in range(self.number(0, 3)))
        while math.prod(shape) > MOST_ELEMENTS:
            shape = shape[1:]
        return shape

    def axes(self, x: Value) -> tuple[int, ...] | None:
        """Axes to reduce or flip, some counted from the end; or None for all."""
        if self.chance(3):
            return None
        return tuple(axis - self.choose((0, x.ndim)) for axis in range(x.ndim) if self.chance(2))

    def partner(self, shape: Shape) -> Value:
        """A value that broadcasts with ``shape``."""
        fitting = [value for value in self.values if _broadcasts(value.shape, shape)]
        if fitting and not self.chance(4):
            return self.choose(fitting)
        kept = shape[self.number(0, len(shape)) :]
        return self.leaf(tuple(1 if self.chance(4) else size for size in kept))

    # -- leaves --------------------------------------------------------------------------------------------------------

    def leaf(self, shape: Shape | None = None, dtype: DType | None = None) -> Value:
        """An input, parameter, state or constant, of drawn or given type."""
        shape = self.shape() if shape is None else shape
        dtype = self.choose((f32, f32, f64, *DTYPES.values())) if dtype is None else dtype
        array = self._array(shape, dtype)
        kind = self.choose(("input", "input", "parameter", "state", "constant"))
        if kind == "constant":
            value = self.graph.constant(array)
        elif kind == "input":
            value = self._input(array)
        else:
            value = self._kept(kind, array)
        self.values.append(value)
        return value

    def keep_states(self) -> None:
        """Give the states that somebody else has added what they begin with."""
        for leaf in self.graph.states:
            name = leaf.op.attributes["name"]
            if name not in self.kept:
                self.kept[name] = np.zeros(leaf.shape, leaf.dtype.numpy)

    def positions(self, size: int, shape: Shape) -> Value:
        """Integers of ``shape`` that index ``size`` elements, given or computed; none when there are no elements."""
        shape = shape if size else (0, *shape[1:])
        dtype = self.choose((i32, i64))
        if self.chance(3):
            numbers = [value for value in self.values if value.dtype in (i32, i64) and value.shape == shape]
            if numbers:
                return T.remainder(self.choose(numbers), size)
        return self._input(self.random.integers(0, size, shape).astype(dtype.numpy))

    def _kept(self, kind: str, array: np.ndarray) -> Value:
        name = self._name()
        self.kept[name] = array
        return getattr(self.graph, kind)(name, array.shape, Zeros(), array.dtype)

    def _input(self, array: np.ndarray) -> Value:
        name = self._name()
        self.inputs[name] = array
        return self.graph.input(name, array.shape, array.dtype)

    def _name(self) -> str:
        return f"x{len(self.inputs) + len(self.kept)}"

    def _array(self, shape: Shape, dtype: DType) -> np.ndarray:
        """Small numbers with ties, ordinary ones, or now and then the special ones."""
        kind = self.number(0, 5)
        with np.errstate(all="ignore"):
            if not dtype.is_float:
                low = 0 if dtype.name in ("bool", "u8") else -3
                array = self.random.integers(low, 2 if dtype.name == "bool" else 9, shape)
            elif kind == 5:
                array = self.random.choice(special_numbers(dtype), shape)
            elif kind < 2:
                array = self.random.integers(-2, 3, shape)
            else:
                array = self.random.standard_normal(shape)
            return np.asarray(array).astype(dtype.numpy)


def special_numbers(dtype: DType) -> list[float]:
    """NaN, infinities, zeros of both signs, the largest, the least normal and the least subnormal of a float type."""
    info = ml_dtypes.finfo(dtype.numpy)
    numbers = (info.tiny, -info.smallest_subnormal, info.max, -info.max)
    return [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, *map(float, numbers)]


def _broadcasts(left: Shape, right: Shape) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(left[::-1], right[::-1]))
