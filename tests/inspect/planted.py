"""Faults to be found: passes, rules and kernels that are wrong on purpose, and graphs to plant them in."""

from dataclasses import dataclass


import euler_ir as ei
from euler_ir.inspect.given_arrays import GivenArrays, given_arrays
from euler_ir.passes import Pass, Rebuild
from euler_ir.passes.patterns import Anything, apply
from euler_ir.passes.rewriting import Rule, rewrite

SWAP = Rule(
    "swap-difference",
    "exact",
    "x - y = y - x",
    apply("subtract", Anything("x"), Anything("y")),
    lambda match: match["y"] - match["x"],
    lambda match: None if "swap-difference" not in match.op.via else "once is enough",
)


@dataclass(frozen=True)
class Swap(Pass):
    """Apply a rule that is wrong."""

    name = "planted-swap"

    def run(self, graph):
        return rewrite(graph, (SWAP,))


@dataclass(frozen=True)
class DropTanh(Pass):
    """Drop every tanh."""

    name = "planted-drop"

    def run(self, graph):
        rebuild = Rebuild(graph, self.name)
        for op in rebuild:
            if op.name == "tanh":
                rebuild.replace(op, rebuild.operands(op))
            else:
                rebuild.copy(op)
        return rebuild.finish()


@dataclass(frozen=True)
class WrongOutput(Pass):
    """Return something else."""

    name = "planted-output"

    def run(self, graph):
        rebuild = Rebuild(graph, self.name)
        for op in rebuild:
            rebuild.copy(op)
        after = rebuild.finish()
        name, value = list(after.outputs.items())[-1]
        after.outputs[name] = next(v for op in after.ops for v in op.results if v.type == value.type and v is not value)
        return after


def small_graph():
    """Two outputs that a subtraction, a tanh, a product and a sum make."""
    with ei.Graph("small") as graph:
        x, y = ei.input("x", (4, 8)), ei.input("y", (4, 8))
        w = ei.parameter("w", (8, 3), ei.initializers.Normal(0.5))
        difference = (x - y).named("difference")
        bent = ei.tanh(difference).named("bent")
        ei.output(scores=bent @ w, total=(bent * x).sum(), ratio=ei.exp(x) / (1 + ei.exp(y)))
    return graph


def arrays_of(graph, seed=0) -> GivenArrays:
    return given_arrays(graph, seed=seed)


