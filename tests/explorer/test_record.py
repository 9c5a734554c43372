"""The data of a page: what each part says is what the compiler says, whatever the graph."""

import json
from pathlib import Path

import numpy as np
import pytest
from test_deltas import spliced

import euler_ir as ei
from euler_ir.compiler import lower
from euler_ir.inspect.dump import dump
from euler_ir.inspect.explorer.collect import explore
from euler_ir.inspect.fusion import fusion
from euler_ir.inspect.given_arrays import given_arrays
from euler_ir.inspect.memory import memory
from euler_ir.inspect.numerics.compare import compare
from euler_ir.inspect.profile import profile
from euler_ir.inspect.user_graph import load_graph
from euler_ir.plan.work import work_of
from euler_ir.text import parse_graph
from models.gpt2 import GPT2Config
from models.language_model import train_graph

ROOT = Path(__file__).parents[2]
MLP = f"{ROOT / 'examples' / 'mlp.py'}:train_graph"


def small_gpt2():
    return train_graph(GPT2Config(vocab_size=23, context=8, layers=2, heads=2, width=12), 2, 8)


def stage_texts(record):
    """The lines of every stage, by its changes."""
    texts, rows = [], []
    for stage in record["stages"]["stages"]:
        rows = spliced(rows, [tuple(change) for change in stage["changes"]])
        texts.append([record["stages"]["text"]["line"][row] for row in rows])
    return texts


@pytest.fixture(scope="module")
def gpt2():
    graph = small_gpt2()
    return graph, explore(graph).record()


def test_stages_are_the_texts_that_dump_prints(gpt2):
    graph, record = gpt2
    texts = stage_texts(record)
    assert texts[0] == dump(graph, "graph").splitlines()
    assert texts[-3] == dump(graph, "optimized").splitlines()
    assert texts[-2] == dump(graph, "fused").splitlines()
    assert texts[-1] == dump(graph, "plan").splitlines()


def test_rows_of_groups_buffers_and_steps_are_told(gpt2):
    _, record = gpt2
    (*_, fused, planned), (*_, groups, plan) = record["stages"]["stages"], stage_texts(record)
    marks = {"group": "  group {} ", "buffer": "  buffer {} ", "step": "    "}
    for stage, rows in ((fused, groups), (planned, plan)):
        for kind, number, first, last in stage["regions"]:
            assert rows[first].startswith(marks[kind].format(number)) and first <= last < len(rows)
            assert kind != "group" or rows[last] == "  }"
    for stage, kind in ((fused, "group"), (planned, "buffer"), (planned, "step")):
        told = [number for each, number, *_ in stage["regions"] if each == kind]
        assert told == list(range(len(record["plan"][f"{kind}s"])))


def test_each_line_knows_the_value_that_it_makes(gpt2):
    _, record = gpt2
    names, text = record["values"]["name"], record["stages"]["text"]
    made = [(line, names[value]) for line, value in zip(text["line"], text["value"]) if value >= 0]
    assert len(made) > len(names) / 2
    for line, name in made:
        assert line.strip().startswith(name) or line.endswith(f" = {name}")


def test_costs_of_values_add_up_to_those_of_the_plan(gpt2):
    graph, record = gpt2
    plan = lower(graph).plan
    works = [
        work_of(plan, step, nest)
        for step in plan.steps()
        for nest in range(len(step.kernel.nests) if hasattr(step, "kernel") else 1)
    ]
    assert sum(record["values"]["bytes"]) == pytest.approx(sum(work.nbytes for work in works), rel=1e-4)
    assert sum(record["values"]["flops"]) == pytest.approx(sum(work.flops for work in works), rel=1e-4)
    kernels = record["plan"]["kernels"]
    assert sum(k["launches"] * (k["read"] + k["written"]) for k in kernels) == sum(work.nbytes for work in works)
    assert sum(k["launches"] * k["flops"] for k in kernels) == sum(work.flops for work in works)
    assert record["figures"]["bytes"] == sum(work.nbytes for work in works)


def test_a_value_keeps_its_line_and_layer(gpt2):
    graph, record = gpt2
    values, places = record["values"], record["places"]
    number = values["name"].index("%h.1.mlp.c_fc.weight")
    assert places["scopes"][values["scope"][number]] == "h.1.mlp.c_fc"
    assert values["operator"][number] == "parameter" and values["type"][number] == "f32[12, 48]"
    line = values["line"][number]
    file = places["files"][places["lines"]["file"][line]]
    assert file["path"].endswith("models/gpt2.py")
    assert "c_fc" in file["text"][places["lines"]["line"][line] - 1]


def test_groups_steps_kernels_and_buffers_hang_together(gpt2):
    graph, record = gpt2
    plan, values = record["plan"], record["values"]
    assert len(plan["groups"]) == len(lower(graph).fused.groups)
    for table in ("steps", "kernels"):
        assert sorted({group for each in plan[table] for group in each["groups"]}) == list(range(len(plan["groups"])))
    for group in plan["groups"]:
        assert set(group["writes"]) <= set(group["computes"]) and not set(group["reads"]) & set(group["computes"])
    buffer = next(each for each in plan["buffers"] if each["name"] == "wte.weight")
    assert "%wte.weight" in [values["name"][number] for number in buffer["values"]]


def test_rules_say_what_they_put_in_the_place_of_what(gpt2):
    _, record = gpt2
    applied, text = record["rules"]["applied"], record["stages"]["text"]
    assert applied["rule"], "no rule was applied"
    for value, line in (("old", "before"), ("new", "after")):
        assert [text["value"][number] for number in applied[line]] == applied[value]
    assert all(text["line"][one] != text["line"][other] for one, other in zip(applied["before"], applied["after"]))


def test_the_record_is_json_and_the_same_each_time():
    texts = [json.dumps(explore(load_graph(MLP)).record(), allow_nan=False) for _ in range(2)]
    strip = lambda text: [{**stage, "seconds": None} for stage in json.loads(text)["stages"]["stages"]]  # noqa: E731
    assert strip(texts[0]) == strip(texts[1])
    one, other = (json.loads(text) for text in texts)
    assert {**one, "stages": None} == {**other, "stages": None}


def graph_of(build):
    with ei.Graph("odd") as graph:
        build()
    return graph


ODD = {
    "nothing": lambda: None,
    "an input that is returned": lambda: ei.output(y=ei.input("x", (2,))),
    "one operator": lambda: ei.output(y=-ei.input("x", (2,))),
    "no elements": lambda: ei.output(y=ei.input("x", (0, 3)).sum(0)),
    "a constant": lambda: ei.output(y=ei.constant(np.arange(6.0))),
    "names": lambda: ei.output(**{"größe 😀": ei.input("λ x", (2,)).exp().named('a "b" \\ c, d = e')}),
    "two of a name": lambda: ei.output(y=ei.input("x", (2,)).exp().named("x").log().named("x")),
}


@pytest.mark.parametrize("build", ODD.values(), ids=ODD)
def test_graphs_that_are_hardly_any(build):
    record = explore(graph_of(build)).record()
    texts = stage_texts(record)
    assert texts[0][1] == "graph @odd {" and texts[-1][0] == "plan @odd {"
    json.dumps(record, allow_nan=False)


def test_a_graph_from_text_has_no_source(tmp_path):
    text = dump(load_graph(MLP), "graph")
    record = explore(parse_graph(text)).record()
    assert record["places"]["files"] == [] and set(record["values"]["line"]) == {-1}


def test_a_source_file_that_is_gone_or_no_text(tmp_path):
    gone, binary = tmp_path / "gone.py", tmp_path / "binary.py"
    binary.write_bytes(b"\xff\xfe\x00")
    with ei.Graph("g") as graph:
        for number, path in enumerate((gone, binary)):
            exec(compile(f"ei.input('x{number}', (2,))", path, "exec"), {"ei": ei})
    record = explore(graph).record()
    assert [file["missing"] for file in record["places"]["files"]] == ["the file is not there", "the file is not text"]


def test_code_of_kernels_is_that_of_the_program(gpt2):
    graph, record = gpt2
    code = record["code"]
    assert len(code["loops"]) == len(code["modules"]) == len(record["plan"]["kernels"])
    everything = dump(graph, "asm")
    for symbol, llvm, assembly in zip(code["symbol"], code["llvm"], code["assembly"]):
        assert f"define void @{symbol}(" in llvm and f"{symbol}:" in assembly and f"{symbol}:" in everything
    for kernel, loops, modules in zip(record["plan"]["kernels"], code["loops"], code["modules"]):
        assert loops or kernel["kind"] != "kernel"
        assert modules or kernel["kind"] == "copy" or not kernel["flops"]


def test_measured_times_add_up_to_those_of_the_profile():
    graph = load_graph(MLP)
    measured = profile(graph, steps=1)
    record = explore(graph, measured=measured).record()
    total = sum(float(task.seconds.mean()) for task in measured.tasks)
    assert sum(record["values"]["seconds"]) == pytest.approx(total, rel=1e-4)
    assert sum(kernel["seconds"] for kernel in record["plan"]["kernels"]) == pytest.approx(total)
    assert record["figures"]["ceilings"]["fma"] > 0 and record["figures"]["seconds"] == measured.seconds


def test_without_a_profile_nothing_says_a_time(gpt2):
    _, record = gpt2
    assert "seconds" not in record["values"] and record["figures"]["ceilings"] is None
    assert {kernel["seconds"] for kernel in record["plan"]["kernels"]} == {None}


def test_memory_is_that_of_the_memory_report(gpt2):
    graph, record = gpt2
    report, held, names = memory(graph), record["memory"], record["values"]["name"]
    assert (held["in_use"], held["peak"], held["least"]) == (list(report.in_use), report.peak, report.least)
    assert sum(holder["bytes"] for holder in held["holders"]) == sum(life.nbytes for life in report.at_peak())
    assert all(record["plan"]["buffers"][number]["place"] == "arena" for number in held["at_peak"])
    decisions = held["decisions"]
    for number, decision in enumerate(report.decisions):
        assert names[decisions["value"][number]] == decision.value
        assert (decisions["reason"][number] < 0) == (decision.refusal is None)


def test_numerics_are_those_of_compare():
    graph = load_graph(MLP)
    compared = compare(graph, given_arrays(graph))
    record = explore(graph, compared=compared).record()
    names, found = record["values"]["name"], record["numerics"]
    assert found["divergence"] is None
    for column, values in (("built", compared.values), ("stored", compared.stored)):
        assert [names[number] for number in found[column]["value"]] == [f"%{value.name}" for value in values]
        assert found[column]["relative"] == [value.error.relative for value in values]
    assert "numerics" not in explore(graph).record()


def test_errors_that_are_no_numbers_are_counted_and_json_holds_them():
    with ei.Graph("bad") as graph:
        ei.output(y=ei.log(ei.input("x", (2, 3)) - 1e30).named("bad"))
    record = explore(graph, compared=compare(graph, given_arrays(graph))).record()
    built = record["numerics"]["built"]
    assert built["nans"][[record["values"]["name"][value] for value in built["value"]].index("%bad")] == 6
    json.dumps(record, allow_nan=False)


def test_a_value_that_is_gone_says_what_became_of_it(gpt2):
    graph, record = gpt2
    values = record["values"]
    final = max(values["last"])
    gone = [number for number, last in enumerate(values["last"]) if last < final]
    became = [values["became"][number] for number in gone]
    assert sum(number >= 0 for number in became) > 20
    for number, now in zip(gone, became):
        assert now < 0 or values["last"][now] > values["last"][number]
    assert {values["became"][number] for number in range(len(values["last"])) if number not in gone} == {-1}


def test_verdicts_are_those_of_the_fusion_report(gpt2):
    graph, record = gpt2
    report, fused, names = fusion(graph), record["fusion"], record["values"]["name"]
    edges = fused["edges"]
    assert fused["counts"] == report.counts() and len(edges["value"]) == len(report.edges)
    for number, edge in enumerate(report.edges):
        assert names[edges["value"][number]] == edge.value and edges["bytes"][number] == edge.nbytes
        assert fused["verdicts"][edges["verdict"][number]]["name"] == edge.verdict
        reason = edges["reason"][number]
        assert (fused["reasons"][reason]["why"] if reason >= 0 else None) == (edge.refusal and edge.refusal.why)
