"""The order of groups, on random dependencies."""

from hypothesis import given, settings
from hypothesis import strategies as st

from euler_ir.plan.schedule import dependencies, schedule


@st.composite
def problems(draw):
    """(before, is_kernel, reads_computed) of up to 40 groups, each after some that stand before it."""
    count = draw(st.integers(0, 40))
    before = [
        draw(st.lists(st.integers(0, group - 1), max_size=3)) if group else [] for group in range(count)
    ]
    flags = st.lists(st.booleans(), min_size=count, max_size=count)
    return before, draw(flags), draw(flags)


@settings(max_examples=300, deadline=None)
@given(problems())
def test_every_group_runs_once_after_all_that_it_needs(problem):
    before, is_kernel, reads_computed = problem
    phases = schedule(len(before), before, is_kernel, reads_computed)
    place = {group: number for number, phase in enumerate(phases) for step in phase for group in step}
    assert sorted(group for phase in phases for step in phase for group in step) == list(range(len(before)))
    assert all(place[earlier] < place[group] for group, groups in enumerate(before) for earlier in groups)


@settings(max_examples=100, deadline=None)
@given(problems())
def test_library_calls_stay_alone_and_the_order_is_determined(problem):
    before, is_kernel, reads_computed = problem
    phases = schedule(len(before), before, is_kernel, reads_computed)
    assert all(is_kernel[group] for phase in phases for step in phase if len(step) > 1 for group in step)
    assert phases == schedule(len(before), [list(reversed(groups)) for groups in before], is_kernel, reads_computed)


def test_ready_kernels_become_one_step_and_independent_steps_one_phase():
    # Two products, a kernel on each, and a product of what the kernels make.
    before = [[], [], [0], [1], [2, 3]]
    is_kernel = [False, False, True, True, False]
    assert schedule(5, before, is_kernel, [True] * 5) == [[[0], [1]], [[2, 3]], [[4]]]


def test_a_kernel_on_inputs_alone_waits_for_its_turn():
    # 1 needs 0; 2 needs nothing computed, so what it makes would take memory too early beside 0.
    assert schedule(3, [[], [0], []], [True] * 3, [False, True, False]) == [[[0]], [[1], [2]]]


def test_groups_follow_the_writers_of_what_they_read_and_what_they_must():
    assert dependencies([["x"], ["a", "x"], ["b"]], [["a"], ["b"], ["c"]], {0: [2]}) == [[2], [0], [1]]
