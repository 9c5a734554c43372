"""The groups, steps, kernels and buffers of a compiled graph, numbered and tied to each other and to values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from euler_ir.compiler import Stages
from euler_ir.graph import Value
from euler_ir.inspect.profile import Profile
from euler_ir.loops.printer import print_nest
from euler_ir.passes.groups import Group
from euler_ir.plan.plan import AttentionStep, CopyStep, KernelStep, MadeOperand, MatmulStep, Plan, Step
from euler_ir.plan.work import Traffic, Work, traffic_of, work_of

KINDS = {KernelStep: "kernel", MatmulStep: "product", AttentionStep: "attention", CopyStep: "copy"}


@dataclass(frozen=True)
class Task:
    """A nest of a kernel, or all of another step: what is counted and timed as one.

    ``seconds`` is the mean over the threads, which adds up, and ``slowest`` is that of the slowest thread; both are
    None where nothing was measured.
    """

    step: int
    nest: int
    work: Work
    traffic: Traffic
    groups: tuple[Group, ...]
    seconds: float | None = None
    slowest: float | None = None


@dataclass
class RunningKernel:
    """Tasks that run the same code, which is that of the task number ``nest`` of ``example``."""

    name: str
    kind: str
    loops: str
    example: Step
    nest: int
    tasks: list[Task] = field(default_factory=list)

    def record(self, groups: Mapping[Group, int]) -> dict:
        work = self.tasks[0].work
        timed = [task for task in self.tasks if task.seconds is not None]
        return {
            "name": self.name,
            "kind": self.kind,
            "launches": len(self.tasks),
            "read": work.read_bytes,
            "written": work.written_bytes,
            "flops": work.flops,
            "seconds": sum(task.seconds for task in timed) if timed else None,
            "slowest": sum(task.slowest for task in timed) if timed else None,
            "groups": sorted({groups[group] for task in self.tasks for group in task.groups}),
            "steps": sorted({task.step for task in self.tasks}),
        }


class Schedule:
    """What ``stages`` run, task by task, with the times of ``profile`` if there is one."""

    def __init__(self, stages: Stages, profile: Profile | None = None) -> None:
        self.stages = stages
        self.plan: Plan = stages.plan
        self.groups = {group: number for number, group in enumerate(stages.fused.groups)}
        self.tasks = list(self._tasks(profile))
        self.kernels = self._kernels()

    def _tasks(self, profile: Profile | None) -> Iterator[Task]:
        placed: dict[tuple[int, int], list[Group]] = {}
        for group, place in self.plan.decisions.places.items():
            placed.setdefault((place.step, place.nest or 0), []).append(group)
        times = {(time.step, time.nest): time.seconds for time in profile.tasks} if profile is not None else {}
        for number, step in enumerate(self.plan.steps()):
            for nest in range(len(step.kernel.nests) if isinstance(step, KernelStep) else 1):
                seconds = times.get((number, nest))
                measured = () if seconds is None else (float(seconds.mean()), float(seconds.max()))
                groups = tuple(placed.get((number, nest), ()))
                work, traffic = work_of(self.plan, step, nest), traffic_of(self.plan, step, nest)
                yield Task(number, nest, work, traffic, groups, *measured)

    def _kernels(self) -> list[RunningKernel]:
        found: dict[str, RunningKernel] = {}
        steps = list(self.plan.steps())
        for task in self.tasks:
            step, structure = steps[task.step], task.work.structure
            if structure not in found:
                loops = loops_text(step, task.nest)
                found[structure] = RunningKernel(task.work.name, KINDS[type(step)], loops, step, task.nest)
            found[structure].tasks.append(task)
        return list(found.values())

    def record(self, numbers: Mapping[Value, int]) -> dict:
        """All of it with values as ``numbers`` has them."""
        return {
            "groups": [self._group(group, numbers) for group in self.groups],
            "steps": self._steps(),
            "kernels": [kernel.record(self.groups) for kernel in self.kernels],
            "buffers": self._buffers(numbers),
        }

    def _group(self, group: Group, numbers: Mapping[Value, int]) -> dict:
        place = self.plan.decisions.places[group]
        return {
            "name": group.name,
            "kind": group.kind,
            "frame": list(group.frame),
            "reduced": list(group.reduced or ()),
            "computes": sorted(numbers[value] for op in group.computed() for value in op.results),
            "reads": [numbers[value] for value in group.inputs],
            "writes": [numbers[value] for value in group.outputs],
            "inside": None if place.inside is None else numbers[place.inside],
        }

    def _steps(self) -> list[dict]:
        groups: dict[int, list[int]] = {}
        for task in self.tasks:
            groups.setdefault(task.step, []).extend(self.groups[group] for group in task.groups)
        phases = (number for number, phase in enumerate(self.plan.phases) for _ in phase)
        return [
            {"name": _step_name(step, self.plan), "kind": KINDS[type(step)], "phase": phase, "groups": groups[number]}
            for number, (phase, step) in enumerate(zip(phases, self.plan.steps()))
        ]

    def _buffers(self, numbers: Mapping[Value, int]) -> list[dict]:
        held: dict[int, list[int]] = {}
        for value, buffer in self.plan.decisions.buffers.items():
            held.setdefault(buffer, []).append(numbers[value])
        return [
            {
                "name": buffer.name,
                "type": str(buffer.type),
                "bytes": buffer.type.nbytes,
                "place": buffer.place,
                "offset": buffer.offset,
                "first": buffer.first,
                "last": buffer.last,
                "values": sorted(held.get(number, ())),
            }
            for number, buffer in enumerate(self.plan.buffers)
        ]


def _step_name(step: Step, plan: Plan) -> str:
    return step.kernel.name if isinstance(step, KernelStep) else work_of(plan, step).name


def loops_text(step: Step, nest: int) -> str:
    """The Loop IR of a task: of a nest, or of what runs inside of a product; empty for what has no loops of its own."""
    if isinstance(step, KernelStep):
        return print_nest(step.kernel.nests[nest])
    if not isinstance(step, MatmulStep):
        return ""
    sides = (("left", step.left), ("right", step.right))
    made = [(side, operand.nest) for side, operand in sides if isinstance(operand, MadeOperand)]
    parts = [(f"makes its {side} operand", inside) for side, inside in made]
    if step.epilogue is not None:
        parts.append(("runs on its result", step.epilogue.kernel.nests[0]))
    return "\n".join(f"// {what}, part by part\n{print_nest(inside)}" for what, inside in parts)
