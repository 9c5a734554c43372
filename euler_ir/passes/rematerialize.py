"""Computes again late what was made early, so that it need not be kept in between.

Where a training step turns from the forward to the backward half, most memory holds what both halves read. A minimum
cut decides what is kept: values are edges as wide as their bytes, what may not be computed again comes from the
source, what the second half reads goes to the sink. All else the second half computes again from what is kept, by the
same operators, just before its first use. (The formulation as a cut is that of functorch's partitioner.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

from euler_ir.graph import Graph, Op, Value
from euler_ir.passes.manager import Pass
from euler_ir.passes.min_cut import UNBOUNDED, Network
from euler_ir.rebuild import Rebuild
from euler_ir.verify import random_streams

_COSTLY_FAMILIES = ("contraction", "composite", "scan")
LONGEST_CHAIN = 128
"""Operators on the way from what is kept to what is computed again. It bounds the work, and that of finding the cut."""
MOST_ALIVE = 8
"""Values with which a piece of the first half may begin."""
NEARLY_MOST = 0.95
"""Where so much of the most that is ever kept is there, the first half ends: what follows adds little."""
NEARLY_LEAST = 1.05
"""Places where the first half holds at most so many times the least it ever holds are where it is cut into pieces."""


@dataclass(frozen=True)
class Rematerialize(Pass):
    """Compute values of the first half again in the second instead of keeping them; results keep every bit.

    Cheap operators alone are repeated, or with ``products`` also matrix products and other costly ones, in pieces
    between the narrowest places of the first half, whose values are kept; with ``long_pieces`` between few of those
    places, the square root of their number.
    """

    name = "rematerialize"
    products: bool = False
    long_pieces: bool = False

    def run(self, graph: Graph) -> Graph:
        stored = _stored_values(graph)
        boundary = _boundary(graph, stored)
        first, second = graph.ops[:boundary], graph.ops[boundary:]
        made = {value for op in first if op.definition.family != "leaf" for value in op.results}
        wanted = {value for op in second for value in op.operands if value in made}
        kept = set(graph.results())
        if self.products:
            places = _narrow_places(first, stored)
            step = max(math.isqrt(len(places)), 1) if self.long_pieces else 1
            kept.update(value for place in places[step - 1 :: step] for value in place)
        dropped = _dropped(first, wanted, kept, self.products)
        return _Repetition(Rebuild(graph, self.name), boundary, dropped).run() if dropped else graph


def _is_free(op: Op) -> bool:
    """Whether a value of ``op`` takes no memory of its own: it is there anyway, or its readers compute its index."""
    return op.definition.family in ("leaf", "movement")


def _stored_values(graph: Graph) -> dict[Value, tuple[Value, ...]]:
    """The values with memory of their own that each value is, or is read from."""
    stored: dict[Value, tuple[Value, ...]] = {}
    for op in graph.ops:
        for value in op.results:
            if op.definition.family == "leaf":
                stored[value] = ()
            elif op.definition.family == "movement":
                stored[value] = tuple(dict.fromkeys(base for operand in op.operands for base in stored[operand]))
            else:
                stored[value] = (value,)
    return stored


def _boundary(graph: Graph, stored: dict[Value, tuple[Value, ...]]) -> int:
    """The first position in ``graph.ops`` with nearly the most bytes of values that are read on both sides of it."""
    uses: dict[Value, tuple[int, int]] = {}
    for position, op in enumerate(graph.ops):
        if not _is_free(op):
            for value in {base for operand in op.operands for base in stored[operand]}:
                uses[value] = (uses.get(value, (position,))[0], position)
    changes = [0] * (len(graph.ops) + 1)
    for value, (first, last) in uses.items():
        changes[first + 1] += value.type.nbytes
        changes[last + 1] -= value.type.nbytes
    held = list(itertools.accumulate(changes))
    return next(position for position, nbytes in enumerate(held) if nbytes >= NEARLY_MOST * max(held))


def _dropped(first: list[Op], wanted: set[Value], kept: set[Value], products: bool) -> set[Value]:
    """The values of ``first`` that are computed again where ``wanted`` ones are read after it."""
    needed = set(wanted)
    for op in reversed(first):
        if any(value in needed for value in op.results):
            needed.update(op.operands)
    network = Network()
    depth: dict[Value, int] = {}
    for op in first:
        if op.definition.family == "leaf" or not any(value in needed for value in op.results):
            continue
        free = _is_free(op)
        chain = max((depth.get(operand, 0) for operand in op.operands), default=0) + (not free)
        costly = op.definition.family in _COSTLY_FAMILIES or op.name in ("scatter_add", "index_add")
        fixed = not free and (
            (costly and not products) or chain > LONGEST_CHAIN or any(value in kept for value in op.results)
        )
        for value in op.results:
            depth[value] = 0 if fixed else chain
            # What is free is never kept, but read from what is.
            network.add_edge(("in", value), ("out", value), UNBOUNDED if free else value.type.nbytes)
            if fixed:
                network.add_edge("source", ("in", value))
            else:
                for operand in op.operands:
                    if operand in depth:
                        network.add_edge(("out", operand), ("in", value))
            if value in wanted:
                network.add_edge(("out", value), "sink")
    near_sink = network.near_sink("source", "sink")
    return {value for value in depth if ("in", value) in near_sink}


def _narrow_places(first: list[Op], stored: dict[Value, tuple[Value, ...]]) -> list[tuple[Value, ...]]:
    """The values that are alive in each place where ``first`` by itself holds nearly the least."""
    last: dict[Value, int] = {}
    for position, op in enumerate(first):
        last.update(dict.fromkeys((base for operand in op.operands for base in stored[operand]), position))
    alive: dict[Value, None] = {}
    ending: dict[int, list[Value]] = {}
    places: list[tuple[int, tuple[Value, ...]]] = []
    held = 0
    for position, op in enumerate(first):
        for value in op.results if not _is_free(op) else ():
            if last.get(value, position) > position:
                alive[value] = None
                held += value.type.nbytes
                ending.setdefault(last[value], []).append(value)
        for value in ending.pop(position, ()):
            del alive[value]
            held -= value.type.nbytes
        if len(alive) <= MOST_ALIVE:
            places.append((held, tuple(alive)))
    middle = places[len(places) // 4 : -(len(places) // 4) or None]  # both ends may hold next to nothing
    least = min((nbytes for nbytes, _ in middle), default=0)
    return list(dict.fromkeys(values for nbytes, values in places if values and nbytes <= NEARLY_LEAST * least))


class _Repetition:
    """Copies a graph; what its ops from ``boundary`` on read of ``dropped`` values is computed again for them."""

    def __init__(self, rebuild: Rebuild, boundary: int, dropped: set[Value]) -> None:
        self.rebuild = rebuild
        self.boundary = boundary
        self.dropped = dropped
        self.again: dict[Value, Value] = {}
        self.marked: dict[Value, Value] = {}

    def run(self) -> Graph:
        ops = self.rebuild.source.ops
        for op in ops[: self.boundary]:
            self.rebuild.copy(op)
        for op in ops[self.boundary :]:
            self._repeat(value for value in op.operands if value in self.dropped)
            self.rebuild.copy(op, tuple(self._late(value) for value in op.operands))
        return self.rebuild.finish()

    def _late(self, value: Value) -> Value:
        return self.again.get(value, self.rebuild.values[value])

    def _repeat(self, values: Iterable[Value]) -> None:
        """Emit again the ops that make ``values``, and before them what those need that was dropped too."""
        pending = list(values)
        while pending:
            op = pending[-1].op
            missing = [value for value in op.operands if value in self.dropped and value not in self.again]
            if missing and pending[-1] not in self.again:
                pending.extend(missing)
                continue
            if pending.pop() not in self.again:
                with self.rebuild.derived_from(op):
                    operands = tuple(self._operand(op, value) for value in op.operands)
                self.again.update(zip(op.results, self.rebuild.again(op, operands).results))

    def _operand(self, op: Op, value: Value) -> Value:
        """``value`` for an op that is repeated: what is kept is marked, so that fusion does not compute the op early.

        A random op reads all that it reads through the mark, which says that its stream is shared with itself alone.
        """
        is_random = bool(random_streams(op))
        if not is_random and (value in self.again or value.op.definition.family == "leaf"):
            return self._late(value)
        if value not in self.marked:
            self.marked[value] = self.rebuild.target.emit("later", (self._late(value),))
        return self.marked[value]
