"""What opt, stages, why-not, passes and ops say, and that a table lacks nothing."""

import dataclasses
import json

import pytest

import euler_ir as ei
from euler_ir.cli import main
from euler_ir.errors import Location
from euler_ir.inspect.catalogue import operators, passes, rules
from euler_ir.inspect.stages import stages
from euler_ir.inspect.user_graph import defining_files
from euler_ir.inspect.why_not import why_not
from euler_ir.ops.definition import OPS
from euler_ir.passes import PASSES, PIPELINE, RULES, Limit, optimize
from euler_ir.text import parse_graph

SOURCE = """\
import euler_ir as ei
from euler_ir.passes import Pass

class Faulty(Pass):
    \"\"\"Fail where it can.\"\"\"

    name = "faulty-here"

    def run(self, graph):
        return graph.ops[-1].operands[7]

def graph():
    with ei.Graph("small") as graph:
        x = ei.input("x", (4, 8))
        ei.output(y=ei.sin(x * 1) + 1, half=x / 3)
    return graph
"""


@pytest.fixture
def target(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = dict(PASSES)
    (tmp_path / "small.py").write_text(SOURCE)
    yield "small.py:graph"
    PASSES.clear()
    PASSES.update(known)


def small():
    with ei.Graph("small") as graph:
        x = ei.input("x", (4, 8))
        ei.output(y=ei.sin(x * 1) + 1, half=x / 3, sum=x.sum(1))
    return graph


def test_every_operator_pass_and_rule_says_what_it_means():
    for entry in operators():
        assert entry.doc and "\n" not in entry.doc and len(entry.doc) < 100, entry.name
    assert [entry.name for entry in operators()] == list(OPS)
    assert all(entry.doc for entry in (*passes(), *rules()))
    assert {entry.name for entry in passes()} == set(PASSES) and {entry.name for entry in rules()} == set(RULES)


def test_stopped_and_resumed_is_the_same_as_run_through(target, tmp_path, capsys):
    assert main(["opt", target]) == 0
    whole = capsys.readouterr().out
    for place in ("dce", "simplify#2", "cse#3"):
        after = {"dce": "simplify", "simplify#2": "fold", "cse#3": "dce#3"}[place]
        assert main(["opt", target, "--stop-after", place, "-o", "stopped.eir"]) == 0
        assert main(["opt", "stopped.eir", "--start-from", after]) == 0
        assert capsys.readouterr().out == whole
    assert parse_graph(whole).outputs


def test_a_failing_pass_leaves_a_file_that_fails_again(target, capsys):
    assert main(["opt", target, "-p", "simplify,faulty-here"]) == 2
    message = capsys.readouterr().err
    assert "pass faulty-here raised IndexError" in message and "small.py:10 in run" in message
    command = message.splitlines()[-1].removeprefix("to see it again: euler-ir ").split()
    assert command[-2:] == ["--load", "small.py"]
    assert main(command) == 2
    assert "pass faulty-here raised IndexError" in capsys.readouterr().err


def test_a_reproducer_loads_no_more_than_it_needs(tmp_path, monkeypatch):
    monkeypatch.setattr("euler_ir.inspect.user_graph.PASSES", {"dce": PASSES["dce"]})
    monkeypatch.setattr("euler_ir.inspect.user_graph.RULES", {})
    assert defining_files([], "model.py:graph") == ()
    file = tmp_path / "mine.py"
    rule = dataclasses.replace(RULES["sum-ones"], location=Location(str(file), 1, "mine"))
    monkeypatch.setattr("euler_ir.inspect.user_graph.RULES", {"mine": rule})
    assert defining_files([str(file)], "model.py:graph") == (str(file),)
    assert defining_files([], "model.py:graph") == ("model.py",)
    assert defining_files([], "model.eir") == defining_files([], "-") == ()


def test_opt_answers_as_json(target, capsys):
    assert main(["opt", target, "-p", "simplify,cse", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["pipeline"] == "simplify,cse" and record["passes"][0]["rules"] == {"multiply-one": 1}
    assert parse_graph(record["text"]).name == "small"


def test_stages_count_what_each_pass_made():
    descent = stages(small())
    assert [stage.name for stage in descent.stages] == [*map(str, PIPELINE), "fuse"]
    assert descent.stages[1].rules == {"multiply-one": 1} and descent.stages[1].changed
    assert descent.stages[-1].cost.operators < descent.start.operators
    assert descent.planned.launches >= descent.planned.distinct_kernels > 0
    assert descent.planned.peak_bytes >= descent.planned.arena_bytes


@pytest.mark.parametrize(
    ("rule", "value", "status", "reason", "found"),
    [
        ("multiply-one", "y", "operator", "it is made by add, and the rule wants multiply", 0),
        ("multiply-one", "multiply", "matches", "nothing holds it back", 3),
        ("add-negative", "y", "operator", "it is made by broadcast, and the rule wants negative", 1),
        ("add-minus-zero", "y", "number", "it is 1, and the rule wants -0", 1),
        ("divide-power-of-two", "half", "guard", "the divisor 3 is not a power of two", 3),
        ("sum-ones", "sum", "guard", "axis 1 has 8 elements", 2),
        ("subtract-same", "half", "operator", "it is made by divide, and the rule wants subtract", 0),
    ],
)
def test_why_a_rule_is_not_applied(rule, value, status, reason, found):
    graph = small()
    name = graph.outputs[value].name if value in graph.outputs else graph.ops[3].result.name
    answer = why_not(graph, rule, name)
    assert (answer.status, answer.reason, len(answer.found)) == (status, reason, found)
    assert answer.location.file == __file__ and len(answer.found) <= answer.parts
    json.dumps(answer.record())


def test_why_not_knows_what_happens_later_and_what_was_meant():
    graph = small()
    assert why_not(graph, "multiply-one", graph.ops[3].result.name).applied_in == "simplify"
    assert why_not(graph, "add-negative", "y").applied_in is None
    with pytest.raises(ei.GraphError, match="there is no rule 'multiply-won'") as caught:
        why_not(graph, "multiply-won", "y")
    assert caught.value.hint == "did you mean multiply-one?"
    with pytest.raises(ei.PassError, match="there is no pass 'simplify#9' in the pipeline"):
        why_not(graph, "multiply-one", "y", after="simplify#9")
    with pytest.raises(ei.GraphError, match="after fuse there is no graph any more"):
        why_not(graph, "multiply-one", "y", "default,fuse", after="fuse")


def test_a_limit_is_met_whatever_is_left_out():
    for most in (0, 1, 2, 5):
        limit = Limit(most)
        optimize(small(), "dce,simplify,cse", [limit])
        assert limit.used <= most
