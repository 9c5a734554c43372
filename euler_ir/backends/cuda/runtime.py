"""What all programs on one device share: its streams, its code, and the arrays of States that lie in its memory."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from euler_ir.backends.cuda.calls import Source
from euler_ir.backends.cuda.device import Device, Module
from euler_ir.errors import ExecutionError
from euler_ir.residence import Kept

if TYPE_CHECKING:
    from euler_ir.backends.cuda.binding import Binding
    from euler_ir.backends.cuda.slot import Slot


class Runtime:
    """All programs put their work into ``compute``, one after the other, so that what one writes the next one reads;
    ``uploads`` brings inputs while others run. ``in_flight`` are the calls whose end nobody has looked at yet.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.compute, self.uploads = device.stream(), device.stream()
        self.in_flight: dict[Slot, Binding] = {}
        self._lock = threading.RLock()
        self._is_taken = False
        self._process = os.getpid()
        self._retired: deque[int] = deque()
        self._modules: dict[str, Module] = {}
        self._residents: weakref.WeakKeyDictionary[Kept, Resident] = weakref.WeakKeyDictionary()
        _runtimes.add(self)

    @classmethod
    def of(cls, device: Device) -> Runtime:
        """The one of ``device``."""
        with _making:
            if not hasattr(device, "runtime"):
                device.runtime = cls(device)
            return device.runtime

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Python threads use the device in turns. After an error in between nothing is in its queues."""
        with self._lock:
            if self._process != os.getpid():
                raise ExecutionError(
                    f"{self.device.name} belongs to the process that was forked",
                    hint='start processes with multiprocessing\'s "spawn", or compile for "cpu" in this one',
                )
            if self._is_taken:
                raise ExecutionError(f"a signal handler cannot use {self.device.name} within a call that does")
            self._is_taken = True
            try:
                yield
            except BaseException:
                with contextlib.suppress(ExecutionError):  # a device that failed fails again
                    self.device.synchronize()
                raise
            finally:
                self._is_taken = False

    def block(self, nbytes: int) -> Block:
        """Memory of the device for as long as somebody holds it. Raises MemoryError when the device lacks it."""
        self.free_memory()
        return Block(self.device.allocate(max(nbytes, 1)), self._retired)

    def free_memory(self) -> int:
        """How many bytes can be allocated, after giving back what nobody holds any more."""
        if self.in_flight or self._retired:
            self.device.synchronize()
        self._land_what_is_right()
        while self._retired:
            self.device.free(self._retired.popleft())
        return self.device.memory()[0]

    def _land_what_is_right(self) -> None:
        """Let go of calls that have finished. A fault stays until somebody looks, even when its program goes."""
        for slot in [slot for slot in self.in_flight if slot.fault() is None]:
            with contextlib.suppress(ExecutionError):  # of a device that failed; who reads the outputs is told
                slot.land()

    def load(self, sources: Iterable[Source]) -> None:
        """Load what is not there yet; see `module`."""
        missing = [source for source in sources if source.code not in self._modules]
        self._modules |= {module.source.code: module for module in self.device.load(missing)}

    def module(self, source: Source) -> Module:
        return self._modules[source.code]

    def resident(self, kept: Kept) -> Resident:
        """Where ``kept`` lies on the device, for every program. Raises MemoryError when the device lacks room."""
        found = self._residents.get(kept)
        if found is None:
            found = self._residents[kept] = Resident(self, self.block(kept.array.nbytes))
        return found

    def is_resident(self, kept: Kept) -> bool:
        return kept in self._residents

    # -- forks: the child has all of a State, and no device ------------------------------------------------------------

    def before_fork(self) -> None:
        self._lock.acquire()
        if self.in_flight and self._process == os.getpid():
            self.device.synchronize()
        for kept, resident in list(self._residents.items()):
            resident.bring_home(kept)

    def after_fork(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()


class Block:
    """Memory of a device at ``address``, which goes back when nobody holds this any more: not at once, since work that
    uses it may be in a queue, and a stream may be captured.
    """

    def __init__(self, address: int, retired: deque[int]) -> None:
        self.address = address
        weakref.finalize(self, retired.append, address).atexit = False


class Resident:
    """The copy of an array of a State in the memory of a device. ``is_newer`` when a program has written it there."""

    def __init__(self, runtime: Runtime, block: Block) -> None:
        self.address = block.address
        self.is_newer = False
        self._block = block
        self._runtime = runtime

    def take(self, kept: Kept) -> None:
        """Become the owner of ``kept``, which the host owns. Its array is read when the queue gets there: a call that
        uses it must follow, for whose end `give_back` waits.
        """
        self._runtime.compute.upload(self.address, kept.array)
        kept.leave_for(self)

    def give_back(self, kept: Kept, is_read: bool) -> None:
        runtime = self._runtime
        with runtime.turn():
            self.bring_home(kept, is_read)
            for slot in [slot for slot, binding in runtime.in_flight.items() if kept in binding.kept]:
                slot.land()

    def bring_home(self, kept: Kept, is_read: bool = True) -> None:
        """Make the host the owner of ``kept``, with the newest elements if they are to be read."""
        if kept.away is not self:
            return
        if is_read and self.is_newer:
            self._runtime.compute.download(kept.array, self.address)
            self._runtime.compute.synchronize()
        self.is_newer = False
        kept.return_home()


_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()
_making = threading.RLock()


def _every(what: str) -> Callable[[], None]:
    def do() -> None:
        for runtime in list(_runtimes):
            getattr(runtime, what)()

    return do


os.register_at_fork(
    before=_every("before_fork"),
    after_in_parent=_every("after_fork"),
    after_in_child=_every("after_fork_in_child"),
)
