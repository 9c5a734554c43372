"""Graphs on which a rule fires, made from its pattern: random types, shapes, attributes and constants.

A rule by example says itself how such a graph is made, and so does one that comes with a ``sample``; of others each
part of the pattern is drawn, operand by operand. What operators refuse, and what the rule's guard does, is drawn again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from euler_ir.dtypes import DTYPES, DType
from euler_ir.errors import EulerError
from euler_ir.graph import Graph, Value
from euler_ir.passes.dce import RemoveDead
from euler_ir.passes.patterns import Anything, Apply, Either, Number, Pattern
from euler_ir.passes.rewriting import Rule, rewrite
from euler_ir.tensor import broadcast_to, constant_like

SHAPES = ((), (1,), (3,), (0,), (3, 5), (1, 4), (4, 1), (4, 4), (2, 1, 3), (2, 4, 4), (1, 1), (2, 2, 3, 3))
NUMBERS = (0.5, 3.0, -2.0, 0.1, 1024.0, -0.375, 7.0, 1e-3, 1.0, 0.0, -0.0)
TRIES = 80
"""Graphs that are drawn for one that is wanted."""


def rule_instances(rule: Rule, wanted: int, seed: int = 0) -> Iterator[tuple[Graph, Graph]]:
    """Up to ``wanted`` graphs on which ``rule`` fires, with what it makes of them: a function of ``seed``."""
    generator = random.Random(f"{rule.name} {seed}")
    found = 0
    for _ in range(wanted * TRIES):
        if found == wanted:
            return
        try:
            graph = rule.sample(generator) if rule.sample is not None else _drawn(rule.pattern, generator)
            after = rewrite(graph, [rule])
        except EulerError:
            continue
        if after is not graph:
            found += 1
            yield graph, after


def _drawn(pattern: Pattern, generator: random.Random) -> Graph:
    drawing = _Drawing(generator)
    with drawing.graph:
        drawing.graph.set_outputs(result=drawing.value(pattern))
    return RemoveDead().run(drawing.graph)


class _Drawing:
    """One dtype for all values without a reason for another one, and one shape for all of the leaves."""

    def __init__(self, generator: random.Random) -> None:
        self.graph = Graph("instance")
        self.random = generator
        self.shape = generator.choice(SHAPES)
        self.dtype: DType = generator.choice(list(DTYPES.values()))
        self.values: dict[str, Value] = {}

    def value(self, pattern: Pattern, near: Value | None = None) -> Value:
        """A value that ``pattern`` matches, beside the operand ``near``."""
        match pattern:
            case Either(patterns):
                return self.value(self.random.choice(patterns), near)
            case Anything(name):
                if name not in self.values:
                    self.values[name] = self.leaf(name, pattern.dtypes, near)
                return self.values[name]
            case Number(number):
                beside = near if near is not None else self.leaf("beside", (), None)
                drawn = self.random.choice(NUMBERS) if number is None else number
                drawn = int(drawn) if beside.dtype.is_integer else drawn
                return broadcast_to(constant_like(beside, drawn), beside.shape)
            case Apply(names, operands):
                return self.applied(self.random.choice(names), operands)

    def leaf(self, name: str, dtypes: tuple[DType, ...], near: Value | None) -> Value:
        dtype = near.dtype if near is not None else self.random.choice(dtypes) if dtypes else self.dtype
        if self.random.random() < 0.2 and near is not None:
            dtype = self.random.choice(list(DTYPES.values()))
        if near is not None and self.random.random() < 0.5:
            return self.graph.input(name, near.shape, dtype)
        return self.graph.input(name, self.shape, dtype)

    def applied(self, name: str, operands: tuple[Pattern, ...]) -> Value:
        """The operator on operands drawn for it; numbers last, since they are beside the others."""
        order = sorted(range(len(operands)), key=lambda n: isinstance(operands[n], Number))
        made: dict[int, Value] = {}
        for position in order:
            beside = [made[n] for n in sorted(made)]
            if isinstance(operands[position], Number) and (name, position) in _OTHER_DTYPE:
                made[position] = self.other_number(name, operands[position], beside[0])
            else:
                made[position] = self.value(operands[position], beside[-1] if beside else None)
        values = [made[n] for n in range(len(operands))]
        drawers = _ATTRIBUTES.get(name)
        attributes = drawers(self.random, *values) if drawers is not None else {}
        result = self.graph.emit(name, values, **attributes)
        return result[0] if isinstance(result, tuple) else result

    def other_number(self, name: str, pattern: Number, beside: Value) -> Value:
        """A number of which the operator wants another type than that of ``beside``."""
        if name == "where":
            return broadcast_to(self.graph.constant(pattern.number), beside.shape)
        return constant_like(beside, pattern.number)


_OTHER_DTYPE = {("where", 0), ("pad", 1)}
"""Operators and positions of operands that are a bool beside others, or a number without axes."""

# -- attributes --------------------------------------------------------------------------------------------------------


def _some_axes(generator: random.Random, x: Value) -> dict:
    return {"axes": tuple(axis for axis in range(x.ndim) if generator.random() < 0.5)}


def _shape(generator: random.Random, x: Value) -> dict:
    """A shape of as many elements: the same, all in one axis, ones put in or left out, axes in another order."""
    plain = [size for size in x.shape if size != 1]
    shapes = [x.shape, (x.size,), (1, *x.shape), (*x.shape, 1), tuple(plain), tuple(reversed(x.shape))]
    return {"shape": generator.choice(shapes)}


def _larger_shape(generator: random.Random, x: Value) -> dict:
    sizes = tuple(generator.choice((1, 3)) if size == 1 else size for size in x.shape)
    return {"shape": generator.choice((x.shape, (1, *x.shape), (2, *x.shape), sizes, (2, *sizes)))}


def _permutation(generator: random.Random, x: Value) -> dict:
    axes = list(range(x.ndim))
    if x.ndim > 1 and generator.random() < 0.5:
        axes[-2:] = reversed(axes[-2:])
    else:
        generator.shuffle(axes)
    return {"permutation": tuple(axes)}


def _slice(generator: random.Random, x: Value) -> dict:
    parts = []
    for size in x.shape:
        step = generator.choice((1, 1, 2, -1))
        count = generator.randint(0, -(-size // abs(step)))
        reach = (count - 1) * abs(step) + 1 if count else 0
        low = generator.randint(0, size - reach) if count else 0
        parts.append((low if step > 0 or not count else low + reach - 1, count, step))
    if generator.random() < 0.3:
        parts = [(0, size, 1) for size in x.shape]
    starts, sizes, steps = zip(*parts) if parts else ((), (), ())
    return {"starts": tuple(starts), "sizes": tuple(sizes), "steps": tuple(steps)}


def _pad(generator: random.Random, x: Value, value: Value) -> dict:
    widths = [tuple(generator.choice((0, 0, 0, 1, 2)) for _ in x.shape) for _ in range(2)]
    return {"low": widths[0], "high": widths[1], "interior": (0,) * x.ndim}


def _flags(generator: random.Random, *operands: Value) -> dict:
    return {"transpose_left": generator.random() < 0.5, "transpose_right": generator.random() < 0.5}


_ATTRIBUTES = {
    "sum": _some_axes,
    "prod": _some_axes,
    "max": _some_axes,
    "min": _some_axes,
    "logsumexp": _some_axes,
    "flip": _some_axes,
    "softmax": lambda generator, x: {"axis": generator.randrange(max(x.ndim, 1))},
    "log_softmax": lambda generator, x: {"axis": generator.randrange(max(x.ndim, 1))},
    "concatenate": lambda generator, *operands: {"axis": generator.randrange(max(operands[0].ndim, 1))},
    "cumsum": lambda generator, x: {"axis": generator.randrange(max(x.ndim, 1)), "reverse": generator.random() < 0.5},
    "cast": lambda generator, x: {"dtype": generator.choice(list(DTYPES.values()))},
    "reshape": _shape,
    "broadcast": _larger_shape,
    "transpose": _permutation,
    "slice": _slice,
    "pad": _pad,
    "matmul": _flags,
    "gelu": lambda generator, x: {"approximate": generator.choice(("tanh", "none"))},
}
"""By operator: its attributes, drawn for operands. One that is not here has none, or its rules come with a sample."""
