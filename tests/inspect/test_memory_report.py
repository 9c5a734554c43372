"""`euler-ir memory`: the peak against a sum over lives, lives against the steps, decisions against the plan."""

import json
from pathlib import Path

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.cli import main
from euler_ir.commands.memory import nbytes
from euler_ir.compiler import lower
from euler_ir.initializers import Zeros
from euler_ir.inspect.memory import memory, memory_of
from euler_ir.passes.cost import cost
from euler_ir.passes.refusals import REASONS
from euler_ir.plan.plan import CopyStep
from euler_ir.testing.random_graphs import random_graph
from models.gpt2 import GPT2Config
from models.language_model import train_graph
from tests.passes.training_step import step

MLP = f"{Path(__file__).parents[2] / 'examples' / 'mlp.py'}:train_graph"


def expect_lives(stages):
    """Bytes in use and lives are those that the steps of the plan say, counted cache line by cache line."""
    plan, report = stages.plan, memory_of(stages)
    touched = {}
    for phase, steps in enumerate(plan.phases):
        for each in steps:
            for buffer in (*each.reads(), *each.writes()):
                first, _ = touched.get(buffer, (phase, phase))
                touched[buffer] = first, phase
    assert {life.number for life in report.lives} == {n for n, b in enumerate(plan.buffers) if b.place == "arena"}
    lines = np.zeros((len(plan.phases), plan.arena_bytes // 64), bool)
    for life in report.lives:
        assert (life.first, life.last) == touched[life.number], life
        lines[life.first : life.last + 1, life.offset // 64 : -(-(life.offset + life.nbytes) // 64)] = True
    assert [64 * int(n) for n in lines.sum(1)] == list(report.in_use)
    assert report.least == max(report.in_use, default=0) <= plan.arena_bytes
    assert not report.in_use or report.in_use[report.peak] == report.least
    at_peak = report.at_peak()
    assert sum(-(-life.nbytes // 64) * 64 for life in at_peak) == report.least
    assert sum(holder.nbytes for holder in report.holders) == sum(life.nbytes for life in at_peak)
    assert sum(holder.buffers for holder in report.holders) == len(at_peak)
    return report


@pytest.mark.parametrize("seed", range(60))
def test_lives_and_peak_of_random_graphs(seed):
    expect_lives(lower(random_graph(seed, most_ops=40).graph))


@pytest.mark.parametrize("build", [step, lambda: train_graph(GPT2Config(23, 8, 2, 2, 12), 2, 8)])
def test_lives_and_peak_of_models(build):
    report = expect_lives(lower(build()))
    assert {Path(holder.location.file).name for holder in report.holders} & {"gpt2.py", "training_step.py"}
    assert all(life.held_for != "nothing" for life in report.lives)


@pytest.mark.parametrize("seed", range(60))
def test_what_is_in_place_shares_memory_and_what_is_copied_is(seed):
    stages = lower(random_graph(seed, most_ops=40).graph)
    plan, graph = stages.plan, stages.optimized
    copies = {each.target for each in plan.steps() if isinstance(each, CopyStep)}
    decisions = plan.decisions
    decided = {each.source.op.attributes["name"]: each for each in decisions.overwrites if each.is_update}
    for name, value in graph.updates.items():
        leaf = graph.leaf(name)
        if value is not leaf and value.op.name not in ("index_add", "dynamic_update_slice"):
            assert (decided[name].refusal is not None) == (decisions.buffers[leaf] in copies)
    for each in decisions.overwrites:
        number = decisions.buffers[each.value]
        if each.refusal is None and number in decisions.slots and each.source in decisions.buffers:
            there = decisions.buffers[each.source]
            assert decisions.slots[number] == decisions.slots[there]
            assert plan.buffers[number].offset == plan.buffers[there].offset


def updating(build):
    """The decision on the update of ``a`` in the graph where ``build(a, b)`` gives the updates of both."""
    with ei.Graph("updates") as graph:
        a, b = (ei.state(name, (4, 4), Zeros()) for name in "ab")
        for leaf, value in zip((a, b), build(a, b)):
            ei.update(leaf, value)
    return [each for each in memory(graph).decisions if each.kind == "update" and each.source == "%a"][0]


@pytest.mark.parametrize(
    ("code", "build"),
    [
        (None, lambda a, b: (a * 2, b)),
        ("read-at-other-place", lambda a, b: (a.transpose() * 2, b)),
        ("read-later", lambda a, b: (b * 2, a * 3)),
        ("not-computed", lambda a, b: (b, b)),
        ("has-a-place", lambda a, b: reversed(((v := ei.exp(a)), v))),
        ("read-by-call", lambda a, b: (a @ b, b)),
    ],
)
def test_updates_by_hand(code, build):
    if code == "has-a-place":
        with ei.Graph("updates") as graph:
            a, b = (ei.state(name, (4, 4), Zeros()) for name in "ab")
            value = ei.exp(b)
            ei.update(b, value)
            ei.update(a, value)
        (decision,) = [each for each in memory(graph).decisions if each.source == "%a"]
    else:
        decision = updating(build)
    assert (decision.refusal.code if decision.refusal else None) == code
    assert decision.nbytes == 64
    if code is not None:
        assert code in REASONS and "{" not in decision.refusal.why


def test_a_budget_says_what_is_computed_again():
    graph = train_graph(GPT2Config(23, 16, 4, 2, 16), 8, 16)
    free = memory(graph)
    assert memory(graph, 10**9).rematerialization is None
    least = memory(graph, int(free.footprint.total * 0.9))
    done = least.rematerialization
    assert done.before == free.footprint.arena > done.after == least.footprint.arena
    assert least.footprint.total <= done.budget and done.flops_more > 0
    assert done.way.startswith("rematerialize")
    # As many operators more as the graph has, but for the marks of what is kept.
    before, after = lower(graph).optimized, lower(graph, memory_budget=done.budget).optimized
    more = len([op for op in after.ops if op.name != "later"]) - len(before.ops)
    assert sum(times for each in done.repeated for _, times in each.operators) == more
    assert (done.flops_before, done.flops_before + done.flops_more) == (cost(before).flops, cost(after).flops)


def test_printed(capsys):
    assert main(["memory", MLP, "--chart"]) == 0
    text = capsys.readouterr().out
    assert "in the arena at the peak" in text and "updates: 13 of 13 computed in place" in text
    assert "lives of the largest" in text and "mlp.py:13" in text and text.isascii()
    assert main(["memory", MLP, "--budget", "1G", "--top", "1"]) == 0
    assert "met without computing anything again" in capsys.readouterr().out


def test_json(capsys):
    assert main(["memory", MLP, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert max(record["in_use"]) == record["least_arena"] and record["rematerialization"] is None
    assert {each["buffer"] for each in record["buffers"]} >= set(record["at_peak"])


def test_refusals(capsys):
    assert main(["memory", MLP, "--budget", "1k"]) == 2
    assert "and the budget is 1.00 KiB" in capsys.readouterr().err
    for wrong in ("0", "-1", "much", "1T", ""):
        with pytest.raises(SystemExit):
            main(["memory", MLP, "--budget", wrong])
        assert "is not a number of bytes" in capsys.readouterr().err or wrong == "-1"


def test_sizes():
    sizes = {"64": 64, "2k": 2048, "1.5M": 3 << 19, "2GiB": 2 << 30, "3 MB": 3 << 20}
    assert {text: nbytes(text) for text in sizes} == sizes


def test_an_empty_graph_needs_nothing(capsys):
    with ei.Graph("empty") as graph:
        ei.output()
    report = memory(graph)
    assert report.lives == () and report.at_peak() == [] and report.footprint.total == 0
