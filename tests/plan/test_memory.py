"""Offsets in the arena by brute force, and seeded faults that the checker of plans must find."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import euler_ir as ei
from euler_ir import compiler
from euler_ir.plan.memory import ALIGNMENT, Lifetime, assign_offsets, check_memory, lower_bound
from euler_ir.plan.plan import CopyStep
from models.gpt2 import PRESETS
from models.language_model import evaluation_graph, train_graph

LIFETIMES = st.lists(
    st.builds(
        lambda nbytes, first, length: Lifetime(nbytes, first, first + length),
        st.integers(0, 400),
        st.integers(0, 9),
        st.integers(0, 4),
    ),
    max_size=25,
)


@settings(max_examples=300, deadline=None)
@given(LIFETIMES)
def test_no_byte_is_used_twice_in_one_phase(lifetimes):
    offsets, size = assign_offsets(lifetimes)
    most = 0
    for phase in range(15):
        used = bytearray(size)
        for life, offset in zip(lifetimes, offsets, strict=True):
            if life.first <= phase <= life.last:
                assert offset % ALIGNMENT == 0 and offset + life.nbytes <= size
                assert not any(used[offset : offset + life.nbytes])
                used[offset : offset + life.nbytes] = b"x" * life.nbytes
        lines = [used[start : start + ALIGNMENT] for start in range(0, size, ALIGNMENT)]
        most = max(most, ALIGNMENT * sum(any(line) for line in lines))
    assert lower_bound(lifetimes) == most <= size


@settings(max_examples=100, deadline=None)
@given(LIFETIMES)
def test_offsets_depend_on_nothing_but_the_lifetimes(lifetimes):
    assert assign_offsets(lifetimes) == assign_offsets(list(lifetimes))


def test_the_lowest_free_place_is_taken():
    lives = [Lifetime(256, 0, 1), Lifetime(128, 1, 2), Lifetime(64, 2, 3), Lifetime(64, 0, 3)]
    assert assign_offsets(lives) == ([0, 256, 0, 384], 448)


@pytest.fixture(scope="module")
def plan():
    """Matrix products, a softmax, an update in place, an input as an output."""
    with ei.Graph() as graph:
        x = ei.input("x", (6, 8))
        w = ei.parameter("w", (8, 8), ei.initializers.Normal(1.0))
        y = ei.softmax(ei.tanh(x @ w) @ w)
        ei.output(y=y @ w, given=x)
        ei.update(w, w - 0.1 * ei.gradient(ei.sum(y * y), [w])[0])
    plan = compiler.lower(graph).plan
    check_memory(plan)
    return plan


def moved(plan, number, **change):
    buffers = list(plan.buffers)
    buffers[number] = replace(buffers[number], **change)
    return replace(plan, buffers=tuple(buffers))


def in_arena(plan):
    return [number for number, buffer in enumerate(plan.buffers) if buffer.place == "arena"]


def overlapping(plan):
    """Pairs of arena buffers that are in use at the same time, in different memory."""
    for left in in_arena(plan):
        for right in in_arena(plan):
            a, b = plan.buffers[left], plan.buffers[right]
            if left < right and a.first < b.last and b.first < a.last and a.offset != b.offset:
                yield left, right


def test_two_buffers_in_use_at_once_may_not_share_memory(plan):
    pairs = list(overlapping(plan))
    assert pairs
    for left, right in pairs:
        with pytest.raises(ei.VerifyError):
            check_memory(moved(plan, left, offset=plan.buffers[right].offset))


def test_a_buffer_may_not_overlap_another_in_part(plan):
    left, right = next(overlapping(plan))
    with pytest.raises(ei.VerifyError, match="holds something else|shares memory"):
        check_memory(moved(plan, left, offset=plan.buffers[right].offset + ALIGNMENT))


@pytest.mark.parametrize("offset", [-ALIGNMENT, 1 << 20])
def test_a_buffer_outside_of_the_arena_is_found(plan, offset):
    for number in in_arena(plan):
        with pytest.raises(ei.VerifyError, match="outside of the arena"):
            check_memory(moved(plan, number, offset=offset))


def dependent(phases):
    """The numbers of phases whose next one reads what they write."""
    for number, (phase, following) in enumerate(zip(phases, phases[1:])):
        written = {buffer for step in phase for buffer in step.writes()}
        if written & {buffer for step in following for buffer in step.reads()}:
            yield number


def test_phases_in_another_order_are_found(plan):
    phases = list(plan.phases)
    numbers = list(dependent(phases))
    assert len(numbers) > 3
    for number in numbers:
        swapped = [*phases[:number], phases[number + 1], phases[number], *phases[number + 2 :]]
        with pytest.raises(ei.VerifyError):
            check_memory(replace(plan, phases=tuple(swapped)))


def test_phases_run_as_one_are_found(plan):
    phases = plan.phases
    for number in dependent(phases):
        joined = (*phases[:number], phases[number] + phases[number + 1], *phases[number + 2 :])
        with pytest.raises(ei.VerifyError):
            check_memory(replace(plan, phases=joined))


def test_a_step_left_out_is_found(plan):
    for number, phase in enumerate(plan.phases):
        for step in phase:
            if all(plan.buffers[buffer].place in ("arena", "output") for buffer in step.writes()):
                rest = tuple(other for other in phase if other is not step)
                with pytest.raises(ei.VerifyError):
                    check_memory(replace(plan, phases=(*plan.phases[:number], rest, *plan.phases[number + 1 :])))


def test_an_input_that_is_written_is_found(plan):
    names = {buffer.name: number for number, buffer in enumerate(plan.buffers)}
    with pytest.raises(ei.VerifyError, match="input x is written"):
        check_memory(replace(plan, phases=(*plan.phases, (CopyStep(plan.outputs["given"], names["x"]),))))


def test_a_parameter_written_beside_its_reader_is_found(plan):
    (number,) = (n for n, buffer in enumerate(plan.buffers) if buffer.place == "parameter")
    last = next(n for n, phase in enumerate(plan.phases) if any(number in step.writes() for step in phase))
    phase = (CopyStep(number, plan.outputs["given"]), *plan.phases[last])
    with pytest.raises(ei.VerifyError, match="shares memory with what runs beside it"):
        check_memory(replace(plan, phases=(*plan.phases[:last], phase, *plan.phases[last + 1 :])))


def test_every_nano_plan_is_sound_and_close_to_the_least_memory():
    for graph in (train_graph(PRESETS["nano"], 2, 128), evaluation_graph(PRESETS["nano"], 2, 128)):
        plan = compiler.lower(graph).plan
        check_memory(plan)
        assert plan.lower_bound <= plan.arena_bytes <= 1.05 * plan.lower_bound
