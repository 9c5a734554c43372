"""What is merged, and what only looks equal."""


import numpy as np
import pytest

import euler_ir as e
from euler_ir.passes import MergeEqual
from euler_ir.verify import verify


def merged(function):
    """Names of the ops left after cse, without leaves."""
    graph = e.Graph()
    with graph:
        results = function(e.input("x", (3,)), e.input("y", (3,)))
        e.output(**{f"r{i}": result for i, result in enumerate(results)})
    found = MergeEqual().run(graph)
    verify(found)
    return [op.name for op in found.ops if op.name not in ("input", "parameter", "state")]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (np.float32(0.0), np.float32(-0.0)),
        (np.float32(1), np.float64(1)),
        (np.int32(1), np.int64(1)),
        (np.array(0x7FC00000, np.uint32).view(np.float32), np.array(0x7FC00001, np.uint32).view(np.float32)),
        (np.zeros(2, np.float32), np.zeros((2, 1), np.float32)),
        (np.bool_(True), np.uint8(1)),
        (np.zeros(1000, np.float32), -np.zeros(1000, np.float32)),
    ],
)
def test_constants_are_compared_bit_for_bit(left, right):
    def constants(x, y):
        graph = x.graph
        return graph.constant(left), graph.constant(right), graph.constant(left), graph.constant(right)

    assert merged(constants) == ["constant", "constant"]
