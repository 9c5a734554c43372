"""Compiled graphs as their callers see them: outputs, state, threads, errors."""

import os
import signal
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import interpreter, optim
from euler_ir.pages import allocate_pages
from euler_ir.plan.memory import check_memory
from models.gpt2 import PRESETS, GPT2Config
from models.language_model import train_graph

CONFIG = GPT2Config(vocab_size=61, context=16, layers=2, heads=2, width=24)


def batch(seed=0, size=2):
    tokens, targets = np.random.default_rng(seed).integers(0, 61, (2, size, 16)).astype(np.int32)
    return {"tokens": tokens, "targets": targets, "learning_rate": np.float32(1e-3)}


@pytest.fixture(scope="module")
def gpt2():
    return train_graph(CONFIG, 2, 16)


def test_a_training_step_is_the_interpreters(gpt2, backend):
    state = ei.initial_state(gpt2, seed=3)
    outputs, updates = interpreter.run(gpt2, {**state, **batch()})
    result = ei.compile(gpt2, backend)(state, **batch())
    np.testing.assert_allclose(result["loss"], outputs["loss"], rtol=1e-6)
    np.testing.assert_allclose(result["gradient_norms"], outputs["gradient_norms"], rtol=1e-4, atol=1e-7)
    assert {name for name in updates if not np.array_equal(state[name], ei.initial_state(gpt2, seed=3)[name])}


def test_threads_never_change_a_bit(gpt2):
    finals = []
    for threads in (1, 2, 3, 7, 13):
        step, state = ei.compile(gpt2, threads=threads), ei.initial_state(gpt2)
        for number in range(3):
            step(state, **batch(number))
        finals.append({name: state[name].tobytes() for name in state})
    assert all(final == finals[0] for final in finals)


def test_threads_never_change_a_bit_of_nano():
    """With heads of 32, products of several blocks, prologues and epilogues."""
    graph = train_graph(PRESETS["nano"], 2, 128)
    tokens, targets = np.random.default_rng(0).integers(0, 512, (2, 2, 128)).astype(np.int32)
    given = {"tokens": tokens, "targets": targets, "learning_rate": np.float32(1e-3)}
    finals = []
    for threads in (1, 2, 3, 5, 16):
        step, state = ei.compile(graph, threads=threads), ei.initial_state(graph)
        for _ in range(2):
            step(state, **given)
        finals.append({name: state[name].tobytes() for name in state})
    assert all(final == finals[0] for final in finals)


def test_outputs_are_the_callers_to_keep(backend):
    with ei.Graph() as graph:
        x = ei.input("x", (3,))
        ei.output(y=x * 2, again=x * 2, same=x)
    run = ei.compile(graph, backend)
    given = np.array([1, 2, 3], np.float32)
    first, second = run(x=given), run(x=given + 1)
    np.testing.assert_array_equal(first["y"], [2, 4, 6])
    np.testing.assert_array_equal(second["again"], [4, 6, 8])
    first["same"][0] = 9
    np.testing.assert_array_equal(given, [1, 2, 3])


def test_updates_see_old_values(backend):
    """Two states trade places, a third takes an input, and outputs show what was there before."""
    with ei.Graph() as graph:
        x = ei.input("x", (2,))
        a, b, c = (ei.state(name, (2,), ei.initializers.Full(value)) for name, value in (("a", 1), ("b", 2), ("c", 3)))
        ei.update(a, b)
        ei.update(b, a)
        ei.update(c, x)
        ei.output(before=a, total=a + b + c)
    run, state = ei.compile(graph, backend), ei.initial_state(graph)
    first = run(state, x=np.array([7, 8], np.float32))
    np.testing.assert_array_equal(first["before"], [1, 1])
    np.testing.assert_array_equal(first["total"], [6, 6])
    np.testing.assert_array_equal([state["a"], state["b"], state["c"]], [[2, 2], [1, 1], [7, 8]])


def test_an_update_is_also_an_output_and_is_read_elsewhere(backend):
    with ei.Graph() as graph:
        w = ei.parameter("w", (4,), ei.initializers.Ones())
        new = w * 0.5
        ei.update(w, new)
        ei.output(new=new, old=w, reversed=w.flip(), both=new + w)
    run, state = ei.compile(graph, backend), ei.initial_state(graph)
    state["w"] = np.array([1, 2, 3, 4], np.float32)
    result = run(state)
    np.testing.assert_array_equal(result["old"], [1, 2, 3, 4])
    np.testing.assert_array_equal(result["new"], [0.5, 1, 1.5, 2])
    np.testing.assert_array_equal(result["reversed"], [4, 3, 2, 1])
    np.testing.assert_array_equal(result["both"], [1.5, 3, 4.5, 6])
    np.testing.assert_array_equal(state["w"], [0.5, 1, 1.5, 2])


def test_nothing_is_overwritten_before_it_is_read_for_the_last_time(backend):
    """The new x and the new y are made in one loop, and the new y needs the old x."""
    with ei.Graph() as graph:
        a = ei.input("a", (64, 512))
        x, y = (ei.state(name, (64, 512), ei.initializers.Full(value)) for name, value in (("x", 2), ("y", 3)))
        rows = a.sum(-1, keepdims=True)
        ei.update(x, a - rows)
        ei.update(y, x * rows + y)
    given = np.random.default_rng(0).integers(-2, 3, (64, 512)).astype(np.float32)
    state = ei.initial_state(graph)
    ei.compile(graph, backend)(state, a=given)
    rows = given.sum(-1, keepdims=True)
    np.testing.assert_array_equal(state["x"], given - rows)
    np.testing.assert_array_equal(state["y"], 2 * rows + np.full_like(given, 3))


def agrees(build, inputs, backend):
    """Compiled, the graph of ``build()`` gives what the interpreter does, to the rounding of the largest element."""
    with ei.Graph() as graph:
        ei.output(y=build())
    wanted, _ = interpreter.run(graph, inputs)
    scale = np.abs(wanted["y"]).max()
    np.testing.assert_allclose(ei.compile(graph, backend)(**inputs)["y"], wanted["y"], rtol=0, atol=1e-5 * scale)


def test_softmax_over_two_axes_of_one_tensor(backend):
    def build():
        x = ei.input("x", (7, 3))
        return (ei.softmax(x, 0) + ei.softmax(x, 1)).sum(0)

    agrees(build, {"x": np.arange(21, dtype=np.float32).reshape(7, 3) / 10}, backend)


def test_the_gradient_of_a_normalised_row_and_its_columns(backend):
    def build():
        x, w, b = ei.input("x", (257, 3)), ei.input("w", (3,)), ei.input("b", (3,))
        loss = (ei.layer_norm(x, w, b) * ei.sin(x)).sum()
        return ei.concatenate([gradient.reshape(-1) for gradient in ei.gradient(loss, [x, w, b])])

    random = np.random.default_rng(0)
    inputs = {name: random.standard_normal(shape, np.float32) for name, shape in (("x", (257, 3)), ("w", 3), ("b", 3))}
    agrees(build, inputs, backend)


def test_a_product_with_a_part_of_joined_tensors(backend):
    def build():
        a, b, w = ei.input("a", (1, 3)), ei.input("b", (4, 3)), ei.input("w", (3, 2))
        return ei.concatenate([a, b], 0)[2:4] @ w

    random = np.random.default_rng(0)
    shapes = {"a": (1, 3), "b": (4, 3), "w": (3, 2)}
    agrees(build, {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}, backend)


@pytest.mark.parametrize("width", [5, 17, 31, 33])
def test_loops_of_several_widths_share_a_number_of_the_row(width, backend):
    def build():
        t = ei.tanh(ei.tanh(ei.input("x", (8, width))))
        rest = (ei.max(t, 1, keepdims=True) - t).sum(1, keepdims=True)
        return ei.max(t - t * rest, 1)

    agrees(build, {"x": np.random.default_rng(0).standard_normal((8, width), np.float32)}, backend)


def test_long_rows_of_operators_do_not_recurse(backend):
    def build():
        y = ei.input("x", (33,))
        for _ in range(300):
            y = y * 1.01 + 0.01
        return y

    agrees(build, {"x": np.linspace(-1, 1, 33, dtype=np.float32)}, backend)


def test_an_input_may_be_the_state_that_is_updated(backend):
    with ei.Graph() as graph:
        w, x = ei.parameter("w", (4, 4), ei.initializers.Ones()), ei.input("x", (4, 4))
        new = w * 2 + 1
        ei.update(w, new)
        ei.output(y=new @ x)
    run, state = ei.compile(graph, backend), ei.initial_state(graph)
    np.testing.assert_array_equal(run(state, x=state["w"])["y"], np.full((4, 4), 12))


def test_a_view_of_a_state_shares_its_arrays_and_keeps_what_is_added(backend):
    with ei.Graph() as graph:
        kept, own = ei.state("kept", (3,)), ei.state("own", (3,))
        ei.update(kept, kept + 1)
        ei.update(own, own + kept)
    state = ei.State()
    state["kept"] = np.zeros(3, np.float32)
    run, views = ei.compile(graph, backend), [state.view().add(graph) for _ in range(2)]
    for view in (*views, views[1]):
        run(view)
    assert list(state) == ["kept"] and (state["kept"] == 3).all()
    assert (views[0]["own"] == 0).all() and (views[1]["own"] == 3).all()


def test_each_state_is_its_own(backend):
    with ei.Graph() as graph:
        w = ei.parameter("w", (), ei.initializers.Ones())
        ei.update(w, w + 1)
        ei.output(w=w)
    run = ei.compile(graph, backend)
    states = [ei.initial_state(graph) for _ in range(3)]
    for count in range(1, 4):
        assert [run(state)["w"] for state in states] == [count] * 3


def test_an_input_may_have_any_name(backend):
    with ei.Graph() as graph:
        ei.output(self=ei.input("state", (2,)) + ei.input("self", (2,)))
    assert list(ei.compile(graph, backend)(state=[1, 2], self=[3, 4])["self"]) == [4, 6]


def test_a_constant_may_lie_in_memory_in_any_order(backend):
    columns = np.arange(12, dtype=np.float32).reshape(3, 4).T
    with ei.Graph() as graph:
        ei.output(y=ei.input("x", (4, 3)) + columns)
    run = ei.compile(graph, backend)
    wanted = 1 + columns
    columns[:] = 0
    np.testing.assert_array_equal(run(x=np.ones((4, 3), np.float32))["y"], wanted)


def test_odd_models_train(backend):
    """A scalar model with an unused parameter, one without elements, and two parameters that look alike."""
    with ei.Graph() as graph:
        x = ei.input("x", ())
        w, twin = (ei.parameter(name, (), ei.initializers.Full(3.0)) for name in ("w", "twin"))
        unused = ei.parameter("unused", (2,), ei.initializers.Ones())
        empty = ei.parameter("empty", (0, 3), ei.initializers.Ones())
        loss = (w * x + 2 * twin) ** 2 + empty.sum()
        optim.SGD(learning_rate=0.01).step({p: ei.gradient(loss, [p])[0] for p in (w, twin, unused, empty)})
        ei.output(loss=loss)
    run, state = ei.compile(graph, backend), ei.initial_state(graph)
    assert run(state, x=1.0)["loss"] == 81
    np.testing.assert_allclose([state["w"], state["twin"]], [3 - 0.18, 3 - 0.36], rtol=1e-6)
    np.testing.assert_array_equal(state["unused"], [1, 1])


@pytest.fixture
def doubling():
    with ei.Graph("doubling") as graph:
        x = ei.input("x", (2, 3))
        ei.output(y=x * 2)
    return ei.compile(graph)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "input 'x' is missing"),
        ({"x": np.ones((2, 3), np.float32), "z": 1}, "has no input 'z'"),
        ({"x": np.ones((3, 2), np.float32)}, "input 'x' needs f32[2, 3], not f32[3, 2]"),
        ({"x": np.ones((2, 3))}, "float64 does not convert to f32 without loss"),
        ({"x": "words"}, "input 'x' needs f32[2, 3]"),
        ({"x": [[1e300] * 3] * 2}, "too large for f32"),
        ({"x": [[1, 2], [3]]}, "input 'x' needs f32[2, 3]"),
    ],
)
def test_wrong_inputs_are_refused(doubling, given, message):
    with pytest.raises(ei.ExecutionError) as refused:
        doubling(**given)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("dtype", "given", "message"),
    [
        ("i64", [1.7, 2.0], "does not convert"),
        ("u8", [300, 0], "out of the range"),
        ("bool", [2, 0], "out of the range"),
    ],
)
def test_numbers_never_lose_their_meaning(dtype, given, message):
    with ei.Graph() as graph:
        ei.output(y=ei.input("x", (2,), dtype))
        with pytest.raises(ei.DTypeError, match=message):
            ei.constant(given, dtype)
    with pytest.raises(ei.ExecutionError, match=message):
        ei.compile(graph, "reference")(x=given)


def test_inputs_need_not_be_contiguous(doubling):
    x = np.arange(6, dtype=np.float32).reshape(3, 2).T
    np.testing.assert_array_equal(doubling(x=x)["y"], 2 * x)
    np.testing.assert_array_equal(doubling(x=[[1, 2, 3], [4, 5, 6]])["y"], [[2, 4, 6], [8, 10, 12]])


def test_a_state_that_does_not_fit_is_refused(gpt2):
    step = ei.compile(gpt2)
    with pytest.raises(ei.ExecutionError, match="State"):
        step(**batch())
    with pytest.raises(ei.ExecutionError, match="is not in the State"):
        step(ei.State(), **batch())
    other = ei.State()
    other["wte.weight"] = np.zeros((3, 3), np.float32)
    with pytest.raises(ei.ExecutionError, match="'wte.weight'"):
        other.add(gpt2)


def test_an_index_out_of_range_names_the_line_and_the_next_call_works(backend):
    with ei.Graph() as graph:
        table, rows = ei.input("table", (5, 2)), ei.input("rows", (3,), ei.i32)
        ei.output(y=ei.take(table, rows))  # this line
    run = ei.compile(graph, backend)
    table = np.arange(10, dtype=np.float32).reshape(5, 2)
    for bad in (5, -1, 2**31 - 1):
        with pytest.raises(ei.ExecutionError) as fault:
            run(table=table, rows=np.array([0, bad, 1], np.int32))["y"]  # a GPU says it when the output is read
        assert "0..4" in str(fault.value) and "# this line" in str(fault.value)
    np.testing.assert_array_equal(run(table=table, rows=np.array([4, 0, 4], np.int32))["y"], table[[4, 0, 4]])


def test_python_threads_take_turns(gpt2):
    step = ei.compile(gpt2)
    wanted = {seed: step(ei.initial_state(gpt2, seed=seed), **batch(seed))["loss"] for seed in range(4)}
    found = {}

    def work(seed):
        for _ in range(5):
            found[seed] = step(ei.initial_state(gpt2, seed=seed), **batch(seed))["loss"]

    workers = [threading.Thread(target=work, args=(seed,)) for seed in wanted]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == wanted


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_runs_what_its_parent_compiled(doubling):
    x = np.ones((2, 3), np.float32)
    doubling(x=x)
    child = os.fork()
    if not child:
        os._exit(0 if doubling(x=x)["y"].sum() == 12 else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_in_the_middle_of_a_run_leaves_the_child_able_to_run(gpt2):
    step, state, stop = ei.compile(gpt2), ei.initial_state(gpt2), threading.Event()

    def work():
        while not stop.is_set():
            step(state, **batch())

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(3):
            child = os.fork()
            if not child:
                step(ei.initial_state(gpt2), **batch())
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        worker.join()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
def test_a_signal_handler_may_run_the_program_that_it_interrupts(doubling):
    results = []
    ones = np.ones((2, 3), np.float32)
    handler = signal.signal(signal.SIGALRM, lambda *_: results.append(doubling(x=ones)["y"].sum()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        while len(results) < 20:
            assert doubling(x=np.zeros((2, 3), np.float32))["y"].sum() == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert set(results) == {12}


def test_a_step_allocates_nothing_but_its_outputs(gpt2):
    step, state, given = ei.compile(gpt2), ei.initial_state(gpt2), batch()
    for _ in range(3):
        step(state, **given)
    tracemalloc.start()
    try:
        kept = step(state, **given)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Every intermediate tensor of this model is larger than the bookkeeping of a call.
    assert peak < sum(array.nbytes for array in kept.values()) + 16384


def test_the_peak_of_the_plan_is_what_is_used(gpt2):
    step = ei.compile(gpt2)
    assert step.program.arena.nbytes == step.plan.arena_bytes
    assert f"arena {step.plan.arena_bytes} bytes" in str(step.plan)
    assert step.plan.lower_bound <= step.plan.arena_bytes <= 1.05 * step.plan.lower_bound
    check_memory(step.plan)


def test_the_arena_is_not_shared_and_asks_for_huge_pages():
    arena = allocate_pages(8 << 20)
    address = arena.ctypes.data
    flags, inside = None, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0]:
            first, end = (int(text, 16) for text in words[0].split("-"))
            inside = first <= address < end
        elif inside and words[0] == "VmFlags:":
            flags = set(words[1:])
    assert "sh" not in flags and "hg" in flags
