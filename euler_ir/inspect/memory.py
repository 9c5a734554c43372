"""What a step keeps in memory and when: the peak and whose it is, lives, decisions on places, what is computed again.

All of it is read off the plan and what the planner kept of its decisions.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, replace

from euler_ir.compiler import Stages, lower
from euler_ir.errors import Location
from euler_ir.graph import Graph, Value
from euler_ir.inspect.find import by_line, location_record, short
from euler_ir.passes.cost import cost
from euler_ir.passes.instruments import Snapshots
from euler_ir.passes.refusals import Refusal
from euler_ir.passes.rematerialize import Rematerialize
from euler_ir.plan.footprint import Footprint, footprint
from euler_ir.plan.memory import aligned
from euler_ir.plan.plan import Plan
from euler_ir.text.printer import value_names
from euler_ir.verify import verify


@dataclass(frozen=True)
class BufferLife:
    """A buffer of the arena: ``nbytes`` at ``offset``, in use from phase ``first`` to phase ``last``, both included.

    ``value`` is the name of the tensor in it, made at ``location`` in ``scope``; ``held_for`` is the reader that needs
    it last, with the line of that. Buffers of one ``slot`` follow each other in the same place.
    """

    number: int
    value: str
    type: str
    nbytes: int
    offset: int
    first: int
    last: int
    slot: int
    location: Location | None
    scope: str
    held_for: str

    def record(self) -> dict:
        return {
            "buffer": self.number,
            "value": self.value,
            "type": self.type,
            "bytes": self.nbytes,
            "offset": self.offset,
            "first_phase": self.first,
            "last_phase": self.last,
            "slot": self.slot,
            "location": location_record(self.location),
            "scope": self.scope,
            "held_for": self.held_for,
        }


@dataclass(frozen=True)
class Holder:
    """What one line of the user's program holds in memory at the peak, in all ``scopes`` that it made it in."""

    location: Location | None
    scopes: tuple[str, ...]
    nbytes: int
    buffers: int

    def record(self) -> dict:
        location = location_record(self.location)
        return {"location": location, "scopes": list(self.scopes), "bytes": self.nbytes, "buffers": self.buffers}


@dataclass(frozen=True)
class Decision:
    """Whether ``value`` lies in the memory of ``source``; if not, ``refusal`` says why. ``kind`` is 'intermediate', or
    'update' where the source is the parameter or state that the value replaces: that is copied to at the end instead.
    """

    value: str
    source: str
    kind: str
    nbytes: int
    location: Location | None
    refusal: Refusal | None

    def record(self) -> dict:
        reason = None
        if self.refusal is not None:
            reason = {"code": self.refusal.code, "why": self.refusal.why, "hint": self.refusal.hint}
        return {
            "value": self.value,
            "source": self.source,
            "kind": self.kind,
            "bytes": self.nbytes,
            "location": location_record(self.location),
            "in_place": self.refusal is None,
            "reason": reason,
        }


@dataclass(frozen=True)
class Repeated:
    """Operators of one line that a budget has computed a second time: how often each, and the bytes that they make."""

    location: Location | None
    operators: tuple[tuple[str, int], ...]
    nbytes: int

    def record(self) -> dict:
        return {"location": location_record(self.location), "operators": dict(self.operators), "bytes": self.nbytes}


@dataclass(frozen=True)
class Rematerialization:
    """What staying below a budget took: the pass, arena bytes before and after, operations more, what is repeated."""

    budget: int
    way: str
    before: int
    after: int
    flops_before: int
    flops_more: int
    repeated: tuple[Repeated, ...]

    def record(self) -> dict:
        return {
            "budget": self.budget,
            "pass": self.way,
            "arena_before": self.before,
            "arena_after": self.after,
            "flops_before": self.flops_before,
            "flops_more": self.flops_more,
            "repeated": [repeated.record() for repeated in self.repeated],
        }


@dataclass(frozen=True)
class Memory:
    """``in_use`` are the bytes of the arena that hold something in each phase; ``peak`` is the phase with the most.

    ``least`` is that most, below which no arena can be; the rest of the arena is gaps. ``lives`` are all buffers of the
    arena, ``holders`` what the peak is made of, the largest first.
    """

    graph: str
    footprint: Footprint
    in_use: tuple[int, ...]
    peak: int
    least: int
    lives: tuple[BufferLife, ...]
    holders: tuple[Holder, ...]
    decisions: tuple[Decision, ...]
    rematerialization: Rematerialization | None = None

    def at_peak(self) -> list[BufferLife]:
        """What lies in the arena at the peak, the largest first; of buffers in one place the newest."""
        newest: dict[int, BufferLife] = {}
        for life in sorted(self.lives, key=lambda life: life.first):
            if life.first <= self.peak <= life.last:
                newest[life.slot] = life
        return sorted(newest.values(), key=lambda life: (-life.nbytes, life.number))

    def record(self) -> dict:
        sizes = ("arena", "parameters", "state", "inputs", "outputs", "constants", "total")
        return {
            "graph": self.graph,
            "bytes": {name: getattr(self.footprint, name) for name in sizes},
            "least_arena": self.least,
            "in_use": list(self.in_use),
            "peak_phase": self.peak,
            "buffers": [life.record() for life in self.lives],
            "at_peak": [life.number for life in self.at_peak()],
            "holders": [holder.record() for holder in self.holders],
            "decisions": [decision.record() for decision in self.decisions],
            "rematerialization": None if self.rematerialization is None else self.rematerialization.record(),
        }


def memory(graph: Graph, budget: int | None = None) -> Memory:
    """The memory report of ``graph``, compiled as `compile` does it with ``memory_budget=budget``, in bytes.

    Raises VerifyError and LoweringError as that, the latter when nothing fits into the budget.
    """
    verify(graph)
    if budget is None:
        return memory_of(lower(graph))
    snapshots = Snapshots()
    stages = lower(graph, instruments=(snapshots,), memory_budget=budget)
    return memory_of(stages, _rematerialization(graph, stages, snapshots, budget))


def memory_of(stages: Stages, rematerialization: Rematerialization | None = None) -> Memory:
    """The memory report of what was compiled already."""
    plan, names = stages.plan, value_names(stages.optimized)
    lives = _lives(stages, names)
    in_use = _in_use(plan, lives)
    peak = max(range(len(in_use)), key=in_use.__getitem__, default=0)
    report = Memory(
        stages.optimized.name,
        footprint(plan),
        in_use,
        peak,
        plan.lower_bound,
        lives,
        (),
        tuple(_decisions(stages, names)),
        rematerialization,
    )
    holders = [
        Holder(
            alike[0].location,
            tuple(dict.fromkeys(life.scope for life in alike if life.scope)),
            sum(life.nbytes for life in alike),
            len(alike),
        )
        for alike in by_line(report.at_peak(), lambda life: life.location)
    ]
    holders.sort(key=lambda holder: (-holder.nbytes, short(holder.location)))
    return replace(report, holders=tuple(holders))


def _lives(stages: Stages, names: dict[Value, str]) -> tuple[BufferLife, ...]:
    plan, decisions = stages.plan, stages.plan.decisions
    made: dict[int, Value] = {}
    for value, number in decisions.buffers.items():
        made[number] = value  # of a value and what it is changed to in its place, the latter
    reader: dict[int, str] = {}
    steps = [(phase, step) for phase, steps in enumerate(plan.phases) for step in steps]
    for _, step in steps:
        for number in step.reads():
            origin = step.origins[-1] if step.origins else None
            place = f", {short(origin.locations[-1])}" if origin is not None and origin.locations else ""
            reader[number] = (origin.name if origin is not None else "a copy at the end") + place
    lives = []
    for number, slot in decisions.slots.items():
        buffer, value = plan.buffers[number], made.get(number)
        op = value.op if value is not None else None
        lives.append(
            BufferLife(
                number,
                names[value] if value is not None else buffer.name,
                str(buffer.type),
                buffer.type.nbytes,
                buffer.offset,
                buffer.first,
                buffer.last,
                slot,
                op.location if op is not None else None,
                op.scope if op is not None else "",
                reader.get(number, "nothing"),
            )
        )
    return tuple(sorted(lives, key=lambda life: (life.first, life.number)))


def _in_use(plan: Plan, lives: tuple[BufferLife, ...]) -> tuple[int, ...]:
    """Bytes of the arena that hold something in each phase; buffers of one slot count once."""
    changes = [0] * (len(plan.phases) + 1)
    slots: dict[int, tuple[int, int, int]] = {}
    for life in lives:
        nbytes, first, last = slots.get(life.slot, (aligned(life.nbytes), life.first, life.last))
        slots[life.slot] = nbytes, min(first, life.first), max(last, life.last)
    for nbytes, first, last in slots.values():
        changes[first] += nbytes
        changes[last + 1] -= nbytes
    return tuple(itertools.accumulate(changes[:-1]))


def _decisions(stages: Stages, names: dict[Value, str]):
    for each in stages.plan.decisions.overwrites:
        if not each.value.type.nbytes:
            continue
        source = "" if each.source is None else names[each.source]
        kind, location = "update" if each.is_update else "intermediate", each.value.op.location
        yield Decision(names[each.value], source, kind, each.value.type.nbytes, location, each.refusal)


def _rematerialization(graph: Graph, stages: Stages, snapshots: Snapshots, budget: int) -> Rematerialization | None:
    """What the last tried way to compute values again did; None if the budget was met without."""
    tried = [step for step in snapshots.steps if isinstance(step.pass_, Rematerialize)]
    if not tried:
        return None
    chosen = tried[-1]
    again = [op for op in chosen.after.ops if Rematerialize.name in op.via and op.name != "later"]
    repeated = [
        Repeated(
            ops[0].location,
            tuple(Counter(op.name for op in ops).most_common()),
            sum(value.type.nbytes for op in ops for value in op.results),
        )
        for ops in by_line(again, lambda op: op.location)
    ]
    repeated.sort(key=lambda each: (-each.nbytes, short(each.location)))
    before = cost(chosen.before).flops
    return Rematerialization(
        budget,
        str(chosen.pass_),
        lower(graph).plan.arena_bytes,
        stages.plan.arena_bytes,
        before,
        cost(chosen.after).flops - before,
        tuple(repeated),
    )
