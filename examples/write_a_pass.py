"""A pass from nothing to tested: GELU by the error function becomes the cheaper tanh form."""

from dataclasses import dataclass

import numpy as np

import euler_ir as ei
from euler_ir.passes import PIPELINE, Pass, Rebuild


@dataclass(frozen=True)
class TanhGelu(Pass):
    """Replace exact GELU by its tanh approximation."""

    name = "tanh-gelu"

    def run(self, graph):
        rebuild = Rebuild(graph, self.name)
        for op in rebuild:
            if op.name == "gelu":
                rebuild.replace(op, (ei.gelu(*rebuild.operands(op), approximate="tanh"),))
            else:
                rebuild.copy(op)
        return rebuild.finish()


if __name__ == "__main__":
    with ei.Graph("exact") as graph:
        x = ei.input("x", (1000,))
        ei.output(y=ei.gelu(x, approximate="none"))
    print(TanhGelu().run(graph))

    points = np.linspace(-5, 5, 1000, dtype=np.float32)
    exact = ei.compile(graph)(x=points)["y"]
    quick = ei.compile(graph, passes=(TanhGelu(), *PIPELINE))(x=points)["y"]
    print(f"largest difference: {np.abs(exact - quick).max():.1e}")
    assert 1e-5 < np.abs(exact - quick).max() < 1e-3
