"""The order of groups: phases of steps that do not depend on each other, kernels of one phase launched as one.

Groups come in an order that runs. Library calls go first; kernels wait until none is ready and then run together, so
that many small loops (bias gradients, an optimiser's parameters) become few kernels. A kernel that reads nothing
computed waits for its turn, so that what it makes does not take memory early.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

WINDOW = 64
"""How far ahead of the earliest waiting group another may be run."""


def schedule(
    count: int, before: Sequence[Sequence[int]], is_kernel: Sequence[bool], reads_computed: Sequence[bool]
) -> list[list[list[int]]]:
    """Phases of steps of groups: ``before[g]`` holds the groups that must end before ``g`` begins.

    A step of several groups is one kernel. Groups are numbers below ``count`` in an order that runs.
    """
    waiting_for = [len(set(groups)) for groups in before]
    after: list[list[int]] = [[] for _ in range(count)]
    for group, groups in enumerate(before):
        for earlier in sorted(set(groups)):
            after[earlier].append(group)
    calls = [group for group in range(count) if not waiting_for[group] and not is_kernel[group]]
    kernels = [group for group in range(count) if not waiting_for[group] and is_kernel[group]]
    steps: list[list[int]] = []

    def finish(group: int) -> None:
        for later in after[group]:
            waiting_for[later] -= 1
            if not waiting_for[later]:
                heapq.heappush(kernels if is_kernel[later] else calls, later)

    while calls or kernels:
        first = min(calls[0] if calls else count, kernels[0] if kernels else count)
        if calls and calls[0] <= first + WINDOW:
            step = [heapq.heappop(calls)]
        else:
            step, left = [], []
            while kernels and kernels[0] <= first + WINDOW:
                group = heapq.heappop(kernels)
                (step if reads_computed[group] or group == first else left).append(group)
            for group in left:
                heapq.heappush(kernels, group)
        steps.append(step)
        for group in step:
            finish(group)
    return _phases(steps, before)


def _phases(steps: list[list[int]], before: Sequence[Sequence[int]]) -> list[list[list[int]]]:
    """Neighbouring steps put together as long as none needs another."""
    phases: list[list[list[int]]] = []
    current: set[int] = set()
    for step in steps:
        if not phases or any(earlier in current for group in step for earlier in before[group]):
            phases.append([])
            current = set()
        phases[-1].append(step)
        current.update(step)
    return phases


def dependencies(reads: Sequence[Sequence], writes: Sequence[Sequence], must_follow: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """For each group the groups that write what it reads, and those that it ``must_follow`` for another reason."""
    writer = {}
    for group, values in enumerate(writes):
        for value in values:
            writer[value] = group
    return [
        [writer[value] for value in values if value in writer and writer[value] != group] + list(must_follow.get(group, ()))
        for group, values in enumerate(reads)
    ]
