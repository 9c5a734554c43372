"""What the runtime asks of a device: memory, modules, streams, events and graphs, as CUDA knows them.

`cupy_device` implements it on a GPU and `emulator.device` on the CPU. Addresses are integers, each of one device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from euler_ir.backends.cuda.calls import Source
from euler_ir.backends.cuda.gemm.cublaslt import CublasLt
from euler_ir.backends.cuda.limits import MOST_BLOCKS, THREADS_OF_BLOCK
from euler_ir.errors import ExecutionError


class Device(ABC):
    """One device. ``name`` is what `compile` calls it, such as 'cuda:1'; ``model`` is for readers, such as 'H200'.

    ``architecture`` is what code is compiled for, such as 'sm_90'; ``most_shared_bytes`` is the most shared memory,
    static and dynamic together, that a block of it can have. What takes long on one that ``is_emulated`` may be fast
    on a GPU. Every method raises ExecutionError when the device fails; an error of work in a queue comes up at a later
    call, at the latest when someone waits for that work.
    """

    name: str
    model: str
    architecture: str
    most_shared_bytes: int
    is_emulated: bool = False

    @property
    @abstractmethod
    def cublaslt(self) -> CublasLt:
        """The library of matrix products. Raises LoweringError when there is none."""

    @abstractmethod
    def memory(self) -> tuple[int, int]:
        """Bytes of the device's memory that are free now, and all of them."""

    @abstractmethod
    def allocate(self, nbytes: int) -> int:
        """The address of ``nbytes`` bytes (1 or more) of any content: a multiple of 16, and on a GPU of 256.

        Raises MemoryError when the device lacks them.
        """

    @abstractmethod
    def free(self, address: int) -> None:
        """Give back what `allocate` gave. No work in any queue may need it any more, and no stream may be captured."""

    @abstractmethod
    def staging(self, nbytes: int) -> np.ndarray:
        """u8[nbytes] of the host's memory, which transfers reach without the host's help."""

    @abstractmethod
    def load(self, sources: Iterable[Source]) -> list[Module]:
        """The code of each of ``sources``, on the device. Raises LoweringError for what does not compile."""

    @abstractmethod
    def stream(self) -> Stream:
        """A new queue of work. It waits for no other but where `Stream.wait` says so."""

    @abstractmethod
    def event(self) -> Event:
        """A new mark, which is done until it is recorded."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for the end of all work in all queues. Not while a stream is captured."""


class Module(ABC):
    """Loaded code; ``source`` is what it was made of."""

    source: Source


class Event(ABC):
    """A mark in a stream."""

    @abstractmethod
    def is_done(self) -> bool:
        """Whether all is done that was in the stream when the event was recorded."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until `is_done`."""

    @abstractmethod
    def seconds_since(self, earlier: Event) -> float:
        """The time on the device between two events that are done."""


class Graph(ABC):
    """Captured work, in order and with all of its arguments; see `Stream.capture`."""


class Stream(ABC):
    """A queue of work, done in order. Each method but `synchronize` returns at once, with the work in the queue.

    A transfer's array of the host is contiguous and must live, unchanged, until the transfer is done; only one of
    `Device.staging` lets the host go on meanwhile.
    """

    @abstractmethod
    def upload(self, target: int, source: np.ndarray) -> None:
        """Copy ``source`` to the address ``target``."""

    @abstractmethod
    def download(self, target: np.ndarray, source: int) -> None:
        """Copy what is at the address ``source`` into all of ``target``. Not within a capture."""

    @abstractmethod
    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy ``nbytes`` bytes within the device, between places that do not overlap."""

    @abstractmethod
    def fill(self, target: int, nbytes: int, byte: int) -> None:
        """Set each of ``nbytes`` bytes at ``target`` to ``byte``."""

    @abstractmethod
    def launch(
        self, module: Module, kernel: str, blocks: int, threads: int, shared_bytes: int, arguments: Sequence[bytes]
    ) -> None:
        """Run ``kernel`` on ``blocks`` blocks (1 or more) of ``threads`` threads, with dynamic shared memory.

        ``arguments`` are the bytes of each argument, as many as its type has. Raises ExecutionError for a launch that
        no device of this architecture takes.
        """

    @abstractmethod
    def call(self, function: Callable[[int], None]) -> None:
        """Let ``function(handle)`` put work of a foreign library into the queue that CUDA knows by ``handle``.

        It may be called once for each time that its work is done, or once for all replays of a capture: it must ask for
        the same work each time, and it neither allocates nor waits.
        """

    @abstractmethod
    def record(self, event: Event) -> None:
        """Mark this point of the queue with ``event``."""

    @abstractmethod
    def wait(self, event: Event) -> None:
        """Let all work that comes later wait for ``event`` as it is recorded now."""

    @abstractmethod
    def capture(self, enqueue: Callable[[], None]) -> Graph:
        """What ``enqueue`` puts into this stream, none of which is done now."""

    @abstractmethod
    def replay(self, graph: Graph) -> None:
        """Do what was captured once more."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for the end of all work in the queue. Not while a stream is captured."""


def check_launch(device: Device, module: Module, kernel: str, blocks: int, threads: int, shared_bytes: int) -> None:
    """Raise ExecutionError for a launch that ``device`` cannot take; of some, CUDA's bindings make others."""
    if kernel not in module.source.kernels:
        raise ExecutionError(f"{module.source.name!r} has no kernel {kernel!r}")
    for what, number, least, most in (
        ("blocks", blocks, 1, MOST_BLOCKS),
        ("threads of a block", threads, 1, THREADS_OF_BLOCK),
        ("bytes of shared memory", shared_bytes, 0, device.most_shared_bytes),
    ):
        if not least <= number <= most:
            raise ExecutionError(f"{kernel!r} is launched with {number} {what}; {device.name} has {least} to {most}")
