"""The passes that apply rules: all of the algebra, or rules by their names."""

from __future__ import annotations

from dataclasses import dataclass

from euler_ir.errors import PassError, did_you_mean
from euler_ir.graph import Graph
from euler_ir.passes.manager import Pass
from euler_ir.passes.numerics import NUMERICS, Numerics, is_within, loosest
from euler_ir.passes.rewriting import RULES, rewrite
from euler_ir.passes.rules import SIMPLIFY


@dataclass(frozen=True)
class Simplify(Pass):
    """Apply algebra: the rules of euler_ir up to a label of numerics.

    ``numerics`` is the loosest label of the rules that it takes: 'exact' those that keep every bit, 'better', the
    default, also those that round less. Raises PassError for another word.
    """

    name = "simplify"
    numerics: Numerics = "better"

    def __post_init__(self) -> None:
        if self.numerics not in NUMERICS:
            raise PassError(f"simplify: numerics is {self.numerics!r}", hint=f"use one of {', '.join(NUMERICS)}")

    def run(self, graph: Graph) -> Graph:
        return rewrite(graph, [rule for rule in SIMPLIFY if is_within(rule.numerics, self.numerics)])


@dataclass(frozen=True)
class Rewrite(Pass):
    """Apply the rules of the given names, whatever their labels, in that order.

    This is how rules that users define are run. Raises PassError for a name that no rule has.
    """

    name = "rewrite"
    rules: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in self.rules:
            if name not in RULES:
                raise PassError(f"there is no rule {name!r}", hint=did_you_mean(name, RULES))

    @property
    def numerics(self) -> str:
        """The loosest label of the rules."""
        return loosest(RULES[name].numerics for name in self.rules)

    def run(self, graph: Graph) -> Graph:
        return rewrite(graph, [RULES[name] for name in self.rules])
