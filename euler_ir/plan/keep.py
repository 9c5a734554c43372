"""A plan that forgets nothing: every intermediate tensor is still in memory when the last step is done."""

from __future__ import annotations

from dataclasses import replace

from euler_ir.plan.memory import aligned
from euler_ir.plan.plan import MatmulStep, Plan


def keep_all(plan: Plan) -> Plan:
    """``plan`` with memory of its own for each buffer of the arena, for as long as a run lasts.

    Steps, and so the code of their kernels, are the same. Only a product that is added to a buffer still lies in it.
    """
    lies_in = {
        step.result.buffer: step.running
        for step in plan.steps()
        if isinstance(step, MatmulStep) and step.running is not None
    }
    offsets: dict[int, int] = {}
    end, last = 0, len(plan.phases) - 1
    for number, buffer in enumerate(plan.buffers):
        if buffer.place == "arena" and number not in lies_in:
            offsets[number] = end
            end += aligned(buffer.type.nbytes)
    buffers = list(plan.buffers)
    for number, buffer in enumerate(buffers):
        if buffer.place == "arena":
            first = number
            while first in lies_in:
                first = lies_in[first]
            buffers[number] = replace(buffer, offset=offsets[first], first=0, last=last)
    return replace(plan, buffers=tuple(buffers), arena_bytes=end, lower_bound=end)
