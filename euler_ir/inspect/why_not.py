"""Why a rule is not applied to a value: the part of its pattern that got furthest, and what stopped it there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from euler_ir.errors import EulerError, GraphError, Location, did_you_mean
from euler_ir.graph import Graph, Value
from euler_ir.inspect.find import find_value, location_record
from euler_ir.passes import RULES, Pass, PassManager, Rule, Snapshots
from euler_ir.passes.patterns import STATUS, Apply, Bound, Either, Matcher, Mismatch, Pattern, parts, show
from euler_ir.passes.pipeline import as_pipeline, find_pass
from euler_ir.passes.rewriting import Match, use_counts
from euler_ir.text.printer import op_text, value_names


@dataclass(frozen=True)
class Part:
    """A part of the pattern, as text, and the value that it stands for."""

    pattern: str
    value: str
    operation: str
    location: Location | None


@dataclass(frozen=True)
class Answer:
    """What becomes of ``rule`` at ``value``, which ``operation`` defines, in the graph after ``after``, if any.

    ``status`` is one of STATUS and ``reason`` says more. Of the ``parts`` of ``pattern`` those ``found`` had been found
    by then; ``culprit`` is the one that stopped it. ``applied_in`` is the pass that applies the rule to it later on.
    """

    rule: Rule
    value: str
    operation: str
    location: Location | None
    after: str | None
    pattern: str
    status: str
    reason: str
    culprit: Part | None
    found: tuple[Part, ...]
    parts: int
    applied_in: str | None

    def record(self) -> dict:
        return {
            "rule": self.rule.name,
            "doc": self.rule.doc,
            "numerics": self.rule.numerics,
            "value": self.value,
            "operation": self.operation,
            "location": location_record(self.location),
            "after": self.after,
            "pattern": self.pattern,
            "matches": self.status == "matches",
            "status": STATUS[self.status],
            "reason": self.reason,
            "culprit": self.culprit and _part_record(self.culprit),
            "found": [_part_record(part) for part in self.found],
            "parts": self.parts,
            "applied_in": self.applied_in,
        }


def why_not(graph: Graph, rule_name: str, value_name: str, passes: str = "default", after: str | None = None) -> Answer:
    """Why the rule is not applied to the value of ``graph``, or, with ``after``, of the graph after that pass.

    ``after`` is the name of one of ``passes``, with ``#2`` for the second of that name. Raises GraphError for a rule or
    value that is not there and ParseError for a wrong pipeline.
    """
    if rule_name not in RULES:
        hint = did_you_mean(rule_name, RULES) or "`euler-ir passes --rules` lists them all"
        raise GraphError(f"there is no rule {rule_name!r}", hint=hint)
    rule, pipeline = RULES[rule_name], as_pipeline(passes)
    first = find_pass(pipeline, after) + 1 if after is not None else 0
    graph = PassManager(pipeline[:first]).run(graph)
    if not isinstance(graph, Graph):
        raise GraphError(f"after {after} there is no graph any more", hint="rules work on graphs: name an earlier pass")
    value = find_value(graph, value_name)
    rest = [each for each in pipeline[first:] if each.level == "graph"]
    return _answer(graph, rule, value, after, _applied_in(rule, value, graph, rest))


def _applied_in(rule: Rule, value: Value, graph: Graph, rest: Sequence[Pass]) -> str | None:
    """The first pass of ``rest`` in which ``rule`` is applied to the value of that name."""
    snapshots = Snapshots()
    try:
        PassManager(rest, [snapshots]).run(graph)
    except EulerError:
        pass  # what a later pass refuses is not the question
    for step in snapshots.steps:
        for application in step.applications:
            if application.rule is rule and application.op.result.name == value.name:
                return str(step.pass_)
    return None


def _answer(graph: Graph, rule: Rule, value: Value, after: str | None, applied_in: str | None) -> Answer:
    mismatches: list[Mismatch] = []
    bound = Matcher(use_counts(graph), mismatches).match(rule.pattern, value, {})
    culprit = None
    if bound is None:
        best = max(mismatches, key=lambda each: len(each.bound))
        status, reason, bound, culprit = best.status, best.reason, best.bound, (best.pattern, best.value)
    else:
        reason = rule.guard(Match(value.op, bound))
        status, reason = ("matches", "nothing holds it back") if reason is None else ("guard", reason)
    names = value_names(graph)
    spelling = _spelling(rule.pattern, bound)
    by_key = {part.key: part for part in parts(spelling) if not isinstance(part, Either)}
    return Answer(
        rule=rule,
        value=names[value],
        operation=op_text(value.op, names),
        location=value.op.location,
        after=after,
        pattern=show(spelling),
        status=status,
        reason=reason,
        culprit=culprit and _part(*culprit, names),
        found=tuple(_part(by_key[key], each, names) for key, each in bound.items()),
        parts=_size(spelling, bound),
        applied_in=applied_in,
    )


def _spelling(pattern: Pattern, bound: Bound) -> Pattern:
    """Of a rule with several spellings the one that ``bound`` is of."""
    if not isinstance(pattern, Either):
        return pattern
    return next((each for each in pattern.patterns if each.key in bound), pattern.patterns[0])


def _size(pattern: Pattern, bound: Bound) -> int:
    """The different parts of ``pattern``; where it leaves a choice, those of what was found, else of the least."""
    return len(_chosen(pattern, bound))


def _chosen(pattern: Pattern, bound: Bound) -> set[str | int]:
    if isinstance(pattern, Either):
        found = [each for each in pattern.patterns if getattr(each, "key", None) in bound]
        return min((_chosen(each, bound) for each in found or pattern.patterns), key=len)
    inner = (_chosen(operand, bound) for operand in pattern.operands) if isinstance(pattern, Apply) else ()
    return {pattern.key}.union(*inner)


def _part(pattern: Pattern, value: Value, names: dict[Value, str]) -> Part:
    return Part(show(pattern), names[value], op_text(value.op, names), value.op.location)


def _part_record(part: Part) -> dict:
    return {
        "pattern": part.pattern,
        "value": part.value,
        "operation": part.operation,
        "location": location_record(part.location),
    }
