"""The emulated device: streams that take turns at random, events, captured graphs, and what a GPU would refuse."""

import struct

import numpy as np
import pytest
from on_device import GPU, new_device

from euler_ir.backends.cuda.calls import Source
from euler_ir.backends.cuda.emulator.device import EmulatedDevice
from euler_ir.backends.cuda.sources import unit
from euler_ir.errors import ExecutionError, LoweringError

BODY = """
    extern "C" __global__ void add(float* target, const float* source, int count) {
        int at = blockIdx.x * blockDim.x + threadIdx.x;
        if (at < count) target[at] += source[at];
    }
    extern "C" __global__ void reverse(float* values, int count) {
        EIR_DYNAMIC_SHARED(memory);
        float* held = (float*)memory;
        int at = threadIdx.x;
        if (at < count) held[at] = values[at];
        __syncthreads();
        if (at < count) values[at] = held[count - 1 - at];
    }
"""
SOURCE = Source("by hand", unit("by hand", ["target.cuh"], BODY), ("add", "reverse"))
SEEDS = range(12)


def arguments(*values):
    return [struct.pack("<i" if value < 2**31 else "<Q", value) for value in values]


class Bench:
    """A device with the kernels loaded and buffers of floats."""

    def __init__(self, seed=0):
        self.device = new_device(seed)
        (self.module,) = self.device.load([SOURCE])
        self.stream = self.device.stream()

    def buffer(self, *values):
        address = self.device.allocate(4 * len(values))
        self.stream.upload(address, np.array(values, np.float32))
        self.stream.synchronize()
        return address

    def values(self, address, count=3):
        self.device.synchronize()
        found = np.empty(count, np.float32)
        self.stream.download(found, address)
        self.stream.synchronize()
        return found.tolist()

    def add(self, stream, target, source, count=3):
        stream.launch(self.module, "add", 1, 32, 0, arguments(target, source, count))


@pytest.fixture(params=[*SEEDS, GPU])
def bench(request):
    return Bench(request.param)


@pytest.fixture
def one():
    return Bench()


@pytest.fixture(params=[0, GPU])
def either(request):
    return Bench(request.param)


def test_a_stream_is_in_order_and_copies_fills_and_launches(bench):
    a, b = bench.buffer(1, 2, 3), bench.buffer(10, 20, 30)
    c = bench.device.allocate(12)
    bench.stream.copy(c, a, 12)
    bench.add(bench.stream, c, b)
    bench.stream.launch(bench.module, "reverse", 1, 32, 12, arguments(c, 3))
    bench.stream.fill(a, 12, 0)
    assert bench.values(c) == [33, 22, 11] and bench.values(a) == [0, 0, 0]


def produced_and_consumed(bench, waits):
    """One stream uploads what another adds up."""
    uploads, target, landing = bench.device.stream(), bench.buffer(0, 0, 0), bench.buffer(0, 0, 0)
    arrived = bench.device.event()
    uploads.upload(landing, np.array([1, 2, 3], np.float32))
    uploads.record(arrived)
    if waits:
        bench.stream.wait(arrived)
    bench.add(bench.stream, target, landing)
    return bench.values(target)


def test_a_wait_orders_two_streams(bench):
    assert produced_and_consumed(bench, waits=True) == [1, 2, 3]


def test_without_the_wait_some_order_is_wrong():
    found = [produced_and_consumed(Bench(seed), waits=False) for seed in SEEDS]
    assert [0, 0, 0] in found and [1, 2, 3] in found


def test_an_event_is_done_when_its_stream_gets_there(either):
    event, later = either.device.event(), either.device.event()
    assert event.is_done()
    a = either.buffer(1, 2, 3)
    either.stream.record(event)
    for _ in range(50):
        either.stream.fill(a, 12, 0)
    either.stream.record(later)
    while not later.is_done():
        pass  # asking is enough: nobody else works on the queues
    assert event.is_done() and later.seconds_since(event) >= 0


def test_waiting_for_an_event_leaves_the_rest_of_the_queue(one):
    a, event = one.buffer(1, 2, 3), one.device.event()
    one.stream.record(event)
    one.stream.fill(a, 12, 0)
    event.synchronize()
    assert len(one.stream.queue) == 1


def test_a_graph_is_what_was_captured_each_time(bench):
    total, step = bench.buffer(0, 0, 0), bench.buffer(1, 2, 3)

    def enqueue():
        bench.add(bench.stream, total, step)
        bench.stream.call(lambda handle: calls.append(handle))

    calls = []
    graph = bench.stream.capture(enqueue)
    assert bench.values(total) == [0, 0, 0] and not calls
    for _ in range(3):
        bench.stream.replay(graph)
    bench.stream.upload(step, np.array([10, 10, 10], np.float32))
    bench.stream.replay(graph)
    assert bench.values(total) == [13, 16, 19] and len(calls) == 4


@pytest.mark.parametrize(
    "break_rule",
    [
        lambda bench: bench.device.allocate(4),
        lambda bench: bench.device.free(bench.spare),
        lambda bench: bench.device.synchronize(),
        lambda bench: bench.stream.synchronize(),
        lambda bench: bench.event.synchronize(),
        lambda bench: bench.event.is_done(),
        lambda bench: bench.stream.download(np.empty(3, np.float32), bench.spare),
    ],
)
def test_a_capture_is_not_interrupted(one, break_rule):
    one.spare, one.event = one.buffer(1, 2, 3), one.device.event()
    with pytest.raises(ExecutionError, match="while a stream is captured"):
        one.stream.capture(lambda: break_rule(one))
    assert one.values(one.spare) == [1, 2, 3]  # the capture is over


def test_what_is_freed_is_not_used(one):
    a, b = one.buffer(1, 2, 3), one.buffer(1, 2, 3)
    one.add(one.stream, b, a)
    one.device.free(a)
    with pytest.raises(ExecutionError, match="points to no allocation"):
        one.device.synchronize()
    for use in (
        lambda: one.stream.fill(a, 12, 0),
        lambda: one.stream.upload(a, np.zeros(3, np.float32)),
        lambda: one.stream.copy(b, a, 12),
        lambda: one.stream.copy(b, b + 1000, 12),
        lambda: one.stream.fill(b, 16, 0),
        lambda: one.device.free(a),
    ):
        with pytest.raises(ExecutionError, match="0x"):
            use()
    one.stream.copy(b, one.buffer(4, 5, 6), 12)
    assert one.values(b) == [4, 5, 6]  # the device works on


@pytest.mark.parametrize(
    ("blocks", "threads", "shared_bytes", "message"),
    [
        (0, 32, 0, "0 blocks"),  # which CUDA's bindings make 1 of
        (2**31, 32, 0, "2147483648 blocks"),
        (1, 0, 0, "0 threads"),
        (1, 1025, 0, "1025 threads"),
        (1, 32, 227 * 1024 + 1, "bytes of shared memory"),
        (1, 32, -1, "-1 bytes of shared memory"),
    ],
)
def test_launches_have_limits(either, blocks, threads, shared_bytes, message):
    with pytest.raises(ExecutionError, match=message):
        either.stream.launch(either.module, "reverse", blocks, threads, shared_bytes, arguments(either.buffer(1), 1))


def test_exactly_48_kibibytes_of_shared_memory_are_launched(either):
    a = either.buffer(1, 2, 3)
    either.stream.launch(either.module, "reverse", 1, 32, 48 * 1024, arguments(a, 3))
    assert either.values(a) == [3, 2, 1]


def test_arguments_are_the_kernels(one):
    a = one.buffer(1, 2, 3)
    for given in (arguments(a), [*arguments(a), struct.pack("<d", 3.0)]):  # a count as a double, as a Python float is
        one.stream.launch(one.module, "reverse", 1, 32, 12, given)
        with pytest.raises(ExecutionError, match="argument"):
            one.device.synchronize()
    with pytest.raises(ExecutionError, match="no kernel 'multiply'"):
        one.stream.launch(one.module, "multiply", 1, 32, 0, [])
    with pytest.raises(LoweringError, match="refuses"):
        one.device.load([Source("broken", 'extern "C" __global__ void f(', ("f",))])


def test_memory_is_counted():
    device = EmulatedDevice(memory_bytes=1000)
    address = device.allocate(600)
    assert device.memory() == (400, 1000)
    with pytest.raises(MemoryError):
        device.allocate(401)
    device.free(address)
    assert device.memory() == (1000, 1000)
