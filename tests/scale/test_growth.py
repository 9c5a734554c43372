"""Ten thousand chained operators go through every level, and the work grows no faster than the graph."""

import copy
import cProfile
import pickle
import pstats

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.backends.cpu import program
from euler_ir.backends.cpu.step import StepWriter
from euler_ir.compiler import lower
from euler_ir.passes import PIPELINE, PassManager, Rematerialize
from euler_ir.passes import Fuse
from euler_ir.plan.build import build_plan
from euler_ir.graph_equality import structural_hash
from euler_ir.passes import RemoveDead, Simplify
from euler_ir.plan.memory import check_memory
from euler_ir.rebuild import Rebuild
from euler_ir.text import parse_graph, print_graph
from euler_ir.verify import verify


def chain(length):
    """x -> sin -> + 1 -> sin ..., its sum, and the gradient of that."""
    with ei.Graph("chain") as graph:
        x = y = ei.input("x", (8,))
        for position in range(length):
            y = y.sin() if position % 2 else y + 1
        total = y.sum()
        ei.output(total=total, gradient=ei.gradient(total, [x])[0])
    return graph


def diamonds(length):
    """x -> x + x -> ...: as many paths as 2 to the length."""
    with ei.Graph("diamonds") as graph:
        x = y = ei.input("x", (8,))
        for _ in range(length):
            y = (y + y) * 0.5
        ei.output(y=y, gradient=ei.gradient(y.sum(), [x])[0])
    return graph


def wide(length):
    """Many sums of one tensor, none of which needs another."""
    with ei.Graph("wide") as graph:
        x = ei.input("x", (8, 8))
        ei.output(y=ei.stack([(x * float(position)).sum() for position in range(length // 4)]))
    return graph


def work(function):
    """What ``function`` gives, and how many calls it makes: time that no other process can disturb."""
    profile = cProfile.Profile()
    result = profile.runcall(function)
    return result, pstats.Stats(profile).total_calls


@pytest.mark.parametrize(("shape", "length"), [(chain, 2_500), (diamonds, 1_000), (wide, 1_000)])
def test_work_grows_with_the_graph(shape, length):
    small, small_building = work(lambda: shape(length))
    large, large_building = work(lambda: shape(4 * length))
    assert large_building < 4.4 * small_building
    small_stages, small_lowering = work(lambda: lower(small))
    large_stages, large_lowering = work(lambda: lower(large))
    assert large_lowering < 4.8 * small_lowering
    small_text, large_text = (
        len(StepWriter(stages.plan, 2, lambda step: False).step_module()) for stages in (small_stages, large_stages)
    )
    assert large_text < 4.4 * small_text
    check_memory(large_stages.plan)


@pytest.mark.parametrize("shape", [chain, diamonds])
def test_text_grows_with_the_graph(shape):
    small, large = shape(500), shape(2_000)
    small_text, large_text = print_graph(small, locations=True), print_graph(large, locations=True)
    assert len(large_text) < 4.4 * len(small_text)
    for function in (print_graph, structural_hash, verify, pickle.dumps, copy.deepcopy):
        assert work(lambda: function(large))[1] < 4.4 * work(lambda: function(small))[1], function
    assert work(lambda: parse_graph(large_text))[1] < 4.4 * work(lambda: parse_graph(small_text))[1]


def test_passes_that_change_nothing_copy_nothing(monkeypatch):
    graph = lower(chain(1_000)).optimized
    copied, keep = [], Rebuild.keep
    monkeypatch.setattr(Rebuild, "keep", lambda rebuild, op, copy: copied.append(op) or keep(rebuild, op, copy))
    assert RemoveDead().run(Simplify().run(graph)) is graph
    assert copied == []


def test_a_thousand_operators_need_little_code(monkeypatch):
    """A chain is cut into kernels that repeat, and none holds its math functions over and over."""
    objects, compile_object = [], program.compile_object
    monkeypatch.setattr(program, "compile_object", lambda *m: objects.append(compile_object(*m)) or objects[-1])
    ei.compile(chain(1_000))
    assert len(objects) < 20 and sum(map(len, objects)) < 200_000


def test_ten_thousand_operators_compile_and_run():
    step = ei.compile(chain(10_000))
    x = np.linspace(-2, 2, 8, dtype=np.float32)
    y, slope = x.astype(np.float64), np.ones(8)
    for position in range(10_000):
        if position % 2:
            y, slope = np.sin(y), slope * np.cos(y)
        else:
            y = y + 1
    result = step(x=x)
    np.testing.assert_allclose(result["total"], y.sum(), rtol=1e-5)
    np.testing.assert_allclose(result["gradient"], slope, rtol=1e-5, atol=1e-12)


def test_finding_what_to_compute_again_grows_with_the_graph():
    def again(graph):
        passes = Rematerialize(), Rematerialize(True), Rematerialize(True, True)
        return work(lambda: [each.run(graph) for each in passes])

    small, large = (PassManager(PIPELINE).run(chain(length)) for length in (1_250, 5_000))
    (small_graphs, small_work), (large_graphs, large_work) = again(small), again(large)
    assert large_work < 4.8 * small_work
    for before, graphs in ((small, small_graphs), (large, large_graphs)):
        assert max(len(graph.ops) for graph in graphs) < 2 * len(before.ops)
        assert build_plan(Fuse().run(graphs[0])).arena_bytes < 0.2 * build_plan(Fuse().run(before)).arena_bytes
