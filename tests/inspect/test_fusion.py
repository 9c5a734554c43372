"""`euler-ir fusion`: one verdict for every edge, which agrees with the loads of the loop nests; bytes; reasons."""

import json
from pathlib import Path

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.cli import main
from euler_ir.compiler import lower
from euler_ir.inspect.fusion import VERDICTS, fusion, fusion_of, total
from euler_ir.loops.kernel import Load, Loop
from euler_ir.loops.lower import lower as lower_group
from euler_ir.passes import PIPELINE
from euler_ir.passes.fuse import Fuse
from euler_ir.passes.refusals import REASONS
from euler_ir.testing.random_graphs import random_graph
from euler_ir.text.printer import value_names
from models.gpt2 import PRESETS, GPT2Config
from models.language_model import evaluation_graph, train_graph
from tests.loops.recording import random_arrays, record
from tests.passes.training_step import step

MLP = f"{Path(__file__).parents[2] / 'examples' / 'mlp.py'}:train_graph"
MODELS = [
    step,
    lambda: train_graph(GPT2Config(23, 8, 2, 2, 12), 2, 8),
    lambda: evaluation_graph(PRESETS["nano"], 2, 16),
]


def loaded_values(lowered):
    """The values that a nest loads."""
    loaded, pending = set(), list(lowered.nest.body)
    while pending:
        statement = pending.pop()
        if isinstance(statement, Loop):
            pending.extend(statement.body)
        elif isinstance(statement, Load):
            loaded.add(statement.buffer)
    return {value for value, buffer in zip(lowered.arguments, lowered.nest.parameters) if buffer.name in loaded}


def walked(outputs, loaded):
    """The operators between ``outputs`` and what is loaded."""
    found, pending = set(), list(outputs)
    while pending:
        value = pending.pop()
        if value not in loaded and value.op not in found:
            found.add(value.op)
            pending.extend(value.op.operands)
    return found


def expect_verdicts(stages):
    report = fusion_of(stages)
    graph, names, decisions = stages.optimized, value_names(stages.optimized), stages.plan.decisions
    by_edge = {(edge.value, edge.reader): edge for edge in report.edges}
    assert len(by_edge) == len(report.edges)
    edges = [(value, op) for op in graph.ops for value in dict.fromkeys(op.operands)]
    assert list(by_edge) == [(names[value], names[op.result]) for value, op in edges]
    memory, registers = set(), set()  # edges of which a nest loads the value, and those of which one does not
    for group in stages.fused.groups:
        loaded = set() if group.call is None else {view for view in group.call.sources if view not in group.prologues}
        for part in (group,) if group.call is None else group.prologues.values():
            # A second phase reads what the first stored.
            loaded |= loaded_values(lower_group(part)) - set(group.outputs)
        changed = {group.changed} - {None}
        for op in walked(group.outputs, loaded | changed):
            for value in dict.fromkeys(op.operands):
                key, inside = (names[value], names[op.result]), decisions.places[group].inside
                epilogue = inside is not None and (value is inside or by_edge[key].verdict == "in place")
                (memory if value in loaded and not epilogue else registers).add(key)
    for key, edge in by_edge.items():
        assert edge.verdict in VERDICTS
        assert (edge.refusal is not None) == (edge.verdict == "unfused")
        if key in memory:
            assert edge.verdict in ("unfused", "given"), edge
        elif key in registers:
            assert edge.verdict not in ("unfused", "given"), edge
        if edge.refusal is not None:
            assert edge.refusal.code in REASONS and edge.refusal.why and edge.refusal.hint
            assert "{" not in edge.refusal.why
    return report


@pytest.mark.parametrize("seed", range(60))
def test_every_edge_of_random_graphs_has_the_verdict_of_the_nests(seed):
    expect_verdicts(lower(random_graph(seed, most_ops=30).graph))


@pytest.mark.parametrize("build", MODELS)
def test_every_edge_of_models_has_the_verdict_of_the_nests(build):
    report = expect_verdicts(lower(build()))
    assert report.unfused and report.nbytes <= report.moved


@pytest.mark.parametrize("seed", range(100, 130))
def test_bytes_are_those_of_the_elements_that_a_nest_loads(seed):
    stages = lower(random_graph(seed).graph)
    report, names = fusion_of(stages), value_names(stages.optimized)
    for number, group in enumerate(stages.fused.groups):
        if group.call is not None:
            continue
        lowered = lower_group(group)
        accesses = record(lowered.nest, random_arrays(lowered.nest)) if lowered.nest.points else []
        for value, buffer in zip(lowered.arguments, lowered.nest.parameters):
            elements = [access.elements for access in accesses if access.buffer == buffer.name]
            touched = len(np.unique(np.concatenate(elements))) * value.dtype.itemsize if elements else 0
            for edge in report.edges:
                if (edge.value, edge.groups) == (names[value], (number,)):
                    assert touched <= edge.nbytes <= 2 * value.type.nbytes


def edge_of(graph, value, reader):
    """The edge from the only ``value`` operator (or leaf) to the ``reader`` operator."""
    stages = lower(graph)
    made = {name for each, name in value_names(stages.optimized).items() if each.op.name == value}
    (found,) = [edge for edge in fusion_of(stages).edges if edge.value in made and edge.operator == reader]
    return found


def made(build):
    with ei.Graph("made") as graph:
        ei.output(**build())
    return graph


def x(*shape, name="x"):
    return ei.input(name, shape)


def costly(value):
    return ei.sin(ei.log(ei.erf(value)))


KIB = 1024
CASES = {
    # 64 floats are written and, broadcast to the other frame, read once.
    "different-frame": (lambda: {"y": costly(x(64)) + x(32, 64, name="z")}, "sin", "broadcast", 2 * 64 * 4),
    "reads-at-other-index": (
        lambda: {"s": (s := costly(x(32, 32))), "y": s.transpose() * s}, "sin", "transpose", 4 * KIB,
    ),
    # The product reads the one, and the other group the product: neither loop can be the other's.
    "in-order": (
        lambda: {"y": ei.gelu((s := costly(x(32, 16))) @ x(16, 16, name="w")) + s}, "sin", "add", 32 * 16 * 4,
    ),
    "call-operand": (
        lambda: {"y": ei.attention(costly(x(1, 2, 8, 16)), x(1, 2, 8, 16, name="k"), x(1, 2, 8, 16, name="v"))},
        "sin", "attention", 2 * 2 * 8 * 16 * 4,
    ),
    "call-result": (
        lambda: {"y": ei.attention(x(1, 2, 8, 16), x(1, 2, 8, 16, name="k"), x(1, 2, 8, 16, name="v")) * 2.0},
        "attention", "multiply", 2 * 2 * 8 * 16 * 4,
    ),
    "product-reader-kind": (lambda: {"y": (x(32, 16) @ x(16, 64, name="w")).sum(0)}, "matmul", "sum", 2 * 32 * 64 * 4),
    "product-is-result": (
        lambda: {"p": (p := x(32, 16) @ x(16, 64, name="w")), "y": ei.exp(p)}, "matmul", "exp", 32 * 64 * 4,
    ),
    "operand-read-elsewhere": (
        lambda: {"e": (e := ei.relu(x(32, 16))), "y": e @ x(16, 8, name="w")}, "maximum", "matmul", 32 * 16 * 4,
    ),
    "costly": (lambda: {"y": ei.sin(x(32, 16)) @ x(16, 8, name="w")}, "sin", "matmul", 2 * 32 * 16 * 4),
    "operand-rearranged": (
        lambda: {"y": (x(32, 16)[::-1] * 2.0) @ x(16, 8, name="w")}, "multiply", "matmul", 2 * 32 * 16 * 4,
    ),
    "other-reduction": (lambda: {"a": (e := costly(x(64, 48))).sum(0), "b": e.sum(1), "e": e}, "sin", None, None),
}  # fmt: skip


@pytest.mark.parametrize("code", [code for code, case in CASES.items() if case[2]])
def test_reasons_and_bytes_by_hand(code):
    build, value, reader, nbytes = CASES[code]
    edge = edge_of(made(build), value, reader)
    assert (edge.verdict, edge.refusal.code, edge.nbytes) == ("unfused", code, nbytes)


def test_a_reduction_that_no_pass_has_cut_stays_apart():
    graph = made(lambda: {"y": ei.max(c := costly(x(2, 16 * KIB)), 1), "c": c})
    apart = {op.name: refusal.code for (_, op), refusal in Fuse().run(graph).refusals.apart.items()}
    assert apart == {"max": "needs-serial-reduction"}


def test_two_reductions_over_other_axes():
    report = fusion(made(CASES["other-reduction"][0]))
    codes = {edge.refusal.code for edge in report.unfused if edge.operator == "sum"}
    assert codes == {"other-reduction"}


def test_what_is_said_to_lift_a_full_group_lifts_it():
    def chain():
        value = x(256)
        for number in range(40):
            value = ei.sin(value) + float(number)
        return {"y": value}

    (edge,) = fusion(made(chain)).unfused
    assert edge.refusal.code == "full-group" and "raise max_ops of the pass fuse" in edge.refusal.hint
    assert edge.refusal.facts == (96, 96) and edge.nbytes == 2 * 256 * 4
    assert not fusion_of(lower(made(chain), (*PIPELINE, Fuse(max_ops=200)))).unfused


def test_what_runs_inside_of_products():
    graph = made(lambda: {"y": ei.gelu(ei.relu(x(32, 16)) @ x(16, 64, name="w") + x(64, name="b"))})
    verdicts = {(edge.operator, edge.verdict) for edge in fusion(graph).edges}
    assert ("matmul", "prologue") in verdicts and ("add", "epilogue") in verdicts
    assert not fusion(graph).unfused


def test_lines_add_up_and_count_a_value_once():
    report = fusion(step())
    lines = report.by_line()
    assert sum(len(line.edges) for line in lines) == len(report.unfused)
    assert all(line.nbytes == total(line.edges) for line in lines)
    assert [line.nbytes for line in lines] == sorted((line.nbytes for line in lines), reverse=True)
    assert report.nbytes <= sum(line.nbytes for line in lines)
    graph = made(lambda: {"p": (p := x(32, 16) @ x(16, 64, name="w")), "y": ei.exp(p) * ei.sin(p)})
    unfused = fusion(graph).unfused
    assert len(unfused) == 2 and total(unfused) == 32 * 64 * 4


def test_printed(capsys):
    assert main(["fusion", MLP]) == 0
    text = capsys.readouterr().out
    assert "mlp.py:13" in text and "loss = ((model(x) - y) ** 2).mean()" in text and "to lift it" in text
    assert main(["fusion", MLP, "--by", "edge", "--all"]) == 0
    assert capsys.readouterr().out.count("\n  ") > 100
    assert main(["fusion", MLP, "--by", "edge", "--refused", "--top", "2"]) == 0
    assert "more edges: --all prints them" in capsys.readouterr().out


def test_json(capsys):
    assert main(["fusion", MLP, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert sum(record["counts"].values()) == len(record["edges"])
    unfused = [edge for edge in record["edges"] if edge["verdict"] == "unfused"]
    assert all(edge["reason"]["code"] in REASONS and edge["location"]["file"].endswith(".py") for edge in unfused)


def test_an_empty_graph_has_no_edges(capsys):
    with ei.Graph("empty") as graph:
        ei.output()
    assert fusion(graph).edges == () and fusion(graph).by_line() == []
