"""Graphs of 50,000 operators in a row go through all that reads graphs, and out of memory again: nothing recurses."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import weakref

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.graph_equality import structural_hash, structurally_equal
from euler_ir.passes import optimize
from euler_ir.text import parse_graph, print_graph
from euler_ir.verify import verify

DEPTH = 50_000


def chain(length):
    with ei.Graph("chain") as graph:
        x = y = ei.input("x", (4,))
        with graph.derived_from(x.op, "test"):
            for _ in range(length):
                y = y.sin()
        ei.output(y=y)
    return graph


@pytest.fixture(scope="module")
def deep():
    return chain(DEPTH)


def test_text(deep):
    parsed = parse_graph(print_graph(deep, locations=True))
    verify(parsed)
    assert structurally_equal(parsed, deep, locations=True)


def test_hash(deep):
    assert structural_hash(deep) == structural_hash(chain(DEPTH)) != structural_hash(chain(DEPTH - 1))


@pytest.mark.parametrize("copied", [lambda graph: pickle.loads(pickle.dumps(graph)), copy.deepcopy])
def test_pickles_and_copies(deep, copied):
    assert structurally_equal(copied(deep), deep, locations=True)


def test_gradient(deep):
    graph = copy.deepcopy(deep)
    with graph:
        ei.output(slope=ei.gradient(ei.sum(graph.outputs["y"]), [graph.leaf("x")])[0])
    verify(graph)
    assert len(graph.ops) > 3 * DEPTH


def test_a_deep_graph_is_freed():
    graph = chain(DEPTH)
    last = weakref.ref(graph)
    del graph
    gc.collect()
    assert last() is None


# -- what a pickle holds -----------------------------------------------------------------------------------------------


def step():
    with ei.Graph("step") as graph:
        with graph.scope("h.0"):
            x = ei.input("x", (4, 8))
            weight = ei.parameter("weight", (8, 8), ei.initializers.Normal(0.02))
            noise = ei.random_normal((4, 8), 1, 2)
            table = ei.constant(np.arange(32, dtype=np.float32).reshape(4, 8))
        loss = ei.sum(ei.gelu(x @ weight) * table + noise)
        ei.output(loss=loss)
        ei.update(weight, weight - ei.gradient(loss, [weight])[0])
    return graph


def test_a_pickle_is_the_same_graph_elsewhere(tmp_path):
    graph = step()
    (tmp_path / "graph.pickle").write_bytes(pickle.dumps(graph))
    script = (
        "import pickle; from euler_ir.graph_equality import structural_hash\n"
        "graph = pickle.load(open('graph.pickle', 'rb'))\n"
        "print(structural_hash(graph, locations=True), graph._streams)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONHASHSEED": "7"}
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == [structural_hash(graph, locations=True), str(graph._streams)]


def test_values_and_ops_travel_with_their_graph():
    graph = step()
    loss = graph.outputs["loss"]
    for copied in (copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))):
        found, value, op = copied((graph, loss, loss.op))
        assert value is found.outputs["loss"] and op is value.op and value is not loss
        assert copied(loss).graph is not graph


def test_the_hash_says_what_equality_says():
    graph = step()
    assert structural_hash(graph) == structural_hash(copy.deepcopy(graph))
    renamed = copy.deepcopy(graph)
    renamed.outputs["loss"].named("other")
    assert structural_hash(renamed) != structural_hash(graph)
    assert structural_hash(renamed, names=False) == structural_hash(graph, names=False)
    assert structural_hash(optimize(graph)) == structural_hash(optimize(copy.deepcopy(graph)))
