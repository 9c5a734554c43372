"""Rewriting by rules that are data: what to match, when, and what to put in its place.

One walk goes forward over the ops. Each op is put together on its rewritten operands, apart from the new graph, and
the rules of its operator are tried on it in order; only what no rule matches is added. A walk is linear: a pattern has
a fixed depth, and the ops that a rule emits are looked at again in the next walk. Walks repeat until no rule matches
anything, at most ``MAX_WALKS`` times.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from euler_ir.errors import GraphError
from euler_ir.graph import Graph, Op, Rebuild, Value
from euler_ir.passes.dce import RemoveDead
from euler_ir.passes.instruments import is_allowed, report_rule

MAX_WALKS = 10
MAX_APPLICATIONS = 20
"""How often one op is rewritten in one walk; two rules that undo each other are found out by it."""


# -- patterns ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Anything:
    """Any value; the same ``name`` twice in a pattern means the same value twice."""

    name: str


@dataclass(frozen=True)
class Number:
    """A tensor all of whose elements are the constant ``number``; 0.0 is not -0.0. Without one, any constant number."""

    number: bool | int | float | None = None


@dataclass(frozen=True)
class Apply:
    """A result of one of the operators ``names`` on ``operands``, tried in both orders where it is commutative.

    With ``once`` nothing else may use it.
    """

    names: tuple[str, ...]
    operands: tuple[Pattern, ...]
    once: bool = False

    @functools.cached_property
    def selective_first(self) -> tuple[int, ...]:
        """The positions of the operands, those before others that match less."""
        return tuple(sorted(range(len(self.operands)), key=lambda n: isinstance(self.operands[n], Anything)))


Pattern = Anything | Number | Apply


def apply(names: str, *operands: Pattern, once: bool = False) -> Apply:
    """``Apply`` with the operators in one string, separated by spaces."""
    return Apply(tuple(names.split()), operands, once)


@dataclass(frozen=True)
class Match:
    """A rule's pattern found at ``op``; indexing gives the value that a name of the pattern stands for."""

    op: Op
    values: dict[str, Value]

    def __getitem__(self, name: str) -> Value:
        return self.values[name]


@dataclass(frozen=True)
class Rule:
    """Replace ``pattern`` by what ``build`` emits, where ``guard`` holds. ``doc`` states it as an equation."""

    name: str
    numerics: str
    doc: str
    pattern: Apply
    build: Callable[[Match], Value]
    guard: Callable[[Match], bool] = lambda match: True


def number_of(value: Value) -> bool | int | float | None:
    """The number that every element of ``value`` is, if it is a constant, perhaps broadcast or reshaped; or None."""
    while value.op.name in ("broadcast", "reshape"):
        value = value.op.operands[0]
    if value.op.name != "constant" or value.size != 1:
        return None
    number = value.op.attributes["value"].reshape(-1)[0]
    return float(number) if value.dtype.is_float else number.item()


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
        graph = RemoveDead().run(walk.run(first))
    return graph


class _Walk:
    def __init__(self, graph: Graph, by_operator: dict[str, list[Rule]]) -> None:
        self.rebuild = Rebuild(graph)
        self.by_operator = by_operator
        self.source_uses = {value: len(ops) for value, ops in graph.uses().items()}
        for value in graph.results():
            self.source_uses[value] = self.source_uses.get(value, 0) + 1
        self.uses = self.source_uses

    def first_that_matches(self) -> int | None:
        """The position of the first op that a rule matches: nothing has to be copied to find out that there is none."""
        ops = self.rebuild.source.ops
        return next((position for position, op in enumerate(ops) if any(self.matches(op))), None)

    def run(self, first: int) -> Graph:
        """The graph with rules applied, from the op at position ``first`` on."""
        self.uses = {}
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
        with self.rebuild.target.derived_from(source):
            value = rule.build(match)
        if value.type != match.op.result.type:
            raise GraphError(f"rule {rule.name!r} turns {match.op.result.type} into {value.type}")
        report_rule(rule, source, value)
        return value

    def matches(self, op: Op) -> Iterator[tuple[Rule, Match]]:
        """The rules that match ``op``, in order."""
        for rule in self.by_operator.get(op.name, ()):
            values = self.match_operands(rule.pattern, op, {})
            if values is not None and rule.guard(Match(op, values)):
                yield rule, Match(op, values)

    # Each gives the values bound so far and in this part of the pattern, or None. They recurse as deep as the pattern.

    def match_operands(self, pattern: Apply, op: Op, bound: dict[str, Value]) -> dict[str, Value] | None:
        if len(op.operands) != len(pattern.operands):
            return None
        found = self.match_each(pattern, op.operands, bound)
        if found is None and op.definition.commutative:
            found = self.match_each(pattern, op.operands[::-1], bound)
        return found

    def match_each(self, pattern: Apply, operands, bound: dict[str, Value]) -> dict[str, Value] | None:
        for position in pattern.selective_first:
            bound = self.match(pattern.operands[position], operands[position], bound)
            if bound is None:
                return None
        return bound

    def match(self, pattern: Pattern, value: Value, bound: dict[str, Value]) -> dict[str, Value] | None:
        if isinstance(pattern, Anything):
            held = bound.get(pattern.name)
            if held is None:
                return {**bound, pattern.name: value}
            return bound if held is value else None
        if isinstance(pattern, Number):
            return bound if _is_number(value, pattern.number) else None
        if value.op.name not in pattern.names or (pattern.once and self.uses.get(value, 1) != 1):
            return None
        return self.match_operands(pattern, value.op, bound)


def _is_number(value: Value, wanted: bool | int | float | None) -> bool:
    found = number_of(value)
    if found is None or wanted is None:
        return found is not None
    return found == wanted and math.copysign(1, found) == math.copysign(1, wanted)
