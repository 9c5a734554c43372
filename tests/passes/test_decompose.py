"""Composites become primitives of the same meaning."""

import numpy as np
import pytest

import euler_ir as e
from euler_ir import interpreter
from euler_ir.ops.definition import OPS, define
from euler_ir.passes import Decompose
from euler_ir.passes.meaning import difference
from euler_ir.verify import verify

COMPOSITES = {
    "gelu": lambda x: e.gelu(x),
    "logsumexp": lambda x: x.logsumexp(1),
    "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(1),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "layer_norm": lambda x: e.layer_norm(x, x[0] + 1, x[1]),
    "rms_norm": lambda x: e.rms_norm(x, x[0] + 1),
    "cross_entropy": lambda x: e.cross_entropy(x, x.argmin(1)),
    "attention": lambda x: e.attention(x, x, x[:, :3]),
    "attention of texts": lambda x: e.attention(x, x, x[:, :3], visible_from=x.argmin(1)),
    "attention_gradient": lambda x: sum(e.gradient(e.attention(x, x, x[:, :3]).sum(), [x])),
    "attention_gradient of texts": lambda x: sum(
        e.gradient(e.attention(x, x, x[:, :3], visible_from=x.argmin(1)).sum(), [x])
    ),
    "random_normal": lambda x: x + e.random_normal((4, 6), 3, 4),
}


def graph_of(function):
    graph = e.Graph()
    with graph:
        e.output(y=function(e.input("x", (4, 6))))
    return graph


@pytest.fixture
def invented():
    names = []

    def invent(name, decompose):
        names.append(name)
        define(
            name,
            "composite",
            lambda types, attributes: types,
            evaluate=lambda attributes, x: x,
            decompose=decompose,
            operand_names=("operand",),
        )

    yield invent
    for name in names:
        del OPS[name]


def test_every_composite_has_a_case():
    composites = {name for name, definition in OPS.items() if definition.family == "composite"}
    assert {name.split(" ")[0] for name in COMPOSITES} == composites


@pytest.mark.parametrize("name", COMPOSITES)
def test_nothing_composite_is_left_and_the_meaning_stays(name):
    graph = graph_of(COMPOSITES[name])
    found = Decompose().run(graph)
    verify(found)
    assert not [op for op in found.ops if op.definition.family == "composite"]
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    before, after = (interpreter.run(each, {"x": x})[0]["y"] for each in (graph, found))
    assert difference(before, after, ulps=8) is None


def test_the_backend_keeps_what_it_wants():
    graph = graph_of(lambda x: e.attention(e.softmax(x, 1), x, x))
    names = [op.name for op in Decompose(frozenset({"attention"})).run(graph).ops]
    assert "attention" in names and "softmax" not in names


def test_without_composites_the_graph_is_the_same_one():
    graph = graph_of(lambda x: e.exp(x))
    assert Decompose().run(graph) is graph


def test_both_results_of_attention():
    graph = e.Graph()
    with graph:
        x = e.input("x", (4, 6))
        out, lse = e.attention_with_logsumexp(x, x, x)
        e.output(out=out.named("out"), lse=lse)
    found = Decompose().run(graph)
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    before, after = (interpreter.run(each, {"x": x})[0] for each in (graph, found))
    assert all(difference(before[name], after[name], ulps=8) is None for name in before)
    assert found.outputs["out"].name == "out"


def test_composites_of_composites(invented):
    invented("outer", lambda op: (e.softmax(op.graph.emit("inner", op.operands), 1),))
    invented("inner", lambda op: (e.gelu(op.operands[0]),))
    found = Decompose().run(graph_of(lambda x: x.graph.emit("outer", (x,))))
    assert not [op for op in found.ops if op.definition.family == "composite"]


def test_a_composite_made_of_itself_is_named(invented):
    invented("endless", lambda op: (op.graph.emit("endless", op.operands),))
    with pytest.raises(e.GraphError, match="decomposition of endless never ends"):
        Decompose().run(graph_of(lambda x: x.graph.emit("endless", (x,))))


def test_a_decomposition_of_another_type_is_named(invented):
    invented("wrong", lambda op: (e.sum(op.operands[0]),))
    with pytest.raises(e.GraphError, match=r"decomposition of <Op wrong -> f32\[4, 6\]> gives f32\[\]"):
        Decompose().run(graph_of(lambda x: x.graph.emit("wrong", (x,))))


def test_location_and_scope_are_those_of_the_composite():
    graph = e.Graph()
    with graph, graph.scope("head"):
        y = e.gelu(e.input("x", (3,)))
        e.output(y=y)
    made = [op for op in Decompose().run(graph).ops if op.name != "input"]
    assert {(op.location, op.scope) for op in made} == {(y.op.location, "head")}
