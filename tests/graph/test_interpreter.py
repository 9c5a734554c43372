"""The interpreter runs what is asked for, and lets go of the rest."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import interpreter

LEAVES = {"x": np.float32([1, 2, 3]), "index": np.int64([7])}


def graph_with_a_bad_branch():
    with ei.Graph("branches") as graph:
        x, index = ei.input("x", (3,)), ei.input("index", (1,), ei.i64)
        doubled = x * 2.0
        ei.output(doubled=doubled, taken=ei.take(x, index))
    return graph, doubled


def test_only_what_the_values_need_is_run():
    graph, doubled = graph_with_a_bad_branch()
    (array,) = interpreter.evaluate(graph, {"x": LEAVES["x"]}, [doubled]).values()
    assert array.tolist() == [2, 4, 6]


def test_without_values_all_is_run():
    graph, _ = graph_with_a_bad_branch()
    del graph.outputs["taken"]
    with pytest.raises(ei.ExecutionError, match="index"):
        interpreter.evaluate(graph, LEAVES)


def test_needed_ops_stand_in_order():
    graph, doubled = graph_with_a_bad_branch()
    names = [op.name for op in graph.needed([doubled])]
    assert names[-1] == "multiply" and "take" not in names and graph.needed([]) == []
    assert [op for op in graph.ops if op in set(graph.needed(graph.results()))] == graph.needed(graph.results())
