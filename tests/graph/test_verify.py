"""Each rule of the verifier is broken once, on purpose."""

import numpy as np
import pytest

import euler_ir as e
from euler_ir.graph import Op
from euler_ir.initializers import Zeros
from euler_ir.ops.definition import OPS, OpDefinition
from euler_ir.verify import RULES, verify


@pytest.fixture
def graph():
    graph = e.Graph("case")
    with graph:
        x = e.input("x", (2, 3))
        weight = e.parameter("weight", (2, 3), Zeros())
        total = e.sum(x * weight, 0)
        noise = e.random_uniform((3,), 1, 2)
        e.random_normal((3,), 1, 2)
        e.output(total=total, noise=noise)
        e.update(weight, weight - x)
    return graph


def put(graph, operator, operands, types, /, definition=None, **attributes):
    """Append an op without any check."""
    names = [f"new.{n}" for n, _ in enumerate(types)]
    op = Op(definition or OPS[operator], tuple(operands), attributes, types, names, graph)
    graph.ops.append(op)
    return op


def foreign_operand(graph):
    other = e.Graph("other")
    put(graph, "exp", [other.input("y", (2, 3))], [e.TensorType(e.f32, (2, 3))])


def use_before_definition(graph):
    graph.ops.append(graph.ops.pop(0))


def result_of_another_op(graph):
    op = put(graph, "exp", [graph.leaf("x")], [graph.leaf("x").type])
    op.results = graph.ops[0].results


def unknown_operator(graph):
    x = graph.leaf("x")
    put(graph, "", [x], [x.type], definition=OpDefinition("invented", "elementwise", lambda types, attributes: types))


def operand_count(graph):
    x = graph.leaf("x")
    put(graph, "add", [x], [x.type])


def missing_attribute(graph):
    put(graph, "sum", [graph.leaf("x")], [e.TensorType(e.f32, ())])


def extra_attribute(graph):
    x = graph.leaf("x")
    put(graph, "exp", [x], [x.type], speed=2)


def attribute_kind(graph):
    put(graph, "sum", [graph.leaf("x")], [e.TensorType(e.f32, ())], axes=[0, 1])


def bool_among_integers(graph):
    put(graph, "sum", [graph.leaf("x")], [e.TensorType(e.f32, (2,))], axes=(True,))


def numpy_integer_attribute(graph):
    put(graph, "cumsum", [graph.leaf("x")], [graph.leaf("x").type], axis=np.int64(0), reverse=False)


def wrong_type(graph):
    put(graph, "exp", [graph.leaf("x")], [e.TensorType(e.f32, (3, 2))])


def impossible_type(graph):
    put(graph, "sum", [graph.leaf("x")], [e.TensorType(e.f32, ())], axes=(0, 7))


def repeated_leaf(graph):
    put(graph, "input", [], [e.TensorType(e.f32, ())], name="x", shape=(), dtype=e.f32)


def unlisted_leaf(graph):
    put(graph, "input", [], [e.TensorType(e.f32, ())], name="y", shape=(), dtype=e.f32)


def foreign_output(graph):
    graph.outputs["other"] = e.Graph("other").input("y", ())


def foreign_update(graph):
    graph.updates["weight"] = e.Graph("other").input("y", (2, 3))


def update_of_input(graph):
    graph.updates["x"] = graph.leaf("x")


def update_of_nothing(graph):
    graph.updates["bias"] = graph.leaf("x")


def update_type(graph):
    graph.updates["weight"] = graph.outputs["total"]


def shared_stream(graph):
    noise = graph.outputs["noise"].op
    put(graph, noise.name, noise.operands, [noise.result.type], **noise.attributes)


def overlapping_stream(graph):
    noise = graph.outputs["noise"].op
    attributes = {**noise.attributes, "stream": 3}
    put(graph, noise.name, noise.operands, [noise.result.type], **attributes)


def repeated_name(graph):
    put(graph, "exp", [graph.leaf("x")], [graph.leaf("x").type]).result.name = "weight"


def no_name(graph):
    put(graph, "exp", [graph.leaf("x")], [graph.leaf("x").type]).result.name = None


def negative_size(graph):
    put(graph, "iota", [], [e.TensorType(e.i64, (2, -1))], shape=(2, -1), axis=0, dtype=e.i64)


def endless_size(graph):
    put(graph, "iota", [], [e.TensorType(e.i64, (1 << 63,))], shape=(1 << 63,), axis=0, dtype=e.i64)


def many_axes(graph):
    put(graph, "iota", [], [e.TensorType(e.i64, (1,) * 65)], shape=(1,) * 65, axis=0, dtype=e.i64)


def place_that_is_text(graph):
    graph.ops[0].location = "model.py:3"


def chain_that_is_a_list(graph):
    graph.ops[0].via = ["gradient"]


def scope_of_none(graph):
    graph.ops[0].scope = None


def leaf_that_is_gone(graph):
    graph._leaves["y"] = e.Graph("other").input("y", ())


def output_without_a_name(graph):
    graph.outputs[3] = graph.leaf("x")


BROKEN = [
    ("V01", foreign_operand, "operand 0 of exp belongs to another graph"),
    ("V01", use_before_definition, "operand 0 of multiply is defined later or never"),
    ("V01", result_of_another_op, "exp or its results belong to another op"),
    ("V02", unknown_operator, "'invented' is not in the table"),
    ("V02", operand_count, r"add takes 2 operands \(left, right\), not 1"),
    ("V03", missing_attribute, "sum lacks attribute 'axes'"),
    ("V03", extra_attribute, "exp has no attribute 'speed'"),
    ("V03", attribute_kind, r"attribute 'axes' is \[0, 1\], not of kind ints"),
    ("V03", bool_among_integers, r"attribute 'axes' is \(True,\), not of kind ints"),
    ("V03", numpy_integer_attribute, "attribute 'axis' is .* not of kind int"),
    ("V04", wrong_type, r"exp gives f32\[2, 3\], but f32\[3, 2\] is stored"),
    ("V04", impossible_type, r"axes \(0, 7\) do not fit"),
    ("V05", repeated_leaf, "input 'x' bears the name of another input"),
    ("V05", unlisted_leaf, "does not find input 'y' by its name"),
    ("V05", leaf_that_is_gone, "graph 'case' finds input 'y', which is not in it"),
    ("V06", output_without_a_name, "output 3 is not named by a string"),
    ("V06", foreign_output, "output 'other' is not a value of graph 'case'"),
    ("V06", foreign_update, "update 'weight' is not a value of graph 'case'"),
    ("V07", update_of_input, "update 'x' names no parameter or state"),
    ("V07", update_of_nothing, "update 'bias' names no parameter or state"),
    ("V07", update_type, r"update of 'weight' is f32\[3\], the parameter f32\[2, 3\]"),
    ("V08", shared_stream, "random_uniform uses stream 1, as does another random_uniform"),
    ("V08", overlapping_stream, "random_uniform uses stream 3, as does another random_normal"),
    ("V09", repeated_name, "exp gives a value the name 'weight'"),
    ("V09", no_name, "exp gives a value the name None"),
    ("V10", negative_size, "iota gives a size of -1"),
    ("V10", endless_size, "iota gives a size of 9223372036854775808"),
    ("V10", many_axes, "iota gives 65 axes"),
    ("V11", place_that_is_text, "input comes from 'model.py:3', scope '', via"),
    ("V11", chain_that_is_a_list, r"via \['gradient'\]"),
    ("V11", scope_of_none, "scope None"),
]


def test_a_built_graph_is_valid(graph):
    verify(graph)


@pytest.mark.parametrize(("rule", "breaks", "message"), BROKEN, ids=[case[1].__name__ for case in BROKEN])
def test_rule(graph, rule, breaks, message):
    breaks(graph)
    with pytest.raises(e.VerifyError, match=f"{rule}: .*{message}"):
        verify(graph)


def test_every_rule_is_broken_once():
    assert {case[0] for case in BROKEN} == set(RULES)


def test_the_user_is_told_the_line():
    graph = e.Graph()
    x = graph.input("x", (2,))
    value = e.exp(x)
    value.type = e.TensorType(e.f32, (3,))
    with pytest.raises(e.VerifyError) as caught:
        verify(graph)
    assert caught.value.location.line == test_the_user_is_told_the_line.__code__.co_firstlineno + 3
    assert "x: f32[2]" in str(caught.value)
