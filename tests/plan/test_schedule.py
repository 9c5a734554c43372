"""The order of tasks, on random dependencies, and the memory that it needs, counted anew."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import euler_ir as ei
from euler_ir.compiler import lower
from euler_ir.plan import build
from euler_ir.plan.schedule import Task, dependencies, schedule
from models.gpt2 import GPT2Config
from models.language_model import train_graph


@st.composite
def problems(draw):
    """Up to 40 tasks, each after some that stand before it, and the sizes of what they make."""
    tasks, nbytes = [], {}
    for number in range(draw(st.integers(0, 40))):
        before = draw(st.lists(st.integers(0, number - 1), max_size=3)) if number else []
        tasks.append(Task(tuple(before), draw(st.booleans()), draw(st.booleans()), tuple(before), (number,)))
        nbytes[number] = draw(st.integers(0, 9))
    return tasks, nbytes


def peak(tasks, nbytes, phases):
    """The most bytes in one phase when everything lives from the phase that makes it to the last that reads it."""
    phase_of = {number: place for place, phase in enumerate(phases) for step in phase for number in step}
    last = dict(phase_of)
    for number, task in enumerate(tasks):
        for value in task.reads:
            last[value] = max(last[value], phase_of[number])
    return max(
        (sum(nbytes.get(v, 0) for v in phase_of if phase_of[v] <= place <= last[v]) for place in range(len(phases))),
        default=0,
    )


@settings(max_examples=300, deadline=None)
@given(problems())
def test_every_task_runs_once_after_all_that_it_needs(problem):
    tasks, nbytes = problem
    phases = schedule(tasks, nbytes)
    place = {number: at for at, phase in enumerate(phases) for step in phase for number in step}
    assert sorted(number for phase in phases for step in phase for number in step) == list(range(len(tasks)))
    assert all(place[earlier] < place[number] for number, task in enumerate(tasks) for earlier in task.before)


@settings(max_examples=100, deadline=None)
@given(problems())
def test_library_calls_stay_alone_and_the_order_is_determined(problem):
    tasks, nbytes = problem
    phases = schedule(tasks, nbytes)
    assert all(tasks[number].is_kernel for phase in phases for step in phase if len(step) > 1 for number in step)
    turned = [Task(t.before[::-1], t.is_kernel, t.reads_computed, t.reads[::-1], t.writes) for t in tasks]
    assert schedule(turned, nbytes) == phases


@settings(max_examples=300, deadline=None)
@given(problems())
def test_calls_need_no_more_memory_than_in_their_own_order(problem):
    tasks, nbytes = problem
    calls = [Task(task.before, False, True, task.reads, task.writes) for task in tasks]
    alone = peak(calls, nbytes, [[[number]] for number in range(len(tasks))])
    assert peak(calls, nbytes, schedule(calls, nbytes)) <= alone


def test_ready_kernels_become_one_step_and_independent_steps_one_phase():
    # Two products, a kernel on each, and a product of what the kernels make.
    kinds = [((), False), ((), False), ((0,), True), ((1,), True), ((2, 3), False)]
    tasks = [Task(before, is_kernel, True) for before, is_kernel in kinds]
    assert schedule(tasks) == [[[0], [1]], [[2, 3]], [[4]]]


def test_a_kernel_on_inputs_alone_waits_for_its_turn():
    # 1 needs 0; 2 needs nothing computed, so what it makes would take memory too early beside 0.
    tasks = [Task((), True, False), Task((0,), True, True), Task((), True, False)]
    assert schedule(tasks) == [[[0]], [[1], [2]]]


def test_blocks_run_one_after_the_other_when_memory_counts():
    # Four blocks of a product, a kernel that works in its place, and a product that makes little of it.
    tasks, nbytes = [], {}
    for block in range(4):
        wide, narrow = f"wide {block}", f"narrow {block}"
        at = len(tasks)
        tasks += [
            Task((), False, False, (), (wide,)),
            Task((at,), True, True, (wide,), (wide + "'",), overwrites=True),
            Task((at + 1,), False, True, (wide + "'",), (narrow,)),
        ]
        nbytes |= {wide: 100, wide + "'": 100, narrow: 1}
    assert schedule(tasks, nbytes) == [[[number]] for number in range(12)]
    assert len(schedule(tasks)) == 3


def test_what_only_frees_memory_does_not_wait():
    # Gradients 0, 1, 2 and the updates in place that read them: each at once, though all stand last.
    tasks = [
        Task((), False, False, (), ("a",)),
        Task((0,), False, True, (), ("b",)),
        Task((1,), False, True, (), ("c",)),
    ]
    tasks += [Task((number,), True, True, ("abc"[number],), ()) for number in range(3)]
    assert schedule(tasks, {"a": 8, "b": 8, "c": 8}) == [[[0]], [[3]], [[1]], [[4]], [[2]], [[5]]]


def test_tasks_follow_the_writers_of_what_they_read_and_what_they_must():
    assert dependencies([["x"], ["a", "x"], ["b"]], [["a"], ["b"], ["c"]], {0: [2]}) == [[2], [0], [1]]


@pytest.mark.parametrize(
    ("config", "batch"),
    [(GPT2Config(64, 128, 2, 2, 32), 4), (GPT2Config(40_000, 512, 2, 2, 32), 2)],
    ids=["deep", "broad"],
)
def test_training_needs_no_more_than_one_by_one_and_far_fewer_phases(config, batch, monkeypatch):
    graph = train_graph(config, batch, config.context)
    plan = lower(graph).plan
    monkeypatch.setattr(build, "schedule", lambda tasks, nbytes: [[[number]] for number in range(len(tasks))])
    alone = lower(graph).plan
    assert plan.arena_bytes <= 1.02 * alone.arena_bytes
    assert len(plan.phases) < 0.6 * len(alone.phases)


def test_an_optimiser_without_clipping_frees_each_gradient_at_once():
    with ei.Graph() as graph:
        y = ei.input("x", (256, 256))
        for layer in range(8):
            y = ei.tanh(y @ ei.parameter(f"w{layer}", (256, 256), ei.initializers.Normal(0.1)))
        ei.optim.SGD(0.1).step(ei.sum(y * y))
    plan = lower(graph).plan
    assert plan.arena_bytes <= (8 + 4) * 256 * 256 * 4  # eight layers of activations, one gradient at a time
