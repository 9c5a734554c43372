"""Groups as loop nests: axes, phases, what is kept, what is hoisted, and what is checked."""

import math

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import compiler
from euler_ir.loops import lower as lowering
from euler_ir.loops.kernel import CheckIndex, Compute, Load, Loop, Store
from euler_ir.loops.lower import lower
from euler_ir.passes import Fuse


def nest(build, *shapes, **more):
    """The only loop nest of the graph of ``build``."""
    with ei.Graph() as graph:
        inputs = [ei.input(f"x{position}", shape) for position, shape in enumerate(shapes)]
        ei.output(y=build(*inputs, *(ei.input(name, *type) for name, type in more.items())))
    (step,) = compiler.lower(graph).plan.kernels()
    (only,) = step.kernel.nests
    return only


def loops(nest):
    return [statement for statement in nest.body if isinstance(statement, Loop)]


def everything(body):
    for statement in body:
        yield statement
        if isinstance(statement, Loop):
            yield from everything(statement.body)


def count(body, kind, **attributes):
    found = [s for s in everything(body) if isinstance(s, kind)]
    return len([s for s in found if all(getattr(s, name) == value for name, value in attributes.items())])


def sizes(axes):
    return [axis.extent for axis in axes]


@pytest.mark.parametrize(
    ("build", "shapes", "axes"),
    [
        (lambda x: x + 1, [(2, 3, 4)], [24]),
        (lambda x: x + 1, [()], []),
        (lambda x: x + 1, [(1, 1)], [1]),
        (lambda x, b: x + b, [(2, 3, 4), (4,)], [6, 4]),
        (lambda x, b: x + b, [(2, 3, 4), (2, 1, 1)], [2, 12]),
        (lambda x, b: x + b, [(2, 3, 4), (3, 1)], [2, 3, 4]),
        (lambda x: x.reshape(6, 4) * 2, [(2, 3, 4)], [24]),
        (lambda x: x.T * 2, [(5, 7)], [7, 5]),
        (lambda x: x.transpose(2, 0, 1) * 2, [(2, 3, 4)], [4, 6]),
        (lambda x: x.flip() * 2, [(5, 7)], [35]),
        (lambda x: x.flip(0) * 2, [(5, 7)], [5, 7]),
        (lambda x: x[:, 1:3] * 2, [(5, 7)], [5, 2]),
        (lambda x: ei.pad(x, [(1, 1), (0, 0)]) * 2, [(5, 7)], [7, 7]),
    ],
)
def test_neighbouring_axes_merge_where_all_indices_walk_through_them_as_one(build, shapes, axes):
    assert sizes(nest(build, *shapes).axes) == axes


def test_a_softmax_keeps_a_row_of_exponentials():
    it = nest(ei.softmax, (64, 128))
    assert sizes(it.axes) == [64] and not it.vector
    assert [[r.combine for r in loop.reductions] for loop in loops(it)] == [["max"], ["sum"], []]
    assert all(loop.vector for loop in loops(it))
    assert [local.size for local in it.locals] == [128]
    assert count(it.body, Compute, operation="exp") == 1


def test_a_row_too_long_to_keep_is_computed_again():
    length = lowering.MAX_LOCAL_BYTES // 4
    assert [local.size for local in nest(ei.softmax, (8, length)).locals] == [length]
    it = nest(ei.softmax, (8, length + 1))
    assert not it.locals
    assert count(it.body, Compute, operation="exp") == 2


def test_what_is_cheap_is_not_kept():
    it = nest(lambda x: (x + 1) / ei.sum(x + 1, axes=1, keepdims=True), (64, 128))
    assert not it.locals and len(loops(it)) == 2


def test_reductions_of_one_phase_share_a_loop():
    it = nest(lambda x: ei.max(x, axes=1) + ei.sum(x, axes=1) + ei.sum(x * x, axes=1), (64, 128))
    (loop,) = loops(it)
    assert sorted(reduction.combine for reduction in loop.reductions) == ["max", "sum", "sum"]
    assert count(it.body, Load) == 1


def test_lanes_lie_along_what_is_contiguous():
    rows, columns = nest(lambda x: ei.sum(x, axes=1), (64, 128)), nest(lambda x: ei.sum(x, axes=0), (128, 64))
    assert not rows.vector and loops(rows)[0].vector
    assert columns.vector and not loops(columns)[0].vector


def test_each_element_is_loaded_and_computed_once():
    it = nest(lambda x: ei.tanh(x) * ei.tanh(x) + x * x, (64,))
    assert count(it.body, Load) == 1 and count(it.body, Compute, operation="tanh") == 1


def test_what_depends_on_no_axis_of_a_loop_stands_outside_of_it():
    it = nest(lambda x, row, number: ei.max(x * ei.exp(row) + ei.log(number), axes=1), (64, 128), (64, 1), ())
    outside = [statement for statement in it.body if isinstance(statement, Compute)]
    assert {statement.operation for statement in outside} >= {"exp", "log"}


def test_a_scan_carries_and_runs_either_way():
    for reverse in (False, True):
        it = nest(lambda x: ei.cumsum(x, 1, reverse), (6, 5))
        (loop,) = loops(it)
        assert sizes(loop.axes) == [5] and len(loop.carries) == 1
        (store,) = (statement for statement in loop.body if isinstance(statement, Store))
        assert store.index.coefficient(loop.axes[0]) == (-1 if reverse else 1)


def test_a_scatter_clears_and_then_accumulates():
    it = nest(lambda x, rows: ei.scatter_add(rows, x, 9), (6, 5), rows=((6,), ei.i32))
    clear, add = loops(it)
    assert sizes(it.axes) == [5] and sizes(clear.axes) == [9] and sizes(add.axes) == [6]
    assert count(add.body, Store, accumulate=True) == 1 and count(clear.body, Store, accumulate=False) == 1


def test_an_update_stores_its_slice_alone():
    with ei.Graph() as graph:
        kept, x, start = ei.state("kept", (4, 9, 5)), ei.input("x", (4, 2, 5)), ei.input("start", (), ei.i64)
        ei.update(kept, ei.dynamic_update_slice(kept, x * 2, start, axis=1))
    (it,) = (nest for step in compiler.lower(graph).plan.kernels() for nest in step.kernel.nests)
    assert math.prod(sizes(it.axes)) == x.size and not loops(it)
    assert [buffer.role for buffer in it.parameters] == ["input", "input", "inout"]


def test_an_index_is_checked_only_where_its_element_is_wanted(backend):
    """The index 7 is out of range, but what it takes is cut away or replaced by padding."""
    with ei.Graph() as graph:
        table, rows = ei.input("table", (5,)), ei.input("rows", (3,), ei.i32)
        ei.output(y=ei.pad(ei.take(table, rows)[:2], [(1, 1)]) * 2)
    run = ei.compile(graph, backend)
    given = dict(table=np.arange(5, dtype=np.float32), rows=np.array([4, 3, 7], np.int32))
    np.testing.assert_array_equal(run(**given)["y"], [0, 8, 6, 0])
    (check,) = (s for s in everything(run.plan.kernels()[0].kernel.nests[0].body) if isinstance(s, CheckIndex))
    assert check.conditions


def test_faults_name_their_operators():
    with ei.Graph() as graph:
        x, rows, columns = ei.input("x", (5, 6)), ei.input("rows", (4,), ei.i32), ei.input("columns", (3,), ei.i64)
        ei.output(y=ei.take(ei.take(x, rows, 0), columns, 1) + 1)
    (group,) = Fuse().run(graph).groups
    lowered = lower(group)
    checks = {s.fault: s.extent for s in everything(lowered.nest.body) if isinstance(s, CheckIndex)}
    extents = {number: op.operands[0].shape[op.attributes["axis"]] for number, op in enumerate(lowered.faults, 1)}
    assert extents == checks and set(checks.values()) == {5, 6}


def test_a_dropped_gradient_costs_nothing():
    assert count(nest(lambda x: ei.stop_gradient(x) + 1, (8,)).body, Compute) == 1
