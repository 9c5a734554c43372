"""Where the time of a step goes: every nest, product and copy on every thread, beside what the machine could do.

A timed program reads the clock around each task on each thread. All of it is counted in thread time: the tasks, the
waits at barriers, and what lies outside of the step's function (the call from Python, outputs, starting the threads)
add up to the threads times the time of the call.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from euler_ir.compiler import Executable, Stages, lower
from euler_ir.graph import Graph
from euler_ir.inspect.random_inputs import random_inputs
from euler_ir.plan.plan import KernelStep, Origin, Step
from euler_ir.plan.work import Work, work_of
from euler_ir.state import State, initial_state
from euler_ir.text.printer import value_names
from euler_ir.verify import verify

if TYPE_CHECKING:
    from euler_ir.backends.cpu.ceilings import Ceilings
    from euler_ir.backends.cpu.program import CpuProgram

WARM_UP = 2
"""Calls before those that count."""

GROUPINGS = {
    "kernel": "tasks that run the same code, in whatever layer",
    "scope": "tasks of the same module of the model",
    "step": "each step of the plan, in its order",
}


@dataclass(frozen=True)
class TaskTime:
    """One task of the step. ``seconds[t]`` is what thread t took for it, ``step`` the position in the plan's steps.

    ``nest`` is the number of its nest in the ``kernel`` of that name, which for other steps is empty. It runs the fused
    groups of the numbers ``groups``, and writes the ``values`` of these names to memory.
    """

    phase: int
    step: int
    work: Work
    origin: Origin
    seconds: np.ndarray
    nest: int = 0
    kernel: str = ""
    groups: tuple[int, ...] = ()
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """Tasks that are shown as one.

    ``seconds`` is the mean over the threads, which is what adds up; ``slowest`` is that of the slowest thread of each
    step, which is what the rates and ``roofline`` are of: the least time that the ceilings allow, by the time taken.
    Above 1, the data came from a cache. ``bound`` is the ceiling that gives the least time, 'memory' or 'arithmetic'.
    ``balance`` is ``seconds / slowest``. ``steps``, ``kernels``, ``groups`` and ``values`` are those of the tasks.
    """

    name: str
    calls: int
    seconds: float
    slowest: float
    share: float
    nbytes: int
    flops: int
    roofline: float
    bound: str
    operators: tuple[str, ...]
    scopes: tuple[str, ...]
    lines: tuple[str, ...]
    steps: tuple[int, ...]
    kernels: tuple[str, ...]
    groups: tuple[int, ...]
    values: tuple[str, ...]

    @property
    def balance(self) -> float:
        return self.seconds / self.slowest if self.slowest else 1.0

    @property
    def gb_per_second(self) -> float:
        return self.nbytes / self.slowest / 1e9 if self.slowest else 0.0

    @property
    def gflop_per_second(self) -> float:
        return self.flops / self.slowest / 1e9 if self.slowest else 0.0


@dataclass(frozen=True)
class Profile:
    """The step of ``name``, as measured: ``calls`` are the seconds of each timed call.

    All else is the mean over the faster half of them, since what slows single calls is not the program: ``tasks``,
    ``waiting`` (thread seconds at barriers, all threads together) and ``seconds`` of a call. ``fastest`` holds for each
    thread the times of the fastest call, in nanoseconds from its beginning: the step's start, then each of ``marks``.
    """

    name: str
    ceilings: Ceilings
    calls: tuple[float, ...]
    seconds: float
    tasks: tuple[TaskTime, ...]
    waiting: float
    fastest: np.ndarray
    marks: tuple

    @property
    def threads(self) -> int:
        return self.ceilings.threads

    @property
    def median(self) -> float:
        return statistics.median(self.calls)

    @property
    def outside(self) -> float:
        """Thread seconds outside of the step's function."""
        return self.threads * self.seconds - self.waiting - sum(task.seconds.sum() for task in self.tasks)

    def rows(self, by: str = "kernel") -> list[Row]:
        """The tasks grouped ``by`` one of GROUPINGS: the slowest first, or in order for steps.

        Raises ValueError for another grouping.
        """
        if by not in GROUPINGS:
            raise ValueError(f"cannot group by {by!r}: use one of {', '.join(GROUPINGS)}")
        groups: dict[object, list[TaskTime]] = {}
        for task in self.tasks:
            key = {"kernel": task.work.structure, "scope": task.origin.scope, "step": task.step}[by]
            groups.setdefault(key, []).append(task)
        rows = [self._row(tasks, by) for tasks in groups.values()]
        return rows if by == "step" else sorted(rows, key=lambda row: -row.seconds)

    def _row(self, tasks: list[TaskTime], by: str) -> Row:
        # Small nests of one step run side by side, each on one thread: the slowest thread is that of the step.
        by_step: dict[int, np.ndarray] = {}
        for task in tasks:
            by_step[task.step] = by_step.get(task.step, 0) + task.seconds
        seconds = sum(task.seconds.sum() for task in tasks) / self.threads
        slowest = sum(times.max() for times in by_step.values())
        least = sum(self.ceilings.least_seconds(task.work.nbytes, task.work.flops) for task in tasks)
        moved, operations = (sum(getattr(task.work, name) for task in tasks) for name in ("nbytes", "flops"))
        origins = [task.origin for task in tasks]
        names = _distinct(task.work.name for task in tasks)
        return Row(
            name=(origins[0].scope or "(no module)") if by == "scope" else ", ".join(names),
            calls=len(tasks),
            seconds=seconds,
            slowest=slowest,
            share=seconds / self.seconds,
            nbytes=moved,
            flops=operations,
            roofline=least / slowest if slowest else 0.0,
            bound=self.ceilings.bound(moved, operations),
            operators=_distinct(name for origin in origins for name in origin.operators),
            scopes=_distinct(origin.scope for origin in origins if origin.scope),
            lines=_distinct(f"{at.file}:{at.line}" for origin in origins for at in origin.locations),
            steps=_distinct(task.step for task in tasks),
            kernels=_distinct(task.kernel for task in tasks if task.kernel),
            groups=_distinct(number for task in tasks for number in task.groups),
            values=_distinct(name for task in tasks for name in task.values),
        )


def profile(
    graph: Graph,
    state: State | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    threads: int | None = None,
    steps: int = 10,
) -> Profile:
    """Compile ``graph`` for the CPU with clocks, call it ``steps`` times after WARM_UP calls, and say where time went.

    ``state`` is by default the initial one, and changes as in training; ``inputs`` are by default ``random_inputs``.
    Raises what ``compile`` and a call raise, and ValueError for fewer than 1 step.
    """
    if steps < 1:
        raise ValueError(f"steps is a number of 1 or more, not {steps}")
    # LLVM is imported where it is used: the command line's other stages need none of it.
    from euler_ir.backends.cpu.ceilings import measure_ceilings
    from euler_ir.backends.cpu.program import CpuProgram

    verify(graph)
    stages = lower(graph)
    program = CpuProgram(stages.plan, threads, timed=True)
    executable = Executable(graph, stages, program)
    state = initial_state(graph) if state is None else state
    inputs = random_inputs(graph) if inputs is None else inputs
    ceilings = measure_ceilings(program.pool.threads)
    timed = [_call(executable, program, state, inputs) for _ in range(WARM_UP + steps)][WARM_UP:]
    by_time = sorted(timed, key=lambda call: call[0])
    kept = by_time[: (steps + 1) // 2]
    spent = np.mean([np.diff(times, axis=1) for _, times in kept], axis=0) / 1e9
    position = {id(step): number for number, step in enumerate(stages.plan.steps())}
    links = _links(stages)
    tasks, waiting = [], 0.0
    for mark, seconds in zip(program.marks, spent.T, strict=True):
        if mark.step is None:
            waiting += float(seconds.sum())
            continue
        work = work_of(stages.plan, mark.step, mark.nest)
        step, origin = position[id(mark.step)], _origin(mark.step, mark.nest)
        kernel = mark.step.kernel.name if isinstance(mark.step, KernelStep) else ""
        linked = links.get((step, mark.nest), ((), ()))
        tasks.append(TaskTime(mark.phase, step, work, origin, seconds, mark.nest, kernel, *linked))
    return Profile(
        graph.name,
        # Whatever else ran on the machine meanwhile only ever lowered one.
        ceilings.best(measure_ceilings(program.pool.threads)),
        tuple(seconds for seconds, _ in timed),
        float(np.mean([seconds for seconds, _ in kept])),
        tuple(tasks),
        waiting,
        by_time[0][1],
        program.marks,
    )


def _links(stages: Stages) -> dict[tuple[int, int], tuple[tuple[int, ...], tuple[str, ...]]]:
    """By step and nest: the numbers of the fused groups that run there, and the names of the values that they store."""
    names, places = value_names(stages.optimized), stages.plan.decisions.places
    found: dict[tuple[int, int], tuple[list[int], list[str]]] = {}
    for number, group in enumerate(stages.fused.groups):
        place = places[group]
        groups, values = found.setdefault((place.step, place.nest or 0), ([], []))
        groups.append(number)
        values += [names[value] for value in group.outputs if value in stages.plan.decisions.buffers]
    return {task: (tuple(groups), tuple(values)) for task, (groups, values) in found.items()}


def _call(executable: Executable, program: CpuProgram, state: State, inputs) -> tuple[float, np.ndarray]:
    """The seconds of a call, and the threads' times in nanoseconds from its beginning."""
    start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    executable(state, **inputs)
    end = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return (end - start) / 1e9, program.times - start


def _origin(step: Step, nest: int) -> Origin:
    return step.origins[nest] if step.origins else Origin("copy", ("copy",), "", ())


def _distinct(values) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
