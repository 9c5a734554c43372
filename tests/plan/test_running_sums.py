"""Sums of products are kept in one place: each product adds to what is there."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.compiler import lower
from euler_ir.plan.memory import check_memory
from euler_ir.plan.plan import MatmulStep


def products(count, rows=40, inner=24, columns=56, build=lambda x: x, outputs=lambda total: {"y": total * 2}):
    """x0 w0 + x1 w1 + ..."""
    with ei.Graph("products") as graph:
        total = None
        for number in range(count):
            x, w = ei.input(f"x{number}", (rows, inner)), ei.input(f"w{number}", (inner, columns))
            product = build(x @ w)
            total = product if total is None else total + product
        ei.output(**outputs(total))
    return graph


def running(plan):
    return [step for step in plan.steps() if isinstance(step, MatmulStep) and step.running is not None]


def arrays(graph, scale=1.0):
    random = np.random.default_rng(5)
    return {leaf.name: (scale * random.standard_normal(leaf.shape)).astype(leaf.dtype.numpy) for leaf in graph.inputs}


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("sizes", [(40, 24, 56), (1, 3, 70), (130, 900, 33), (7, 1, 5)])
def test_the_sum_is_that_of_float64(backend, sizes):
    graph = products(4, *sizes)
    step = ei.compile(graph, backend=backend)
    given = arrays(graph)
    wanted = 2 * sum(given[f"x{n}"].astype(np.float64) @ given[f"w{n}"] for n in range(4))
    np.testing.assert_allclose(step(**given)["y"], wanted, rtol=1e-4, atol=1e-4)


def test_products_add_to_what_is_there():
    plan = lower(products(5)).plan
    check_memory(plan)
    steps = running(plan)
    assert len(steps) == 3  # the last goes on as an epilogue
    for step in steps:
        old, new = plan.buffers[step.running], plan.buffers[step.result.buffer]
        assert (old.place, old.offset) == (new.place, new.offset) and step.running in set(step.reads())
    assert plan.arena_bytes <= 40 * 56 * 4
    assert f"{steps[0].running} + " in str(plan)


def test_threads_change_no_bit():
    graph = products(3, 300, 500, 200)
    given = arrays(graph)
    results = [ei.compile(graph, threads=threads)(**given)["y"] for threads in (1, 2, 3)]
    assert all(np.array_equal(result, results[0]) for result in results)


@pytest.mark.parametrize(
    ("build", "outputs"),
    [
        (lambda x: x, lambda total: {"y": total}),
        (lambda x: x, lambda total: {"y": total * 2, "middle": total.op.operands[0] * 3}),
        (lambda x: ei.tanh(x), lambda total: {"y": total * 2}),
        (lambda x: x.transpose(1, 0), lambda total: {"y": total * 2}),
    ],
    ids=["the sum is an output", "what is added to is read elsewhere", "more than a sum", "moved"],
)
def test_other_sums_are_right_as_well(build, outputs):
    graph = products(3, build=build, outputs=outputs)
    plan = lower(graph).plan
    check_memory(plan)
    given = arrays(graph, 0.1)
    found, wanted = (ei.compile(graph, backend=backend)(**given) for backend in ("cpu", "reference"))
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=1e-5)


def test_a_nan_in_the_sum_stays_there():
    graph = products(2)
    given = arrays(graph)
    given["x0"][3, 0] = np.nan
    found = ei.compile(graph)(**given)["y"]
    assert np.array_equal(np.isnan(found).all(axis=1), np.arange(40) == 3)
