"""The worker pool: every thread runs once a run, barriers hold, forks and several callers work."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from euler_ir.backends.cpu import jit, worker_pool
from euler_ir.errors import ExecutionError
from euler_ir.threads import THREADS_VARIABLE, default_threads

# count: argument[0] += 1 atomically, argument[1 + thread] += 1.
# rounds: argument[0] times, every thread writes the round to its slot, and after a barrier adds to its errors where
# the slot of any other thread does not hold it; a second barrier keeps the next round out.
KERNELS = f"""
{worker_pool.BARRIER_DECLARATION}

define void @count(i32 %thread, i32 %threads, ptr %argument, ptr %barrier) {{
  %old = atomicrmw add ptr %argument, i64 1 seq_cst
  %wide = zext i32 %thread to i64
  %index = add i64 %wide, 1
  %slot = getelementptr i64, ptr %argument, i64 %index
  %before = load i64, ptr %slot
  %after = add i64 %before, 1
  store i64 %after, ptr %slot
  ret void
}}

define void @rounds(i32 %thread, i32 %threads, ptr %argument, ptr %barrier) {{
entry:
  %count = load i64, ptr %argument
  %wide = zext i32 %thread to i64
  %wide.threads = zext i32 %threads to i64
  %index = add i64 %wide, 1
  %slot = getelementptr i64, ptr %argument, i64 %index
  %error.index = add i64 %index, %wide.threads
  %errors = getelementptr i64, ptr %argument, i64 %error.index
  br label %round

round:
  %i = phi i64 [ 0, %entry ], [ %i.next, %checked ]
  store i64 %i, ptr %slot
  call void @eir_barrier(ptr %barrier, i32 %threads)
  br label %check

check:
  %other = phi i64 [ 1, %round ], [ %other.next, %check ]
  %other.slot = getelementptr i64, ptr %argument, i64 %other
  %value = load i64, ptr %other.slot
  %wrong = icmp ne i64 %value, %i
  %add = zext i1 %wrong to i64
  %error.old = load i64, ptr %errors
  %error.new = add i64 %error.old, %add
  store i64 %error.new, ptr %errors
  %other.next = add i64 %other, 1
  %more = icmp ule i64 %other.next, %wide.threads
  br i1 %more, label %check, label %checked

checked:
  call void @eir_barrier(ptr %barrier, i32 %threads)
  %i.next = add i64 %i, 1
  %again = icmp ult i64 %i.next, %count
  br i1 %again, label %round, label %done

done:
  ret void
}}
"""


@pytest.fixture(scope="module")
def kernels():
    return jit.LoadedCode([jit.compile_object(KERNELS)], ["count", "rounds"])


def run(pool, address, array):
    pool.run(address, array.ctypes.data)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_every_thread_runs_once_a_run(kernels, threads):
    pool = worker_pool.get_pool(threads)
    counts = np.zeros(1 + threads, np.int64)
    for _ in range(500):
        run(pool, kernels.address("count"), counts)
    assert counts.tolist() == [500 * threads] + [500] * threads


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_no_thread_passes_a_barrier_early(kernels, threads):
    rounds = 5_000 if threads <= 2 else 1_000
    state = np.zeros(1 + 2 * threads, np.int64)
    state[0] = rounds
    run(worker_pool.get_pool(threads), kernels.address("rounds"), state)
    assert state[1 : 1 + threads].tolist() == [rounds - 1] * threads
    assert state[1 + threads :].tolist() == [0] * threads


def test_workers_wake_from_sleep(kernels):
    pool = worker_pool.get_pool(3)
    counts = np.zeros(4, np.int64)
    for _ in range(10):
        time.sleep(0.005)
        run(pool, kernels.address("count"), counts)
    assert counts[0] == 30


def test_several_python_threads(kernels):
    pool = worker_pool.get_pool(2)
    counts = np.zeros(3, np.int64)

    def many():
        for _ in range(300):
            run(pool, kernels.address("count"), counts)

    callers = [threading.Thread(target=many) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert counts.tolist() == [2400, 1200, 1200]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_workers_of_its_own(kernels):
    pool = worker_pool.get_pool(2)
    counts = np.zeros(3, np.int64)
    run(pool, kernels.address("count"), counts)
    child = os.fork()
    if child == 0:
        run(pool, kernels.address("count"), counts)
        os._exit(0 if counts.tolist() == [4, 2, 2] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    run(pool, kernels.address("count"), counts)
    assert counts.tolist() == [4, 2, 2]


def test_an_interrupt_never_tears_a_run(kernels):
    pool = worker_pool.get_pool(2)
    counts = np.zeros(3, np.int64)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        while True:
            run(pool, kernels.address("count"), counts)
    assert counts[0] == 2 * counts[1] == 2 * counts[2]
    run(pool, kernels.address("count"), counts)
    assert counts[0] == 2 * counts[1] == 2 * counts[2]


def test_workers_take_no_signals(kernels):
    run(worker_pool.get_pool(3), kernels.address("count"), np.zeros(4, np.int64))
    blocked = [
        line.split()[1]
        for status in Path("/proc/self/task").glob("*/status")
        for line in status.read_text().splitlines()
        if line.startswith("SigBlk")
    ]
    terminate = 1 << (signal.SIGTERM - 1)
    assert sum(bool(int(mask, 16) & terminate) for mask in blocked) >= 2
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_the_interpreter_exits_while_workers_spin():
    script = (
        f"from {__name__} import *\n"
        "code = jit.LoadedCode([jit.compile_object(KERNELS)], ['count'])\n"
        "run(worker_pool.get_pool(4), code.address('count'), np.zeros(5, np.int64))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(3):
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60, env=environment)


def test_the_interpreter_lock_is_free_during_a_run(kernels):
    state = np.zeros(17, np.int64)
    state[0] = 3_000
    finished = threading.Event()

    def long_run():
        run(worker_pool.get_pool(8), kernels.address("rounds"), state)
        finished.set()

    caller = threading.Thread(target=long_run)
    caller.start()
    turns = 0
    while not finished.is_set():
        time.sleep(0.001)
        turns += 1
    caller.join()
    assert turns > 5


def test_number_of_threads(monkeypatch):
    monkeypatch.setenv(THREADS_VARIABLE, "3")
    assert worker_pool.get_pool() is worker_pool.get_pool(3)
    monkeypatch.delenv(THREADS_VARIABLE)
    assert default_threads() == len(os.sched_getaffinity(0))
    monkeypatch.setenv(THREADS_VARIABLE, "many")
    with pytest.raises(ExecutionError, match="EULER_IR_THREADS is 'many'"):
        default_threads()
    with pytest.raises(ExecutionError, match="0 threads"):
        worker_pool.get_pool(0)
    with pytest.raises(ExecutionError, match="99999999999999999999 threads are too many"):
        worker_pool.get_pool(99999999999999999999)


def test_a_run_takes_no_argument_too(kernels):
    calls = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(
        lambda thread, threads, argument, barrier: calls.append((thread, threads, argument))
    )
    worker_pool.get_pool(1).run(ctypes.cast(function, ctypes.c_void_p).value)
    assert calls == [(0, 1, None)]
