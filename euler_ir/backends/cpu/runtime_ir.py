"""The worker pool's run time as LLVM IR text: threads, a barrier, and sleeping on a futex. Linux on x86-64 and aarch64.

A thread that waits for a word of memory to change first spins, because the other threads are usually only
microseconds behind, then sleeps in the kernel, because it may have to wait until the next step, or for a thread that
has lost its core. Sleepers are counted, so that changing a word that nobody sleeps on costs no system call: a thread
counts itself before the kernel compares the word, and who changes the word does so before reading the count. With both
sequentially consistent, a sleeper that is not seen sees the change (U. Drepper, "Futexes Are Tricky", 2011).

Functions that it defines:

- ``void eir_barrier(ptr barrier, i32 threads)``: returns once it was called by all of ``threads`` threads.
- ``i32 eir_pool_run(ptr pool, ptr function, ptr argument)``: ``function(i32 thread, i32 threads, ptr argument,
  ptr barrier)`` on every thread of the pool, the caller being thread 0. Starts the threads that do not run yet;
  returns 0, or the error number of pthread_create.
- ``void eir_pool_init(ptr pool, i32 threads, i32 spins)``: sets up zeroed memory of `pool_bytes` bytes.
"""

from __future__ import annotations

import platform
import re
import sys
from dataclasses import dataclass

from euler_ir.errors import LoweringError

_CACHE_LINE = 64
_POOL_HEADER_BYTES = 4 * _CACHE_LINE
_WORKER_BYTES = 16


@dataclass(frozen=True)
class _Machine:
    """What differs: the number of the system call futex, how to tell the core that this is a spin loop, and how to put
    the thread's settings of arithmetic aside for those of IEEE 754, and bring them back.
    """

    futex: int
    relax: str
    ieee: str
    own: str


# MXCSR 0x1f80 and FPCR 0: round to nearest, keep subnormal numbers, no traps.
_MACHINES = {
    "x86_64": _Machine(
        202,
        "call void @llvm.x86.sse2.pause()",
        """%own = alloca i32, align 4
  %ieee = alloca i32, align 4
  store i32 8064, ptr %ieee, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %own)
  call void @llvm.x86.sse.ldmxcsr(ptr %ieee)""",
        "call void @llvm.x86.sse.ldmxcsr(ptr %own)",
    ),
    "aarch64": _Machine(
        98,
        "call void @llvm.aarch64.hint(i32 1)",
        """%own = call i64 @llvm.aarch64.get.fpcr()
  call void @llvm.aarch64.set.fpcr(i64 0)""",
        "call void @llvm.aarch64.set.fpcr(i64 %own)",
    ),
}


def pool_bytes(threads: int) -> int:
    """The memory that a pool of ``threads`` threads takes, to be aligned to 64 bytes."""
    return _POOL_HEADER_BYTES + _WORKER_BYTES * threads


def runtime_ir() -> str:
    """The module, as LLVM IR text for this machine. Raises LoweringError where there is no Linux futex."""
    machine = platform.machine()
    if sys.platform != "linux" or machine not in _MACHINES:
        raise LoweringError(
            f"the CPU backend has no thread runtime for {sys.platform} on {machine}",
            hint="it needs Linux on x86-64 or aarch64",
        )
    its = _MACHINES[machine]
    words = {"FUTEX_NUMBER": str(its.futex), "RELAX": its.relax, "IEEE_SETTINGS": its.ieee, "OWN_SETTINGS": its.own}
    return re.sub("|".join(words), lambda match: words[match[0]], _TEXT)


# A word that threads wait on lies on a cache line of its own, beside the number of its sleepers and the spins to make
# before sleeping. 128 and 129 are FUTEX_WAIT and FUTEX_WAKE on memory of one process; 2 is SIG_SETMASK; a sigset_t of
# Linux's C libraries has 128 bytes.
_TEXT = """
%word = type { i32, i32, i32, [52 x i8] }                  ; value, sleepers, spins
%barrier = type { i32, [60 x i8], %word }                  ; threads that have arrived, phase
%worker = type { ptr, i32, i32 }                           ; pool, thread
%pool = type { %word, i32, i32, ptr, ptr, [40 x i8], %barrier, [0 x %worker] }
                                                           ; run number, threads, started, function, argument

declare i64 @syscall(i64, ...)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)

define internal void @wait_while(ptr %word, i32 %old) {
entry:
  %sleepers = getelementptr %word, ptr %word, i64 0, i32 1
  %spins.at = getelementptr %word, ptr %word, i64 0, i32 2
  %spins = load i32, ptr %spins.at, align 4
  br label %spin

spin:
  %spun = phi i32 [ 0, %entry ], [ %spun.next, %relax ]
  %value = load atomic i32, ptr %word acquire, align 4
  %changed = icmp ne i32 %value, %old
  br i1 %changed, label %done, label %patience

patience:
  %patient = icmp ult i32 %spun, %spins
  br i1 %patient, label %relax, label %sleep

relax:
  RELAX
  %spun.next = add i32 %spun, 1
  br label %spin

sleep:
  %before = atomicrmw add ptr %sleepers, i32 1 seq_cst, align 4
  %woken = call i64 (i64, ...) @syscall(i64 FUTEX_NUMBER, ptr %word, i64 128, i32 %old, ptr null)
  %after = atomicrmw sub ptr %sleepers, i32 1 seq_cst, align 4
  %value.woken = load atomic i32, ptr %word acquire, align 4
  %changed.woken = icmp ne i32 %value.woken, %old
  br i1 %changed.woken, label %done, label %sleep

done:
  ret void
}

define internal void @advance(ptr %word) {
  %old = atomicrmw add ptr %word, i32 1 seq_cst, align 4
  %sleepers.at = getelementptr %word, ptr %word, i64 0, i32 1
  %sleepers = load atomic i32, ptr %sleepers.at seq_cst, align 4
  %nobody = icmp eq i32 %sleepers, 0
  br i1 %nobody, label %done, label %wake

wake:
  %woken = call i64 (i64, ...) @syscall(i64 FUTEX_NUMBER, ptr %word, i64 129, i32 2147483647)
  br label %done

done:
  ret void
}

define void @eir_barrier(ptr %barrier, i32 %threads) {
  %alone = icmp eq i32 %threads, 1
  br i1 %alone, label %done, label %arrive

arrive:
  %phase.at = getelementptr %barrier, ptr %barrier, i64 0, i32 2
  %phase = load atomic i32, ptr %phase.at monotonic, align 4
  %earlier = atomicrmw add ptr %barrier, i32 1 acq_rel, align 4
  %arrived = add i32 %earlier, 1
  %last = icmp eq i32 %arrived, %threads
  br i1 %last, label %open, label %wait

open:
  store atomic i32 0, ptr %barrier monotonic, align 4
  call void @advance(ptr %phase.at)
  br label %done

wait:
  call void @wait_while(ptr %phase.at, i32 %phase)
  br label %done

done:
  ret void
}

; A library may have changed how the calling thread counts, and workers inherit what their first caller had.
define internal void @perform(ptr %pool, i32 %thread) {
  %threads.at = getelementptr %pool, ptr %pool, i64 0, i32 1
  %threads = load i32, ptr %threads.at, align 4
  %function.at = getelementptr %pool, ptr %pool, i64 0, i32 3
  %function = load ptr, ptr %function.at, align 8
  %argument.at = getelementptr %pool, ptr %pool, i64 0, i32 4
  %argument = load ptr, ptr %argument.at, align 8
  %barrier = getelementptr %pool, ptr %pool, i64 0, i32 6
  IEEE_SETTINGS
  call void %function(i32 %thread, i32 %threads, ptr %argument, ptr %barrier)
  OWN_SETTINGS
  call void @eir_barrier(ptr %barrier, i32 %threads)
  ret void
}

define internal ptr @work(ptr %worker) {
entry:
  %pool = load ptr, ptr %worker, align 8
  %thread.at = getelementptr %worker, ptr %worker, i64 0, i32 1
  %thread = load i32, ptr %thread.at, align 4
  %run.at = getelementptr %worker, ptr %worker, i64 0, i32 2
  %run.first = load i32, ptr %run.at, align 4
  br label %loop

loop:
  %run = phi i32 [ %run.first, %entry ], [ %run.next, %loop ]
  call void @wait_while(ptr %pool, i32 %run)
  call void @perform(ptr %pool, i32 %thread)
  %run.next = add i32 %run, 1
  br label %loop
}

; Workers take no signals: those are for the threads of Python.
define internal i32 @start(ptr %pool, i32 %threads) {
entry:
  %id = alloca i64, align 8
  %all = alloca [128 x i8], align 8
  %mask = alloca [128 x i8], align 8
  %filled = call i32 @sigfillset(ptr %all)
  %blocked = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %mask)
  %run = load atomic i32, ptr %pool monotonic, align 4
  %started.at = getelementptr %pool, ptr %pool, i64 0, i32 2
  br label %next

next:
  %started = load i32, ptr %started.at, align 4
  %complete = icmp eq i32 %started, %threads
  br i1 %complete, label %done, label %create

create:
  %worker = getelementptr %pool, ptr %pool, i64 0, i32 7, i32 %started
  store ptr %pool, ptr %worker, align 8
  %thread.at = getelementptr %worker, ptr %worker, i64 0, i32 1
  store i32 %started, ptr %thread.at, align 4
  %run.at = getelementptr %worker, ptr %worker, i64 0, i32 2
  store i32 %run, ptr %run.at, align 4
  %error = call i32 @pthread_create(ptr %id, ptr null, ptr @work, ptr %worker)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %done, label %created

created:
  %id.value = load i64, ptr %id, align 8
  %detached = call i32 @pthread_detach(i64 %id.value)
  %started.next = add i32 %started, 1
  store i32 %started.next, ptr %started.at, align 4
  br label %next

done:
  %result = phi i32 [ 0, %next ], [ %error, %create ]
  %restored = call i32 @pthread_sigmask(i32 2, ptr %mask, ptr null)
  ret i32 %result
}

define void @eir_pool_init(ptr %pool, i32 %threads, i32 %spins) {
  %threads.at = getelementptr %pool, ptr %pool, i64 0, i32 1
  store i32 %threads, ptr %threads.at, align 4
  %started.at = getelementptr %pool, ptr %pool, i64 0, i32 2
  store i32 1, ptr %started.at, align 4
  %run.spins.at = getelementptr %pool, ptr %pool, i64 0, i32 0, i32 2
  store i32 %spins, ptr %run.spins.at, align 4
  %phase.spins.at = getelementptr %pool, ptr %pool, i64 0, i32 6, i32 2, i32 2
  store i32 %spins, ptr %phase.spins.at, align 4
  ret void
}

define i32 @eir_pool_run(ptr %pool, ptr %function, ptr %argument) {
  %threads.at = getelementptr %pool, ptr %pool, i64 0, i32 1
  %threads = load i32, ptr %threads.at, align 4
  %error = call i32 @start(ptr %pool, i32 %threads)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %done, label %run

run:
  %function.at = getelementptr %pool, ptr %pool, i64 0, i32 3
  store ptr %function, ptr %function.at, align 8
  %argument.at = getelementptr %pool, ptr %pool, i64 0, i32 4
  store ptr %argument, ptr %argument.at, align 8
  call void @advance(ptr %pool)
  call void @perform(ptr %pool, i32 0)
  br label %done

done:
  ret i32 %error
}
"""
