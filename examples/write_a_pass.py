"""A pass and a rule from nothing to tested: docs/passes.md tells the story."""

from dataclasses import dataclass

import numpy as np

import euler_ir as ei
from euler_ir.passes import Pass, Rebuild, optimize, rewrite_rule


@dataclass(frozen=True)
class GeluForm(Pass):
    """Compute every GELU in one form."""

    name = "gelu-form"
    numerics = "approximate"
    approximate: str = "tanh"

    def run(self, graph):
        rebuild = Rebuild(graph, self.name)
        for op in rebuild:
            if op.name == "gelu":
                rebuild.replace(op, (ei.gelu(*rebuild.operands(op), approximate=self.approximate),))
            else:
                rebuild.copy(op)
        return rebuild.finish()


@rewrite_rule("tanh-by-hand", numerics="better")
def tanh_by_hand(x: float):
    up, down = ei.exp(x), ei.exp(-x)
    return (up - down) / (up + down), ei.tanh(x)


def graph():
    with ei.Graph("exact") as graph:
        x = ei.input("x", (1000,))
        up, down = ei.exp(x), ei.exp(-x)
        ei.output(gelu=ei.gelu(x, approximate="none"), tanh=(up - down) / (up + down))
    return graph


if __name__ == "__main__":
    print(optimize(graph(), "gelu-form,rewrite{rules=tanh-by-hand}"))

    points = np.linspace(-100, 100, 1000, dtype=np.float32)
    exact = ei.compile(graph())(x=points)
    quick = ei.compile(graph(), passes="gelu-form,rewrite{rules=tanh-by-hand},default")(x=points)
    print(f"largest difference of GELU: {np.abs(exact['gelu'] - quick['gelu']).max():.1e}")
    print(f"NaN in tanh: {np.isnan(exact['tanh']).sum()} before, {np.isnan(quick['tanh']).sum()} after")
    assert 1e-5 < np.abs(exact["gelu"] - quick["gelu"]).max() < 1e-3
    assert np.isnan(exact["tanh"]).any() and np.allclose(quick["tanh"], np.tanh(points))
