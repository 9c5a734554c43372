"""One data model from a graph to a record: all that the page shows, and what `euler-ir explore --json` prints."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from euler_ir.compiler import lower
from euler_ir.graph import Graph
from euler_ir.inspect.explorer.costs import divided_costs
from euler_ir.inspect.explorer.decisions import fusion_record, memory_record
from euler_ir.inspect.explorer.generated import code_record
from euler_ir.inspect.explorer.numerics import numerics_record
from euler_ir.inspect.explorer.schedule import Schedule
from euler_ir.inspect.explorer.stages import StageTexts
from euler_ir.inspect.explorer.tables import Places, Values
from euler_ir.inspect.fusion import fusion_of
from euler_ir.inspect.history import History
from euler_ir.inspect.memory import memory_of
from euler_ir.inspect.numerics.compare import Comparison
from euler_ir.inspect.profile import Profile
from euler_ir.passes.instruments import Snapshots
from euler_ir.plan.footprint import footprint
from euler_ir.verify import verify

VERSION = 1
"""Of the record; it changes when a reader of an older one would misread it."""


@dataclass(frozen=True)
class Exploration:
    """A step laid open. ``parts`` are records by name; a page decodes each when it is first shown.

    docs/commands/explore.md says what is in them.
    """

    title: str
    target: str
    parts: dict[str, dict]

    def record(self) -> dict:
        return {"version": VERSION, "title": self.title, "target": self.target, **self.parts}


def explore(
    graph: Graph, target: str = "", measured: Profile | None = None, compared: Comparison | None = None
) -> Exploration:
    """``graph``, compiled as ``compile`` does it, with all that happens to it on the way.

    ``target`` says for readers where the graph is from; ``measured`` is what ``profile`` gave for it, and ``compared``
    what ``compare`` did. Raises VerifyError and LoweringError as ``compile`` does.
    """
    verify(graph)
    places = Places()
    values = Values(places)
    texts = StageTexts(values)
    snapshots = Snapshots()
    stages = lower(graph, instruments=(snapshots,))
    texts.add_graph("as built", "What the function built, gradient and updates included.", graph)
    for snapshot in snapshots.steps:
        texts.add_pass(snapshot)
    texts.add_plan(stages.plan)
    values.follow(History(snapshots.steps))
    schedule = Schedule(stages, measured)
    ceilings = None if measured is None else measured.ceilings
    for column, costs in divided_costs(schedule, ceilings and ceilings.least_seconds).items():
        if costs:
            values.set(column, texts.numbers, costs)
    numbers = values.numbers
    parts = {
        "figures": _figures(graph, schedule, len(texts.stages), measured),
        "places": places.record(),
        "values": values.record(),
        "plan": schedule.record(texts.numbers),
        "rules": texts.rules_record(),
        "stages": {"stages": [stage.record() for stage in texts.stages], "text": texts.table.record()},
        "fusion": fusion_record(fusion_of(stages), numbers),
        "memory": memory_record(memory_of(stages), numbers, places),
        "code": code_record(schedule),
    }
    if compared is not None:
        parts["numerics"] = numerics_record(compared, values.unquoted)
    return Exploration(graph.name, target, parts)


def _figures(graph: Graph, schedule: Schedule, stages: int, measured: Profile | None) -> dict:
    """What the head of the page says."""
    plan = schedule.plan
    return {
        "stages": stages,
        "built": len(graph.ops),
        "operators": len(schedule.stages.optimized.ops),
        "groups": len(schedule.groups),
        "steps": len(list(plan.steps())),
        "phases": len(plan.phases),
        "kernels": len(schedule.kernels),
        "launches": len(schedule.tasks),
        "bytes": sum(task.work.nbytes for task in schedule.tasks),
        "flops": sum(task.work.flops for task in schedule.tasks),
        "memory": footprint(plan).total,
        "arena": plan.arena_bytes,
        "seconds": None if measured is None else measured.seconds,
        "ceilings": None if measured is None else dataclasses.asdict(measured.ceilings),
    }
