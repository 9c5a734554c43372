"""The first NaN of a run: which element, made of what, why, at which line, and how it came to a result.

The graph is interpreted in its own types, value by value; arrays are forgotten after their last use. Beside each array
that holds a NaN or an infinity goes another one that says, for each such element, which op it was born in.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from euler_ir.errors import Location
from euler_ir.graph import Graph, Op, Value
from euler_ir.inspect.find import location_lines, location_record
from euler_ir.inspect.numerics.causes import cause
from euler_ir.inspect.numerics.divergence import operation_text
from euler_ir.inspect.numerics.elements import Operand, as_json, operands_read, parts_read, place_text, shown
from euler_ir.inspect.numerics.origins import MOST, Origins, inherited, union
from euler_ir.interpreter import apply, leaf
from euler_ir.verify import verify

GRADIENT = "gradient"
"""What the chain of transforms of an op that differentiation made begins with."""


@dataclass(frozen=True)
class BadLeaf:
    """An input, parameter or state that holds NaN, or infinities, before anything is computed."""

    name: str
    kind: str
    nans: int
    infinities: int
    place: tuple[int, ...]

    def record(self) -> dict:
        """All of it as JSON has it."""
        return {
            "name": self.name,
            "kind": self.kind,
            "nans": self.nans,
            "infinities": self.infinities,
            "place": list(self.place),
        }

    def __str__(self) -> str:
        counts = [f"{count:,} {what}" for count, what in ((self.nans, "NaN"), (self.infinities, "infinite")) if count]
        return f"{self.kind} {self.name!r} holds {' and '.join(counts)}, the first at {place_text(self.place)}"


@dataclass(frozen=True)
class BadValue:
    """An op that makes a NaN, or an infinity, of what is none: at ``place`` first of all, and ``count`` in all.

    ``why`` says it in words; ``earlier`` are the births of the infinities that it reads. ``path`` leads to ``reaches``,
    an output or update, or is empty: then nothing that is returned depends on it.
    """

    value: str
    operation: str
    place: tuple[int, ...]
    got: np.generic
    count: int
    size: int
    read: tuple[Operand, ...]
    why: str
    is_backward: bool
    scope: str
    location: Location | None
    earlier: tuple[BadValue, ...]
    reaches: str
    path: tuple[str, ...]

    def record(self) -> dict:
        """All of it as JSON has it."""
        return {
            "value": f"%{self.value}",
            "operation": self.operation,
            "place": list(self.place),
            "got": as_json(self.got),
            "count": self.count,
            "size": self.size,
            "operands": [each.record() for each in self.read],
            "why": self.why,
            "direction": "backward" if self.is_backward else "forward",
            "scope": self.scope,
            "location": location_record(self.location),
            "earlier": [each.record() for each in self.earlier],
            "reaches": self.reaches,
            "path": list(self.path),
        }

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """What is said of it, indented."""
        lines = [
            f"  {self.operation}",
            f"  at {place_text(self.place)} it is {shown(self.got)}: {self.why}",
            *(f"    {operand}" for operand in self.read),
        ]
        if self.count > 1:
            lines.append(f"  as are {self.count:,} of its {self.size:,} elements")
        scope = f", in {self.scope}" if self.scope else ""
        lines.append(f"  in the {'backward' if self.is_backward else 'forward'} pass{scope}")
        lines += location_lines(self.location)
        for each in self.earlier:
            lines += ["  the infinity was made by", *(f"  {line}" for line in each.lines())]
        if self.path:
            lines.append(f"  it reaches {self.reaches} by {_shortened(self.path)}")
        return lines


@dataclass(frozen=True)
class NanReport:
    """What was found in a run of ``graph``: bad ``leaves``, the ``first`` op that makes a NaN which a result depends
    on, how many ``others`` there are like it, and those that are ``masked``, so that no result depends on them.

    ``results`` are the outputs and updates that hold NaN (or infinities, where these count), of ``all_results`` many.
    """

    graph: str
    arrays: str
    counts_infinities: bool
    leaves: tuple[BadLeaf, ...]
    first: BadValue | None
    others: int
    masked: tuple[BadValue, ...]
    results: tuple[str, ...]
    all_results: int

    @property
    def is_clean(self) -> bool:
        """Whether no output and no update is bad, and no leaf either."""
        return not self.results and not self.leaves

    def record(self) -> dict:
        """All of it as JSON has it."""
        return {
            "graph": self.graph,
            "arrays": self.arrays,
            "counts_infinities": self.counts_infinities,
            "leaves": [each.record() for each in self.leaves],
            "first": None if self.first is None else self.first.record(),
            "others": self.others,
            "masked": [each.record() for each in self.masked],
            "results": list(self.results),
            "all_results": self.all_results,
        }


def find_nans(
    graph: Graph, leaves: Mapping[str, np.ndarray], infinities: bool = False, arrays: str = ""
) -> NanReport:
    """The first NaN of a run of ``graph`` on ``leaves``, an array for each by name.

    With ``infinities`` these count too, but for those of constants. ``arrays`` says where the leaves come from.

    Raises VerifyError for a malformed graph, ExecutionError for a missing leaf or an index out of range.
    """
    verify(graph)
    return _Search(graph, leaves, infinities).report(arrays)


class _Search:
    def __init__(self, graph: Graph, leaves: Mapping[str, np.ndarray], infinities: bool) -> None:
        self.graph = graph
        self.leaves = leaves
        self.infinities = infinities
        self.births: list[BadValue] = []
        self.born_in: list[Op] = []
        self.carries: dict[Value, int] = {}  # the births that elements of a value come from, as bits
        self.origins: dict[Value, Origins] = {}
        self.bad_leaves: list[BadLeaf] = []

    def report(self, arrays: str) -> NanReport:
        self.run()
        ends = [("output", self.graph.outputs), ("update", self.graph.updates)]
        named = [(f"{label} {name!r}", value) for label, values in ends for name, value in values.items()]
        bad = {name: births for name, value in named if (births := self.reaching(value))}
        reached = functools.reduce(operator.or_, bad.values(), 0)
        real = [n for n, birth in enumerate(self.births) if self.counts(birth) and reached & _bit_of(n)]
        first = None
        if real:
            name = next(name for name, births in bad.items() if births & _bit_of(real[0]))
            first = self.with_path(real[0], name, dict(named)[name])
        told = {birth.value for n in real for birth in (self.births[n], *self.births[n].earlier)}
        masked = [birth for birth in self.births if birth.value not in told and self.counts(birth)]
        return NanReport(
            self.graph.name, arrays, self.infinities, tuple(self.bad_leaves), first, max(len(real) - 1, 0),
            tuple(masked), tuple(bad), len(named),
        )  # fmt: skip

    def counts(self, birth: BadValue) -> bool:
        return self.infinities or bool(np.isnan(birth.got))

    def reaching(self, result: Value) -> int:
        """The births that bad elements of a result come from, as bits; 0 when it is not bad."""
        origins = self.origins.get(result)
        if origins is None:
            return 0
        infinite = union(origins.infinite) & ~_bit(MOST + 1) if self.infinities else 0
        return union(origins.nan) | infinite

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        remaining = {value: len(ops) for value, ops in self.graph.uses().items()}
        returned = set(self.graph.results())
        arrays: dict[Value, np.ndarray] = {}
        for op in self.graph.ops:
            if op.definition.has_identity:
                results = leaf(op, self.leaves)
            else:
                results = apply(op, [arrays[operand] for operand in op.operands])
            for value, array in zip(op.results, results):
                if value.dtype.is_float and not np.isfinite(array).all():
                    self.note(value, array, [arrays[operand] for operand in op.operands])
                if remaining.get(value):
                    arrays[value] = array
            for operand in op.operands:
                remaining[operand] -= 1
                if not remaining[operand]:
                    arrays.pop(operand, None)
                    if operand not in returned:
                        self.origins.pop(operand, None)

    def note(self, value: Value, array: np.ndarray, read: Sequence[np.ndarray]) -> None:
        """Say where each NaN and infinity of ``array`` comes from; what is born here is told."""
        op = value.op
        found = inherited(op, read, [self.origins.get(operand) for operand in op.operands], array, self.infinities)
        for is_bad, origins in ((np.isnan(array), found.nan), (np.isinf(array), found.infinite)):
            born = is_bad & (origins == 0)
            if not born.any():
                continue
            if op.definition.family == "leaf":
                origins[born] = _bit(MOST + 1)
                continue
            origins[born] = _bit_of(len(self.births))
            self.births.append(self.born(value, array, born, read))
            self.born_in.append(op)
        if op.definition.has_identity:
            self.note_leaf(op, array)
        self.origins[value] = found
        self.carries[value] = found.births

    def note_leaf(self, op: Op, array: np.ndarray) -> None:
        nans, infinities = np.isnan(array), np.isinf(array)
        bad = nans | infinities if self.infinities else nans
        if bad.any():
            place = tuple(map(int, np.argwhere(bad)[0]))
            counted = int(infinities.sum()) if self.infinities else 0
            self.bad_leaves.append(BadLeaf(op.attributes["name"], op.name, int(nans.sum()), counted, place))

    def born(self, value: Value, array: np.ndarray, born: np.ndarray, read: Sequence[np.ndarray]) -> BadValue:
        op = value.op
        place = tuple(map(int, np.argwhere(born)[0]))
        parts = parts_read(op, read, place)
        return BadValue(
            value.name,
            operation_text(op),
            place,
            array[place],
            int(born.sum()),
            value.size,
            operands_read(op, read, place),
            cause(op, parts, array[place]),
            GRADIENT in op.via,
            op.scope,
            op.location,
            self.earlier(op, parts),
            "",
            (),
        )

    def earlier(self, op: Op, parts) -> tuple[BadValue, ...]:
        """The births of the infinities among ``parts``."""
        found = 0
        for part in parts:
            origins = self.origins.get(op.operands[part.operand])
            if origins is not None:
                inside = origins.infinite[tuple(slice(None) if at is None else at for at in part.place)]
                found |= union(np.asarray(inside))
        return tuple(birth for number, birth in enumerate(self.births[:MOST]) if found & _bit(number))[:2]

    # -- the way to a result -------------------------------------------------------------------------------------------

    def with_path(self, birth: int, name: str, value: Value) -> BadValue:
        """The birth, with the values between it and the result ``name``, which is ``value``."""
        path = [value]
        while carrying := [each for each in path[-1].op.operands if self.carries.get(each, 0) & _bit_of(birth)]:
            path.append(carrying[0])
        if self.born_in[birth] is not path[-1].op:  # one that shares its bit
            birth = self.born_in.index(path[-1].op)
        return replace(self.births[birth], reaches=name, path=tuple(f"%{each.name}" for each in reversed(path)))


def _bit_of(birth: int) -> int:
    """The bit of birth number ``birth``; those from MOST on share one."""
    return _bit(min(birth, MOST))


def _bit(number: int) -> int:
    return 1 << number


def _shortened(path: Sequence[str], most: int = 6) -> str:
    """The ends of ``path``, and how many are between them."""
    if len(path) > most:
        path = [*path[: most // 2], f"({len(path) - most} more)", *path[-most // 2 :]]
    return " -> ".join(path)
