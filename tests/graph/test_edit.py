"""Values read and replaced by name: against numpy, with the given graph left alone and the edit visible in the text."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.passes import optimize
from euler_ir.text import parse_graph, print_graph
from euler_ir.verify import verify

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
WEIGHT = np.arange(9, dtype=np.float32).reshape(3, 3) / 10


def layer():
    with ei.Graph("layer") as graph:
        x = ei.input("x", (2, 3))
        weight = ei.parameter("weight", (3, 3), ei.initializers.Zeros())
        hidden = ei.tanh(x @ weight)
        ei.output(total=(hidden * hidden).sum())
        ei.update(weight, weight * 0.5)
    return graph


def run(graph, backend="reference", **inputs):
    state = ei.State()
    state["weight"] = WEIGHT
    return ei.compile(graph, backend=backend)(state, **inputs)


def test_a_value_is_replaced_by_a_function_of_it(backend):
    graph = layer()
    before = print_graph(graph)
    edited = ei.replace_values(graph, {"hidden.matmul": lambda value: value * 3.0})
    verify(edited)
    expected = (np.tanh(3 * (X @ WEIGHT).astype(np.float64)) ** 2).sum()
    np.testing.assert_allclose(run(edited, backend, x=X)["total"], expected, rtol=1e-5)
    assert print_graph(graph) == before, "the given graph has changed"


def test_the_edit_is_seen_in_the_text_and_in_its_history():
    graph = layer()
    edited = ei.replace_values(graph, {"hidden.matmul": lambda value: value * 3.0})
    lines, before = print_graph(edited).splitlines(), print_graph(graph).splitlines()
    assert [line for line in lines if line not in before] == [
        "  %hidden.constant = constant {value = 3.0} : f32[]",
        "  %hidden.broadcast = broadcast %hidden.constant : f32[2, 3]",
        "  %hidden.multiply = multiply %hidden.matmul, %hidden.broadcast : f32[2, 3]",
        "  %hidden.tanh = tanh %hidden.multiply : f32[2, 3]",
    ]
    assert edited.value("hidden.multiply").op.via == ("replace_values",)
    assert print_graph(parse_graph(print_graph(edited))) == print_graph(edited)


def test_a_value_is_replaced_by_an_input_by_an_array_or_by_a_number(backend):
    by_input = ei.replace_values(layer(), {"hidden.tanh": lambda value: ei.input("patch", value.shape)})
    patch = np.full((2, 3), 2.0, np.float32)
    assert run(by_input, backend, x=X, patch=patch)["total"] == 24.0
    assert run(ei.replace_values(layer(), {"hidden.tanh": patch}), backend, x=X)["total"] == 24.0
    assert run(ei.replace_values(layer(), {"hidden.tanh": 2}), backend, x=X)["total"] == 24.0


def test_an_output_and_an_update_are_replaced_too(backend):
    graph = layer()
    updated = graph.updates["weight"].name
    edited = ei.replace_values(graph, {graph.outputs["total"].name: lambda value: -value, updated: 7.0})
    state = ei.State()
    state["weight"] = WEIGHT
    total = ei.compile(edited, backend=backend)(state, x=X)["total"]
    np.testing.assert_allclose(total, -(np.tanh((X @ WEIGHT).astype(np.float64)) ** 2).sum(), rtol=1e-5)
    assert (state["weight"] == 7).all()


def test_a_gradient_taken_afterwards_knows_of_the_edit(backend):
    edited = ei.replace_values(layer(), {"x": lambda value: value * 3.0})
    with edited:
        ei.output(slope=ei.gradient(edited.outputs["total"], [edited.value("x")])[0])
    hidden = np.tanh(3 * (X @ WEIGHT).astype(np.float64))
    expected = 3 * (2 * hidden * (1 - hidden**2)) @ WEIGHT.T.astype(np.float64)
    np.testing.assert_allclose(run(edited, backend, x=X)["slope"], expected, rtol=1e-4, atol=1e-5)


def test_reading_adds_outputs_and_stopping_leaves_nothing_else(backend):
    graph = layer()
    before = print_graph(graph)
    read = ei.read_values(graph, ["hidden.tanh", "x"])
    assert list(read.outputs) == ["total", "hidden.tanh", "x"] and list(read.updates) == ["weight"]
    found = run(read, backend, x=X)
    np.testing.assert_allclose(found["hidden.tanh"], np.tanh(X @ WEIGHT), rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(found["x"], X)
    stopped = ei.read_values(graph, ["hidden.matmul"], stop=True)
    verify(stopped)
    assert [op.name for op in stopped.ops] == ["input", "parameter", "matmul"]
    assert list(stopped.outputs) == ["hidden.matmul"] and not stopped.updates
    assert list(ei.read_values(graph, {"product": "hidden.matmul"}, stop=True).outputs) == ["product"]
    assert print_graph(graph) == before, "the given graph has changed"


def test_what_is_cut_off_is_no_input_any_more():
    edited = ei.replace_values(layer(), {"hidden.tanh": lambda value: ei.input("patch", value.shape)})
    stopped = ei.read_values(edited, [edited.outputs["total"].name], stop=True)
    assert [leaf.name for leaf in stopped.inputs] == ["patch"] and not stopped.parameters


def test_an_edit_survives_the_passes():
    edited = ei.replace_values(layer(), {"hidden.tanh": lambda value: value * 0.0 + 1.0})
    assert run(optimize(edited), x=X)["total"] == 6.0


@pytest.mark.parametrize(
    ("replacements", "message"),
    [
        ({"hidden.tahn": 0.0}, "has no value 'hidden.tahn'.*did you mean hidden.tanh"),
        ({"hidden.tanh": lambda value: value.sum()}, "replaced by a value of another type"),
        ({"hidden.tanh": lambda value: None}, "replaced by None"),
        ({"hidden.tanh": lambda value: layer().value("x")}, "no value of the new graph"),
        ({"hidden.tanh": np.zeros((4, 3), np.float32)}, "broadcast"),
    ],
)
def test_what_cannot_replace_is_said(replacements, message):
    graph = layer()
    before = print_graph(graph)
    with pytest.raises(ei.EulerError, match=f"(?s){message}"):
        ei.replace_values(graph, replacements)
    assert print_graph(graph) == before


def test_what_cannot_be_read_is_said():
    with pytest.raises(ei.GraphError, match="no value 'hiden.tanh'"):
        ei.read_values(layer(), ["hiden.tanh"])
    with pytest.raises(ei.GraphError, match=r"(?s)a list of names.*write \['hidden.tanh'\]"):
        ei.read_values(layer(), "hidden.tanh")
    with pytest.raises(ei.GraphError, match="(?s)no value 'total'.*the output of that name is the value"):
        ei.read_values(layer(), ["total"])
    with ei.Graph() as graph:
        x = ei.input("x", ())
        ei.output(x=-x)
    with pytest.raises(ei.GraphError, match="already has an output 'x'"):
        ei.read_values(graph, ["x"])
