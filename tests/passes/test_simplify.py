"""Rules together, and what they must never do; each by itself is tested in tests/eir/rules_*.eir."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import euler_ir as e
from euler_ir import interpreter
from euler_ir.dtypes import DTYPES
from euler_ir.graph_equality import structurally_equal
from euler_ir.passes import RemoveDead, Simplify
from euler_ir.passes.meaning import difference
from euler_ir.passes.patterns import Anything, apply
from euler_ir.passes.rewriting import Rule, rewrite
from euler_ir.passes.rules import SIMPLIFY
from euler_ir.passes.rules.movement import is_lossless
from euler_ir.testing.pass_test import read_pass_tests
from euler_ir.text import parse_graph, print_graph

FLOATS = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.25, 1e-40, -3e38, 7.0, 0.1]
INTEGERS = [0, 1, -1, 7, 100, -128, 127]


def build(function, *types):
    """The graph of ``function`` of inputs x, y, z of ``types`` such as 'f32[2, 3]'."""
    graph = e.Graph("case")
    with graph:
        inputs = []
        for name, text in zip("xyz", types):
            dtype, sizes = text[:-1].split("[")
            inputs.append(e.input(name, tuple(map(int, sizes.split(", "))) if sizes else (), DTYPES[dtype]))
        e.output(result=function(*inputs))
    return RemoveDead().run(graph)


def leaves_of(graph):
    """Special values for every input, each input beginning at another one."""
    leaves = {}
    for shift, leaf in enumerate(graph.inputs):
        values = FLOATS if leaf.dtype.is_float else INTEGERS
        if leaf.dtype.kind == "unsigned":
            values = [abs(value) for value in INTEGERS]
        cycled = np.resize(np.roll(values, 2 * shift), leaf.size)
        with np.errstate(over="ignore"):
            leaves[leaf.name] = np.asarray(cycled, leaf.dtype.numpy).reshape(leaf.shape)
    return leaves


def result_of(graph, leaves):
    return interpreter.run(graph, leaves)[0]["result"]


def emit(name, *operands, **attributes):
    return operands[0].graph.emit(name, operands, **attributes)


def erf(x):
    return e.erf(x)


M = "f32[3, 5]"
BY_NAME = {rule.name: rule for rule in SIMPLIFY}

# Where each rule applies, and where it must not, stands in these files, a test each.
EIR = Path(__file__).parents[1] / "eir"
TESTS = [test for path in sorted(EIR.glob("rules_*.eir")) for test in read_pass_tests(path)]


def rule_of(test):
    return test.pipeline.removeprefix("rewrite{rules=").removesuffix("}")


def test_every_rule_is_tested_both_ways():
    fires = {rule_of(test) for test in TESTS if test.checks}
    stays = {rule_of(test) for test in TESTS if test.unchanged}
    assert sorted(set(BY_NAME) - fires) == [] and sorted(set(BY_NAME) - stays) == []
    assert len(BY_NAME) == len(SIMPLIFY)


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.name)
def test_all_rules_together_reach_a_fixpoint_and_the_exact_ones_keep_every_bit(test):
    graph = parse_graph(test.text)
    once = Simplify().run(graph)
    assert Simplify().run(once) is once
    leaves = leaves_of(graph)
    exact = Simplify(numerics="exact").run(graph)
    assert difference(result_of(graph, leaves), result_of(exact, leaves)) is None


def test_the_spelled_out_gelu_keeps_its_tail():
    graph = build(lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))), "f32[3]")
    found = result_of(Simplify().run(graph), {"x": np.array([-5, -5.5, -6], np.float32)})
    exact = [-1.4332857e-06, -1.0444259e-07, -5.9195e-09]  # x * Phi(x), mpmath
    np.testing.assert_allclose(found, exact, rtol=1e-4)


def test_a_factor_that_others_use_is_not_negated_apart():
    graph = build(lambda x: e.exp(y := x * 3.0) - e.sin(-y), M)
    assert rewrite(graph, [BY_NAME["negative-factor"]]) is graph


def test_rules_apply_everywhere_in_one_graph():
    found = Simplify().run(build(lambda x, y: x * 1 + -(-y), M, M))
    assert structurally_equal(found, build(lambda x, y: x + y, M, M), names=False)


def test_exact_leaves_better_rules_alone():
    graph = build(lambda x: 1 + erf(x), M)
    assert print_graph(Simplify(numerics="exact").run(graph)) == print_graph(graph)
    with pytest.raises(e.EulerError, match="use one of exact, better, reassociating"):
        Simplify(numerics="fast")


def test_rules_that_undo_each_other_are_named():
    x = Anything("x")
    there = Rule("there", "exact", "", apply("sin", x), lambda m: e.cos(m["x"]))
    back = Rule("back", "exact", "", apply("cos", x), lambda m: e.sin(m["x"]))
    with pytest.raises(e.GraphError, match="'there' and 'back'|'back' and 'there'"):
        rewrite(build(lambda x: e.sin(x), M), [there, back])


def test_a_rule_that_changes_the_type_is_named():
    wrong = Rule("wrong", "exact", "", apply("sin", Anything("x")), lambda m: m["x"].cast(e.f64))
    with pytest.raises(e.GraphError, match="rule 'wrong' turns f32"):
        rewrite(build(lambda x: e.sin(x), M), [wrong])


def test_what_a_rule_makes_is_blamed_on_the_users_line():
    graph = build(lambda x: 1 + erf(x), M)
    line = graph.outputs["result"].op.location
    found = rewrite(graph, [BY_NAME["one-plus-erf"]])
    assert [op.location for op in found.ops if op.name in ("erfc", "negative")] == [line, line]


def test_lossless_casts_are_those_that_keep_every_value():
    def numbers(array, dtype):
        return [float(item) if dtype.is_float else int(item) for item in array]

    for source in DTYPES.values():
        if source.is_integer:
            low, high = np.iinfo(source.numpy).min, np.iinfo(source.numpy).max
            values = [low, low + 1, 0, 1, high - 1, high]
        else:
            values = FLOATS[1:] if source.is_float else [0, 1]
        with np.errstate(all="ignore"):
            array = np.array(values).astype(source.numpy)
            for target in DTYPES.values():
                kept = numbers(array, source) == numbers(array.astype(target.numpy), target)
                assert is_lossless(source, target) == kept, (source, target)


def test_rules_are_frozen_data():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SIMPLIFY[0].doc = ""
