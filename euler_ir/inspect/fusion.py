"""For every edge of a graph, from a value to an operator that reads it: whether it costs memory traffic, and why.

Nothing is decided here: the groups say where a value is read from memory, and what decided so kept the reason.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from euler_ir.compiler import Stages, lower
from euler_ir.errors import GraphError, Location
from euler_ir.graph import Graph, Op, Value
from euler_ir.inspect.find import by_line, location_record, short
from euler_ir.passes.groups import FusedGraph, Group, is_in_memory
from euler_ir.passes.refusals import Refusal
from euler_ir.plan.decisions import Place
from euler_ir.plan.plan import MatmulStep, Plan
from euler_ir.plan.work import Traffic, tasks, traffic_of
from euler_ir.text.printer import value_names
from euler_ir.verify import verify

VERDICTS = {
    "fused": "the element stays in a register",
    "repeated": "its readers compute the element again, each for itself",
    "prologue": "the product that reads it makes it, block by block",
    "epilogue": "runs inside of the product that makes it, while the block is in the cache",
    "in place": "is changed where it lies",
    "given": "in memory from the start: an input, a parameter, state or a constant",
    "unused": "nothing computes the operator: no result needs it",
    "unfused": "goes through memory, for the reason that is said",
}
"""What becomes of an edge."""


@dataclass(frozen=True)
class Edge:
    """``value`` read by the operator that makes ``reader``, by their names in the text, with its ``verdict``.

    An unfused one has the ``refusal`` and, where it might have been computed again instead, why not; or that its reader
    is (``again``).
    ``nbytes`` is the memory traffic that it costs: what the groups that read it load of it, and its store if they are
    the only reason for that. ``groups`` are the numbers of the fused groups that read it from memory.
    """

    value: str
    operator: str
    reader: str
    location: Location | None
    scope: str
    verdict: str
    nbytes: int = 0
    groups: tuple[int, ...] = ()
    refusal: Refusal | None = None
    again: Refusal | None = None

    def record(self) -> dict:
        reasons = {}
        for name, refusal in (("reason", self.refusal), ("again", self.again)):
            if refusal is not None:
                reasons[name] = {"code": refusal.code, "why": refusal.why, "hint": refusal.hint}
        return {
            "value": self.value,
            "operator": self.operator,
            "reader": self.reader,
            "location": location_record(self.location),
            "scope": self.scope,
            "verdict": self.verdict,
            "bytes": self.nbytes,
            "groups": list(self.groups),
            **reasons,
        }


@dataclass(frozen=True)
class LineCost:
    """The unfused edges into the operators of one line. Two edges of one value into one group read it once."""

    location: Location | None
    nbytes: int
    edges: tuple[Edge, ...]

    def record(self) -> dict:
        edges = [edge.record() for edge in self.edges]
        return {"location": location_record(self.location), "bytes": self.nbytes, "edges": edges}


@dataclass(frozen=True)
class Fusion:
    """The verdict on every edge, in the order of the operators. ``nbytes`` is what the unfused ones cost a step, and
    ``moved`` what the whole step moves.
    """

    graph: str
    groups: int
    edges: tuple[Edge, ...]
    nbytes: int
    moved: int

    @property
    def unfused(self) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.verdict == "unfused")

    def counts(self) -> dict[str, int]:
        """How many edges have each verdict."""
        verdicts = [edge.verdict for edge in self.edges]
        return {verdict: verdicts.count(verdict) for verdict in VERDICTS if verdict in verdicts}

    def by_line(self) -> list[LineCost]:
        """The unfused edges by the user's line, the costliest first."""
        lines = by_line(self.unfused, lambda edge: edge.location)
        costs = [LineCost(edges[0].location, total(edges), tuple(edges)) for edges in lines]
        return sorted(costs, key=lambda cost: (-cost.nbytes, short(cost.location)))

    def record(self) -> dict:
        return {
            "graph": self.graph,
            "groups": self.groups,
            "counts": self.counts(),
            "bytes": self.nbytes,
            "bytes_moved": self.moved,
            "edges": [edge.record() for edge in self.edges],
            "lines": [
                {"location": location_record(cost.location), "bytes": cost.nbytes, "edges": len(cost.edges)}
                for cost in self.by_line()
            ],
        }


def total(edges: Iterable[Edge]) -> int:
    """Bytes that ``edges`` cost together."""
    return sum({(edge.value, edge.groups): edge.nbytes for edge in edges}.values())


def fusion(graph: Graph) -> Fusion:
    """The fusion report of ``graph``, compiled as `compile` does it. Raises VerifyError and LoweringError as that."""
    verify(graph)
    return fusion_of(lower(graph))


def fusion_of(stages: Stages) -> Fusion:
    """The fusion report of what was compiled already. Raises GraphError for groups that the pass fuse did not make."""
    if stages.fused.refusals is None:
        raise GraphError(f"the groups of {stages.optimized.name!r} were read from text, which has no reasons")
    report = _Report(stages.fused, stages.plan)
    edges = tuple(report.edges())
    unfused = [edge for edge in edges if edge.verdict == "unfused"]
    return Fusion(stages.optimized.name, len(stages.fused.groups), edges, total(unfused), report.moved)


class _Report:
    def __init__(self, fused: FusedGraph, plan: Plan) -> None:
        self.graph = fused.graph
        self.refusals = fused.refusals
        self.decisions = plan.decisions
        self.names = value_names(fused.graph)
        self.results = frozenset(fused.graph.results())
        self.numbers = {group: number for number, group in enumerate(fused.groups)}
        self.computed = {group: group.computed() for group in fused.groups}
        self.computing: dict[Op, list[Group]] = {}
        for group, ops in self.computed.items():
            for op in ops:
                self.computing.setdefault(op, []).append(group)
        self.uses = fused.graph.uses()
        self.readers: dict[Value, list[Group]] = {}
        for group in fused.groups:
            for value in group.inputs:
                self.readers.setdefault(value, []).append(group)
        steps = list(plan.steps())
        self.steps = {group: steps[self.decisions.places[group].step] for group in fused.groups}
        self.group_traffic = {
            group: _traffic(plan, step, self.decisions.places[group]) for group, step in self.steps.items()
        }
        self.moved = sum(traffic_of(plan, *task).moved for task in tasks(plan))

    def edges(self) -> Iterable[Edge]:
        for op in self.graph.ops:
            for value in dict.fromkeys(op.operands):
                yield self._edge(value, op)

    def _edge(self, value: Value, op: Op) -> Edge:
        named = (self.names[value], op.name, self.names[op.result], op.location, op.scope)
        computing = self.computing.get(op, ())
        loading = [group for group in computing if value in group.inputs and not self._is_in_place(value, op, group)]
        inside = [group for group in loading if self.decisions.places[group].inside is value]
        loading = [group for group in loading if group not in inside]
        if not computing:
            return Edge(*named, "unused")
        if not loading:
            return Edge(*named, self._kept_near(value, op, computing, inside))
        groups = tuple(self.numbers[group] for group in loading)
        read = sum(self._read(value, group) for group in loading)
        if is_in_memory(value.op):
            return Edge(*named, "given", read, groups)
        is_only_reason = value not in self.results and set(self.readers[value]) == set(loading)
        nbytes = read + (value.type.nbytes if is_only_reason else 0)
        return Edge(*named, "unfused", nbytes, groups, *self._refusals(value, op, loading[0]))

    def _kept_near(self, value: Value, op: Op, computing: list[Group], inside: list[Group]) -> str:
        if inside:
            return "epilogue"
        if any(value in group.prologues for group in computing):
            return "prologue"
        if any(self._is_in_place(value, op, group) for group in computing):
            return "in place"
        works = value.op.definition.family in ("elementwise", "reduction", "random")
        return "repeated" if works and len(self.computing[value.op]) > 1 else "fused"

    def _is_in_place(self, value: Value, op: Op, group: Group) -> bool:
        """Whether ``op`` changes ``value`` in ``group`` and does not read it otherwise."""
        if group.changed is value and op is group.ops[0]:
            return op.operands.count(value) == 1
        step, place = self.steps[group], self.decisions.places[group]
        is_sum = isinstance(step, MatmulStep) and step.running is not None and place.inside is not None
        return is_sum and value is not place.inside

    def _read(self, value: Value, group: Group) -> int:
        """Bytes of ``value`` that ``group`` loads."""
        buffer = self.decisions.buffers[value]
        return self.group_traffic[group].read.get(buffer, 0)

    def _refusals(self, value: Value, op: Op, group: Group) -> tuple[Refusal, Refusal | None]:
        """Why ``value`` is read from memory in ``group``, where ``op`` reads it, and why not computed again there."""
        again = None
        if group.call is None:
            again = Refusal("stored-anyway") if value in self.results else self.refusals.unrepeated.get(value)
        inside = self.decisions.unfused.get((value, group))
        if inside is not None:
            return inside, again
        readers = list(self._readers_in(group, op))
        for reader in readers:
            if (value, reader) in self.refusals.apart:
                return self.refusals.apart[value, reader], again
        # No operator with the choice reads it: an operator that is computed again here does, and its reader had it.
        here = self.refusals.read[value, group.order]
        for reader in readers:
            for operand in reader.operands:
                if operand.op in readers and (operand, reader) in self.refusals.apart:
                    return self.refusals.apart[operand, reader], here
        return here, again

    def _readers_in(self, group: Group, op: Op) -> Iterable[Op]:
        """``op`` and what ``group`` computes of it, the nearest first."""
        pending, seen = deque([op]), {op}
        while pending:
            reader = pending.popleft()
            yield reader
            for use in (use for result in reader.results for use in self.uses.get(result, ())):
                if use in self.computed[group] and use not in seen:
                    seen.add(use)
                    pending.append(use)


def _traffic(plan: Plan, step, place: Place) -> Traffic:
    """What a fused group moves: of a product and its epilogue each its own part."""
    if place.nest is not None:
        return traffic_of(plan, step, place.nest)
    if place.inside is not None and step.epilogue is not None:
        return traffic_of(plan, step.epilogue)
    return traffic_of(plan, replace(step, epilogue=None) if isinstance(step, MatmulStep) else step)
