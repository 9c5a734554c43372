"""``euler-ir reduce``: what is left is small, keeps all rules, and fails as the large graph did."""

import json
import shlex

import numpy as np
import pytest
from planted import Swap, arrays_of
from test_bisect import deep_graph
from test_compare import wrong_subtraction

import euler_ir as ei
from euler_ir.cli import main
from euler_ir.inspect.numerics.cases import Case, resized, window
from euler_ir.inspect.numerics.failures import failure
from euler_ir.inspect.numerics.reduce import reduce
from euler_ir.interpreter import run
from euler_ir.text import parse_graph
from euler_ir.verify import verify
from models.gpt2 import GPT2Config
from models.language_model import train_graph


def case_of(graph):
    return Case(graph, arrays_of(graph).arrays)


def operators(case):
    return [op.name for op in case.graph.ops if op.definition.family != "leaf"]


def test_a_wrong_kernel_of_a_training_step_is_one_operator(monkeypatch):
    wrong_subtraction(monkeypatch)
    found = reduce(case_of(train_graph(GPT2Config(11, 4, 1, 1, 4), 1, 4)), failure("compare"))
    assert len(operators(found.case)) == 1 and not found.interrupted
    assert found.case.size[2] <= 12
    verify(found.case.graph)


def test_a_wrong_rule_is_one_operator():
    found = reduce(case_of(deep_graph()), failure("compare", f"default,{Swap.name}"))
    assert operators(found.case) == ["subtract"] and found.drawn


def test_5000_operators_within_few_runs():
    with ei.Graph("wide") as graph:
        x = ei.input("x", (8,))
        for number in range(1250):
            y = ei.tanh(x) * 0.5
            x = x + (ei.floor(y) if number == 700 else y)
        ei.output(x=x)
    assert len(graph.ops) > 5000

    def has_floor(case):
        return any(op.name == "floor" for op in case.graph.ops)

    found = reduce(case_of(graph), has_floor)
    assert operators(found.case) == ["floor"] and found.runs < 200
    assert found.case.size[1:] == (2, 2)


def test_values_that_matter_are_kept():
    with ei.Graph("values") as graph:
        x = ei.input("x", (6,))
        ei.output(y=ei.exp(x * 2 + 1), z=x - 1)
    arrays = {"x": np.array([1, 2, 50, 4, 5, 6], np.float32)}

    def overflows(case):
        outputs, updates = run(case.graph, case.arrays)
        return any(np.isinf(array).any() for array in outputs.values())

    found = reduce(Case(graph, arrays), overflows)
    assert operators(found.case) == ["exp"] and not found.drawn and overflows(found.case)


def test_an_interrupt_keeps_the_best():
    runs = []

    def fails(case):
        runs.append(case)
        if len(runs) == 20:
            raise KeyboardInterrupt
        return any(op.name == "subtract" for op in case.graph.ops)

    found = reduce(case_of(deep_graph()), fails)
    assert found.interrupted and len(operators(found.case)) < len(operators(found.before))
    verify(found.case.graph)
    assert reduce(case_of(deep_graph()), lambda case: True, most_runs=3).runs == 3


def test_the_same_case_gives_the_same_result():
    once, again = (reduce(case_of(deep_graph()), failure("compare", f"default,{Swap.name}")) for _ in range(2))
    assert str(once.case.graph) == str(again.case.graph) and once.runs == again.runs


def test_what_does_not_fail_is_refused():
    with pytest.raises(ValueError, match="does not fail"):
        reduce(case_of(deep_graph()), failure("compare"))
    for wrong in ("compare this", "raises", "command true", "explode"):
        with pytest.raises(ValueError):
            failure(wrong)


def test_a_window_computes_what_it_did():
    graph = train_graph(GPT2Config(23, 8, 2, 2, 12), 1, 4)
    case = case_of(graph)
    part = window(case, len(graph.ops) // 3, len(graph.ops) // 2)
    outputs, _ = run(part.graph, part.arrays)
    wanted = case.values([value for op in graph.ops for value in op.results])
    by_name = {value.name: array for value, array in wanted.items()}
    assert len(outputs) > 3
    for name, value in part.graph.outputs.items():
        assert np.array_equal(outputs[name], by_name[value.name], equal_nan=True)


def test_other_sizes_keep_types():
    graph = train_graph(GPT2Config(23, 8, 2, 2, 12), 2, 4)
    smaller = resized(case_of(graph), {23: 5})
    verify(smaller.graph)
    run(smaller.graph, smaller.arrays)
    assert smaller.size[2] < case_of(graph).size[2]


def test_the_command(capsys, tmp_path):
    file, out = tmp_path / "deep.eir", tmp_path / "small.eir"
    file.write_text(str(deep_graph()))
    arguments = ["reduce", str(file), "-o", str(out)]
    assert main([*arguments, "--check", "compare", "--passes", f"default,{Swap.name}"]) == 0
    printed = capsys.readouterr()
    assert "became 1 with" in printed.out and "operators" in printed.err
    first = out.read_text().splitlines()[0]
    assert first == f"// RUN: euler-ir compare {out} --passes default,{Swap.name}"
    assert len(parse_graph(out.read_text()).ops) == 3
    assert main(["compare", str(out), "--passes", f"default,{Swap.name}"]) == 1
    program = tmp_path / "model.py"
    program.write_text("from test_bisect import deep_graph\n")
    passes = ["--passes", f"default,{Swap.name}"]
    assert main(["reduce", f"{program}:deep_graph", "-o", str(out), "--check", "compare", *passes]) == 0
    command = out.read_text().splitlines()[0].removeprefix("// RUN: euler-ir ")
    assert command.endswith(f" --load {program}"), "a graph as text does not bring the passes with it"
    assert main(shlex.split(command)) == 1
    capsys.readouterr()
    check = "command grep -q 'subtract' {} && exit 3 || exit 0"
    assert main([*arguments, "--check", check, "--runs", "60", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["after"]["operators"] <= 40
    assert main([*arguments, "--check", "compare"]) == 2
    assert "nothing to reduce" in capsys.readouterr().err
    assert main([*arguments, "--check", "explode"]) == 2
    assert "is no check" in capsys.readouterr().err


def test_what_raises_is_reduced():
    with ei.Graph("index") as graph:
        x, at = ei.input("x", (9, 4)), ei.input("at", (3,), ei.i64)
        ei.output(y=ei.exp(ei.take(x * 2, at + 7, 0)) + 1, z=x.sum())
    arrays = {"x": np.ones((9, 4), np.float32), "at": np.array([0, 1, 2])}
    found = reduce(Case(graph, arrays), failure("raises outside of"))
    assert operators(found.case) == ["take"]


def test_what_is_around_a_wrong_value_is_tried_first():
    check = failure("compare", f"default,{Swap.name}")
    found = reduce(case_of(deep_graph()), check, suspect=lambda: check.suspect)
    assert operators(found.case) == ["subtract"] and found.steps[0].step == "around a wrong value"
    assert found.steps[0].runs == 1


def test_attributes_and_numbers_become_plainer():
    with ei.Graph("plain") as graph:
        x = ei.input("x", (2,))
        ei.output(y=ei.cumsum(x, 0, reverse=True))
    arrays = {"x": np.array([3.14159, 0.27182], np.float32)}

    def fails(case):
        outputs, _ = run(case.graph, case.arrays)
        return operators(case) == ["cumsum"] and any((array > 3).any() for array in outputs.values())

    found = reduce(Case(graph, arrays), fails).case
    (op,) = [op for op in found.graph.ops if op.name == "cumsum"]
    assert op.attributes["reverse"] is False
    np.testing.assert_array_equal(found.arrays["x"], np.round(arrays["x"], 1)[: found.arrays["x"].size])
