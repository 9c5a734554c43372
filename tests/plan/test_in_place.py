"""Which updates and intermediates take the memory of what they replace, and that the old values are still read."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import compiler, interpreter
from euler_ir.plan.memory import check_memory
from euler_ir.plan.plan import CopyStep


def check(graph, backend, **inputs):
    """Run two steps and compare outputs and state with the interpreter's; gives the plan."""
    run, state = ei.compile(graph, backend), ei.initial_state(graph, seed=1)
    check_memory(run.plan)
    kept = {name: state[name].copy() for name in state}
    for _ in range(2):
        outputs, updates = interpreter.run(graph, {**kept, **inputs})
        got = run(state, **inputs)
        for name, want in outputs.items():
            np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=1e-6, err_msg=name)
        kept.update(updates)
        for name, want in kept.items():
            np.testing.assert_allclose(state[name], want, rtol=1e-5, atol=1e-6, err_msg=name)
    return run.plan


def copies(plan):
    return sum(isinstance(step, CopyStep) for step in plan.steps())


def square(name, kind=ei.state):
    return kind(name, (4, 4), ei.initializers.Normal(1.0))


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        (lambda a, b, x: {a: a * 2 + b}, 0),
        (lambda a, b, x: {a: x}, 2),
        (lambda a, b, x: {a: b}, 2),
        (lambda a, b, x: {a: a}, 0),
        (lambda a, b, x: {a: b, b: a}, 4),
        (lambda a, b, x: {a: x, b: x}, 4),
        (lambda a, b, x: {a: b * 1.5, b: a * 1.5}, 1),
        (lambda a, b, x: {a: a + b, b: a - b}, 1),
        (lambda a, b, x: {a: a.T + b}, 1),
        (lambda a, b, x: {a: a.flip(0) * 2, b: a.flip(1) * b}, 1),
        (lambda a, b, x: {a: x @ b}, 0),
        (lambda a, b, x: {a: a @ b}, 1),
        (lambda a, b, x: {a: a + a.sum(1, keepdims=True)}, 0),
        (lambda a, b, x: {a: a + a.sum(0, keepdims=True)}, None),
        (lambda a, b, x: {a: ei.cumsum(a, 0), b: a[0] + b}, None),
        (lambda a, b, x: {a: ei.softmax(a) + b, b: ei.softmax(a) * b}, None),
        (lambda a, b, x: {a: ei.constant(np.arange(16, dtype=np.float32).reshape(4, 4)), b: ei.full((4, 4), 3)}, None),
        (lambda a, b, x: {a: (new := ei.tanh(a) + b), b: new}, 1),
        (lambda a, b, x: {a: (new := a * 3), b: new[::-1] + b}, None),
    ],
    ids=map(str, range(19)),
)
def test_updates_see_old_values(backend, update, expected):
    """``expected`` is the number of copies; a value that may be computed where the old one was takes none."""
    with ei.Graph() as graph:
        a, b, x = square("a"), square("b", ei.parameter), ei.input("x", (4, 4))
        ei.output(old=a * b)
        for leaf, value in update(a, b, x).items():
            ei.update(leaf, value)
    plan = check(graph, backend, x=np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32))
    assert expected is None or copies(plan) == expected


def test_a_later_reader_sees_the_old_value(backend):
    with ei.Graph() as graph:
        a = square("a")
        ei.update(a, ei.tanh(a))
        ei.output(late=ei.sum(ei.tanh(a) @ a, axes=0) + a)
    check(graph, backend)


def test_values_with_several_names(backend):
    with ei.Graph() as graph:
        a, x = square("a"), ei.input("x", (4, 4))
        table = ei.constant(np.arange(16, dtype=np.float32).reshape(4, 4))
        new = a + x
        ei.update(a, new)
        ei.output(new=new, again=new, old=a, given=x, given_again=x)
        ei.output(table=table, number=ei.constant(2.5), sum=new + table)
    check(graph, backend, x=np.ones((4, 4), np.float32))


def test_a_chain_of_kernels_needs_two_buffers_at_most():
    with ei.Graph() as graph:
        x = ei.input("x", (64, 64))
        for _ in range(6):
            x = ei.tanh(x) @ x
        ei.output(x=x)
    plan = compiler.lower(graph).plan
    assert plan.arena_bytes <= 3 * 64 * 64 * 4


def test_an_intermediate_is_overwritten_by_its_last_reader():
    with ei.Graph() as graph:
        x = ei.input("x", (64, 64))
        ei.output(y=ei.softmax(x @ x) @ x)
    plan = compiler.lower(graph).plan
    assert plan.arena_bytes == 64 * 64 * 4
    assert any(any(shared) for step in plan.kernels() for shared in step.shared)


def test_what_is_read_later_is_not_overwritten():
    with ei.Graph() as graph:
        x = ei.input("x", (64, 64))
        scores = x @ x
        ei.output(y=ei.softmax(scores) @ scores)
    assert compiler.lower(graph).plan.arena_bytes == 2 * 64 * 64 * 4


def written(update, outputs):
    """A graph whose state gets a slice written at ``start``; ``outputs`` of the old value, the new one and x."""
    with ei.Graph() as graph:
        kept = square("kept")
        x, start = ei.input("x", (4, 2)), ei.input("start", (), ei.i32)
        new = update(kept, x, start)
        ei.update(kept, new)
        for number, value in enumerate(outputs(kept, new, x)):
            ei.output(**{f"y{number}": value})
    return graph


def put(kept, x, start):
    return ei.dynamic_update_slice(kept, ei.tanh(x), start, axis=1)


@pytest.mark.parametrize(
    ("update", "outputs", "in_place"),
    [
        (put, lambda old, new, x: (), True),
        (put, lambda old, new, x: (new @ x, new[:, 1:] * 2), True),
        (put, lambda old, new, x: (old, new), True),
        (put, lambda old, new, x: (old * 2,), False),
        (put, lambda old, new, x: (new + old,), False),
        (lambda kept, x, start: put(put(kept, x, start), x * 2, 0), lambda old, new, x: (new,), False),
        (lambda kept, x, start: put(kept, kept[:, :2], start), lambda old, new, x: (), False),
        (lambda kept, x, start: put(kept + 1, x, start), lambda old, new, x: (new,), False),
    ],
    ids=map(str, range(8)),
)
def test_a_slice_is_written_where_nothing_else_reads_the_old_value(backend, update, outputs, in_place):
    x = np.random.default_rng(1).standard_normal((4, 2)).astype(np.float32)
    for start in range(3):
        plan = check(written(update, outputs), backend, x=x, start=np.int32(start))
    roles = [buffer.role for step in plan.kernels() for nest in step.kernel.nests for buffer in nest.parameters]
    assert ("inout" in roles) == in_place


def test_a_parameter_is_written_as_well(backend):
    with ei.Graph() as graph:
        table = square("table", ei.parameter)
        ei.update(table, ei.dynamic_update_slice(table, ei.input("x", (1, 4)), ei.input("start", ()).cast(ei.i64)))
    check(graph, backend, x=np.ones((1, 4), np.float32), start=np.float32(2))


def test_a_start_out_of_range_is_refused(backend):
    graph = written(put, lambda old, new, x: (new,))
    run, state = ei.compile(graph, backend), ei.initial_state(graph)
    for start in (-1, 3):
        with pytest.raises(ei.ExecutionError, match=r"outside of 0\.\.2"):
            dict(run(state, x=np.zeros((4, 2), np.float32), start=start))  # a GPU says it when something is read


def test_each_row_is_written_at_a_start_of_its_own(backend):
    with ei.Graph() as graph:
        kept, x = ei.state("kept", (2, 3, 9, 5), ei.initializers.Normal(1.0)), ei.input("x", (2, 3, 1, 5))
        starts = ei.input("starts", (2,), ei.i64)
        ei.update(kept, ei.dynamic_update_slice(kept, ei.tanh(x), starts + 1, axis=2))
    x = np.random.default_rng(1).standard_normal((2, 3, 1, 5)).astype(np.float32)
    for starts in ([0, 7], [7, 0], [3, 3]):
        plan = check(graph, backend, x=x, starts=np.array(starts))
    assert any(b.role == "inout" for step in plan.kernels() for n in step.kernel.nests for b in n.parameters)
    with pytest.raises(ei.ExecutionError, match=r"outside of 0\.\.8"):
        run, state = ei.compile(graph, backend), ei.initial_state(graph)
        run(state, x=x, starts=np.array([0, 8]))
        state["kept"]


def test_a_slice_that_cannot_be_written_in_place_needs_legalize():
    graph = written(put, lambda old, new, x: (old * 2,))
    with pytest.raises(ei.LoweringError, match="read elsewhere"):
        ei.compile(graph, passes=())
