"""Bytes and operations of steps, against counts by hand."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import compiler
from euler_ir.compiler import lower
from euler_ir.passes.cost import attention_flops, matmul_flops
from euler_ir.plan.plan import CopyStep, KernelStep, MatmulStep
from euler_ir.plan.work import passes_of, tasks, traffic_of, work_of
from euler_ir.testing.random_graphs import random_graph


def works(build):
    """The Work of each task of the graph that ``build`` makes."""
    with ei.Graph("counted") as graph:
        build()
    plan = compiler.lower(graph).plan
    return [work_of(plan, *task) for task in tasks(plan)]


def test_elementwise():
    (work,) = works(lambda: ei.output(y=ei.tanh(ei.input("x", (6, 5)) * 3) + ei.input("b", (5,))))
    assert (work.read_bytes, work.written_bytes, work.nbytes) == (4 * (30 + 5), 4 * 30, 4 * 65)
    assert work.flops == 3 * 30  # multiply, tanh, add


def test_casts_and_choices_are_no_operations():
    def build():
        x = ei.input("x", (7,), ei.f64)
        ei.output(y=ei.where(ei.input("c", (7,), ei.bool_), x.cast(ei.f32), 0.0))

    (work,) = works(build)
    assert (work.read_bytes, work.written_bytes, work.flops) == (7 * 8 + 7, 7 * 4, 0)


def test_an_update_in_place_reads_and_writes():
    def build():
        w = ei.parameter("w", (8, 8), ei.initializers.Ones())
        ei.update(w, w * 0.5)

    (work,) = works(build)
    assert (work.read_bytes, work.written_bytes, work.flops) == (256, 256, 64)


def test_a_row_read_twice_counts_once():
    (work,) = works(lambda: ei.output(y=ei.softmax(ei.input("x", (10, 100)))))
    assert (work.read_bytes, work.written_bytes) == (4000, 4000)
    # The largest is no sum, but an operation; subtract, exp, sum; subtract and exp again or not; divide.
    assert 1000 * 5 <= work.flops <= 1000 * 8


def test_each_pass_over_a_row_counts_where_nothing_stays_in_a_cache():
    with ei.Graph("counted") as graph:
        x, y = ei.input("x", (10, 100)), ei.input("y", (6, 5), ei.f16)
        ei.output(softmax=ei.softmax(x), halves=y + y.cast(ei.f32).cast(ei.f16) * y, product=x @ ei.transpose(x))
    plan = compiler.lower(graph).plan
    passes = {work_of(plan, *task).name: (passes_of(plan, *task), traffic_of(plan, *task).moved) for task in tasks(plan)}
    # A softmax reads its row for the maximum, and again for what it then keeps.
    assert passes.pop("max_divide") == (3 * 4000, 2 * 4000)
    assert len(passes) == 2 and all(moved == least for moved, least in passes.values())


def test_a_sum():
    (work,) = works(lambda: ei.output(y=ei.sum(ei.input("x", (10, 100), ei.f64) * 2.0, 1)))
    assert work.read_bytes == 8000 and work.written_bytes == 80
    assert 1000 <= work.flops <= 2000  # a sum; the factor may be taken out of it


def test_a_gather_reads_what_it_picks():
    def build():
        ei.output(y=ei.take(ei.input("table", (1000, 16)), ei.input("rows", (5,), ei.i32)))

    (work,) = works(build)
    assert (work.read_bytes, work.written_bytes, work.flops) == (5 * 16 * 4 + 5 * 4, 5 * 16 * 4, 0)


def test_a_slice_reads_its_part():
    (work,) = works(lambda: ei.output(y=ei.exp(ei.input("x", (6, 12))[:, 4:8])))
    assert (work.read_bytes, work.written_bytes, work.flops) == (6 * 4 * 4, 6 * 4 * 4, 24)


def test_a_scatter_adds_each_element():
    def build():
        ei.output(y=ei.scatter_add(ei.input("rows", (5,), ei.i32), ei.input("x", (5, 16)), 40))

    work = max(works(build), key=lambda work: work.flops)
    assert work.flops == 5 * 16 and work.written_bytes == 40 * 16 * 4


def test_products():
    def build():
        x, w = ei.input("x", (3, 64, 32)), ei.input("w", (3, 32, 48))
        ei.output(y=x @ w, z=ei.matmul(ei.input("a", (40, 50)), ei.input("b", (60, 50)), transpose_right=True))

    batched, single = works(build)
    assert (batched.flops, single.flops) == (2 * 3 * 64 * 32 * 48, 2 * 40 * 50 * 60)
    assert batched.read_bytes == 4 * 3 * (64 * 32 + 32 * 48) and batched.written_bytes == 4 * 3 * 64 * 48
    assert single.read_bytes == 4 * (40 * 50 + 60 * 50) and single.written_bytes == 4 * 40 * 60
    assert single.name == "matmul 40 x 50 x 60 NT"


def test_a_matrix_that_all_items_share_is_read_once():
    def build():
        ei.output(y=ei.matmul(ei.input("w", (32, 48)), ei.input("x", (3, 48, 64))))

    (work,) = works(build)
    assert work.read_bytes == 4 * (32 * 48 + 3 * 48 * 64)


def test_a_copy_and_the_kinds_of_steps():
    def build():
        x = ei.input("x", (4, 8))
        ei.output(x=x, y=ei.exp(x) @ ei.input("w", (8, 8)))

    with ei.Graph("kinds") as graph:
        build()
    assert {type(step) for step in compiler.lower(graph).plan.steps()} == {CopyStep, KernelStep, MatmulStep}
    copy = next(work for work in works(build) if work.name == "copy")
    assert (copy.read_bytes, copy.written_bytes, copy.flops) == (128, 128, 0)


def test_equal_code_has_equal_structure():
    def build():
        x, y = ei.input("x", (4, 8)), ei.input("y", (8, 8))
        ei.output(a=ei.exp(x @ y), b=ei.exp(x @ ei.exp(y)), c=ei.tanh(x), d=x @ ei.tanh(y))

    # Two products with an exp as their epilogue, one without, an exp, a tanh of the same size, and a larger one.
    structures = [work.structure for work in works(build)]
    assert len(structures) == 6 and len(set(structures)) == 5


def test_an_epilogue_counts_what_it_reads_and_writes_beside_the_product():
    def build():
        x, y, bias = ei.input("x", (4, 8)), ei.input("y", (8, 16)), ei.input("bias", (16,))
        h = x @ y + bias
        ei.output(h=h, r=ei.relu(h))

    (work,) = works(build)
    assert (work.read_bytes, work.written_bytes) == (4 * (4 * 8 + 8 * 16 + 16), 4 * 2 * 4 * 16)
    assert work.flops == 2 * 4 * 8 * 16 + 4 * 16 + 4 * 16


def test_steps_say_where_they_come_from():
    with ei.Graph("origins") as graph, graph.scope("head"):
        ei.output(y=ei.tanh(ei.input("x", (4, 8)) * 2) @ ei.input("w", (8, 8)))
    kernel, product = compiler.lower(graph).plan.steps()
    for step, operators in ((kernel, ("multiply", "tanh")), (product, ("matmul",))):
        (origin,) = step.origins
        assert (origin.operators, origin.scope) == (operators, "head")
        assert {location.file for location in origin.locations} == {__file__}


def test_attention_reads_one_row_of_where_texts_begin():
    def build():
        query, key, value = (ei.input(name, (2, 3, 5, 4)) for name in "qkv")
        ei.output(y=ei.attention(query, key, value, visible_from=ei.input("starts", (5,), ei.i64)))

    (work,) = works(build)
    assert work.read_bytes == 3 * 4 * 2 * 3 * 5 * 4 + 8 * 5
    assert work.written_bytes == 4 * 2 * 3 * 5 * 4 + 4 * 2 * 3 * 5  # the logsumexp too


def test_attention_counts_the_pairs_that_are_not_masked():
    queries, keys, width = 5, 9, 4
    mask = np.tril(np.ones((queries, keys)), keys - queries)
    assert attention_flops(3, queries, keys, width, width, causal=True) == 2 * 2 * 3 * width * mask.sum()
    assert attention_flops(3, queries, keys, width, width, causal=False) == 2 * matmul_flops(queries, width, keys, 3)
    assert attention_flops(1, 8, 8, 2, 3, causal=True, backward=True) == 2 * 36 * (3 * 2 + 2 * 3)


@pytest.mark.parametrize("seed", range(40))
def test_traffic_buffer_by_buffer_adds_up_to_the_work(seed):
    plan = lower(random_graph(seed).graph).plan
    for step, nest in tasks(plan):
        work, traffic = work_of(plan, step, nest), traffic_of(plan, step, nest)
        assert (work.read_bytes, work.written_bytes) == (sum(traffic.read.values()), sum(traffic.written.values()))
        assert set(traffic.read) <= set(step.reads()) and set(traffic.written) <= set(step.writes())


def test_an_index_that_is_a_constant_is_counted():
    with ei.Graph() as graph:
        ei.output(y=ei.take(ei.input("x", (4, 8)), graph.constant(np.array(2))))
    assert "kernel" in str(lower(graph).plan)
