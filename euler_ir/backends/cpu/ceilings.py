"""What this machine can do at most, measured: the rate of fused multiply-adds and the bandwidth of memory.

All of it runs as a step does: generated code at the full vector width, on every thread of a worker pool. The arrays
are larger than the last cache. Rates are the best of a few runs, since whatever else runs only ever slows one down.
"""

from __future__ import annotations

import ctypes
import functools
import time
from dataclasses import dataclass

from euler_ir.backends.cpu.jit import LoadedCode, compile_object, last_cache_bytes, vector_bytes
from euler_ir.backends.cpu.worker_pool import get_pool
from euler_ir.pages import allocate_pages

_CHAINS = 12  # additions take up to 5 cycles, two begin in each; 12 accumulators and two operands fit 16 registers
_FMA_STEPS = 1_000_000
_RUNS = 5
_SMALLEST_SHARE = 64 << 20  # bytes of an array for each thread, which may have a last cache of its own
_LARGEST_ARRAY = 1 << 30


@dataclass(frozen=True)
class Ceilings:
    """Rates of ``threads`` threads together: f32 multiply-adds in GFLOP/s, the others in GB/s out of cache.

    ``read`` sums an array. ``triad`` is a = b + s c (McCalpin's STREAM), written around the caches, so that the target
    is not read before.
    """

    threads: int
    fma: float
    read: float
    triad: float

    @property
    def bandwidth(self) -> float:
        """The better of the two, GB/s: no kernel that goes through memory once can be expected to beat it."""
        return max(self.read, self.triad)

    def best(self, other: Ceilings) -> Ceilings:
        """The higher of each rate, of two measurements on the same number of threads."""
        rates = (max(getattr(self, name), getattr(other, name)) for name in ("fma", "read", "triad"))
        return Ceilings(self.threads, *rates)

    def bound(self, nbytes: int, flops: int) -> str:
        """Which of the two takes longer at the ceilings: 'memory' or 'arithmetic'."""
        return "memory" if nbytes / self.bandwidth >= flops / self.fma else "arithmetic"

    def least_seconds(self, nbytes: int, flops: int) -> float:
        """The time below which ``nbytes`` do not move nor ``flops`` f32 operations get done: the roofline."""
        return max(nbytes / self.bandwidth, flops / self.fma) / 1e9


def measure_ceilings(threads: int | None = None) -> Ceilings:
    """The Ceilings of ``threads`` threads (by default all cores), measured now, in less than half a second."""
    pool, code = get_pool(threads), _code()
    nbytes = min(max(4 * last_cache_bytes(), _SMALLEST_SHARE) * pool.threads, _LARGEST_ARRAY)
    arrays = [allocate_pages(nbytes) for _ in range(3)]
    for array in arrays:
        array.fill(1)  # memory that nobody has written to is one page of zeros, read from the cache again and again
    sink = allocate_pages(64 * pool.threads)
    argument = (ctypes.c_void_p * 5)(nbytes // 256, sink.ctypes.data, *(array.ctypes.data for array in arrays))

    def rate(symbol: str, amount: float) -> float:
        address, best = code.address(symbol), float("inf")
        for _ in range(1 + _RUNS):  # the first touches the memory and wakes the threads
            start = time.perf_counter()
            pool.run(address, ctypes.addressof(argument))
            best = min(best, time.perf_counter() - start)
        return amount / best / 1e9

    flops = 2 * _CHAINS * _FMA_STEPS * (vector_bytes() // 4) * pool.threads
    triad = rate("eir_triad", 3 * nbytes)
    return Ceilings(pool.threads, rate("eir_fma", flops), rate("eir_read", nbytes), triad)


@functools.cache
def _code() -> LoadedCode:
    return LoadedCode([compile_object(_text())], ["eir_fma", "eir_read", "eir_triad"])


def _text() -> str:
    """``eir_fma``, ``eir_read`` and ``eir_triad`` for a worker pool.

    ``argument`` holds the number of blocks of 256 bytes in an array, a sink of a cache line a thread, and three arrays.
    """
    lanes, parts = vector_bytes() // 4, range(256 // vector_bytes())
    vector, fused = f"<{lanes} x float>", f"@llvm.fma.v{lanes}f32"
    half, three = (f"<{', '.join([f'float {number}'] * lanes)}>" for number in ("0.5", "3.0"))
    multiply_add = f"call {vector} {fused}({vector}"
    fma = [f"%b{n} = {multiply_add} %a{n}, {vector} {half}, {vector} %seed)" for n in range(_CHAINS)]
    read, triad = [], []
    for n in parts:
        places = {array: f"%{array}{n}.at = getelementptr {vector}, ptr %{array}.block, i64 {n}" for array in "xyz"}
        loads = {array: f"%{array}{n} = load {vector}, ptr %{array}{n}.at" for array in "yz"}
        read += [places["y"], loads["y"], f"%b{n} = fadd {vector} %a{n}, %y{n}"]
        triad += [*places.values(), *loads.values()]
        triad.append(f"%x{n} = {multiply_add} %z{n}, {vector} {three}, {vector} %y{n})")
        triad.append(f"store {vector} %x{n}, ptr %x{n}.at, align {vector_bytes()}, !nontemporal !0")
    return (
        f"declare {vector} {fused}({vector}, {vector}, {vector})\n!0 = !{{i32 1}}\n"
        + _function("eir_fma", lanes, "0", str(_FMA_STEPS), fma, _CHAINS)
        + _function("eir_read", lanes, "%begin", "%end", read, len(parts))
        + _function("eir_triad", lanes, "%begin", "%end", triad, 0)
    )


def _function(symbol: str, lanes: int, begin: str, end: str, body: list[str], accumulators: int) -> str:
    """``body`` for each block from ``begin`` to ``end``; it makes accumulators %b0, ... from their last values %a0, ...

    Their sum goes to the sink, so that none is dead.
    """
    vector = f"<{lanes} x float>"
    # Chains that begin alike would be one.
    starts = [f"<{', '.join([f'float {n}.0'] * lanes)}>" for n in range(accumulators)]
    loop = [f"%a{n} = phi {vector} [ {start}, %entry ], [ %b{n}, %loop ]" for n, start in enumerate(starts)]
    loop += [f"%{array}.block = getelementptr [64 x float], ptr %{array}, i64 %i" for array in "xyz"] + body
    total = [f"%sum{n + 1} = fadd {vector} %sum{n}, %b{n}" for n in range(accumulators)]
    lines = {name: "\n".join(f"  {line}" for line in text) for name, text in (("loop", loop), ("total", total))}
    return f"""
define void @{symbol}(i32 %thread, i32 %threads, ptr %argument, ptr %barrier) {{
entry:
  %part = zext i32 %thread to i64
  %parts = zext i32 %threads to i64
  %part.after = add i64 %part, 1
  %blocks = load i64, ptr %argument
  %begin.scaled = mul i64 %blocks, %part
  %begin = udiv i64 %begin.scaled, %parts
  %end.scaled = mul i64 %blocks, %part.after
  %end = udiv i64 %end.scaled, %parts
  %sink.at = getelementptr ptr, ptr %argument, i64 1
  %x.at = getelementptr ptr, ptr %argument, i64 2
  %y.at = getelementptr ptr, ptr %argument, i64 3
  %z.at = getelementptr ptr, ptr %argument, i64 4
  %sinks = load ptr, ptr %sink.at
  %x = load ptr, ptr %x.at
  %y = load ptr, ptr %y.at
  %z = load ptr, ptr %z.at
  %sink = getelementptr [64 x i8], ptr %sinks, i64 %part
  %seed = load {vector}, ptr %sink
  br label %loop

loop:
  %i = phi i64 [ {begin}, %entry ], [ %i.next, %loop ]
{lines["loop"]}
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, {end}
  br i1 %more, label %loop, label %done

done:
  %sum0 = fadd {vector} %seed, %seed
{lines["total"]}
  store {vector} %sum{accumulators}, ptr %sink
  ret void
}}
"""
