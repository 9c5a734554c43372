"""What became of a value on the way down, pass by pass: values keep their names, so it is followed by its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from euler_ir.graph import Graph, Value
from euler_ir.passes.instruments import Snapshot
from euler_ir.text.printer import op_text, value_names

FATES = {
    "made": "not there before the pass",
    "changed": "made by another operator, or of other operands, from then on",
    "replaced": "gone; its readers read another value instead",
    "removed": "gone with all of its readers, or since nothing read it",
}
"""What a pass can do to a value; else it is kept."""


@dataclass(frozen=True)
class Event:
    """What pass number ``number`` (from 1) did to a value: one of FATES. ``by`` are the rules that it applied there,
    ``now`` the operator line that makes it, or the name of the value that its readers read instead.
    """

    number: int
    pass_: str
    fate: str
    by: tuple[str, ...]
    now: str

    def record(self) -> dict:
        return {"number": self.number, "pass": self.pass_, "fate": self.fate, "rules": list(self.by), "now": self.now}


class History:
    """The passes that ``steps`` have seen, to follow many values through. Names are worked out once for each graph."""

    def __init__(self, steps: Sequence[Snapshot]) -> None:
        self._steps: list[tuple[int, Snapshot, _Named, _Named, dict[str, dict[str, None]]]] = []
        named: dict[int, _Named] = {}
        for number, step in enumerate(steps, start=1):
            if isinstance(step.after, Graph) and step.after is not step.before:
                graphs = [named.setdefault(id(graph), _Named(graph)) for graph in (step.before, step.after)]
                self._steps.append((number, step, *graphs, _rules(step)))

    def of(self, name: str) -> tuple[Event, ...]:
        """The events of the value called ``name`` (with ``%``), in order."""
        events = []
        for number, step, before, after, rules in self._steps:
            was, now = before.values.get(name), after.values.get(name)
            if was is None and now is None:
                continue
            if now is None:
                instead = _instead(was, before, after)
                fate, text = ("removed", "") if instead is None else ("replaced", instead)
            else:
                fate, text = "made" if was is None else "changed", op_text(now.op, after.names)
                if was is not None and op_text(was.op, before.names) == text:
                    continue
            events.append(Event(number, str(step.pass_), fate, tuple(rules.get(name, ())), text))
        return tuple(events)


def _rules(step: Snapshot) -> dict[str, dict[str, None]]:
    """By the name of a value the rules that were applied to what makes it, or put it in the place of another."""
    found: dict[str, dict[str, None]] = {}
    for each in step.applications:
        for value in (*each.op.results, each.value):
            found.setdefault(f"%{value.name}", {})[each.rule.name] = None
    return found


class _Named:
    """A graph with the names of its values, and who reads each."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.names = value_names(graph)
        self.values = {name: value for value, name in self.names.items()}
        self.uses = graph.uses()


def _instead(was: Value, before: _Named, after: _Named) -> str | None:
    """The name of what a reader of ``was`` reads in its place after a pass, if one reader is still there."""
    for held, now in ((before.graph.outputs, after.graph.outputs), (before.graph.updates, after.graph.updates)):
        for key, value in held.items():
            if value is was:
                return after.names[now[key]]
    for op in before.uses.get(was, ()):
        now = after.values.get(before.names[op.result])
        if now is not None and now.op.name == op.name and len(now.op.operands) == len(op.operands):
            return after.names[now.op.operands[op.operands.index(was)]]
    return None
