"""What no result needs goes; what a caller names stays."""

import euler_ir as e
from euler_ir.initializers import Zeros
from euler_ir.passes import RemoveDead
from euler_ir.verify import verify


def test_dead_ops_go_and_leaves_stay():
    graph = e.Graph()
    with graph:
        x = e.input("x", (3,))
        e.input("unused", (2,))
        weight = e.parameter("weight", (3,), Zeros())
        e.state("count", (), Zeros(), e.i64)
        e.exp(e.sin(x))
        e.random_uniform((3,), 1, 2)
        e.output(y=x * 2)
        e.update(weight, e.cos(x))
    found = RemoveDead().run(graph)
    verify(found)
    assert [op.name for op in found.ops] == [
        "input", "input", "parameter", "state", "constant", "broadcast", "multiply", "cos",
    ]  # fmt: skip
    assert list(found.outputs) == ["y"] and list(found.updates) == ["weight"]
    assert len(graph.ops) > len(found.ops), "the source is left alone"


def test_one_needed_result_keeps_the_op():
    graph = e.Graph()
    with graph:
        q = e.input("q", (2, 4))
        e.output(lse=e.attention_with_logsumexp(q, q, q)[1])
    assert [op.name for op in RemoveDead().run(graph).ops] == ["input", "attention"]


def test_streams_of_removed_random_ops_are_not_given_out_again():
    graph = e.Graph()
    with graph:
        kept = e.random_uniform((3,), 1, 2)
        e.random_uniform((3,), 1, 2)
        e.output(kept=kept)
    found = RemoveDead().run(graph)
    with found:
        assert e.random_uniform((3,), 1, 2).op.attributes["stream"] == 3
