"""Who computes what, against the compiled code: each thread's and each task's part run alone, and what it wrote."""

import ctypes

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.backends.cpu import codegen, jit, widths
from euler_ir.backends.cpu.placement import Placement
from euler_ir.backends.cpu.program import CpuProgram
from euler_ir.backends.cpu.step import owner_of, share
from euler_ir.compiler import lower
from euler_ir.loops.kernel import Store
from euler_ir.plan.plan import AttentionStep, KernelStep, MatmulStep

NULL = ctypes.c_void_p(None)


def plan_of(build):
    with ei.Graph("placed") as graph:
        ei.output(y=build())
    return lower(graph).plan


def written_by(plan, threads, number):
    """For each thread the elements of a buffer that it alone writes: the step must have one phase."""
    assert sum(bool(phase) for phase in plan.phases) == 1
    program = CpuProgram(plan, threads, by_openblas=False)
    kinds = ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p
    function = ctypes.CFUNCTYPE(None, *kinds)(program._address)
    random, found = np.random.default_rng(0), []
    arrays = {
        n: np.ascontiguousarray(random.standard_normal(buffer.type.shape).astype(buffer.type.dtype.numpy))
        for n, buffer in enumerate(plan.buffers)
        if buffer.place in ("input", "output")
    }
    pointers = program.bind(arrays).args[0]
    faults = (ctypes.c_int32 * (len(plan.faults) + 1))()
    pointers[1] = ctypes.addressof(faults)
    for thread in range(threads):
        arrays[number].fill(np.nan)
        function(thread, threads, ctypes.addressof(pointers), NULL)
        found.append(set(np.flatnonzero(~np.isnan(arrays[number].ravel())).tolist()))
    return program, arrays, found


def only(plan, kind):
    (step,) = (step for step in plan.steps() if isinstance(step, kind))
    return step


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    "build",
    [
        lambda: ei.exp(ei.input("x", (7, 33))),
        lambda: ei.input("x", (40, 130)).transpose() * 2,
        lambda: ei.input("x", (3, 5, 70))[:, ::2] + ei.input("b", (70,)),
        lambda: ei.input("x", (90, 17)).sum(1),
        lambda: ei.input("x", (33, 90)).max(0),
        lambda: ei.exp(ei.input("x", (70_001,))),
    ],
)
def test_points_of_nests(build, threads):
    plan = plan_of(build)
    step, output = only(plan, KernelStep), plan.outputs["y"]
    _, _, written = written_by(plan, threads, output)
    assert sum(map(len, written)) == plan.buffers[output].type.size
    (nest,), placement = step.kernel.nests, Placement(plan, threads)
    (store,) = (statement for statement in nest.body if isinstance(statement, Store))
    random = np.random.default_rng(1)
    for _ in range(200):
        point = {axis: int(random.integers(axis.extent)) for axis in nest.axes}
        thread, _ = placement.of_point(step, 0, point)
        assert int(store.index.evaluate(point)) in written[thread]


@pytest.mark.parametrize("shape", [(7, 33), (40, 130), (3, 64), (5,), (1000,)])
def test_tasks_of_nests(shape):
    plan = plan_of(lambda: ei.tanh(ei.input("x", shape)).transpose())
    (nest,) = only(plan, KernelStep).kernel.nests
    modules = codegen.NestModules()
    symbol = modules.add(nest)
    code = jit.LoadedCode([jit.compile_object(modules.texts[symbol])], [symbol])
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 2, *[ctypes.c_void_p] * 3)(code.address(symbol))
    (store,) = (statement for statement in nest.body if isinstance(statement, Store))
    given, made = np.ones(nest.parameters[0].size, np.float32), np.empty(nest.points, np.float32)
    fault = np.zeros(1, np.int32)
    expected = {}
    for point in np.ndindex(*(axis.extent for axis in nest.axes)):
        point = dict(zip(nest.axes, point))
        lane = widths.lane_of(nest, point)
        assert 0 <= lane.lane < lane.width == widths.nest_width(nest)
        expected.setdefault(lane.task, set()).add(int(store.index.evaluate(point)))
    assert set(expected) == set(range(widths.task_count(nest)))
    for task, elements in expected.items():
        made.fill(np.nan)
        function(task, task + 1, *(array.ctypes.data for array in (fault, given, made)))
        assert set(np.flatnonzero(~np.isnan(made)).tolist()) == elements


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize(("rows", "inner", "columns"), [(5, 7, 9), (50, 40, 70), (130, 3, 33), (2, 900, 200)])
def test_parts_of_products(rows, inner, columns, threads):
    plan = plan_of(lambda: ei.input("x", (rows, inner)) @ ei.input("w", (inner, columns)))
    step = only(plan, MatmulStep)
    _, _, written = written_by(plan, threads, plan.outputs["y"])
    placement, random = Placement(plan, threads), np.random.default_rng(1)
    for _ in range(60):
        row, column = int(random.integers(rows)), int(random.integers(columns))
        (place,) = placement.of_product(step, "result", [0], row, column, None)
        assert row * columns + column in written[place.thread]
        own = written[place.thread]
        assert {r * columns + c for r in place.rows for c in place.columns} <= own
        assert 0 <= place.lane and 0 <= place.tile_row and 0 <= place.vector


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_items_of_batched_products(threads):
    plan = plan_of(lambda: ei.input("x", (6, 8, 5)) @ ei.input("w", (6, 5, 7)))
    step = only(plan, MatmulStep)
    _, _, written = written_by(plan, threads, plan.outputs["y"])
    placement = Placement(plan, threads)
    for item in range(6):
        (place,) = placement.of_product(step, "result", [item], 3, 4, None)
        assert (item * 8 + 3) * 7 + 4 in written[place.thread]


@pytest.mark.parametrize(("rows", "inner", "columns"), [(5, 7, 9), (30, 40, 70), (17, 11, 33)])
def test_packed_panels_hold_the_elements(rows, inner, columns):
    """After a product of one block the scratch memory holds both packed blocks."""
    plan = plan_of(lambda: ei.input("x", (rows, inner)) @ ei.input("w", (inner, columns)))
    step = only(plan, MatmulStep)
    program, arrays, _ = written_by(plan, 1, plan.outputs["y"])
    placement, scratch = Placement(plan, 1), program._scratch.view(np.float32)
    cut = program._writer.products.cut(step)
    left_size, _ = cut.blocks.scratch(cut.tile)
    left, right = arrays[step.left.buffer], arrays[step.right.buffer]
    sides = ("left", 0, left, cut.tile.rows), ("right", left_size, right.T, cut.tile.columns)
    for side, begin, matrix, width in sides:
        for line, k in np.ndindex(*matrix.shape):
            at = (line, None, k) if side == "left" else (None, line, k)
            (place,) = placement.of_product(step, side, [0], *at)
            panel = place.panel
            assert (panel.line_block, panel.inner_block) == (0, 0)
            packed = scratch[begin + panel.panel * width * inner + panel.step * width + panel.place]
            assert packed == matrix[line, k]


@pytest.mark.parametrize("threads", [1, 3, 4, 5])
@pytest.mark.parametrize("queries", [5, 70, 130])
def test_queries_of_attention(queries, threads):
    plan = plan_of(lambda: ei.attention(*(ei.input(name, (2, 3, queries, 8)) for name in "qkv"), causal=True))
    step = only(plan, AttentionStep)
    _, _, written = written_by(plan, threads, plan.outputs["y"])
    placement = Placement(plan, threads)
    for head in range(6):
        for query in range(0, queries, 7):
            assert (head * queries + query) * 8 in written[placement.of_queries(step, head, query)]
        assert placement.of_queries(step, head, queries - 1) in placement.of_keys(step, head, queries - 1)
        assert set(placement.of_keys(step, head, 0)) == {placement.of_queries(step, head, q) for q in range(queries)}


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_heads_that_share_keys_have_one_thread_in_the_gradient(threads):
    def build():
        query, d_output = (ei.input(name, (2, 6, 5, 8)) for name in ("q", "d"))
        key, value = (ei.input(name, (2, 2, 5, 8)) for name in "kv")
        rows = (ei.input(name, (2, 6, 5)) for name in ("logsumexp", "delta"))
        operands = (query, key, value, next(rows), d_output, next(rows))
        return query.graph.emit("attention_gradient", operands, causal=True, scale=0.5)[0]

    plan = plan_of(build)
    step = only(plan, AttentionStep)
    _, _, written = written_by(plan, threads, plan.outputs["y"])
    placement = Placement(plan, threads)
    for head, query in np.ndindex(12, 5):
        assert (head * 5 + query) * 8 in written[placement.of_queries(step, head, query)]


def test_shares_are_those_of_the_owners():
    for tasks in (1, 2, 5, 7, 64):
        for threads in (1, 2, 3, 8):
            for turn in (0, 1, 5, 70_000):
                for task in range(tasks):
                    thread = owner_of(task, tasks, turn, threads)
                    part = (thread + turn % (1 << 16)) % threads
                    assert share(tasks, part, threads) <= task < share(tasks, part + 1, threads)
