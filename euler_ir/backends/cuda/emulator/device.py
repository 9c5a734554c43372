"""A device on the CPU: kernels run in the emulator, and a stream does nothing before somebody has to wait.

Then work is taken from the streams one piece at a time, in an order drawn from a seed, as far as events let it. A wait
that is missing therefore lets work run too early or too late, which a GPU would do on a bad day alone.
"""

from __future__ import annotations

import ctypes
import functools
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from euler_ir.backends.cuda.calls import Source
from euler_ir.backends.cuda.device import Device, Event, Graph, Module, Stream, check_launch
from euler_ir.backends.cuda.emulator import build, cublaslt, memory
from euler_ir.backends.cuda.emulator.module import Module as EmulatedModule
from euler_ir.backends.cuda.gemm.api import Api
from euler_ir.backends.cuda.gemm.cublaslt import CublasLt, workspace_bytes
from euler_ir.backends.cuda.limits import limits_of
from euler_ir.errors import ExecutionError
from euler_ir.pages import available_memory

_MOST_MEMORY = 64 << 30


class EmulatedDevice(Device):
    """``order`` is that of a block's threads, ``seed`` draws that of streams, and no more than ``memory_bytes`` can be
    allocated, by default what the machine has free. For ``contract`` and ``sanitize`` see `build`. An error of work in
    a queue ends all work in all queues.
    """

    is_emulated = True

    def __init__(
        self,
        name: str = "cuda-emulator",
        architecture: str = "sm_90",
        memory_bytes: int | None = None,
        order: str | int = "ascending",
        seed: int = 0,
        contract: bool = True,
        sanitize: bool = False,
    ) -> None:
        self.name, self.model, self.architecture = name, "the emulator", architecture
        self.most_shared_bytes = limits_of(architecture).shared_of_block
        self.order = order
        self._options = {"contract": contract, "sanitize": sanitize}
        # More is a promise that the system keeps by killing who touches it.
        self._memory_bytes = memory_bytes or min(available_memory() or _MOST_MEMORY, _MOST_MEMORY)
        self._random = random.Random(seed)
        self._lock = threading.RLock()
        self._streams: list[_Stream] = []
        self._sizes: dict[int, int] = {}

    @functools.cached_property
    def cublaslt(self) -> CublasLt:
        return CublasLt(Api(cublaslt.load()), workspace_bytes(self.architecture))

    def memory(self) -> tuple[int, int]:
        return self._memory_bytes - sum(self._sizes.values()), self._memory_bytes

    def allocate(self, nbytes: int) -> int:
        self._expect_no_capture("allocates memory")
        free, _ = self.memory()
        if nbytes > free:
            raise MemoryError(f"{nbytes} bytes were asked for, and {free} are free")
        address = memory.allocate(nbytes)
        self._sizes[address] = nbytes
        return address

    def free(self, address: int) -> None:
        self._expect_no_capture("frees memory")
        memory.free(address)
        del self._sizes[address]

    def staging(self, nbytes: int) -> np.ndarray:
        return np.zeros(nbytes, np.uint8)

    def load(self, sources: Iterable[Source]) -> list[Module]:
        sources = list(sources)
        codes = build.load_many(sources, **self._options)
        return [_Module(source, code) for source, code in zip(sources, codes, strict=True)]

    def stream(self) -> Stream:
        with self._lock:
            self._streams.append(_Stream(self))
            return self._streams[-1]

    def event(self) -> Event:
        return _Event(self)

    def synchronize(self) -> None:
        self._expect_no_capture("waits")
        self._work_until(lambda: not any(stream.queue for stream in self._streams))

    def _expect_no_capture(self, what: str) -> None:
        if any(stream.captured is not None for stream in self._streams):
            raise ExecutionError(f"the host {what} while a stream is captured", hint="a GPU would end the capture")

    def _work_until(self, is_over: Callable[[], bool]) -> None:
        with self._lock:
            while not is_over():
                self._work_once()

    def _work_once(self) -> None:
        ready = [stream for stream in self._streams if stream.queue and stream.queue[0].is_ready()]
        if not ready:
            raise ExecutionError("the queues wait for each other")
        work = self._random.choice(ready).queue.popleft()
        try:
            work.run()
        except ExecutionError as error:
            for stream in self._streams:
                for lost in stream.queue:
                    if lost.mark is not None:
                        lost.mark.lose(error)
                stream.queue.clear()
            raise


@dataclass(frozen=True)
class _Work:
    """``run`` it when ``is_ready``; what is captured is run once for each replay. It may be a ``mark`` in the queue."""

    run: Callable[[], None]
    is_ready: Callable[[], bool] = lambda: True
    mark: _Event | None = None


@dataclass(frozen=True)
class _Module(Module):
    source: Source
    code: EmulatedModule


@dataclass(frozen=True)
class _Graph(Graph):
    work: tuple[_Work, ...]


class _Event(Event):
    def __init__(self, device: EmulatedDevice) -> None:
        self._device = device
        self.recorded = self.passed = 0  # how often it was put into a stream, and how many of these were reached
        self._time = 0.0
        self._loss: ExecutionError | None = None

    def is_done(self) -> bool:
        self._device._expect_no_capture("asks for an event")
        with self._device._lock:
            if not self.has_passed(self.recorded):
                self._device._work_once()  # who asks again and again comes to an end
            self._expect_no_loss()
            return self.has_passed(self.recorded)

    def synchronize(self) -> None:
        self._device._expect_no_capture("waits")
        count = self.recorded
        self._device._work_until(lambda: self.has_passed(count))
        self._expect_no_loss()

    def seconds_since(self, earlier: Event) -> float:
        if not (self.is_done() and earlier.is_done()):
            raise ExecutionError("the time between two events is known when both are done")
        return self._time - earlier._time

    def has_passed(self, count: int) -> bool:
        return self.passed >= count

    def reach(self) -> None:
        self.passed += 1
        self._time = time.perf_counter()
        self._loss = None

    def lose(self, reason: ExecutionError) -> None:
        """There was an error before the queue got here. All who ask are told, until the event is recorded again."""
        self.passed += 1
        self._loss = reason

    def _expect_no_loss(self) -> None:
        if self._loss is not None:
            raise ExecutionError(f"work was lost with other work: {self._loss.message}", details=self._loss.details)


class _Stream(Stream):
    def __init__(self, device: EmulatedDevice) -> None:
        self._device = device
        self.queue: deque[_Work] = deque()
        self.captured: list[_Work] | None = None

    def upload(self, target: int, source: np.ndarray) -> None:
        _expect_contiguous(source)
        self._move(target, source.ctypes.data, source.nbytes, target, keep=source)

    def download(self, target: np.ndarray, source: int) -> None:
        self._device._expect_no_capture("asks for a copy")
        _expect_contiguous(target)
        self._move(target.ctypes.data, source, target.nbytes, source, keep=target)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        if abs(target - source) < nbytes:
            raise ExecutionError(f"a copy of {nbytes} bytes from 0x{source:x} to 0x{target:x} overlaps itself")
        self._move(target, source, nbytes, target, source)

    def fill(self, target: int, nbytes: int, byte: int) -> None:
        def run() -> None:
            memory.check_range(target, nbytes)
            ctypes.memset(target, byte, nbytes)

        if not 0 <= byte <= 255:
            raise ExecutionError(f"a byte is filled with {byte}")
        self._enqueue(run, (target, nbytes))

    def launch(
        self, module: Module, kernel: str, blocks: int, threads: int, shared_bytes: int, arguments: Sequence[bytes]
    ) -> None:
        check_launch(self._device, module, kernel, blocks, threads, shared_bytes)
        arguments = tuple(arguments)

        def run() -> None:
            device = self._device
            module.code.launch(kernel, blocks, threads, shared_bytes, arguments, device.order, device.architecture)

        self._enqueue(run)

    def call(self, function: Callable[[int], None]) -> None:
        self._enqueue(lambda: function(0))

    def record(self, event: Event) -> None:
        self._expect_no_own_capture("an event")
        with self._device._lock:
            event.recorded += 1
            self.queue.append(_Work(event.reach, mark=event))

    def wait(self, event: Event) -> None:
        self._expect_no_own_capture("a wait")
        count = event.recorded
        self.queue.append(_Work(lambda: None, lambda: event.has_passed(count)))

    def capture(self, enqueue: Callable[[], None]) -> Graph:
        self._expect_no_own_capture("a capture")
        self.captured = []
        try:
            enqueue()
            return _Graph(tuple(self.captured))
        finally:
            self.captured = None

    def replay(self, graph: Graph) -> None:
        self._expect_no_own_capture("a graph")
        self.queue.extend(graph.work)

    def synchronize(self) -> None:
        self._device._expect_no_capture("waits")
        self._device._work_until(lambda: not self.queue)

    def _move(self, target: int, source: int, nbytes: int, *on_device: int, keep: object = None) -> None:
        """Copy bytes; ``keep`` lives until then, and the addresses ``on_device`` are allocated now and then."""

        def run(keep: object = keep) -> None:
            for address in on_device:
                memory.check_range(address, nbytes)
            ctypes.memmove(target, source, nbytes)

        self._enqueue(run, *((address, nbytes) for address in on_device))

    def _enqueue(self, run: Callable[[], None], *ranges: tuple[int, int]) -> None:
        for address, nbytes in ranges:
            memory.check_range(address, nbytes)
        (self.queue if self.captured is None else self.captured).append(_Work(run))

    def _expect_no_own_capture(self, what: str) -> None:
        if self.captured is not None:
            raise ExecutionError(f"{what} is no part of a captured stream here")


def _expect_contiguous(array: np.ndarray) -> None:
    if not array.flags.c_contiguous:
        raise ExecutionError("only a contiguous array is copied from or to a device")
