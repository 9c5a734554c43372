"""The least time that each call of a step can take on an H100: bytes by its bandwidth, operations by its peak.

Nothing is measured: no call is faster than that, and products and attention reach a part of their peak. What it shows
is where a step spends what it must, and what bytes and launches it could do without.
"""

from dataclasses import dataclass

from benchmarks.devices import peak_tflops
from euler_ir.inspect.cuda.step_calls import lower_for_cuda, step_calls
from euler_ir.plan.plan import KernelStep
from euler_ir.plan.work import passes_of, traffic_of, work_of

# Of the H100 SXM: https://www.nvidia.com/en-us/data-center/h100/
BYTES_PER_SECOND = 3.35e12
F32_PER_SECOND = 67e12
HALF_PER_SECOND = peak_tflops("H100") * 1e12
LAUNCH_SECONDS = 2e-6
"""Between two calls in a graph, about."""


@dataclass(frozen=True)
class Roof:
    """``steps`` of a plan that are alike make ``calls`` together, move ``least`` bytes or more, ``moved`` when nothing
    stays in a cache between two loops, and do ``flops``. They take ``seconds`` at least, of which bytes are the reason
    if ``by_memory``.
    """

    name: str
    steps: int
    calls: int
    moved: int
    least: int
    flops: int
    seconds: float
    by_memory: bool


def roofs(plan, architecture="sm_90"):
    """A Roof for each kind of step of ``plan``, that of most time first; those of no calls have none."""
    kinds = {}
    for each in step_calls(plan, architecture):
        if each.calls.calls:
            kinds.setdefault(_kind(plan, each), []).append(each)
    return sorted((_roof(plan, name, alike) for (name, _), alike in kinds.items()), key=lambda roof: -roof.seconds)


def _nests(step):
    return range(len(step.kernel.nests)) if isinstance(step, KernelStep) else (0,)


def _kind(plan, each):
    works = [work_of(plan, each.step, nest) for nest in _nests(each.step)]
    names = list(dict.fromkeys(work.name for work in works))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more, tuple(work.structure for work in works)


def _roof(plan, name, alike):
    tasks = [(each.step, nest) for each in alike for nest in _nests(each.step)]
    moved = sum(passes_of(plan, *task) for task in tasks)
    least = sum(traffic_of(plan, *task).moved for task in tasks)
    flops = sum(work_of(plan, *task).flops for task in tasks)
    step = alike[0].step
    is_half = not isinstance(step, KernelStep) and getattr(step, "dtype", None) is not None and step.dtype.is_half
    by_bytes, by_flops = least / BYTES_PER_SECOND, flops / (HALF_PER_SECOND if is_half else F32_PER_SECOND)
    calls = sum(len(each.calls.calls) for each in alike)
    return Roof(name, len(alike), calls, moved, least, flops, max(by_bytes, by_flops), by_bytes > by_flops)


def check_models(models):
    """A record for each model of ``models``, by name, with its roofs."""
    return [
        {"model": name, "roofs": [vars(roof) for roof in roofs(lower_for_cuda(model.build(), model.passes).plan)]}
        for name, model in models.items()
    ]
