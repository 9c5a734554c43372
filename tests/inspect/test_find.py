"""Values, lines and scopes by the words of a person."""

import pytest

import euler_ir as ei
from euler_ir import nn
from euler_ir.errors import GraphError
from euler_ir.inspect.find import names_like, find_value, ops_of_line, ops_of_scope, place_of
from euler_ir.text.printer import value_names


@pytest.fixture
def graph():
    with ei.Graph("small") as graph:
        x = ei.input("x in", (2, 4))
        hidden = nn.Linear(4, 3)(x).named("hidden")
        ei.output(loss=hidden.sum())
    return graph


def test_every_value_is_found_by_its_name(graph):
    for value, name in value_names(graph).items():
        assert find_value(graph, name) is value and find_value(graph, name[1:]) is value
    assert find_value(graph, "loss") is graph.outputs["loss"]
    assert find_value(graph, "x in") is graph.inputs[0]
    assert find_value(graph, "weight") is graph.parameters[0]


@pytest.mark.parametrize(("name", "hint"), [("%hiden", "did you mean %hidden"), ("%zzz", "dump TARGET")])
def test_what_was_meant(graph, name, hint):
    with pytest.raises(GraphError, match=f"has no value {name}") as caught:
        find_value(graph, name)
    assert hint in caught.value.hint


def test_lines_and_scopes(graph):
    line = graph.outputs["loss"].op.location.line
    assert graph.outputs["loss"].op in ops_of_line(graph, "test_find.py", line)
    assert graph.outputs["loss"].op in ops_of_line(graph, "inspect/test_find.py", line)
    with pytest.raises(GraphError, match="comes from test_find.py:1") as caught:
        ops_of_line(graph, "test_find.py", 1)
    assert str(line - 2) in caught.value.hint
    with pytest.raises(GraphError, match="comes from other.py:3") as caught:
        ops_of_line(graph, "other.py", 3)
    assert "test_find.py" in caught.value.hint
    with pytest.raises(GraphError, match="scope 'h.0'"):
        ops_of_scope(graph, "h.0")


def test_words():
    assert place_of("model.py:41") == ("model.py", 41)
    assert place_of("%add") is None and place_of("model.py:") is None and place_of(":3") is None
    assert names_like("atention", ["attention", "add"], "") == "did you mean attention?"
