"""Random well-typed graphs over every operator, with what they are called with, by seed.

Each step applies one function of the DSL to values that are there already, so that graphs share subexpressions; a
function that refuses its operands is left out. Sizes are small, with 0 and 1 among them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from euler_ir import optim
from euler_ir import tensor as T
from euler_ir.autodiff import gradient
from euler_ir.dtypes import f32, f64
from euler_ir.graph import Value
from euler_ir.testing.case import Case
from euler_ir.testing.drawing import Drawing
from euler_ir.testing.steps import apply

MORE_LEAVES = 3


def random_graph(seed: int, most_ops: int = 20) -> Case:
    """The graph of ``seed``, of at most ``most_ops`` functions of the DSL; all operators are about as likely."""
    drawing = Drawing(random.Random(seed).randint)
    for step in steps(drawing, most_ops):
        step(drawing)
    return drawing.case()


def steps(drawing: Drawing, most_ops: int) -> Iterator[Callable[[Drawing], None]]:
    """What to do with ``drawing``, one thing after the other."""
    for _ in range(1 + drawing.number(0, MORE_LEAVES)):
        yield Drawing.leaf
    for _ in range(drawing.number(1, most_ops)):
        yield apply
    yield drawing.choose((_end, _end, _end, differentiate, differentiate, train))
    yield finish


def _end(drawing: Drawing) -> None:
    """Nothing more: the graph computes and learns nothing."""


def differentiate(drawing: Drawing) -> None:
    """Gradients of the sum of one value, for some of the float leaves, and perhaps once more: of gradients too."""
    leaves = [value for value in _floats(drawing) if value.op.definition.family == "leaf"]
    if leaves:
        for _ in range(drawing.number(1, 2)):
            wanted = [leaf for leaf in leaves if drawing.chance(2)] or leaves[:1]
            drawing.values += gradient(T.sum(drawing.choose(_floats(drawing))), wanted)


def train(drawing: Drawing) -> None:
    """A step of an optimiser for the float parameters, if there are any, perhaps with clipped gradients."""
    graph = drawing.graph
    parameters = [p for p in graph.parameters if p.dtype.is_float and p.op.attributes["name"] not in graph.updates]
    if not parameters:
        return
    loss = T.sum(T.cast(drawing.value(), f32))
    gradients = dict(zip(parameters, gradient(loss, parameters)))
    if drawing.chance(2):
        gradients, norm = optim.clip_by_global_norm(gradients, 1.0)
        drawing.values.append(norm)
    drawing.choose((optim.SGD(0.5), optim.SGD(0.5, momentum=0.9), optim.AdamW(0.5))).step(gradients)
    drawing.keep_states()


def finish(drawing: Drawing) -> None:
    """Outputs, one of them maybe twice or a leaf, and updates."""
    graph = drawing.graph
    outputs = [drawing.values[-1], *(drawing.value() for _ in range(drawing.number(0, 3)))]
    graph.set_outputs(**{f"y{position}": value for position, value in enumerate(outputs)})
    for leaf in (*graph.parameters, *graph.states):
        fitting = [value for value in drawing.values if value.type == leaf.type]
        if fitting and leaf.op.attributes["name"] not in graph.updates and not drawing.chance(3):
            graph.set_update(leaf, drawing.choose(fitting))


def _floats(drawing: Drawing) -> list[Value]:
    return [value for value in drawing.values if value.dtype in (f32, f64)]
