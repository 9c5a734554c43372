"""One arena for all intermediate buffers: those that are in use at the same time never overlap."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from euler_ir.errors import VerifyError
from euler_ir.plan.plan import KernelStep, Plan, Step

ALIGNMENT = 64
"""Bytes: every buffer begins on a cache line."""


@dataclass(frozen=True)
class Lifetime:
    """A buffer of ``nbytes`` in use from phase ``first`` to phase ``last``, both included."""

    nbytes: int
    first: int
    last: int


GOOD_ENOUGH = 1.02
"""Times the least possible: an arena that no search makes smaller."""
MAX_PLACEMENTS = 60_000
"""Buffers that a search places, over all its trials."""


def assign_offsets(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """An offset in bytes for each buffer, and the size of the arena.

    Each buffer in turn gets the lowest place that is free for its whole life. Largest first is mostly best, since it
    leaves small buffers for the gaps. Where it is not, a search begins with the longest lives first and gives, again
    and again, the first turn to the buffer that ends highest. Ties go by position: the result depends on nothing else.
    """
    wanted = GOOD_ENOUGH * lower_bound(lifetimes)
    positions = range(len(lifetimes))
    best = _first_fit(lifetimes, sorted(positions, key=lambda p: (-lifetimes[p].nbytes, p)))
    turns = sorted(positions, key=lambda p: (lifetimes[p].first - lifetimes[p].last, -lifetimes[p].nbytes, p))
    for _ in range(MAX_PLACEMENTS // max(len(lifetimes), 1)):
        if best[1] <= wanted:
            break
        offsets, size = _first_fit(lifetimes, turns)
        if size < best[1]:
            best = offsets, size
        highest = max(positions, key=lambda p: offsets[p] + lifetimes[p].nbytes)
        turns.remove(highest)
        turns.insert(0, highest)
    return best


def _first_fit(lifetimes: Sequence[Lifetime], order: Sequence[int]) -> tuple[list[int], int]:
    """Offsets when buffers are placed in ``order``, and where the last byte ends."""
    offsets = [0] * len(lifetimes)
    # Columns of placed buffers by offset: begin, end, first phase, last phase. Arrays, since each new buffer meets all.
    placed = np.empty((4, len(lifetimes)), np.int64)
    count = size = 0
    for position in order:
        life = lifetimes[position]
        need = aligned(life.nbytes)
        if not need:
            continue
        begins, ends, firsts, lasts = placed[:, :count]
        beside = (firsts <= life.last) & (lasts >= life.first)
        reached = np.concatenate(([0], np.maximum.accumulate(ends[beside])))
        free = np.append(begins[beside], np.iinfo(np.int64).max) - reached
        offset = int(reached[np.argmax(free >= need)])
        offsets[position] = offset
        size = max(size, offset + need)
        place = np.searchsorted(begins, offset)
        placed[:, place + 1 : count + 1] = placed[:, place:count]
        placed[:, place] = offset, offset + need, life.first, life.last
        count += 1
    return offsets, size


def lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """The most bytes in use in one phase: no arena can be smaller."""
    changes: dict[int, int] = {}
    for life in lifetimes:
        changes[life.first] = changes.get(life.first, 0) + aligned(life.nbytes)
        changes[life.last + 1] = changes.get(life.last + 1, 0) - aligned(life.nbytes)
    most = now = 0
    for phase in sorted(changes):
        now += changes[phase]
        most = max(most, now)
    return most


def aligned(nbytes: int) -> int:
    """Bytes that a buffer of ``nbytes`` takes in the arena."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def check_memory(plan: Plan) -> None:
    """Prove, from the steps alone, that nothing in ``plan`` reads or writes memory that holds something else.

    Walks the phases with a model of memory that knows which buffer each range of bytes holds: at first the inputs,
    parameters, state and constants. Raises VerifyError for a buffer that is read when its memory holds another or
    nothing yet, for one that lies outside of the arena, for an input or constant that is written, for two nests or
    steps of one phase that touch the same memory while one writes it, and for an output that is never written.
    """
    held: dict[int | None, list[tuple[int, int, int]]] = {}  # by memory: disjoint (start, end, buffer), by start
    for number, buffer in enumerate(plan.buffers):
        if buffer.place not in ("arena", "output"):
            _hold(held, _region(plan, number), number)
    for number, phase in enumerate(plan.phases):
        touched: dict[int | None, list[tuple[int, int, int, bool]]] = {}
        for unit, (reads, writes) in enumerate(_units(phase)):
            for buffer in sorted(reads | writes):
                planned = plan.buffers[buffer]
                if buffer in writes and planned.place in ("input", "constant"):
                    raise VerifyError(f"phase {number}: {planned.place} {planned.name} is written")
                memory, first, last = _region(plan, buffer)
                if buffer in reads and first < last and (first, last, buffer) not in held.get(memory, ()):
                    raise VerifyError(f"phase {number}: {planned.name} is read but its memory holds something else")
                beside = touched.setdefault(memory, [])
                for start, end, other, wrote in beside:
                    if other != unit and start < last and first < end and (wrote or buffer in writes):
                        raise VerifyError(f"phase {number}: {planned.name} shares memory with what runs beside it")
                beside.append((first, last, unit, buffer in writes))
        for _, writes in _units(phase):
            for buffer in sorted(writes):
                _hold(held, _region(plan, buffer), buffer)
    for name, buffer in plan.outputs.items():
        if plan.buffers[buffer].type.nbytes and buffer not in held:
            raise VerifyError(f"output {name} is never written")


def _hold(held: dict[int | None, list[tuple[int, int, int]]], region: tuple[int | None, int, int], buffer: int) -> None:
    memory, first, last = region
    if first < last:
        kept = [entry for entry in held.get(memory, ()) if entry[1] <= first or last <= entry[0]]
        bisect.insort(kept, (first, last, buffer))
        held[memory] = kept


def _units(phase: Sequence[Step]) -> Iterator[tuple[set[int], set[int]]]:
    """What each nest of a kernel, and each other step, reads and writes: these may run at the same time."""
    for step in phase:
        if not isinstance(step, KernelStep):
            yield set(step.reads()), set(step.writes())
            continue
        for nest, arguments in zip(step.kernel.nests, step.arguments):
            roles = list(zip(nest.parameters, arguments))
            yield {b for p, b in roles if p.is_read}, {b for p, b in roles if p.is_written}


def _region(plan: Plan, buffer: int) -> tuple[int | None, int, int]:
    """The memory in which ``buffer`` lies (its own number, None for the arena), its first byte and its end there."""
    planned = plan.buffers[buffer]
    if planned.place != "arena":
        return buffer, 0, planned.type.nbytes
    first, last = planned.offset, planned.offset + planned.type.nbytes
    if planned.type.nbytes and (first < 0 or last > plan.arena_bytes):
        raise VerifyError(f"{planned.name} lies outside of the arena of {plan.arena_bytes} bytes")
    return None, first, last
