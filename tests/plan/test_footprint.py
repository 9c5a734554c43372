"""The memory that is announced is what a process uses, and what the system has not got is refused before the run."""

import subprocess
import sys

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import pages
from euler_ir.compiler import lower
from euler_ir.plan.footprint import footprint

MEASURE = """
import sys
import numpy as np
import euler_ir as ei
from euler_ir import optim

def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))

with ei.Graph("wide") as graph:
    x = y = ei.input("x", (4096, 1024))
    for layer in range(int(sys.argv[1])):
        y = ei.tanh(y @ ei.parameter(f"w{layer}", (1024, 1024), ei.initializers.Normal(0.02)))
    loss = ei.mean(y * y)
    optim.AdamW(1e-3).step(loss)
    ei.output(loss=loss)
step = ei.compile(graph, threads=2)
before = status("VmRSS")
state = ei.initial_state(graph)
for _ in range(2):
    step(state, x=np.ones((4096, 1024), np.float32))
print(step.memory.total, status("VmHWM") - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_process_uses_what_was_announced():
    announced, used = map(int, subprocess.check_output([sys.executable, "-c", MEASURE, "8"], text=True).split())
    assert announced > 250 << 20
    # What compiling has freed is used again, and the libraries take some more.
    assert abs(used - announced) < 24 << 20


def step_graph():
    with ei.Graph("step") as graph:
        x = ei.input("x", (64, 32))
        w = ei.parameter("w", (32, 32), ei.initializers.Normal(1.0))
        m = ei.state("m", (7,), dtype=ei.f64)
        ei.update(m, m + 1)
        loss = ei.sum(ei.tanh(ei.tanh(x @ w) @ w))
        ei.output(gradient=ei.gradient(loss, [w])[0], table=x + np.arange(32, dtype=np.float32))
    return graph


def test_each_part_is_counted_where_it_lies():
    step = ei.compile(step_graph(), threads=2)
    needs = step.memory
    assert (needs.parameters, needs.state, needs.inputs) == (32 * 32 * 4, 7 * 8, 64 * 32 * 4)
    assert (needs.outputs, needs.constants) == (32 * 32 * 4 + 64 * 32 * 4, 32 * 4)
    assert needs.arena == step.plan.arena_bytes and needs.scratch == step.program.scratch_bytes
    assert needs.total == sum(
        getattr(needs, name) for name in ("arena", "parameters", "state", "inputs", "outputs", "constants", "scratch")
    )
    assert ei.compile(step_graph(), backend="reference").memory.scratch == 0


def test_owners_fill_the_arena_at_its_peak():
    plan = lower(step_graph()).plan
    owners = footprint(plan).owners
    assert sum(owner.nbytes for owner in owners) <= plan.lower_bound
    assert owners[0].nbytes == 64 * 32 * 4 and "f32[64, 32]" in owners[0].label
    assert [owner.nbytes for owner in owners] == sorted((owner.nbytes for owner in owners), reverse=True)
    text = str(footprint(plan))
    assert "arena" in text and "total" in text and owners[0].label in text


def test_memory_that_is_not_there_is_refused_before_the_run(monkeypatch):
    monkeypatch.setattr(pages, "available_memory", lambda: 4096)
    with pytest.raises(ei.LoweringError) as caught:
        ei.compile(step_graph())
    text = str(caught.value)
    for words in ("'step' needs", "largest at the peak", "f32[64, 32]", "memory_budget"):
        assert words in text


def test_memory_that_no_machine_has_is_refused():
    with ei.Graph("huge") as graph:
        x = ei.input("x", (1 << 20,))
        grid = ei.tensor.broadcast_to(x[:, None], (1 << 20, 1 << 20)) @ ei.tensor.broadcast_to(x[:, None], (1 << 20, 2))
        ei.output(y=grid)
    with pytest.raises(ei.LoweringError, match="'huge' needs 41943"):
        ei.compile(graph)
