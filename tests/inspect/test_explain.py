"""`euler-ir explain`: what it says of a value is what the graphs, groups and plan say."""

import json
from pathlib import Path

import pytest

import euler_ir as ei
from euler_ir.cli import main
from euler_ir.compiler import lower
from euler_ir.errors import GraphError
from euler_ir.graph import Graph
from euler_ir.inspect.explain import Explainer, explain
from euler_ir.inspect.history import FATES, History
from euler_ir.passes.instruments import Snapshots
from euler_ir.testing.random_graphs import random_graph
from euler_ir.text.printer import op_text, value_names
from models.gpt2 import GPT2Config
from models.language_model import train_graph

MLP = f"{Path(__file__).parents[2] / 'examples' / 'mlp.py'}:train_graph"


@pytest.fixture(scope="module")
def gpt2():
    return Explainer(train_graph(GPT2Config(23, 8, 2, 2, 12), 2, 8))


def test_every_value_is_explained(gpt2):
    plan, names = gpt2.stages.plan, gpt2.names
    for value, name in names.items():
        found = gpt2.value(name)
        assert (found.name, found.type, found.gone) == (name, str(value.type), False)
        assert found.text == op_text(value.op, names) and found.via == value.op.via
        assert (found.location, found.scope) == (value.op.location, value.op.scope)
        assert [edge.value for edge in found.operands] == [names[each] for each in dict.fromkeys(value.op.operands)]
        readers = [op for op in gpt2.optimized.ops if value in op.operands]
        assert [edge.reader for edge in found.readers] == [names[op.result] for op in readers]
        assert found.buffer == plan.decisions.buffers.get(value)
        if found.life is not None:
            buffer = plan.buffers[found.buffer]
            assert (found.life.offset, found.life.first, found.life.last) == (buffer.offset, buffer.first, buffer.last)
        assert json.dumps(found.record())


def test_where_a_value_is_computed(gpt2):
    places = gpt2.stages.plan.decisions.places
    for number, group in enumerate(gpt2.stages.fused.groups):
        for op in group.ops:
            if op in group.computed():
                (own,) = [each for each in gpt2.value(gpt2.names[op.result]).computed if each.group == number]
                assert not own.again and gpt2.phases[places[group].step] == own.phase
    again = [each for op in gpt2.optimized.ops for each in gpt2.value(gpt2.names[op.result]).computed if each.again]
    assert again, "a step of training computes some values again"
    repeated = [op for op in gpt2.optimized.ops if op.definition.family == "elementwise" and op.result.dtype.is_float]
    repeated = [op for op in repeated if len(gpt2.computing.get(op, ())) > 1 and op.name == "multiply"]
    for op in repeated:
        times = sum(op in group.computed() for group in gpt2.stages.fused.groups)
        assert gpt2.value(gpt2.names[op.result]).cost.flops == times * op.result.size
    assert repeated


def test_costs_by_hand():
    with ei.Graph("costs") as graph:
        x, w = ei.input("x", (8, 16)), ei.input("w", (16, 4))
        product = (x @ w).named("product")
        ei.output(p=product, y=ei.exp(product))
    found = explain(graph, "%product")
    # 2 x 8 x 16 x 4 operations; written once and read once.
    assert found.cost.flops == 1024 and found.cost.nbytes == 2 * 8 * 4 * 4
    assert found.cost.moved == 4 * (8 * 16 + 16 * 4) + 4 * (8 * 4) * 3
    assert found.results == ("output p",) and found.place == "output"


@pytest.mark.parametrize("seed", range(30))
def test_histories_lead_from_one_graph_to_the_next(seed):
    """Replaying the events from the first graph on gives the names of the last one."""
    snapshots = Snapshots()
    graph = random_graph(seed, most_ops=25).graph
    stages = lower(graph, instruments=(snapshots,))
    steps = [step for step in snapshots.steps if isinstance(step.after, Graph)]
    histories = History(steps)
    everywhere = {name for step in steps for each in (step.before, step.after) for name in value_names(each).values()}
    there = set(value_names(graph).values())
    last = set(value_names(stages.optimized).values())
    for name in everywhere:
        is_there = name in there
        for event in histories.of(name):
            assert event.fate in FATES and is_there == (event.fate != "made")
            is_there = event.fate in ("made", "changed")
            if event.fate == "replaced":
                assert event.now in value_names(steps[event.number - 1].after).values()
        assert is_there == (name in last), name


def test_a_value_that_a_pass_took_away():
    with ei.Graph("equal") as graph:
        x = ei.input("x", (4,))
        a, b = ei.exp(x).named("first"), ei.exp(x).named("second")
        unused = ei.sin(x).named("unused")
        ei.output(y=a * 2, z=b * 3)
    assert unused is not None
    second = explain(graph, "second")
    assert second.gone and not second.computed
    assert [(event.fate, event.now) for event in second.events] == [("replaced", "%first")]
    assert second.events[0].pass_ == "cse" or "equal" in second.events[0].pass_
    assert [event.fate for event in explain(graph, "unused").events] == ["removed"]


def test_rules_are_named():
    with ei.Graph("rules") as graph:
        x = ei.input("x", (4,))
        ei.output(y=(x / 2.0).named("half"))
    (event,) = explain(graph, "half").events
    assert event.fate == "changed" and event.by == ("divide-power-of-two",) and "multiply" in event.now


def test_lines_and_scopes(gpt2):
    scope = gpt2.ops([op for op in gpt2.optimized.ops if op.scope.startswith("h.0.mlp")])
    assert sum(each.cost.flops for each in scope) > 0
    names = {each.name for each in scope}
    assert "%h.0.mlp.c_fc.weight" in names


def test_refusals():
    with ei.Graph("small") as graph:
        ei.output(y=ei.exp(ei.input("x", (4,))).named("hidden"))
    with pytest.raises(GraphError, match="no value '%hiden' in 'small'") as caught:
        explain(graph, "%hiden")
    assert "did you mean %hidden?" in caught.value.hint


def test_printed(capsys):
    assert main(["explain", "%loss", MLP]) == 0
    text = capsys.readouterr().out
    assert "is the output loss" in text and "mlp.py:13" in text and "computed:" in text
    assert main(["explain", "mlp.py:14", MLP, "--top", "3"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("mlp.py:14: ") and "more: --all prints them" in text
    assert main(["explain", "optim", MLP]) == 0
    assert "optim: " in capsys.readouterr().out
    assert main(["explain", "%loss", MLP, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"] == ["output loss"]
    assert main(["explain", "mlp.py:999", MLP]) == 2
    assert "no operator of 'train' comes from mlp.py:999" in capsys.readouterr().err
    assert main(["explain", "h.9", MLP]) == 2
    assert "no value 'h.9'" in capsys.readouterr().err
