"""Worker threads that all run one function of generated code together, without Python and without its lock.

The threads are created by generated code (`runtime_ir`) and know nothing of Python: between runs they spin for a
moment, then sleep, and at exit they go with the process.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading

from euler_ir.backends.cpu import jit
from euler_ir.backends.cpu.runtime_ir import pool_bytes, runtime_ir
from euler_ir.errors import ExecutionError
from euler_ir.threads import THREADS_VARIABLE, available_cores, default_threads

MOST_THREADS = 4096
"""More than any machine has cores; generated code counts threads in 32 bits."""

# About 100 us of pause instructions on x86. With more threads than cores, spinning keeps the thread that is
# waited for from its core.
_SPINS = 4000
_SPINS_OVERSUBSCRIBED = 20

#: What a module says to call the barrier: every thread of the run calls it with its ``barrier`` and ``threads``.
BARRIER_DECLARATION = "declare void @eir_barrier(ptr, i32)"


class WorkerPool:
    """A fixed number of threads; obtained from `get_pool`, never closed. Threads start at the first run."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._reset()

    def run(self, function_address: int, argument_pointer: int | None = None) -> None:
        """Call ``void function(i32 thread, i32 threads, ptr argument, ptr barrier)`` on every thread of the pool.

        The calling thread is thread 0; returns when all threads have. Runs of several Python threads take turns; a
        signal is handled before or after the run, and a fork waits for its end. Raises ExecutionError if the threads
        cannot be started.
        """
        with self._lock:
            error = _runtime().run(self._memory, function_address, argument_pointer)
        if error:
            raise ExecutionError(
                f"cannot start {self.threads} threads: {os.strerror(error)}",
                hint=f"set {THREADS_VARIABLE} to a smaller number",
            )

    def _reset(self) -> None:
        """Start over: at first, and in the child of a fork, where only the forking thread goes on."""
        # A signal handler may run another step on this very thread, before or after this one's native part.
        self._lock = threading.RLock()
        # The old memory is kept: in a child, its parent's workers are part of what it says.
        self._memory = _allocate(pool_bytes(self.threads))
        spins = _SPINS if self.threads <= available_cores() else _SPINS_OVERSUBSCRIBED
        _runtime().init(self._memory, self.threads, spins)


def get_pool(threads: int | None = None) -> WorkerPool:
    """The pool of so many threads (by default `default_threads`), shared by all who ask for that number."""
    if threads is None:
        threads = default_threads()
    if threads < 1:
        raise ExecutionError(f"a pool of {threads} threads cannot run anything", hint="ask for 1 thread or more")
    if threads > MOST_THREADS:
        raise ExecutionError(f"{threads} threads are too many", hint=f"ask for {MOST_THREADS} or fewer")
    with _pools_lock:
        if threads not in _pools:
            _pools.setdefault(threads, WorkerPool(threads))
        return _pools[threads]


_pools: dict[int, WorkerPool] = {}
# A signal handler may ask for a pool in the middle of `get_pool`.
_pools_lock = threading.RLock()


def _wait_for_runs() -> None:
    """Before a fork: a child of the middle of a run would see half of its updates, and OpenBLAS's locks held."""
    _pools_lock.acquire()
    for pool in _pools.values():
        pool._lock.acquire()


def _let_run() -> None:
    for pool in _pools.values():
        pool._lock.release()
    _pools_lock.release()


def _reset_in_child() -> None:
    _let_run()
    for pool in _pools.values():
        pool._reset()


os.register_at_fork(before=_wait_for_runs, after_in_parent=_let_run, after_in_child=_reset_in_child)


class _Runtime:
    """The compiled `runtime_ir`, and its functions as Python callables that release the interpreter lock."""

    def __init__(self) -> None:
        exports = ["eir_pool_init", "eir_pool_run", "eir_barrier"]
        self._code = jit.LoadedCode([jit.compile_object(runtime_ir())], exports)
        pointer, i32 = ctypes.c_void_p, ctypes.c_int32
        self.init = ctypes.CFUNCTYPE(None, pointer, i32, i32)(self._code.address("eir_pool_init"))
        self.run = ctypes.CFUNCTYPE(i32, pointer, pointer, pointer)(self._code.address("eir_pool_run"))
        self.barrier_address = self._code.address("eir_barrier")


@functools.cache
def _runtime() -> _Runtime:
    return _Runtime()


jit.register_symbol("eir_barrier", lambda: _runtime().barrier_address)


def _allocate(size: int) -> int:
    """Zeroed memory at a cache line, never freed: sleeping threads look at it for as long as the process lives."""
    libc = ctypes.CDLL(None)
    libc.aligned_alloc.restype = ctypes.c_void_p
    libc.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    size = -(-size // 64) * 64
    memory = libc.aligned_alloc(64, size)
    ctypes.memset(memory, 0, size)
    return memory
