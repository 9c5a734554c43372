"""What a plan needs of memory, and whose it is: known before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from euler_ir.plan.plan import Plan

LARGEST_OWNERS = 8


@dataclass(frozen=True)
class Owner:
    """An intermediate tensor in memory at the peak: its label, with its type, and its bytes."""

    label: str
    nbytes: int


@dataclass(frozen=True)
class Footprint:
    """Bytes that a compiled graph needs to run once, by what they are for.

    ``arena`` holds all intermediate tensors, ``scratch`` what the backend's threads need beside it. ``parameters`` and
    ``state`` lie in the State, ``inputs`` and ``outputs`` are a call's own. ``owners`` are the largest tensors in the
    arena at its peak. The process needs a constant on top: Python, the libraries, the compiled code.
    """

    arena: int
    parameters: int
    state: int
    inputs: int
    outputs: int
    constants: int
    scratch: int
    owners: tuple[Owner, ...]

    @property
    def total(self) -> int:
        sizes = (self.arena, self.parameters, self.state, self.inputs, self.outputs, self.constants, self.scratch)
        return sum(sizes)

    def __str__(self) -> str:
        names = ("arena", "parameters", "state", "inputs", "outputs", "constants", "scratch", "total")
        lines = [f"{name:10} {readable(getattr(self, name)):>12}" for name in names]
        return "\n".join([*lines, "largest at the peak of the arena:", *owner_lines(self.owners)])


def footprint(plan: Plan, scratch: int = 0) -> Footprint:
    """The Footprint of ``plan`` on a backend that needs ``scratch`` bytes of its own."""
    sizes = dict.fromkeys(("parameter", "state", "input", "output", "constant"), 0)
    for buffer in plan.buffers:
        if buffer.place in sizes:
            sizes[buffer.place] += buffer.type.nbytes
    return Footprint(
        arena=plan.arena_bytes,
        parameters=sizes["parameter"],
        state=sizes["state"],
        inputs=sizes["input"],
        outputs=sizes["output"],
        constants=sizes["constant"],
        scratch=scratch,
        owners=_owners(plan),
    )


def _owners(plan: Plan) -> tuple[Owner, ...]:
    """The largest tensors in the arena in the phase that needs most; of those in the same memory, the newest."""
    changes = [0] * (len(plan.phases) + 1)
    spans: dict[tuple[int, int], list[int]] = {}  # tensors that lie in each other's place have one life together
    in_arena = [buffer for buffer in plan.buffers if buffer.place == "arena" and buffer.type.nbytes]
    for buffer in sorted(in_arena, key=lambda buffer: buffer.first):
        span = spans.setdefault((buffer.offset, buffer.type.nbytes), [0, -1])
        first = max(buffer.first, span[1] + 1)
        changes[first] += buffer.type.nbytes
        changes[buffer.last + 1] -= buffer.type.nbytes
        span[1] = buffer.last
    used, peak, phase = 0, -1, 0
    for number, change in enumerate(changes):
        used += change
        if used > peak:
            peak, phase = used, number
    newest = {
        buffer.offset: buffer
        for buffer in sorted(in_arena, key=lambda buffer: buffer.first)
        if buffer.first <= phase <= buffer.last
    }
    largest = sorted(newest.values(), key=lambda buffer: (-buffer.type.nbytes, buffer.offset))[:LARGEST_OWNERS]
    return tuple(Owner(f"%{buffer.name}: {buffer.type}", buffer.type.nbytes) for buffer in largest)


def owner_lines(owners: Sequence[Owner]) -> list[str]:
    """A line for each owner: its size and its label."""
    return [f"{readable(owner.nbytes):>12}  {owner.label}" for owner in owners]


def readable(nbytes: int) -> str:
    """``nbytes`` in units of 2^20 bytes, of 2^10 when they are few, or as they are."""
    if nbytes >= 1 << 20:
        return f"{nbytes / 2**20:.2f} MiB"
    return f"{nbytes / 2**10:.2f} KiB" if nbytes >= 1 << 10 else f"{nbytes} B"
