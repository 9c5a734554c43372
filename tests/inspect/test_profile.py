"""``euler-ir profile``: rows add up, the clocks change nothing, the trace is one, refusals. No test looks at a time."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.backends.cpu.ceilings import Ceilings
from euler_ir.backends.cpu.program import CpuProgram
from euler_ir.backends.cpu.step import Mark
from euler_ir.cli import main
from euler_ir.compiler import Executable, lower
from euler_ir.inspect import profile_report
from euler_ir.inspect.find import find_value
from euler_ir.inspect.profile import GROUPINGS, Profile, TaskTime, profile
from euler_ir.plan.plan import KernelStep, Origin
from euler_ir.plan.work import Work
from models.gpt2 import GPT2Config
from models.language_model import train_graph

MLP = f"{Path(__file__).parents[2] / 'examples' / 'mlp.py'}:train_graph"
CEILINGS = Ceilings(threads=2, fma=100.0, read=10.0, triad=8.0)


@pytest.fixture(scope="module")
def step():
    return train_graph(GPT2Config(23, 8, 2, 2, 12), 2, 8)


@pytest.fixture(scope="module", params=[1, 2, 3])
def measured(step, request):
    return profile(step, threads=request.param, steps=3)


def task(number, structure, seconds, scope="", nbytes=0, flops=0):
    work = Work(structure, structure, nbytes, 0, flops)
    return TaskTime(number, number, work, Origin(structure, (structure,), scope, ()), np.array(seconds))


@pytest.fixture
def made_up():
    """Two threads, 10 s: two equal kernels of which each thread runs one in the same step, and a product."""
    tasks = (
        task(0, "exp", (2.0, 0.0), "a", nbytes=10 * 10**9),
        task(0, "exp", (0.0, 2.0), "b", nbytes=10 * 10**9),
        task(1, "matmul", (6.0, 5.0), "a", nbytes=4 * 10**9, flops=300 * 10**9),
    )
    fastest = np.array([[0, 2, 2, 8], [0, 0, 2, 7]]) * 10**9
    return Profile("made", CEILINGS, (9.0, 10.0, 12.0), 10.0, tasks, 2.0, fastest, (Mark(0),) * 3)


def test_rows_by_hand(made_up):
    matmul, exp = made_up.rows("kernel")
    assert (matmul.name, matmul.calls, matmul.seconds, matmul.slowest, matmul.share) == ("matmul", 1, 5.5, 6.0, 0.55)
    assert (exp.name, exp.calls, exp.seconds, exp.slowest, exp.share, exp.balance) == ("exp", 2, 2.0, 2.0, 0.2, 1.0)
    assert (matmul.gflop_per_second, exp.gb_per_second) == (50.0, 10.0)
    # 300 GFLOP take 3 s at least, 20 GB 2 s.
    assert (matmul.roofline, exp.roofline) == (0.5, 1.0)
    assert exp.scopes == ("a", "b") and made_up.outside == 20 - 2 - 15
    # 300 GFLOP at 100 take longer than 4 GB at 10.
    assert (matmul.bound, exp.bound) == ("arithmetic", "memory") and (matmul.steps, exp.steps) == ((1,), (0,))
    assert [row.name for row in made_up.rows("step")] == ["exp", "matmul"]
    assert [(row.name, row.calls) for row in made_up.rows("scope")] == [("a", 2), ("b", 1)]


def test_the_roofline_is_the_tighter_of_two():
    assert CEILINGS.bandwidth == 10.0
    assert CEILINGS.least_seconds(10**9, 0) == 0.1 and CEILINGS.least_seconds(10**9, 20 * 10**9) == 0.2


@pytest.mark.parametrize("by", GROUPINGS)
def test_rows_add_up_to_the_call(measured, by):
    rows = measured.rows(by)
    assert sum(row.calls for row in rows) == len(measured.tasks)
    assert sum(row.nbytes for row in rows) == sum(task.work.nbytes for task in measured.tasks)
    rest = (measured.waiting + measured.outside) / measured.threads
    assert sum(row.seconds for row in rows) + rest == pytest.approx(measured.seconds, rel=1e-9)
    assert sum(row.share for row in rows) + rest / measured.seconds == pytest.approx(1, rel=1e-9)
    assert measured.waiting >= 0 and measured.outside > 0
    # Of three calls the faster two count.
    assert measured.seconds == pytest.approx(sum(sorted(measured.calls)[:2]) / 2)
    for row in rows:
        assert 0 <= row.seconds <= row.slowest * (1 + 1e-12) and 0 <= row.balance <= 1 + 1e-12


def test_every_task_is_there(step, measured):
    plan = lower(step).plan
    tasks = sum(len(each.kernel.nests) if isinstance(each, KernelStep) else 1 for each in plan.steps())
    assert len(measured.tasks) == tasks and len(measured.calls) == 3
    assert {len(task.seconds) for task in measured.tasks} == {measured.threads}
    barriers = [mark for mark in measured.marks if mark.step is None]
    assert len(barriers) == sum(bool(phase) for phase in plan.phases) - 1
    assert any("gpt2.py" in line for row in measured.rows() for line in row.lines)


def test_tasks_lead_to_groups_and_values(step, measured):
    stages = lower(step)
    assert sorted(number for task in measured.tasks for number in task.groups) == list(range(len(stages.fused.groups)))
    steps = list(stages.plan.steps())
    for task in measured.tasks:
        each = steps[task.step]
        assert task.kernel == (each.kernel.name if isinstance(each, KernelStep) else "")
        written = {stages.plan.decisions.buffers[find_value(stages.optimized, name)] for name in task.values}
        assert written <= set(each.writes())
    for row in measured.rows("kernel"):
        assert row.steps and row.groups and row.bound in ("memory", "arithmetic")


def test_clocks_go_forward_and_barriers_hold(measured):
    assert (measured.fastest[:, 0] >= 0).all() and (np.diff(measured.fastest, axis=1) >= 0).all()
    for number, mark in enumerate(measured.marks, start=1):
        if mark.step is None:
            assert measured.fastest[:, number].min() >= measured.fastest[:, number - 1].max(), "left before all came"


def test_clocks_change_no_bit(step):
    tokens = np.arange(16, dtype=np.int32).reshape(2, 8)
    inputs = {"tokens": tokens, "targets": tokens, "learning_rate": np.float32(0.1)}
    stages, results = lower(step), []
    for timed in (False, True):
        state = ei.initial_state(step)
        outputs = Executable(step, stages, CpuProgram(stages.plan, 2, timed))(state, **inputs)
        results.append({**outputs, **state})
    assert all(results[0][name].tobytes() == results[1][name].tobytes() for name in results[0])


def test_without_a_clock_there_is_none(step):
    program = CpuProgram(lower(step).plan)
    assert program.marks == () and "call i32 @clock_gettime" not in program.llvm_ir()


def test_the_trace_holds_every_interval_of_every_thread(measured):
    events = json.loads(json.dumps(profile_report.trace(measured)))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == measured.threads * len(measured.marks)
    assert {event["tid"] for event in spans} == set(range(measured.threads))
    assert all(event["dur"] >= 0 and event["ts"] >= 0 and event["name"] for event in spans)
    assert {"wait"} < {event["name"] for event in spans}
    end = max(event["ts"] + event["dur"] for event in spans)
    assert end == pytest.approx((measured.fastest.max()) / 1e3)


def test_printed(capsys):
    assert main(["profile", MLP, "--steps", "2", "--threads", "2"]) == 0
    text = capsys.readouterr().out
    assert "train, 2 threads" in text and "matmul 4 x 2 x 16 NN" in text and "waiting at barriers" in text
    assert re.search(r"a call +[\d.]+ +100.0%", text)


def test_json_and_trace(capsys, tmp_path):
    trace = tmp_path / "trace.json"
    assert main(["profile", MLP, "--steps", "2", "--by", "step", "--json", "--trace", str(trace)]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["graph"] == "train" and record["by"] == "step" and len(record["calls"]) == 2
    spent = sum(row["seconds"] for row in record["rows"]) + sum(record["remainder"].values())
    assert spent == pytest.approx(record["seconds"])
    assert json.loads(trace.read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["profile", MLP, "--steps", "0"], "must be 1 or more"),
        (["profile", MLP, "--threads", "0"], "must be 1 or more"),
        (["profile", MLP, "--by", "layer"], "invalid choice: 'layer'"),
        (["profile", "absent.py:f"], "there is no file 'absent.py'"),
        (["profile", MLP, "--steps", "1", "--trace", "no/such/trace.json"], "no/such/trace.json"),
    ],
)
def test_refusals(capsys, arguments, message):
    try:
        code = main(arguments)
    except SystemExit as error:
        code = error.code
    assert code == 2 and message in capsys.readouterr().err


def test_wrong_arguments_of_the_function(step, measured):
    with pytest.raises(ValueError, match="1 or more"):
        profile(step, steps=0)
    with pytest.raises(ValueError, match="kernel, scope, step"):
        measured.rows("layer")


def test_an_empty_graph_has_no_rows():
    with ei.Graph("empty") as graph:
        ei.output()
    nothing = profile(graph, steps=1)
    assert nothing.rows() == [] and nothing.outside > 0
