"""Rewriting by rules that are data: what to match, when, and what to put in its place.

One walk goes forward over the ops. Each op is put together on its rewritten operands, apart from the new graph, and
the rules of its operator are tried on it in order; only what no rule matches is added. A walk is linear: a pattern has
a fixed depth, and the ops that a rule emits are looked at again in the next walk. Walks repeat until no rule matches
anything, at most ``MAX_WALKS`` times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from euler_ir.errors import GraphError, Location, PassError
from euler_ir.graph import Graph, Op, Value
from euler_ir.passes.dce import RemoveDead
from euler_ir.passes.instruments import is_allowed, report_rule
from euler_ir.passes.numerics import NUMERICS
from euler_ir.passes.patterns import Apply, Bound, Either, Matcher
from euler_ir.rebuild import Rebuild

MAX_WALKS = 10
MAX_APPLICATIONS = 20
"""How often one op is rewritten in one walk; two rules that undo each other are found out by it."""


@dataclass(frozen=True)
class Match:
    """A rule's pattern found at ``op``; indexing gives the value that a name of the pattern stands for."""

    op: Op
    values: Bound

    def __getitem__(self, name: str) -> Value:
        return self.values[name]


@dataclass(frozen=True)
class Rule:
    """Replace ``pattern`` by what ``build`` emits, unless ``guard`` gives the reason why not here.

    ``numerics`` is one of NUMERICS, ``doc`` states the rule as an equation, ``location`` is where it is defined.
    ``sample`` draws a graph with an output "result" on which the rule may fire, for tests, where the pattern alone does
    not say how to make one.
    """

    name: str
    numerics: str
    doc: str
    pattern: Apply | Either
    build: Callable[[Match], Value]
    guard: Callable[[Match], str | None] = lambda match: None
    location: Location | None = None
    sample: Callable[[Random], Graph] | None = None


RULES: dict[str, Rule] = {}
"""Every rule that is known by name: those of ``rules``, and those that users define by ``rewrite_rule``."""


def register(*rules: Rule) -> tuple[Rule, ...]:
    """Add ``rules`` to RULES and give them back.

    Raises PassError for a name that is taken by a rule defined elsewhere, a label that is none of NUMERICS, and a rule
    that does not say what it does.
    """
    for rule in rules:
        if rule.numerics not in NUMERICS:
            hint = f"use one of {', '.join(NUMERICS)}"
            raise PassError(f"rule {rule.name!r}: numerics is {rule.numerics!r}", location=rule.location, hint=hint)
        if not rule.doc:
            raise PassError(f"rule {rule.name!r} has no doc", location=rule.location)
        other = RULES.get(rule.name)
        if other is not None and (other.location is None or other.location != rule.location):
            at = f" at {other.location}" if other.location else ""
            raise PassError(f"rule {rule.name!r} is defined already{at}", location=rule.location)
        RULES[rule.name] = rule
    return rules


# -- the engine --------------------------------------------------------------------------------------------------------


def rewrite(graph: Graph, rules: Sequence[Rule]) -> Graph:
    """``graph`` with ``rules`` applied wherever they match, and without what is dead then.

    Active instruments allow each application and hear of it. Raises GraphError, naming the rules, when a rule changes a
    type or when rules rewrite one op forever.
    """
    by_operator: dict[str, list[Rule]] = {}
    for rule in rules:
        for name in rule.pattern.names:
            by_operator.setdefault(name, []).append(rule)
    for _ in range(MAX_WALKS):
        walk = _Walk(graph, by_operator)
        first = walk.first_that_matches()
        if first is None:
            break
        rewritten = walk.run(first)
        if not walk.applied:
            break  # instruments held back all that matched
        graph = RemoveDead().run(rewritten)
    return graph


def use_counts(graph: Graph) -> dict[Value, int]:
    """How often each value is used by ops, outputs and updates."""
    counts = {value: len(ops) for value, ops in graph.uses().items()}
    for value in graph.results():
        counts[value] = counts.get(value, 0) + 1
    return counts


class _Walk:
    def __init__(self, graph: Graph, by_operator: dict[str, list[Rule]]) -> None:
        self.rebuild = Rebuild(graph, "rewrite")
        self.by_operator = by_operator
        self.by_makers: dict[tuple[str, frozenset[str]], list[Rule]] = {}
        self.applied = 0
        self.source_uses = use_counts(graph)
        self.matcher = Matcher(self.source_uses)

    def first_that_matches(self) -> int | None:
        """The position of the first op that a rule matches: nothing has to be copied to find out that there is none."""
        ops = self.rebuild.source.ops
        return next((position for position, op in enumerate(ops) if any(self.matches(op))), None)

    def run(self, first: int) -> Graph:
        """The graph with rules applied, from the op at position ``first`` on."""
        self.uses: dict[Value, int] = {}
        self.matcher = Matcher(self.uses)
        for position, op in enumerate(self.rebuild.source.ops):
            copied = self.rebuild.apart(op)
            value = self.rewritten(op, copied) if position >= first and op.name in self.by_operator else None
            if value is None:
                self.rebuild.keep(op, copied)
            else:
                self.rebuild.replace(op, (value,))
            for old in op.results:
                new = self.rebuild.values[old]
                self.uses[new] = self.uses.get(new, 0) + self.source_uses.get(old, 0)
        return self.rebuild.finish()

    def rewritten(self, source: Op, op: Op) -> Value | None:
        """What stands for ``op``, the copy of ``source``, after all rules that match it and what they put in its place;
        None for none.
        """
        target, value = self.rebuild.target, None
        history: list[Rule] = []
        while True:
            found = next((each for each in self.matches(op) if is_allowed(each[0], source)), None)
            if found is None:
                if value is not None:
                    target.ops.append(op)
                return value
            rule, match = found
            history.append(rule)
            if len(history) > MAX_APPLICATIONS:
                raise GraphError(
                    f"rules {history[-2].name!r} and {history[-1].name!r} rewrite {source.name} forever",
                    location=source.location,
                )
            value = self.build(rule, match, source)
            if not target.ops or value.op is not target.ops[-1] or not self.is_new(value):
                return value
            op = target.ops.pop()

    def is_new(self, value: Value) -> bool:
        """Whether a rule has just emitted ``value``, and nothing uses it yet."""
        return value not in self.uses and value.op.name in self.by_operator

    def build(self, rule: Rule, match: Match, source: Op) -> Value:
        with self.rebuild.target.derived_from(source, rule.name):
            value = rule.build(match)
        if value.type != match.op.result.type:
            raise GraphError(f"rule {rule.name!r} turns {match.op.result.type} into {value.type}")
        self.applied += 1
        report_rule(rule, source, value)
        return value

    def matches(self, op: Op) -> Iterator[tuple[Rule, Match]]:
        """The rules that match ``op``, in order."""
        if op.name not in self.by_operator or len(op.results) != 1:
            return
        for rule in self.candidates(op):
            values = self.matcher.match(rule.pattern, op.result, {})
            if values is not None and rule.guard(Match(op, values)) is None:
                yield rule, Match(op, values)

    def candidates(self, op: Op) -> list[Rule]:
        """The rules of the operator of ``op`` that what makes its operands leaves possible."""
        makers = self.matcher.makers(op)
        found = self.by_makers.get((op.name, makers))
        if found is None:
            found = [rule for rule in self.by_operator[op.name] if rule.pattern.needs <= makers]
            self.by_makers[op.name, makers] = found
        return found
