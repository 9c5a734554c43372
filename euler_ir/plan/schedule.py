"""The order of tasks: phases of steps that do not depend on each other, kernels of one phase launched as one.

Tasks are groups of a fused graph, in an order that runs and keeps memory small, since what is made is mostly read soon.
What is ready together makes phases few when it runs together, though: calls go ahead of kernels, and kernels wait until
no call is ready and then run as one (bias gradients, an optimiser's parameters). Both go ahead of their turn only where
the tasks in between, run one by one, leave as much memory below their peak. A kernel that reads nothing computed waits
for its turn; one that only frees memory (an update in place) gets the first turn that it can have.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

WINDOW = 64
"""How far ahead of the earliest waiting task another may be run."""


@dataclass(frozen=True)
class Task:
    """``before`` are the tasks that must end before this one begins; a kernel may share its launch with others.

    ``reads`` and ``writes`` name the values whose memory is to be counted: computed ones that nobody else keeps. A task
    ``overwrites`` if an output may lie where an input of the same size was that is not read again.
    """

    before: tuple[int, ...]
    is_kernel: bool
    reads_computed: bool
    reads: tuple[Hashable, ...] = ()
    writes: tuple[Hashable, ...] = ()
    overwrites: bool = False


def schedule(tasks: Sequence[Task], nbytes: Mapping[Hashable, int] = {}) -> list[list[list[int]]]:
    """Phases of steps of numbers of ``tasks``; a step of several tasks is one kernel.

    ``nbytes`` gives the size of values that tasks read and write; others take no memory.
    """
    order = _freeing_early(tasks, nbytes)
    turn_of = {number: turn for turn, number in enumerate(order)}
    in_turn = [replace(tasks[n], before=tuple(turn_of[earlier] for earlier in tasks[n].before)) for n in order]
    return [[[order[turn] for turn in step] for step in phase] for phase in _Scheduler(in_turn, nbytes).run()]


def _freeing_early(tasks: Sequence[Task], nbytes: Mapping[Hashable, int]) -> list[int]:
    """The tasks in their order, but those that make nothing that takes memory right behind the last that they need."""

    def turn(number: int) -> tuple[int, int]:
        task = tasks[number]
        waits = not task.before or any(nbytes.get(value) for value in task.writes)
        return (number if waits else max(task.before), number)

    return sorted(range(len(tasks)), key=turn)


def _one_by_one(tasks: Sequence[Task], nbytes: Mapping[Hashable, int]) -> tuple[list[int], list[int]]:
    """Bytes in use before each task, and while it runs, when each is a phase of its own."""
    memory, held, needed = _Memory(tasks, nbytes), [], []
    for number in range(len(tasks)):
        memory.end_phase()
        held.append(memory.used)
        memory.run(number)
        needed.append(memory.used)
    return held, needed


class _Memory:
    """Bytes in use while tasks run in phases: what a task reads last is free when its phase ends."""

    def __init__(self, tasks: Sequence[Task], nbytes: Mapping[Hashable, int]) -> None:
        self.tasks = tasks
        self.nbytes = nbytes
        self.readers: dict[Hashable, int] = {}
        for task in tasks:
            for value in set(task.reads):
                self.readers[value] = self.readers.get(value, 0) + 1
        self.used = self.ending = 0

    def run(self, number: int) -> None:
        """Count the task into this phase."""
        taken, freed = self.change(number)
        for value in set(self.tasks[number].reads):
            self.readers[value] -= 1
        self.used += taken
        self.ending += freed

    def end_phase(self) -> None:
        self.used -= self.ending
        self.ending = 0

    def change(self, number: int) -> tuple[int, int]:
        """Bytes that the task takes, and bytes that are free after it."""
        task = self.tasks[number]
        last = [self.nbytes.get(value, 0) for value in dict.fromkeys(task.reads) if self.readers[value] == 1]
        taken = 0
        for value in task.writes:
            size = self.nbytes.get(value, 0)
            if task.overwrites and size in last:
                last.remove(size)
            else:
                taken += size
        unread = sum(self.nbytes.get(value, 0) for value in task.writes if value not in self.readers)
        return taken, sum(last) + unread


class _Scheduler:
    def __init__(self, tasks: Sequence[Task], nbytes: Mapping[Hashable, int]) -> None:
        self.tasks = tasks
        self.memory = _Memory(tasks, nbytes)
        self.held, self.needed = _one_by_one(tasks, nbytes)
        self.limit = max(self.needed, default=0)
        self.waiting_for = [len(set(task.before)) for task in tasks]
        self.after: list[list[int]] = [[] for _ in tasks]
        for number, task in enumerate(tasks):
            for earlier in sorted(set(task.before)):
                self.after[earlier].append(number)
        self.calls: list[int] = []
        self.kernels: list[int] = []
        self.phases: list[list[list[int]]] = []
        self.in_phase: set[int] = set()

    def run(self) -> list[list[list[int]]]:
        for number in range(len(self.tasks)):
            if not self.waiting_for[number]:
                self._make_ready(number)
        while self.calls or self.kernels:
            first = min(ready[0] for ready in (self.calls, self.kernels) if ready)
            step = self._next_call(first) or self._next_kernels(first)
            self._place(step)
            for number in step:
                for later in self.after[number]:
                    self.waiting_for[later] -= 1
                    if not self.waiting_for[later]:
                        self._make_ready(later)
        return self.phases

    def _make_ready(self, number: int) -> None:
        heapq.heappush(self.kernels if self.tasks[number].is_kernel else self.calls, number)

    def _next_call(self, first: int) -> list[int]:
        """The earliest ready call that may run now, when ``first`` is the earliest task of all; or none."""
        return self._take(self.calls, first, lambda call, taken: not taken and self._fits(first, call, 0))

    def _next_kernels(self, first: int) -> list[int]:
        """The earliest ready kernel, and all others that may run with it."""
        growth = 0

        def joins(kernel: int, taken: list[int]) -> bool:
            nonlocal growth
            fits = not taken or (self.tasks[kernel].reads_computed and self._fits(first, kernel, growth))
            growth += self.memory.change(kernel)[0] if fits else 0
            return fits

        return self._take(self.kernels, first, joins)

    def _take(self, ready: list[int], first: int, may_run) -> list[int]:
        """Remove the tasks of the window that ``may_run`` with those taken before them."""
        taken: list[int] = []
        left: list[int] = []
        while ready and ready[0] <= first + WINDOW:
            number = heapq.heappop(ready)
            (taken if may_run(number, taken) else left).append(number)
        for number in left:
            heapq.heappush(ready, number)
        return taken

    def _fits(self, first: int, number: int, more: int) -> bool:
        """Whether the task, and ``more`` bytes, find room beside all tasks from ``first`` to the one before it."""
        growth = more + self.memory.change(number)[0]
        ahead = self.memory.used - self.memory.ending - self.held[first]
        return number == first or ahead + growth + max(self.needed[first:number]) <= self.limit

    def _place(self, step: list[int]) -> None:
        """Append a step to the phase, or to a new one: it may need what the phase makes, or too much memory."""
        growth = sum(self.memory.change(number)[0] for number in step)
        depends = any(earlier in self.in_phase for number in step for earlier in self.tasks[number].before)
        if not self.phases or depends or self.memory.used + growth > self.limit:
            self.phases.append([])
            self.in_phase = set()
            self.memory.end_phase()
        self.phases[-1].append(step)
        self.in_phase.update(step)
        for number in step:
            self.memory.run(number)


def dependencies(
    reads: Sequence[Sequence], writes: Sequence[Sequence], must_follow: Mapping[int, Sequence[int]]
) -> list[list[int]]:
    """For each task the tasks that write what it reads, and those that it ``must_follow`` for another reason."""
    writer = {}
    for task, values in enumerate(writes):
        for value in values:
            writer[value] = task
    return [
        [
            *(writer[value] for value in values if value in writer and writer[value] != task),
            *must_follow.get(task, ()),
        ]
        for task, values in enumerate(reads)
    ]
