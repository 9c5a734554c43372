"""Constants are computed once, small, and with the interpreter's bits."""

import numpy as np
import pytest

import euler_ir as e
from euler_ir import interpreter
from euler_ir.passes import Fold, RemoveDead
from euler_ir.verify import verify


def folded(function, byte_limit=65536, **inputs):
    graph = e.Graph()
    with graph:
        e.output(result=function(*(e.input(name, shape) for name, shape in inputs.items())))
    found = RemoveDead().run(Fold(byte_limit).run(graph))
    verify(found)
    if not inputs:
        before, after = (interpreter.run(each, {})[0]["result"] for each in (graph, found))
        assert before.tobytes() == after.tobytes() and before.dtype == after.dtype
    return [op.name for op in found.ops], found


@pytest.mark.parametrize(
    "function",
    [
        lambda: e.constant(2.0) * 3,
        lambda: e.exp(e.constant(np.array([np.nan, -np.inf, -0.0], np.float32))),
        lambda: e.constant([1, 2, 3]).sum(0),
        lambda: e.constant(300.7).cast(e.u8),
        lambda: e.constant(1.1, e.bf16) + e.constant(2.3, e.bf16),
        lambda: e.iota((4, 4), 0) <= e.iota((4, 4), 1),
        lambda: e.ones((128,)).sum(0),
        lambda: e.constant(np.eye(3)) @ e.constant(np.ones((3, 2))),
        lambda: e.constant([3.0, 1.0]).softmax(0),
        lambda: e.concatenate([e.constant([1.0]), e.zeros((2,))]),
        lambda: e.zeros((0, 3)) + e.constant(np.zeros((0, 3), np.float32)),
    ],
)
def test_constants_fold_to_one_constant(function):
    assert folded(function)[0] == ["constant"]


@pytest.mark.parametrize(
    "function",
    [
        lambda: e.full((1000, 1000), 2.0) * e.full((1000, 1000), 3.0),
        lambda: e.exp(e.full((3, 4), 2.0)),
        lambda: e.full((3, 4), 2.0).reshape(4, 3).T[1:, ::2],
        lambda: e.full((3, 4), -0.0).cast(e.f16),
    ],
)
def test_repeated_constants_stay_broadcasts(function):
    names, graph = folded(function)
    assert names == ["constant", "broadcast"]
    assert graph.ops[0].result.shape == ()


def test_the_byte_limit():
    names, _ = folded(lambda: e.exp(e.constant(np.ones(100, np.float32))), byte_limit=400)
    assert names == ["constant"]
    names, _ = folded(lambda: e.exp(e.constant(np.ones(101, np.float32))), byte_limit=400)
    assert names == ["constant", "exp"]
    names, _ = folded(lambda: e.constant(np.ones(101, np.float32)).sum(0), byte_limit=400)
    assert names == ["constant", "sum"]


def test_what_fails_when_run_fails_when_run():
    names, graph = folded(lambda x: e.take(e.constant([1.0, 2.0]), e.constant([5])) + x, x=(1,))
    assert "take" in names
    with pytest.raises(e.ExecutionError, match="index 5"):
        interpreter.run(graph, {"x": np.zeros(1, np.float32)})


def test_folded_constants_carry_the_line_of_what_they_replace():
    graph = e.Graph()
    with graph:
        value = e.exp(e.constant(1.0))
        e.output(y=value)
    assert Fold().run(graph).outputs["y"].op.location == value.op.location
