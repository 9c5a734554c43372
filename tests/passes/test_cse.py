"""What is merged, and what only looks equal."""

import math

import numpy as np
import pytest

import euler_ir as e
from euler_ir.initializers import Zeros
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
    "function",
    [
        lambda x, y: (e.exp(x), e.exp(x)),
        lambda x, y: (x + y, y + x),
        lambda x, y: (e.equal(x, y), e.equal(y, x)),
        lambda x, y: (x.sum(0), x.sum(0)),
    ],
)
def test_equal_ops_are_merged(function):
    assert len(merged(function)) == 1


def test_merging_cascades():
    names = merged(lambda x, y: (e.exp(x * y + 1), e.exp(y * x + 1)))
    assert names == ["multiply", "constant", "broadcast", "add", "exp"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x - y, y - x),
        lambda x, y: (e.exp(x), e.exp(y)),
        lambda x, y: (x.reshape(3, 1).sum(0), x.reshape(3, 1).sum(1)),
        lambda x, y: (e.gelu(x), e.gelu(x, "none")),
        lambda x, y: (e.maximum(x, y), e.maximum(y, x)),  # numpy's sign of zero follows the order
        lambda x, y: (e.random_uniform((3,), 1, 2), e.random_uniform((3,), 1, 2)),
        lambda x, y: (e.random_normal((3,), 1, 2), e.random_normal((3,), 1, 2)),
    ],
)
def test_other_ops_are_not(function):
    names = merged(function)
    assert names.count(names[-1]) == 2


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


def test_a_nan_is_equal_to_itself():
    assert merged(lambda x, y: (x.graph.constant(math.nan), x.graph.constant(math.nan))) == ["constant"]


def test_leaves_are_never_merged():
    graph = e.Graph()
    with graph:
        first, second = (e.parameter(name, (), Zeros()) for name in ("first", "second"))
        loss = first + second
        e.output(**dict(zip("ab", e.gradient(loss * loss, [first, second]))))
    found = MergeEqual().run(graph)
    assert [leaf.name for leaf in found.parameters] == ["first", "second"]
    assert [value.name for value in next(op for op in found.ops if op.name == "add").operands] == ["first", "second"]


def test_options_of_attention_are_compared():
    def attention(x, y):
        q = x.reshape(1, 3)
        return e.attention(q, q, q, scale=0.5), e.attention(q, q, q, scale=-0.5), e.attention(q, q, q, scale=0.5)

    assert merged(attention) == ["reshape", "attention", "attention"]
