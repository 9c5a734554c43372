"""Instruments see every pass and rule, may hold them back, and name the pass at fault with what shows it again."""

import threading
from dataclasses import dataclass

import pytest

import euler_ir as ei
from euler_ir.compiler import lower
from euler_ir.passes import (
    PIPELINE,
    Count,
    Dump,
    Instrument,
    Limit,
    Pass,
    PassManager,
    Simplify,
    Snapshots,
    Timing,
    Verify,
    cost,
    op_cost,
    optimize,
    parse_pipeline,
    watching,
)
from euler_ir.passes import manager
from euler_ir.passes.patterns import Anything, Number, apply
from euler_ir.passes.rewriting import Rule, rewrite
from euler_ir.text import parse_graph


def graph_of(rounds=1):
    with ei.Graph("few") as graph:
        x = ei.input("x", (4, 5))
        y = x
        for _ in range(rounds):
            y = -(-(y * 1)) + 0.5
        ei.output(y=y)
    return graph


class Recorder(Instrument):
    def __init__(self, refuse=()):
        self.events = []
        self.refuse = refuse

    def before_pass(self, pass_, graph):
        self.events.append(("before", pass_.name))

    def after_pass(self, pass_, before, after, seconds):
        assert seconds >= 0
        self.events.append(("after", pass_.name))

    def on_rule(self, rule, op, value):
        assert value.type == op.result.type and value.graph is not op.graph
        self.events.append((rule.name, op.name))

    def allows(self, what, op):
        return what.name not in self.refuse


def test_instruments_see_passes_and_the_rules_inside():
    recorder = Recorder()
    found = PassManager(parse_pipeline("simplify,cse"), [recorder]).run(graph_of())
    assert recorder.events == [
        ("before", "simplify"),
        ("multiply-one", "multiply"),
        ("negative-negative", "negative"),
        ("after", "simplify"),
        ("before", "cse"),
        ("after", "cse"),
    ]
    assert len(found.ops) == 4


def test_instruments_hold_back_passes_and_rules():
    recorder = Recorder(refuse=("negative-negative", "add-negative", "cse"))
    found = PassManager(parse_pipeline("simplify,cse"), [recorder]).run(graph_of())
    assert [op.name for op in found.ops].count("negative") == 2 and "multiply" not in [op.name for op in found.ops]
    assert recorder.events == [("before", "simplify"), ("multiply-one", "multiply"), ("after", "simplify")]


def test_a_rule_that_is_held_back_makes_way_for_the_next():
    with ei.Graph() as graph:
        ei.output(y=ei.input("x", (4,)) * -1.0)
    rules = [Rule(name, "exact", "", apply("multiply", Anything("x"), Number()), lambda m: -m["x"]) for name in "ab"]
    recorder = Recorder(refuse=("a",))
    with watching(recorder):
        rewrite(graph, rules)
    assert recorder.events == [("b", "multiply")]


def test_watching_reaches_every_manager_inside_and_ends():
    recorder, inner = Recorder(), Recorder()
    with watching(recorder):
        lower(graph_of(), "simplify,fuse", [inner])
    assert recorder.events == inner.events and recorder.events[-1] == ("after", "fuse")
    seen = len(recorder.events)
    optimize(graph_of())
    assert len(recorder.events) == seen


def test_threads_do_not_hear_of_each_other():
    recorders = [Recorder() for _ in range(4)]

    def work(number):
        with watching(recorders[number]):
            for _ in range(3):
                optimize(graph_of(number), "simplify")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, recorder in enumerate(recorders):
        fired = [event for event in recorder.events if event[0] not in ("before", "after")]
        assert len(fired) == 3 * 2 * number


def test_timing_adds_up():
    timing = Timing()
    optimize(graph_of(), instruments=[timing])
    assert [each for each, _ in timing.passes] == list(PIPELINE)
    assert timing.total == sum(seconds for _, seconds in timing.passes) > 0
    assert str(timing).count("\n") == len(PIPELINE) and str(timing).endswith("in all")


def test_dump_writes_what_changed_and_it_reads_back(tmp_path):
    folder = tmp_path / "made" / "here"
    optimize(graph_of(), "cse,simplify,dce,fuse", [Dump(folder)])
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["000_start.eir", "002_simplify.eir", "004_fuse.eir"]
    assert (folder / "000_start.eir").read_text() == str(graph_of())
    simplified = (folder / "002_simplify.eir").read_text()
    assert str(parse_graph(simplified)) == simplified and "negative" not in simplified


def test_count_and_snapshots_follow_the_graph():
    count, snapshots = Count(), Snapshots()
    graph = graph_of(2)
    found = optimize(graph, "cse,simplify,dce,fuse", [count, snapshots])
    assert [each and each.name for each, _ in count.costs] == [None, "cse", "simplify", "dce", "fuse"]
    assert count.costs[0][1] == cost(graph) and count.costs[-1][1] == cost(found.graph)
    assert [step.pass_.name for step in snapshots.steps] == ["cse", "simplify", "dce", "fuse"]
    assert snapshots.steps[0].before is graph and snapshots.steps[-1].after is found
    assert all(one.after is two.before for one, two in zip(snapshots.steps, snapshots.steps[1:]))
    fired = [application.rule.name for application in snapshots.steps[1].applications]
    assert sorted(fired) == ["multiply-one"] * 2 + ["negative-negative"] * 2
    assert not snapshots.steps[0].applications and not snapshots.steps[2].applications


def test_a_limit_cuts_a_run_after_so_many_applications():
    every = Limit(None)
    whole = optimize(graph_of(3), "dce,simplify", [every])
    assert every.used == 2 + 6
    texts = []
    for most in range(every.used + 1):
        limit = Limit(most)
        texts.append(str(optimize(graph_of(3), "dce,simplify", [limit, Verify()])))
        assert limit.used == most
    assert texts[0] == texts[1] == texts[2] == str(graph_of(3)) and texts[-1] == str(whole)
    assert len(set(texts)) == 7  # the two passes by themselves change nothing, each rule does


# -- passes at fault ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stumble(Pass):
    """Look for what is not there."""

    name = "stumble"
    depth: int = 1

    def run(self, graph):
        return {}[f"depth {self.depth}"]


def test_a_pass_that_raises_is_named_and_can_be_run_again():
    graph = graph_of()
    with pytest.raises(ei.PassError) as caught:
        PassManager(parse_pipeline("simplify,stumble{depth=2}")).run(graph)
    error = caught.value
    assert "pass stumble{depth=2} raised KeyError: 'depth 2'" in str(error)
    assert "test_instruments.py:" in str(error) and 'return {}[f"depth {self.depth}"]' in str(error)
    assert isinstance(error.__cause__, KeyError)
    first, text = error.reproducer.split("\n", 1)
    assert first == "// RUN: stumble{depth=2}"
    again = parse_graph(error.reproducer)
    assert str(again) == text == str(Simplify().run(graph))
    with pytest.raises(ei.PassError, match="depth 2"):
        optimize(again, first.removeprefix("// RUN: "))


def test_an_error_on_purpose_keeps_its_type_and_names_the_pass():
    @dataclass(frozen=True)
    class Refuse(Pass):
        """Refuse."""

        name = "refuse"

        def run(self, graph):
            raise ei.LoweringError("too odd") if len(graph.ops) == 1 else ei.GraphError("too long")

    with ei.Graph() as odd:
        ei.output(x=ei.input("x", ()))
    with pytest.raises(ei.LoweringError, match="^in pass refuse: too odd$") as caught:
        optimize(odd, [Refuse()])
    assert caught.value.reproducer is None
    with pytest.raises(ei.GraphError, match="^in pass refuse: too long$") as caught:
        optimize(graph_of(), [Refuse()])
    assert caught.value.reproducer.startswith("// RUN: refuse\neir ")


def test_what_an_instrument_raises_ends_the_run():
    class Stop(Instrument):
        def before_pass(self, pass_, graph):
            if pass_.name == "cse":
                raise KeyboardInterrupt

    recorder = Recorder()
    with pytest.raises(KeyboardInterrupt):
        PassManager(parse_pipeline("simplify,cse,dce"), [recorder, Stop()]).run(graph_of())
    assert recorder.events[-1] == ("before", "cse")


# -- cost --------------------------------------------------------------------------------------------------------------


def test_cost_counted_by_hand():
    with ei.Graph() as graph:
        x, w = ei.input("x", (6, 4)), ei.input("w", (4, 5))
        product = x @ w
        shifted = product + ei.input("b", (5,))
        ei.output(y=shifted.sum(1), z=x.cast(ei.f16))
    by_name = {op.name: op_cost(op) for op in graph.ops}
    assert (by_name["matmul"].flops, by_name["matmul"].nbytes) == (2 * 6 * 4 * 5, 4 * (24 + 20 + 30))
    assert (by_name["add"].flops, by_name["add"].nbytes) == (30, 4 * (30 + 5 + 30))  # the bias is read, not repeated
    assert (by_name["sum"].flops, by_name["sum"].nbytes) == (30, 4 * (30 + 6))
    assert (by_name["cast"].flops, by_name["cast"].nbytes) == (0, 24 * (4 + 2))
    assert by_name["broadcast"].nbytes == by_name["input"].nbytes == 0
    total = cost(graph)
    assert total.operators == 5 and total.flops == 240 + 30 + 30
    assert total.nbytes == sum(by_name[name].nbytes for name in ("matmul", "add", "sum", "cast"))


def test_composites_cost_what_they_are_made_of():
    with ei.Graph() as graph:
        x = ei.input("x", (2, 8, 4))
        ei.output(a=x.softmax(-1), b=ei.attention(x, x, x, causal=True), c=ei.gelu(x))
    softmax, attention, gelu = (op_cost(op) for op in graph.ops if op.definition.family == "composite")
    with ei.Graph() as decomposed:
        ei.output(a=ei.input("x", (2, 8, 4)).softmax(-1))
    assert softmax.flops == cost(optimize(decomposed, "decompose")).flops
    assert attention.flops == 2 * 2 * 36 * 8 and gelu.flops > 64
    assert attention.nbytes == 4 * (64 + 64 + 16)  # one operand, read once


def _no_results(graph):
    return ei.Graph("empty")


def _another_type(graph):
    with ei.Graph("other") as other:
        ei.output(y=ei.exp(ei.input("x", (2,), "f64")))
    return other


def _exits(graph):
    raise SystemExit(0)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda graph: None, "pass wrong gives None, not a graph"),
        (str, "pass wrong gives an object of type 'str', not a graph"),
        (_no_results, "pass wrong drops output 'y'"),
        (_another_type, "pass wrong makes output 'y' f64[2], which was f32[2]"),
        (lambda graph: graph.outputs.clear() or graph, "pass wrong drops output 'y'"),
        (_exits, "pass wrong raised SystemExit: 0"),
    ],
)
def test_a_pass_must_keep_the_results(monkeypatch, run, message):
    with monkeypatch.context() as patch:
        patch.setattr(manager, "PASSES", {})
        wrong = type("Wrong", (Pass,), {"__doc__": "Wrong.", "name": "wrong", "run": lambda self, graph: run(graph)})
    with ei.Graph("g") as graph:
        ei.output(y=ei.exp(ei.input("x", (2,))))
    with pytest.raises(ei.PassError) as caught:
        PassManager([wrong()]).run(graph)
    assert message in str(caught.value) and caught.value.reproducer.startswith("// RUN: wrong\n")
