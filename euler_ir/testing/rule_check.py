"""Whether a rewrite rule is what its label says, tried on instances of its pattern."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from euler_ir import interpreter
from euler_ir.errors import PassError, did_you_mean
from euler_ir.graph import Graph
from euler_ir.inspect.agreement import Agreement
from euler_ir.passes.meaning import difference
from euler_ir.passes.patterns import Number, parts
from euler_ir.passes.rewriting import RULES, Rule
from euler_ir.testing.given import input_sets
from euler_ir.testing.real_numbers import real_results
from euler_ir.testing.rule_instances import rule_instances
from euler_ir.verify import verify

INSTANCES = 30
"""Graphs that a rule is tried on."""
LEAST = 5
"""Graphs without which nothing is said."""
NEAR = 2
"""Units in the last place by which a better rule may be further from the real number now and then, by luck."""
ROUNDINGS = 16
"""Roundings of the largest number on the way that a looser rule may be off by, on ordinary numbers."""
APPROXIMATE = 1e-3
"""How far an approximate rule may be off beside that, relative to 1 plus the number."""


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
            fault = _fault(rule, before, leaves, what == "random numbers", fault, wanted, found)
            if fault is not None:
                given = "\n".join(f"  {name} = {array!r}" for name, array in leaves.items())
                raise RuleCheckFailure(
                    f"rule {rule.name!r} is not {rule.numerics}, on {what}: {fault}\nof\n{before}given\n{given}\n"
                    f"it makes\n{after}"
                )
    if graphs < LEAST:
        raise RuleCheckFailure(f"the pattern of rule {rule.name!r} gives {graphs} graphs: say with `sample` how to make one")
    if not changed and rule.numerics not in ("exact", "better"):
        raise RuleCheckFailure(f"rule {rule.name!r} changed no bit in {sets} sets of inputs: is it not exact?")
    return RuleCheck(rule, graphs, sets, changed)


def _fault(rule: Rule, before: Graph, leaves: Mapping, is_ordinary: bool, fault: str, wanted, found) -> str | None:
    """What is wrong with a difference, under the label of ``rule``; None when nothing is."""
    if rule.numerics == "exact":
        return fault
    if rule.numerics == "better":
        return _further(rule, before, leaves, wanted, found)
    if not is_ordinary:
        return None
    with np.errstate(all="ignore"):
        one, other = wanted.astype(np.float64), found.astype(np.float64)
        bound = ROUNDINGS * float(ml_dtypes.finfo(wanted.dtype).eps) * _largest(before, leaves)
        if rule.numerics == "approximate":
            bound = bound + APPROXIMATE * (1 + np.abs(one))
        differs = np.isfinite(one) & ~(np.abs(one - other) <= bound)
    return fault if differs.any() else None


def _largest(graph: Graph, leaves: Mapping) -> float:
    """The largest finite number that is met on the way, or 1."""
    arrays = interpreter.evaluate(graph, leaves, [value for op in graph.ops for value in op.results])
    floats = [array.astype(np.float64) for value, array in arrays.items() if value.dtype.is_float]
    return max((float(np.max(np.abs(each), where=np.isfinite(each), initial=1)) for each in floats), default=1.0)


def _further(rule: Rule, before: Graph, leaves: Mapping, wanted: np.ndarray, found: np.ndarray) -> str | None:
    """An element of ``found`` that is further from the real number than that of ``wanted`` and NEAR units, by more than
    rounding explains on the way to ``wanted``.
    """
    numbers = [part.number for part in parts(rule.pattern) if isinstance(part, Number) and part.number is not None]
    real = real_results(before, leaves, numbers)
    agreement = Agreement(before, leaves)
    if real is None:
        return agreement.fault(({"result": found}, {}))
    further = [place for place in np.ndindex(found.shape) if _is_further(wanted[place], found[place], real[place])]
    if not further:
        return None
    only_these = wanted.copy()
    for place in further:
        only_these[place] = found[place]
    if agreement.fault(({"result": only_these}, {})) is None:
        return None
    place = further[0]
    return f"{wanted[place]!s} became {found[place]!s} at {place}, and the real number is {float(real[place])}"


def _is_further(before, after, real) -> bool:
    """Whether ``after`` is further from ``real`` than ``before`` is, by more than NEAR units; never where that is NaN."""
    one, other = float(before), float(after)
    if one == other or real != real:
        return False
    with np.errstate(all="ignore"):
        rounded = np.array(float(real)).astype(after.dtype)
        unit = float(np.abs(np.spacing(rounded if np.isfinite(rounded) else ml_dtypes.finfo(after.dtype).max)))
    errors = [abs(number - real) if np.isfinite(number) else np.inf for number in (one, other)]
    return other != float(rounded) and not errors[1] <= errors[0] + NEAR * unit
