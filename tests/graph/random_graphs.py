"""Random well-typed graphs over every operator, with what they are called with: by seed, or as a hypothesis strategy.

Each step applies one function of the DSL to values that are there already, so that graphs share subexpressions; a
function that refuses its operands is left out. Sizes are small, with 0 and 1 among them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

import euler_ir as ei
from euler_ir import tensor as T
from euler_ir.dtypes import DTYPES, f32, f64, i32, i64
from euler_ir.initializers import Zeros

SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 17, 33)
ALIKE = ((1, 4), (2, 8), (3,), (4, 4, 1, 17), (6, 2, 3))
"""Sizes of graphs whose values fit together well, so that much is fused."""
MOST_ELEMENTS = 1500
_UNARY = (
    T.negative, T.absolute, T.sign, T.floor, T.exp, T.log, T.sqrt, T.rsqrt, T.sin, T.cos, T.tanh, T.erf, T.erfc,
    T.sigmoid, T.gelu, T.relu, T.isnan, T.logical_not, T.stop_gradient, lambda x: T.gelu(x, "none"),
)  # fmt: skip
_BINARY = (
    T.add, T.subtract, T.multiply, T.divide, T.floor_divide, T.remainder, T.power, T.maximum, T.minimum, T.equal,
    T.not_equal, T.less, T.less_equal, T.greater, T.greater_equal, T.logical_and, T.logical_or, T.logical_xor,
)  # fmt: skip
_REDUCTIONS = (T.sum, T.prod, T.max, T.min, T.mean, T.logsumexp)


@dataclass(frozen=True)
class RandomGraph:
    """A graph, its inputs, and the parameters and state that it begins with, each by name."""

    graph: ei.Graph
    inputs: dict[str, np.ndarray]
    kept: dict[str, np.ndarray]

    def _repr_pretty_(self, printer, cycle) -> None:
        """How hypothesis shows a failing example."""
        printer.text(f"{self.graph}\ninputs {self.inputs}\nkept {self.kept}")


Number = Callable[[int, int], int]
"""A choice between two integers, both included: all that is random comes from here."""


def random_graph(seed: int, most_ops: int = 20) -> RandomGraph:
    """The graph of ``seed``: all operators are about as likely."""
    return _draw(random.Random(seed).randint, most_ops)


@st.composite
def random_graphs(draw, most_ops: int = 14) -> RandomGraph:
    """Graphs that hypothesis makes smaller when a test fails."""
    return _draw(lambda low, high: draw(st.integers(low, high)), most_ops)


def _draw(number: Number, most_ops: int) -> RandomGraph:
    drawing = _Drawing(number)
    for _ in range(number(1, 4)):
        drawing.leaf()
    for _ in range(number(1, most_ops)):
        drawing.apply()
    if drawing.chance(3):
        drawing.differentiate()
    drawing.finish()
    return RandomGraph(drawing.graph, drawing.inputs, drawing.kept)


class _Drawing:
    def __init__(self, number: Number) -> None:
        self.number = number
        self.graph = ei.Graph("random")
        self.inputs: dict[str, np.ndarray] = {}
        self.kept: dict[str, np.ndarray] = {}
        self.values: list[ei.Value] = []
        self.sizes = self.choose((SIZES, SIZES, *ALIKE))
        self.random = np.random.default_rng(self.number(0, 2**32 - 1))

    # -- choices -------------------------------------------------------------------------------------------------------

    def choose(self, options):
        return options[self.number(0, len(options) - 1)]

    def chance(self, one_in: int) -> bool:
        return self.number(1, one_in) == one_in

    def value(self) -> ei.Value:
        """One of the values so far, mostly the last: operators follow on each other in long rows."""
        if self.chance(2):
            return self.values[-1]
        back = min(self.number(0, len(self.values) - 1), self.number(0, len(self.values) - 1))
        return self.values[len(self.values) - 1 - back]

    def shape(self) -> tuple[int, ...]:
        shape = tuple(self.choose(self.sizes) for _ in range(self.number(0, 3)))
        while math.prod(shape) > MOST_ELEMENTS:
            shape = shape[1:]
        return shape

    def axes(self, x: ei.Value) -> tuple[int, ...] | None:
        if self.chance(3):
            return None
        return tuple(axis - self.choose((0, x.ndim)) for axis in range(x.ndim) if self.chance(2))

    # -- leaves --------------------------------------------------------------------------------------------------------

    def leaf(self, shape=None, dtype=None) -> ei.Value:
        """An input, parameter, state or constant, of drawn or given type."""
        shape = self.shape() if shape is None else shape
        dtype = self.choose((f32, f32, f64, *DTYPES.values())) if dtype is None else dtype
        array = self.array(shape, dtype)
        name = f"x{len(self.inputs) + len(self.kept)}"
        kind = self.choose(("input", "input", "parameter", "state", "constant"))
        if kind == "constant":
            value = self.graph.constant(array)
        elif kind == "input":
            self.inputs[name] = array
            value = self.graph.input(name, shape, dtype)
        else:
            self.kept[name] = array
            value = getattr(self.graph, kind)(name, shape, Zeros(), dtype)
        self.values.append(value)
        return value

    def array(self, shape, dtype) -> np.ndarray:
        """Ordinary numbers, small ones with ties, or now and then the special ones."""
        kind = self.number(0, 5)
        with np.errstate(all="ignore"):
            if not dtype.is_float:
                low = 0 if dtype.name in ("bool", "u8") else -3
                array = self.random.integers(low, 2 if dtype.name == "bool" else 9, shape)
            elif kind == 0:
                info = ml_dtypes.finfo(dtype.numpy)
                specials = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, float(info.tiny), float(info.max)]
                array = self.random.choice(specials, shape)
            elif kind < 3:
                array = self.random.integers(-2, 3, shape)
            else:
                array = self.random.standard_normal(shape)
            return np.asarray(array).astype(dtype.numpy)

    def positions(self, size: int, shape) -> ei.Value:
        """Integers of ``shape`` that index ``size`` elements, given or computed; none when there are no elements."""
        shape = shape if size else (0, *shape[1:])
        dtype = self.choose((i32, i64))
        if self.chance(3):
            numbers = [value for value in self.values if value.dtype in (i32, i64) and value.shape == shape]
            if numbers:
                return T.remainder(self.choose(numbers), size)
        name = f"x{len(self.inputs) + len(self.kept)}"
        self.inputs[name] = self.random.integers(0, size, shape).astype(dtype.numpy)
        return self.graph.input(name, shape, dtype)

    def partner(self, shape) -> ei.Value:
        """A value that broadcasts with ``shape``."""
        fitting = [value for value in self.values if _broadcasts(value.shape, shape)]
        if fitting and not self.chance(4):
            return self.choose(fitting)
        kept = shape[self.number(0, len(shape)) :]
        return self.leaf(tuple(1 if self.chance(4) else size for size in kept))

    # -- operators -----------------------------------------------------------------------------------------------------

    def apply(self) -> None:
        """Apply one function; what it refuses, and what would be large, is left out."""
        x = self.value()
        step = self.choose(_STEPS_ALONG_AN_AXIS if x.ndim and self.chance(2) else _STEPS)
        with self.graph:
            try:
                value = step(self, x)
            except ei.EulerError:
                return
        for result in value if isinstance(value, (tuple, list)) else (value,):
            if result is not None and result.size <= MOST_ELEMENTS:
                self.values.append(result)

    def unary(self, x):
        return self.choose(_UNARY)(x)

    def binary(self, x):
        operands = (x, self.partner(x.shape))
        return self.choose(_BINARY)(*(operands if self.chance(2) else operands[::-1]))

    def with_number(self, x):
        return self.choose(_BINARY)(x, self.choose((0, 1, 2, -1, 0.5, 3, 100)))

    def beside_itself(self, x):
        """``x`` and itself at other places, which one loop cannot always make together."""
        other = T.flip(x, self.axes(x))
        if x.ndim > 1 and x.shape[0] == x.shape[-1] and self.chance(2):
            other = T.swap_axes(other, 0, -1)
        return self.choose((T.add, T.subtract, T.maximum))(x, other)

    def beside_its_reduction(self, x):
        axes = self.axes(x)
        whole = self.choose((T.max, T.min, T.sum, T.prod))(x, axes, keepdims=True)
        if self.chance(3):
            x = T.cast(x, self.choose((f64, ei.f16, ei.i8)))
        return self.choose((T.subtract, T.multiply, T.maximum))(x, T.flip(whole) if self.chance(3) else whole)

    def where(self, x):
        return T.where(T.less(x, self.partner(x.shape)), x, self.partner(x.shape))

    def cast(self, x):
        return T.cast(x, self.choose(list(DTYPES.values())))

    def reduce(self, x):
        return self.choose(_REDUCTIONS)(x, self.axes(x), keepdims=self.chance(2))

    def arg(self, x):
        return self.choose((T.argmax, T.argmin))(x, self.choose((None, *range(-x.ndim, x.ndim))))

    def along_axis(self, x):
        function = self.choose((T.softmax, T.log_softmax, T.cumsum, lambda x, axis: T.cumsum(x, axis, reverse=True)))
        return function(x, self.number(-x.ndim, x.ndim - 1))

    def reshape(self, x):
        sizes = [size for size in x.shape for size in ([2, size // 2] if size and size % 2 == 0 else [size])]
        while len(sizes) > 1 and self.chance(2):
            at = self.number(0, len(sizes) - 2)
            sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
        return T.reshape(x, tuple(sizes) + (1,) * self.number(0, 1))

    def transpose(self, x):
        axes = list(range(x.ndim))
        return T.transpose(x, *(axes.pop(self.number(0, len(axes) - 1)) for _ in x.shape))

    def broadcast(self, x):
        shape = tuple(self.choose((2, 3)) if size == 1 and self.chance(2) else size for size in x.shape)
        return T.broadcast_to(x, (self.choose((1, 2, 5)),) * self.number(0, 1) + shape)

    def index(self, x):
        parts = []
        for size in x.shape:
            start, stop = self.number(-size - 1, size), self.number(-size - 1, size)
            parts.append(slice(start, stop, self.choose((1, 1, 2, -1, -3))))
            if size and self.chance(3):
                parts[-1] = self.choose((self.number(-size, size - 1), slice(None, None, -1)))
        return x[tuple(parts[: self.number(0, len(parts))])]

    def flip(self, x):
        return T.flip(x, self.axes(x))

    def pad(self, x):
        low, high, interior = ([self.number(-least, 2) for _ in x.shape] for least in (1, 1, 0))
        return T.pad_with_interior(x, tuple(low), tuple(high), tuple(interior), self.choose((0, 1, 5)))

    def join(self, x):
        parts = [x, *(value for value in self.values[-4:] if value.shape == x.shape and self.chance(2)), x[:2]]
        if self.chance(2):
            return T.stack(parts[:-1], self.number(0, x.ndim))
        axis = self.number(0, x.ndim - 1) if len(parts) == 2 else 0
        joined = T.concatenate(parts, axis)
        return joined[(slice(None),) * axis + (slice(self.number(0, joined.shape[axis]), None),)]

    def split(self, x):
        axis = self.number(0, x.ndim - 1)
        return T.split(x, self.choose([n for n in (1, 2, 3, 4) if x.shape[axis] % n == 0]), axis)

    def take(self, x):
        axis = self.number(0, x.ndim - 1)
        return T.take(x, self.positions(x.shape[axis], self.shape()[:2]), axis)

    def scatter(self, x):
        axis = self.number(0, x.ndim)
        count = self.number(0, x.ndim - axis)
        size = self.choose((1, 2, 5))
        return T.scatter_add(self.positions(size, x.shape[axis : axis + count]), x, size, axis)

    def write(self, x):
        """A slice written at a place that is given, and often kept in what it was written into."""
        axis = self.number(0, x.ndim - 1)
        size = self.number(0, x.shape[axis])
        update = self.leaf(x.shape[:axis] + (size,) + x.shape[axis + 1 :], x.dtype)
        result = T.dynamic_update_slice(x, update, self.positions(x.shape[axis] - size + 1, ()), axis)
        if x in (*self.graph.parameters, *self.graph.states) and x.op.attributes["name"] not in self.graph.updates:
            self.graph.set_update(x, result)
        return result

    def one_hot(self, x):
        return T.one_hot(T.remainder(T.cast(x, i32), 3), 4)

    def matmul(self, x):
        left, right, inner = self.chance(2), self.chance(2), x.shape[-1]
        if left and x.ndim > 1:
            inner = x.shape[-2]
        columns = self.choose((*self.sizes, x.shape[-1]))
        batch = tuple(1 if self.chance(3) else size for size in x.shape[:-2][self.number(0, 2) :])
        shape = (columns, inner) if right else (inner, columns)
        fitting = [value for value in self.values if value.shape[-2:] == shape and value.shape[:-2] in ((), batch)]
        other = self.choose(fitting) if fitting and self.chance(2) else self.leaf(batch + shape, x.dtype)
        return T.matmul(x, other, transpose_left=left and x.ndim > 1, transpose_right=right)

    def layer_norm(self, x):
        weight, bias = self.leaf(x.shape[-1:], x.dtype), self.leaf(x.shape[-1:], x.dtype)
        return T.layer_norm(x, weight, bias)

    def cross_entropy(self, x):
        x = x if x.shape[-1] else T.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)])
        labels = self.positions(x.shape[-1], x.shape[:-1])
        ignored = self.choose((-100, 0))
        return T.cross_entropy(x, T.where(T.equal(labels, 1), ignored, labels), ignore_index=ignored)

    def attention(self, x):
        query = x if x.ndim > 1 else T.reshape(x, 1, x.size)
        length, depth = self.choose(SIZES[1:7]), query.shape[-1]
        key = self.leaf((*query.shape[:-2], length, depth), x.dtype)
        value = self.leaf((*query.shape[:-2], length, self.choose((depth, depth, 3))), x.dtype)
        return T.attention(query, key, value, causal=self.chance(2))

    def randomness(self, x):
        with_step = self.choose((3, T.cast(x, i64) if x.shape == () else 4))
        kind = self.choose((ei.random_uniform, ei.random_normal))
        return kind(self.shape(), 5, with_step, self.choose((f32, f64, ei.f16, ei.bf16)))

    def dropout(self, x):
        return T.dropout(x, 0.25, 7, 1)

    def grid(self, x):
        shape = (self.choose(self.sizes), *self.shape()[1:])
        return ei.iota(shape, self.number(0, len(shape) - 1), self.choose((f32, i32, i64, ei.u8)))

    def more(self, x):
        return self.leaf() and None

    # -- the end -------------------------------------------------------------------------------------------------------

    def differentiate(self) -> None:
        """Gradients of the sum of one value, for some of the float leaves, and perhaps once more."""
        floats = [value for value in self.values if value.dtype in (f32, f64)]
        leaves = [value for value in floats if value.op.definition.family == "leaf"]
        if not leaves:
            return
        for _ in range(self.number(1, 2)):
            of = T.sum(self.choose([value for value in self.values if value.dtype in (f32, f64)]))
            wanted = [leaf for leaf in leaves if self.chance(2)] or leaves[:1]
            self.values += ei.gradient(of, wanted)

    def finish(self) -> None:
        """Outputs, one of them maybe twice or a leaf, and updates."""
        outputs = [self.values[-1], *(self.value() for _ in range(self.number(0, 3)))]
        self.graph.set_outputs(**{f"y{position}": value for position, value in enumerate(outputs)})
        for leaf in (*self.graph.parameters, *self.graph.states):
            fitting = [value for value in self.values if value.type == leaf.type]
            if fitting and leaf.op.attributes["name"] not in self.graph.updates and not self.chance(3):
                self.graph.set_update(leaf, self.choose(fitting))


_STEPS = (
    _Drawing.unary, _Drawing.unary, _Drawing.unary, _Drawing.binary, _Drawing.binary, _Drawing.binary,
    _Drawing.with_number, _Drawing.where, _Drawing.cast, _Drawing.cast, _Drawing.reduce, _Drawing.reshape,
    _Drawing.transpose, _Drawing.broadcast, _Drawing.pad, _Drawing.scatter, _Drawing.one_hot, _Drawing.attention,
    _Drawing.randomness, _Drawing.dropout, _Drawing.more, _Drawing.beside_itself, _Drawing.beside_its_reduction,
)  # fmt: skip
_STEPS_ALONG_AN_AXIS = (
    _Drawing.reduce, _Drawing.reduce, _Drawing.arg, _Drawing.along_axis, _Drawing.along_axis, _Drawing.reshape,
    _Drawing.transpose, _Drawing.index, _Drawing.index, _Drawing.flip, _Drawing.pad, _Drawing.join, _Drawing.split,
    _Drawing.take, _Drawing.scatter, _Drawing.write, _Drawing.matmul, _Drawing.matmul, _Drawing.layer_norm,
    _Drawing.cross_entropy, _Drawing.attention, _Drawing.grid, _Drawing.beside_itself, _Drawing.beside_itself,
    _Drawing.beside_its_reduction, _Drawing.beside_its_reduction, _Drawing.beside_its_reduction,
)  # fmt: skip


def _broadcasts(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(left[::-1], right[::-1]))
