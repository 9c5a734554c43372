"""Compiled graphs on the emulated device: calls that overlap, outputs that come late, faults, memory."""

import gc
import os
import signal
import threading

import numpy as np
import pytest
from on_device import GPU, new_device, on_device

import euler_ir as ei
from euler_ir import interpreter
from euler_ir.backends.cuda.binding import Binding
from euler_ir.backends.cuda.calls import Number
from euler_ir.backends.cuda.emulator import device as emulated
from euler_ir.backends.cuda.emulator.device import EmulatedDevice
from euler_ir.backends.cuda.runtime import Runtime
from euler_ir.inspect.kernel import read_substitutes
from models.gpt2 import GPT2Config
from models.language_model import train_graph

SEEDS = range(8)


@pytest.fixture(params=[0, GPU])
def device(request):
    return new_device(request.param)


@pytest.fixture(scope="module")
def summing():
    """A running total of an input, and what it was before."""
    with ei.Graph("summing") as graph:
        x, total = ei.input("x", (4,)), ei.state("total", (4,))
        ei.update(total, total + x)
        ei.output(before=total, product=total * x)
    return graph


@pytest.fixture(scope="module")
def taking():
    with ei.Graph("taking") as graph:
        rows, count = ei.input("rows", (3,), ei.i32), ei.state("count", ())
        ei.update(count, count + 1)
        ei.output(y=ei.take(ei.constant(np.arange(10, dtype=np.float32).reshape(5, 2)), rows))  # this line
    return graph


def inputs(number):
    return np.arange(number, number + 4, dtype=np.float32)


def called_six_times(run, state):
    """Outputs of six calls, which are read when all have begun, and the final total, beside the right ones."""
    outputs = [run(state, x=inputs(number)) for number in range(6)]
    totals = np.cumsum([np.zeros(4), *map(inputs, range(6))], axis=0)
    found = [(each["before"], each["product"]) for each in outputs]
    return (
        [*found, state["total"]],
        [*((before, before * inputs(number)) for number, before in enumerate(totals[:-1])), totals[-1]],
    )


def are_equal(found, wanted):
    return all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize("seed", [*SEEDS, GPU])
def test_calls_that_overlap_do_not_mix(summing, seed):
    assert are_equal(*called_six_times(on_device(summing, new_device(seed)), ei.initial_state(summing)))


def test_a_missing_wait_would_be_seen(summing, monkeypatch):
    monkeypatch.setattr(emulated._Stream, "wait", lambda self, event: None)
    assert not all(
        are_equal(*called_six_times(on_device(summing, seed=seed), ei.initial_state(summing))) for seed in SEEDS
    )


def test_from_the_second_call_on_a_step_is_one_graph(summing, monkeypatch):
    done = []
    for name in ("launch", "capture", "replay", "upload", "download"):
        monkeypatch.setattr(
            emulated._Stream,
            name,
            lambda self, *rest, name=name, real=getattr(emulated._Stream, name): done.append(name) or real(self, *rest),
        )
    run, state = on_device(summing), ei.initial_state(summing)
    launches = len(list(run.program.calls.launches()))
    wanted = [
        ["upload"] * 2 + ["launch"] * launches + ["download"],  # inputs and state; inputs alone from there on
        ["upload", "capture"] + ["launch"] * launches + ["replay", "download"],
        ["upload", "replay", "download"],
        ["upload", "replay", "download"],
    ]
    done.clear()
    for call in wanted:
        run(state, x=inputs(1))
        assert done == call
        done.clear()
    run(ei.initial_state(summing), x=inputs(1))
    assert "launch" in done  # other addresses


def test_outputs_are_fetched_when_read_and_stay_what_they_were(summing):
    run, state = on_device(summing), ei.initial_state(summing)
    first = run(state, x=inputs(1))
    assert set(first) == {"before", "product"} and len(first) == 2 and "before" in first and "after" not in first
    assert run.program.runtime.compute.queue, "nothing of this waits"
    for number in range(5):
        run(state, x=inputs(number))
    later = run(state, x=inputs(0))
    np.testing.assert_array_equal(first["before"], np.zeros(4))
    first["before"][0] = 7
    assert first["before"][0] == 7 and not np.shares_memory(first["before"], later["before"])
    assert "array" in repr(first)
    with pytest.raises(KeyError):
        first["after"]


def test_two_states_in_turn(summing, device):
    run, states = on_device(summing, device), [ei.initial_state(summing) for _ in range(3)]
    for _ in range(3):
        outputs = [run(state, x=inputs(number)) for number, state in enumerate(states)]
    for number, (state, output) in enumerate(zip(states, outputs)):
        np.testing.assert_array_equal(state["total"], 3 * inputs(number))
        np.testing.assert_array_equal(output["before"], 2 * inputs(number))


# -- faults ------------------------------------------------------------------------------------------------------------

GOOD, BAD = np.array([4, 0, 4], np.int32), np.array([0, 5, 1], np.int32)


def refused(call):
    with pytest.raises(ei.ExecutionError) as fault:
        call()
    assert "0..4" in str(fault.value) and "# this line" in str(fault.value)


def test_an_index_out_of_range_is_raised_by_what_is_read(taking, device):
    run, state = on_device(taking, device), ei.initial_state(taking)
    outputs = run(state, rows=BAD)
    for _ in range(2):
        refused(lambda: outputs["y"])
    np.testing.assert_array_equal(run(state, rows=GOOD)["y"], [[8, 9], [0, 1], [8, 9]])
    run(state, rows=BAD)
    refused(lambda: state["count"])
    assert state["count"] == 3


def test_an_index_out_of_range_is_raised_by_a_later_call(taking, device):
    run, state = on_device(taking, device), ei.initial_state(taking)
    kept = run(state, rows=BAD)
    run.program.device.synchronize()
    refused(lambda: run(state, rows=GOOD))  # it is over
    refused(lambda: kept["y"])
    assert state["count"] == 1
    run(state, rows=BAD)
    later = [run(state, rows=GOOD)]
    refused(lambda: later.append(run(state, rows=GOOD)) or later.append(run(state, rows=GOOD)))
    assert len(later) <= 2
    np.testing.assert_array_equal(run(state, rows=GOOD)["y"], [[8, 9], [0, 1], [8, 9]])


def test_a_fault_outlives_its_executable(taking, device):
    state = ei.initial_state(taking)
    on_device(taking, device)(state, rows=BAD)
    gc.collect()
    on_device(taking, device)
    refused(lambda: state["count"])


def test_all_calls_in_flight_fail_with_the_device(summing):
    good, state, other = on_device(summing), ei.initial_state(summing), ei.initial_state(summing)
    good(other, x=inputs(3))
    kernel = next(good.program.calls.launches()).kernel
    broken = f'extern "C" __global__ void {kernel}(float* a, float* b, float* c) {{ a[1 << 20] = 1; }}'
    run = good.with_kernels({"0": broken})
    calls = [run(state, x=inputs(1)), run(state, x=inputs(2)), good(other, x=inputs(3))]
    for lost in (*calls, *calls):
        with pytest.raises(ei.ExecutionError, match=f"{kernel}, block .0, 0, 0., thread"):
            lost["before"]
    np.testing.assert_array_equal(good(ei.initial_state(summing), x=inputs(3))["before"], np.zeros(4))


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large():
    """64 KiB of state, and intermediate tensors of more."""
    with ei.Graph("large") as graph:
        x, kept = ei.input("x", (128, 128)), ei.state("kept", (128, 128))
        ei.update(kept, kept + x @ kept)
        ei.output(y=(x @ x @ kept).sum())
    return graph


@pytest.mark.usefixtures("cpp_compiler")
def test_what_does_not_fit_is_said_before_anything_runs(large):
    with pytest.raises(ei.LoweringError) as refusal:
        on_device(large, memory_bytes=100_000)
    text = str(refusal.value)
    for part in ("'large' needs", "MiB on cuda-emulator, which has 97.66 KiB free of 97.66 KiB", "arena", "%matmul"):
        assert part in text
    assert "memory_budget" in text
    device = EmulatedDevice(memory_bytes=40 << 20)
    other = device.allocate(20 << 20)
    with pytest.raises(ei.LoweringError, match="20.00 MiB free of 40.00 MiB"):
        on_device(large, device)
    device.free(other)
    on_device(large, device)


def test_the_emulator_has_no_more_memory_than_the_machine(large, monkeypatch):
    """The system promises more than it has, and kills who touches it."""
    assert EmulatedDevice().memory()[1] <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    monkeypatch.setattr("euler_ir.backends.cuda.emulator.device.available_memory", lambda: 1 << 20)
    with pytest.raises(ei.LoweringError, match="1.00 MiB free of 1.00 MiB"):
        on_device(large, EmulatedDevice())


def test_a_state_that_does_not_fit_is_said_by_name(large):
    device = EmulatedDevice(memory_bytes=40 << 20)
    run = on_device(large, device)
    used = device.allocate(device.memory()[0] - 1000)
    with pytest.raises(ei.LoweringError, match=r"needs 64.00 KiB[^$]*state kept: f32\[128, 128\]"):
        run(ei.initial_state(large), x=np.eye(128, dtype=np.float32))
    device.free(used)
    assert run(ei.initial_state(large), x=np.eye(128, dtype=np.float32))["y"] == 0


def test_memory_is_counted_and_given_back(large):
    device = EmulatedDevice()
    whole = device.memory()[0]
    run, state = on_device(large, device), ei.initial_state(large)
    needs = run.memory
    # Of what is counted, the staged inputs and results are on the host.
    staged = 2 * (run.program.input_layout.nbytes + run.program.result_layout.nbytes)
    taken = whole - device.memory()[0] + needs.state + staged
    assert needs.total <= taken <= needs.total + 1024  # what is empty takes a byte, small buffers are rounded up
    run(state, x=np.eye(128, dtype=np.float32))
    assert 0 <= whole - device.memory()[0] - (taken - staged) <= 1024
    runtime = Runtime.of(device)
    del run, state
    gc.collect()
    assert runtime.free_memory() == whole


def test_a_number_must_fit_its_kind(summing):
    binding = Binding.__new__(Binding)
    assert binding._bytes(Number("i32", -1)) == b"\xff" * 4
    assert binding._bytes(Number("f64", 1)) == np.float64(1).tobytes()
    for kind, value in (("i32", 2**31), ("i64", -(2**63) - 1), ("f32", 1e39), ("i32", 1.5)):
        with pytest.raises(ei.LoweringError, match=f"no {kind}"):
            binding._bytes(Number(kind, value))


# -- other code --------------------------------------------------------------------------------------------------------


def test_a_kernel_may_be_replaced(summing, device, tmp_path):
    run, state = on_device(summing, device), ei.initial_state(summing)
    (kernel, *_) = (launch.kernel for launch in run.program.calls.launches())
    text = f"""extern "C" __global__ void {kernel}(const float*, const float*, float* result) {{
        if (threadIdx.x < 4) result[threadIdx.x] = 42;
    }}"""
    (tmp_path / "sum.cu").write_text(text)
    changed = run.with_kernels(read_substitutes([f"0={tmp_path / 'sum.cu'}"]))
    changed(state, x=inputs(1))
    np.testing.assert_array_equal(state["total"], np.full(4, 42))
    with pytest.raises(ei.LoweringError, match=f"no kernel '{kernel}'"):
        run.with_kernels({"0": "int nothing;"})
    with pytest.raises(ei.LoweringError, match="has no kernel '9'"):
        run.with_kernels({"9": text})
    again = run.with_kernels({"0": run.plan.kernels()[0].kernel})
    again(state := ei.initial_state(summing), x=inputs(1))
    np.testing.assert_array_equal(state["total"], inputs(1))


# -- interruptions -----------------------------------------------------------------------------------------------------


def test_an_interrupted_call_leaves_all_or_nothing(summing, monkeypatch):
    run, state = on_device(summing), ei.initial_state(summing)
    for name, total in (("copy", 2), ("replay", 2), ("download", 3)):
        for _ in range(2):
            state["total"] = np.full(4, 1, np.float32)
            run(state, x=np.ones(4, np.float32))

        def interrupt(self, *rest):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(emulated._Stream, name, interrupt)
            run(state, x=np.ones(4, np.float32))
        runtime = run.program.runtime
        assert not runtime.compute.queue and not runtime.uploads.queue
        np.testing.assert_array_equal(state["total"], np.full(4, total))


def test_a_signal_handler_is_told_that_the_device_is_in_use(summing, monkeypatch):
    run, states, refusals = on_device(summing), [ei.initial_state(summing) for _ in range(2)], []
    real = emulated._Stream.launch

    def launch(self, *rest):
        signal.raise_signal(signal.SIGALRM)
        real(self, *rest)

    def handler(*_):
        try:
            run(states[1], x=inputs(1))
        except ei.ExecutionError as error:
            refusals.append(error.message)

    monkeypatch.setattr(emulated._Stream, "launch", launch)
    previous = signal.signal(signal.SIGALRM, handler)
    try:
        run(states[0], x=inputs(1))
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert refusals and "signal handler" in refusals[0]
    np.testing.assert_array_equal(states[0]["total"], inputs(1))


def test_python_threads_take_turns(summing, device):
    run, wrong = on_device(summing, device), []

    def work(number):
        state = ei.initial_state(summing)
        for times in range(20):
            if not np.array_equal(run(state, x=inputs(number))["before"], times * inputs(number)):
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


# -- a whole model -----------------------------------------------------------------------------------------------------

CONFIG = GPT2Config(vocab_size=61, context=16, layers=1, heads=2, width=24)


def batch(seed):
    tokens, targets = np.random.default_rng(seed).integers(0, 61, (2, 2, 16)).astype(np.int32)
    return {"tokens": tokens, "targets": targets, "learning_rate": np.float32(1e-2)}


@pytest.fixture(scope="module")
def gpt2():
    return train_graph(CONFIG, 2, 16)


@pytest.fixture(scope="module")
def interpreted(gpt2):
    """The losses of three steps and the state after them."""
    kept, losses = {name: array.copy() for name, array in ei.initial_state(gpt2, seed=3).items()}, []
    for number in range(3):
        outputs, updates = interpreter.run(gpt2, {**kept, **batch(number)})
        kept |= updates
        losses.append(outputs["loss"])
    return losses, kept


def trained(run, graph):
    state = ei.initial_state(graph, seed=3)
    outputs = [run(state, **batch(number)) for number in range(3)]
    return [each["loss"] for each in outputs], dict(state)


def expect_interpreters(found, interpreted, graph):
    (losses, state), begun = found, ei.initial_state(graph, seed=3)
    np.testing.assert_allclose(losses, interpreted[0], rtol=1e-6)
    for name, wanted in interpreted[1].items():
        moved = np.abs(wanted - begun[name]).max(initial=0)
        np.testing.assert_allclose(state[name], wanted, rtol=1e-3, atol=max(1e-6, 0.01 * moved), err_msg=name)


def bits(found):
    losses, state = found
    return [loss.tobytes() for loss in losses], {name: array.tobytes() for name, array in state.items()}


def test_gpt2_trains_as_the_interpreter_does_in_any_order_with_the_same_bits(gpt2, interpreted):
    run = on_device(gpt2)
    found = [trained(run, gpt2), trained(run, gpt2)]
    found += [trained(on_device(gpt2, order=order, seed=seed), gpt2) for order, seed in (("descending", 1), (7, 2))]
    expect_interpreters(found[0], interpreted, gpt2)
    assert all(bits(each) == bits(found[0]) for each in found)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"contract": False}, {"sanitize": True, "order": 3}], ids=["plain", "sanitized"])
def test_gpt2_trains_without_multiply_adds_and_without_races(gpt2, interpreted, options):
    expect_interpreters(trained(on_device(gpt2, **options), gpt2), interpreted, gpt2)


@pytest.mark.gpu
def test_gpt2_trains_on_a_gpu(gpt2, interpreted):
    run = on_device(gpt2, new_device(None))
    found = [trained(run, gpt2), trained(run, gpt2), trained(on_device(gpt2, new_device(None)), gpt2)]
    expect_interpreters(found[0], interpreted, gpt2)
    assert all(bits(each) == bits(found[0]) for each in found)
