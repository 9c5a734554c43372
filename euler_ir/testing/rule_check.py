"""Whether a rewrite rule is what its label says, tried on instances of its pattern."""

from __future__ import annotations

from dataclasses import dataclass

from euler_ir import interpreter
from euler_ir.errors import PassError, did_you_mean
from euler_ir.passes.meaning import difference
from euler_ir.passes.patterns import Number, parts
from euler_ir.passes.rewriting import RULES, Rule
from euler_ir.testing.given import input_sets
from euler_ir.testing.labels import further_from_real, loose_fault
from euler_ir.testing.rule_instances import rule_instances
from euler_ir.verify import verify

INSTANCES = 30
"""Graphs that a rule is tried on."""
LEAST = 5
"""Graphs without which nothing is said."""


class RuleCheckFailure(AssertionError):
    """A rule that is not what its label says, or that could not be tried."""


@dataclass(frozen=True)
class RuleCheck:
    """How often ``rule`` was tried, and how often it changed bits."""

    rule: Rule
    instances: int
    input_sets: int
    changed: int

    def __str__(self) -> str:
        tried = f"{self.instances} graphs, {self.input_sets} sets of inputs"
        return f"{self.rule.name} is {self.rule.numerics}: {tried}, bits changed in {self.changed}"


def check_rule(rule: Rule | str, instances: int = INSTANCES, seed: int = 0) -> RuleCheck:
    """Try ``rule`` on random graphs and special numbers against its label.

    Raises RuleCheckFailure, with the graph and its inputs, where the label is wrong: an exact rule changes a bit; a
    better one goes away from the real number, by more than NEAR; a looser one is never needed, or changes ordinary
    numbers by more than ROUNDINGS, and APPROXIMATE if it is that. Also where the pattern gives too few graphs: such a
    rule needs a ``sample``. Raises PassError for an unknown name. Needs mpmath, which comes with the extra ``test``.
    """
    if isinstance(rule, str):
        if rule not in RULES:
            raise PassError(f"there is no rule {rule!r}", hint=did_you_mean(rule, RULES))
        rule = RULES[rule]
    graphs = sets = changed = 0
    for before, after in rule_instances(rule, instances, seed):
        verify(after)
        graphs += 1
        for what, leaves in input_sets(before):
            sets += 1
            wanted, found = (interpreter.run(graph, leaves)[0]["result"] for graph in (before, after))
            fault = difference(wanted, found)
            if fault is None:
                continue
            changed += 1
            if rule.numerics == "better":
                fault = further_from_real(before, leaves, wanted, found, _numbers(rule))
            elif rule.numerics != "exact":
                fault = loose_fault(rule.numerics, before, leaves, what, wanted, found)
            if fault is not None:
                given = "\n".join(f"  {name} = {array!r}" for name, array in leaves.items())
                raise RuleCheckFailure(
                    f"rule {rule.name!r} is not {rule.numerics}, on {what}: {fault}\nof\n{before}given\n{given}\n"
                    f"it makes\n{after}"
                )
    if graphs < LEAST:
        raise RuleCheckFailure(
            f"the pattern of rule {rule.name!r} gives {graphs} graphs: say with `sample` how to make one"
        )
    if not changed and rule.numerics not in ("exact", "better"):
        raise RuleCheckFailure(f"rule {rule.name!r} changed no bit in {sets} sets of inputs: is it not exact?")
    return RuleCheck(rule, graphs, sets, changed)


def _numbers(rule: Rule) -> list[float]:
    """The constants that the pattern says, as they are meant."""
    return [part.number for part in parts(rule.pattern) if isinstance(part, Number) and part.number is not None]
