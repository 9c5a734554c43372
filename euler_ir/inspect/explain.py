"""All about one value: where it comes from, what passes did to it, what computes it, where it lies, what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from euler_ir.compiler import Stages, lower
from euler_ir.errors import GraphError, Location
from euler_ir.graph import Graph, Op, Value
from euler_ir.inspect.find import names_like, find_value, location_record
from euler_ir.inspect.fusion import Edge, Fusion, fusion_of
from euler_ir.inspect.history import Event, History
from euler_ir.inspect.memory import BufferLife, Decision, memory_of
from euler_ir.passes.cost import op_cost
from euler_ir.passes.groups import Group, is_in_memory
from euler_ir.passes.instruments import Snapshots
from euler_ir.plan.plan import Plan
from euler_ir.plan.work import tasks, traffic_of
from euler_ir.text.printer import op_text, value_names
from euler_ir.verify import verify


@dataclass(frozen=True)
class Computation:
    """One place where the value's elements are computed: fused group ``group``, in ``phase``, as ``runs`` says.

    ``root`` are the indices at which the loops of the group make it; empty where it is computed again, or in a call.
    """

    group: int
    name: str
    phase: int
    runs: str
    root: str
    again: bool

    def record(self) -> dict:
        return {
            "group": self.group,
            "name": self.name,
            "phase": self.phase,
            "runs": self.runs,
            "root": self.root,
            "again": self.again,
        }


@dataclass(frozen=True)
class Cost:
    """What a value costs in one step: operations on floats, counting each place that computes it, and the bytes that
    its buffer's loads and stores move, of ``moved`` that the whole step moves.
    """

    flops: int
    nbytes: int
    moved: int

    @property
    def share(self) -> float:
        return self.nbytes / self.moved if self.moved else 0.0

    def record(self) -> dict:
        return {"flops": self.flops, "bytes": self.nbytes, "bytes_of_step": self.moved, "share": self.share}


@dataclass(frozen=True)
class Explanation:
    """A value of the graph after all passes, or, with ``gone``, one that a pass took away: then the rest is empty.

    ``via`` are the transforms, passes and rules that made its operator, none for the user's own. ``place`` is where its
    buffer lies, None if it has none; ``life`` is that of a buffer in the arena, ``in_place`` the planner's decision.
    """

    name: str
    type: str
    text: str
    location: Location | None
    scope: str
    via: tuple[str, ...]
    events: tuple[Event, ...]
    gone: bool
    passes: int
    operands: tuple[Edge, ...] = ()
    readers: tuple[Edge, ...] = ()
    computed: tuple[Computation, ...] = ()
    place: str | None = None
    buffer: int | None = None
    life: BufferLife | None = None
    in_place: Decision | None = None
    cost: Cost | None = None
    results: tuple[str, ...] = ()

    def record(self) -> dict:
        return {
            "name": self.name,
            "type": self.type,
            "operator": self.text,
            "location": location_record(self.location),
            "scope": self.scope,
            "via": list(self.via),
            "history": [event.record() for event in self.events],
            "gone": self.gone,
            "operands": [edge.record() for edge in self.operands],
            "readers": [edge.record() for edge in self.readers],
            "computed": [each.record() for each in self.computed],
            "place": self.place,
            "buffer": self.buffer,
            "life": None if self.life is None else self.life.record(),
            "in_place": None if self.in_place is None else self.in_place.record(),
            "cost": None if self.cost is None else self.cost.record(),
            "results": list(self.results),
        }


class Explainer:
    """A graph on its way down, watched, to explain many of its values. Raises VerifyError and LoweringError."""

    def __init__(self, graph: Graph) -> None:
        verify(graph)
        snapshots = Snapshots()
        self.graph = graph
        self.stages: Stages = lower(graph, instruments=(snapshots,))
        self.steps = [step for step in snapshots.steps if isinstance(step.after, Graph)]
        self.history = History(self.steps)
        self.optimized = self.stages.optimized
        self.names = value_names(self.optimized)
        self.fusion: Fusion = fusion_of(self.stages)
        memory = memory_of(self.stages)
        self.lives = {life.number: life for life in memory.lives}
        self.decisions = {decision.value: decision for decision in memory.decisions}
        self.plan_steps = list(self.stages.plan.steps())
        self.numbers = {group: number for number, group in enumerate(self.stages.fused.groups)}
        self.computing: dict[Op, list[Group]] = {}
        for group in self.stages.fused.groups:
            for op in group.computed():
                self.computing.setdefault(op, []).append(group)
        self.phases = [phase for phase, steps in enumerate(self.stages.plan.phases) for _ in steps]
        self.edges_by_value: dict[str, list[Edge]] = {}
        self.edges_by_reader: dict[str, list[Edge]] = {}
        for edge in self.fusion.edges:
            self.edges_by_value.setdefault(edge.value, []).append(edge)
            self.edges_by_reader.setdefault(edge.reader, []).append(edge)
        self.moved = _moved(self.stages.plan)

    def value(self, name: str) -> Explanation:
        """The value called ``name``. Raises GraphError for a name that no graph on the way has."""
        graphs = [self.optimized, self.graph, *(step.after for step in reversed(self.steps))]
        for graph in graphs:
            try:
                found = find_value(graph, name)
            except GraphError:
                continue
            return self._present(found) if graph is self.optimized else self._gone(found, graph)
        known = {shown[1:] for graph in (self.optimized, self.graph) for shown in value_names(graph).values()}
        raise GraphError(
            f"no value {name!r} in {self.graph.name!r}, neither as it was built nor after any pass",
            hint=names_like(name, known),
        )

    def ops(self, ops: Sequence[Op]) -> tuple[Explanation, ...]:
        """All values that ``ops`` of the graph after the passes make."""
        return tuple(self._present(value) for op in ops for value in op.results)

    def _gone(self, value: Value, graph: Graph) -> Explanation:
        names = value_names(graph)
        return self._begun(value, names, gone=True)

    def _begun(self, value: Value, names: dict[Value, str], gone: bool, **more) -> Explanation:
        op, name = value.op, names[value]
        return Explanation(
            name,
            str(value.type),
            op_text(op, names),
            op.location,
            op.scope,
            op.via,
            self.history.of(name),
            gone,
            len(self.steps),
            **more,
        )

    def _present(self, value: Value) -> Explanation:
        name, plan, op = self.names[value], self.stages.plan, value.op
        buffer = plan.decisions.buffers.get(value)
        computed = tuple(self._computation(value, group) for group in self.computing.get(op, ()))
        nbytes = self.moved.get(buffer, 0) if buffer is not None else 0
        is_work = op.definition.family not in ("leaf", "movement")
        flops = op_cost(op).flops * len(computed) if is_work else 0
        results = [f"output {each}" for each, held in self.optimized.outputs.items() if held is value]
        results += [f"update of {each}" for each, held in self.optimized.updates.items() if held is value]
        return self._begun(
            value,
            self.names,
            gone=False,
            operands=tuple(self.edges_by_reader.get(self.names[op.result], ())),
            readers=tuple(self.edges_by_value.get(name, ())),
            computed=() if is_in_memory(op) else computed,
            place=plan.buffers[buffer].place if buffer is not None else None,
            buffer=buffer,
            life=self.lives.get(buffer),
            in_place=self.decisions.get(name),
            cost=Cost(flops, nbytes, self.fusion.moved),
            results=tuple(results),
        )

    def _computation(self, value: Value, group: Group) -> Computation:
        place = self.stages.plan.decisions.places[group]
        step = self.plan_steps[place.step]
        if place.nest is not None:
            runs = f"nest {place.nest} of kernel @{step.kernel.name}"
        elif place.inside is not None:
            runs = f"inside of the product {self.names[place.inside]}"
        else:
            runs = f"call of {group.ops[0].name}"
        root = group.roots.get(value)
        return Computation(
            self.numbers[group],
            group.name,
            self.phases[place.step],
            runs,
            ", ".join(map(str, root)) if root is not None else "",
            value.op not in group.ops,
        )


def explain(graph: Graph, name: str) -> Explanation:
    """Everything about the value called ``name`` of ``graph``, as it was built or after any pass.

    Raises GraphError, with what was perhaps meant, when there is none, and VerifyError and LoweringError as `compile`.
    """
    return Explainer(graph).value(name)


def _moved(plan: Plan) -> dict[int, int]:
    """Bytes that a step moves from and to each buffer."""
    moved: dict[int, int] = {}
    for task in tasks(plan):
        traffic = traffic_of(plan, *task)
        for buffer, nbytes in (*traffic.read.items(), *traffic.written.items()):
            moved[buffer] = moved.get(buffer, 0) + nbytes
    return moved
