"""A graph's way down, pass by pass: the time of each, what it made of operators, bytes and FLOPs, and its rules."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from euler_ir.compiler import lower
from euler_ir.graph import Graph
from euler_ir.graph_equality import structurally_equal
from euler_ir.passes import Cost, Count, Instrument, Snapshots
from euler_ir.passes.instruments import Snapshot
from euler_ir.plan.footprint import footprint
from euler_ir.plan.kernels import distinct_kernels
from euler_ir.plan.plan import AttentionStep, MatmulStep, Plan
from euler_ir.verify import verify


@dataclass(frozen=True)
class Stage:
    """What ``name``, a pass with its options, made in ``seconds``; ``rules`` counts those that it applied."""

    name: str
    seconds: float
    cost: Cost
    rules: dict[str, int]
    changed: bool

    def record(self) -> dict:
        return {
            "pass": self.name,
            "seconds": self.seconds,
            "changed": self.changed,
            **cost_record(self.cost),
            "rules": self.rules,
        }


@dataclass(frozen=True)
class Planned:
    """The end, planned in ``seconds``: groups of fusion, launches of kernels, products and attentions; the bytes of the
    arena of intermediate tensors, and at the peak of all that a call needs.
    """

    seconds: float
    groups: int
    launches: int
    distinct_kernels: int
    products: int
    attentions: int
    arena_bytes: int
    peak_bytes: int

    def record(self) -> dict:
        return dict(vars(self))


@dataclass(frozen=True)
class Descent:
    """A graph from the start to the plan."""

    graph: str
    start: Cost
    stages: tuple[Stage, ...]
    planned: Planned

    def record(self) -> dict:
        return {
            "graph": self.graph,
            "start": cost_record(self.start),
            "stages": [stage.record() for stage in self.stages],
            "planned": self.planned.record(),
        }


def cost_record(cost: Cost) -> dict:
    return {"operators": cost.operators, "bytes": cost.nbytes, "flops": cost.flops}


def stages(graph: Graph, passes: str = "default") -> Descent:
    """The descent of ``graph`` through ``passes``, fusion and planning.

    Raises VerifyError for a malformed graph, ParseError for a wrong pipeline and LoweringError for what has no code.
    """
    verify(graph)
    count, snapshots, end = Count(), Snapshots(), _End()
    plan = lower(graph, passes, [count, snapshots, end]).plan
    planning = time.perf_counter() - end.at
    groups = len(snapshots.steps[-1].after.groups)
    return Descent(graph.name, count.costs[0][1], stages_of(snapshots, count), _planned(plan, groups, planning))


def stages_of(snapshots: Snapshots, count: Count) -> tuple[Stage, ...]:
    """The stages that two instruments have seen of the same run."""
    return tuple(map(_stage, snapshots.steps, (after for _, after in count.costs[1:])))


class _End(Instrument):
    """When the last pass so far had ended, on the clock of ``time.perf_counter``."""

    at = 0.0

    def after_pass(self, pass_, before, after, seconds):
        self.at = time.perf_counter()


def _stage(step: Snapshot, after: Cost) -> Stage:
    rules = Counter(application.rule.name for application in step.applications)
    changed = step.pass_.level != "graph" or not structurally_equal(step.before, step.after)
    return Stage(str(step.pass_), step.seconds, after, dict(rules.most_common()), changed)


def _planned(plan: Plan, groups: int, seconds: float) -> Planned:
    needs = footprint(plan)
    count = Counter(type(step) for step in plan.steps())
    return Planned(
        seconds=seconds,
        groups=groups,
        launches=len(plan.kernels()),
        distinct_kernels=len(distinct_kernels(plan)),
        products=count[MatmulStep],
        attentions=count[AttentionStep],
        arena_bytes=needs.arena,
        peak_bytes=needs.total,
    )
