"""Every stage of a graph as text, each stored as what it changes of the one before; and the rules applied."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from euler_ir.graph import Graph, Value
from euler_ir.inspect.explorer.deltas import LineTable, Splice, splices
from euler_ir.inspect.explorer.tables import NONE, Values
from euler_ir.passes.fused_printer import print_fused
from euler_ir.passes.groups import FusedGraph
from euler_ir.passes.instruments import Application, Snapshot
from euler_ir.plan.plan import Plan
from euler_ir.text.printer import op_text, print_graph, value_names

KINDS = ("graph", "fused", "plan")
"""What a stage is a text of."""

_VALUE = r'%(?:"(?:[^"\\]|\\.)*"(?:#\d+)?|[^\s,="]+)'
_DEFINITION = re.compile(rf"\s*({_VALUE})(?:, {_VALUE})* = |  (?:output|update) .* = ({_VALUE})$")


@dataclass(frozen=True)
class Region:
    """Rows ``first`` to ``last``, both included, are about the ``kind`` ('group', 'buffer', 'step') of that number."""

    kind: str
    number: int
    first: int
    last: int

    def record(self) -> list:
        return [self.kind, self.number, self.first, self.last]


@dataclass(frozen=True)
class Stage:
    """A text, as ``changes`` of the one before it. ``name`` is the pass that made it, ``kind`` one of KINDS.

    ``size`` counts its operators, groups or steps.
    """

    name: str
    kind: str
    summary: str
    size: int
    seconds: float | None
    changes: Sequence[Splice]
    regions: Sequence[Region] = ()

    def record(self) -> dict:
        return {
            "name": self.name,
            "kind": self.kind,
            "summary": self.summary,
            "size": self.size,
            "seconds": self.seconds,
            "changes": [list(change) for change in self.changes],
            "regions": [region.record() for region in self.regions],
        }


@dataclass(frozen=True)
class AppliedRule:
    """A rule applied on the way to ``stage``: it put ``new`` in the place of ``old``, values by number; ``before`` and
    ``after`` are the numbers of the lines of the operators that make them.
    """

    stage: int
    rule: str
    old: int
    new: int
    before: int
    after: int


class StageTexts:
    """Collects stages in their order; ``values`` takes in what the graphs define.

    ``numbers`` are those of the values of the last graph.
    """

    def __init__(self, values: Values) -> None:
        self.values = values
        self.table = LineTable()
        self.stages: list[Stage] = []
        self.rules: dict[str, dict] = {}
        self.applied: list[AppliedRule] = []
        self.numbers: dict[Value, int] = {}
        self._rows: list[int] = []

    def add_graph(self, name: str, summary: str, graph: Graph, seconds: float | None = None) -> None:
        """The next stage is ``graph``."""
        rows = self._rows_of(print_graph(graph).splitlines(), graph)
        self.stages.append(Stage(name, "graph", summary, len(graph.ops), seconds, self._changes(rows)))

    def add_pass(self, snapshot: Snapshot) -> None:
        """The next stage is what a pass made."""
        name, summary, seconds = str(snapshot.pass_), snapshot.pass_.summary(), snapshot.seconds
        if isinstance(snapshot.after, FusedGraph):
            self._add_fused(name, summary, snapshot.after, seconds)
        elif snapshot.after is snapshot.before:
            self.values.keep(len(self.stages))
            self.stages.append(Stage(name, "graph", summary, len(snapshot.after.ops), seconds, ()))
        else:
            self.add_graph(name, summary, snapshot.after, seconds)
            self._add_rules(snapshot.applications)

    def _add_fused(self, name: str, summary: str, fused: FusedGraph, seconds: float) -> None:
        lines = print_fused(fused).splitlines()
        regions, first = [], 0
        for row, line in enumerate(lines):
            if line.startswith("  group "):
                first = row
            elif line == "  }":
                regions.append(Region("group", len(regions), first, row))
        changes = self._changes(self._rows_of(lines, fused.graph))
        self.stages.append(Stage(name, "fused", summary, len(fused.groups), seconds, changes, regions))

    def add_plan(self, plan: Plan) -> None:
        """The next stage, the last one, is ``plan``."""
        lines = str(plan).splitlines()
        regions: list[Region] = []
        for row, line in enumerate(lines):
            if line.startswith("  buffer "):
                regions.append(Region("buffer", len(regions), row, row))
        step, first = 0, 0
        for row, line in enumerate(lines):
            if re.match(r" {4}\S", line):
                first = row
            if first and (row + 1 == len(lines) or not lines[row + 1].startswith(" " * 5)):
                regions.append(Region("step", step, first, row))
                step, first = step + 1, 0
        changes = self._changes([self.table.number(line) for line in lines])
        summary = "Order the steps in phases and give each buffer its place."
        self.stages.append(Stage("plan", "plan", summary, step, None, changes, regions))

    def _rows_of(self, lines: Sequence[str], graph: Graph) -> list[int]:
        """The numbers of ``lines``, each with the value of ``graph`` that it defines or returns."""
        self.numbers = self.values.add(graph, len(self.stages))
        named = {name: self.numbers[value] for value, name in value_names(graph).items()}
        rows = []
        for line in lines:
            found = _DEFINITION.match(line)
            about = NONE if found is None else named.get(found.group(1) or found.group(2), NONE)
            rows.append(self.table.number(line, about))
        return rows

    def _changes(self, rows: list[int]) -> list[Splice]:
        changes = splices(self._rows, rows)
        self._rows = rows
        return changes

    # -- rules ---------------------------------------------------------------------------------------------------------

    def _add_rules(self, applications: Sequence[Application]) -> None:
        names: dict[Graph, dict[Value, str]] = {}
        for application in applications:
            rule, old, new = application.rule, application.op.result, application.value
            self.rules.setdefault(rule.name, {"doc": rule.doc, "numerics": rule.numerics})
            before, after = self._line(old, names), self._line(new, names)
            self.applied.append(AppliedRule(len(self.stages) - 1, rule.name, before[1], after[1], before[0], after[0]))

    def _line(self, value: Value, names: dict[Graph, dict[Value, str]]) -> tuple[int, int]:
        """The numbers of the line of the operator that makes ``value``, and of that value."""
        if value.graph not in names:
            names[value.graph] = _Spoken(value_names(value.graph))
        spoken = names[value.graph]
        number = self.values.numbers.get(spoken[value], NONE)
        return self.table.number(f"  {op_text(value.op, spoken)}", number), number

    def rules_record(self) -> dict:
        """The rules by name, and every application of one, column by column."""
        order = {name: number for number, name in enumerate(self.rules)}
        facts = ("stage", "old", "new", "before", "after")
        columns = {fact: [getattr(each, fact) for each in self.applied] for fact in facts}
        columns["rule"] = [order[each.rule] for each in self.applied]
        return {"rules": [{"name": name, **rule} for name, rule in self.rules.items()], "applied": columns}


class _Spoken(dict):
    """Names of the values of a graph; what a later rule has taken out of it again is called by its hint."""

    def __missing__(self, value: Value) -> str:
        return f"%{value.name or value.op.name}"
