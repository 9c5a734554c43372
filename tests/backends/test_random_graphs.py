"""Random graphs mean the same everywhere: interpreter, reference backend, LLVM on one thread and on two."""

import functools

import pytest
from agreement import assert_agrees
from hypothesis import HealthCheck, given, settings
from random_graphs import RandomGraph, random_graph, random_graphs

import euler_ir as ei
from euler_ir import compiler
from euler_ir.loops import lower
from euler_ir.loops.verify import verify_kernel
from euler_ir.passes import Fuse, legalize, parallelism, stored_values
from euler_ir.plan import schedule
from euler_ir.plan.memory import check_memory

_SETTINGS = dict(deadline=None, suppress_health_check=list(HealthCheck))


def results(random: RandomGraph, backend: str, threads: int | None = None):
    """Outputs and updates of one call."""
    executable = ei.compile(random.graph, backend=backend, threads=threads)
    state = ei.State()
    for name, array in random.kept.items():
        state[name] = array
    outputs = executable(state, **random.inputs)
    return outputs, {name: state[name] for name in random.graph.updates}, executable


def check(random: RandomGraph) -> None:
    leaves = {**random.inputs, **random.kept}
    *reference, executable = results(random, "reference")
    check_memory(executable.plan)
    for step in executable.plan.kernels():
        verify_kernel(step.kernel)
    assert_agrees(random.graph, leaves, reference)
    *one, _ = results(random, "cpu", 1)
    assert_agrees(random.graph, leaves, one)
    *two, _ = results(random, "cpu", 2)
    for before, after in zip(one, two):
        for name, array in before.items():
            assert array.tobytes() == after[name].tobytes(), f"{name} depends on the number of threads"


def check_seeds(seeds, most_ops: int = 20) -> None:
    for seed in seeds:
        try:
            check(random_graph(seed, most_ops))
        except Exception as error:
            error.add_note(f"random_graph({seed}, {most_ops})")
            raise


@pytest.fixture
def tight_limits(monkeypatch):
    """Limits so low that small graphs meet every one of them."""
    for module, limits in {
        parallelism: dict(SMALL_FRAME=4, LANES=2),
        legalize: dict(LANES=2),
        compiler: dict(Fuse=functools.partial(Fuse, max_ops=7, max_inline_size=3)),
        stored_values: dict(MAX_REPEATED=5),
        lower: dict(MAX_LOCAL_BYTES=32),
        schedule: dict(WINDOW=2),
    }.items():
        for name, limit in limits.items():
            assert hasattr(module, name)
            monkeypatch.setattr(module, name, limit)


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_random_graphs_mean_the_same_everywhere(first):
    check_seeds(range(first, first + 50))


@pytest.mark.parametrize("first", range(200, 400, 50))
def test_random_graphs_at_every_limit_mean_the_same_everywhere(first, tight_limits):
    check_seeds(range(first, first + 50))


@pytest.mark.slow
@settings(max_examples=2000, **_SETTINGS)
@given(random_graphs())
def test_random_graphs_of_hypothesis_mean_the_same_everywhere(random):
    check(random)


@pytest.mark.slow
def test_thousands_of_random_graphs_mean_the_same_everywhere():
    check_seeds(range(1000, 4000), most_ops=30)


@pytest.mark.slow
def test_thousands_of_random_graphs_at_every_limit_mean_the_same_everywhere(tight_limits):
    check_seeds(range(5000, 8000), most_ops=30)
