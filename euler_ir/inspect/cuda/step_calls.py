"""The calls of a step on a GPU and the sources behind them: what is launched, on how many blocks, with which buffers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from euler_ir.backends.cuda.calls import (
    BufferPointer,
    Calls,
    Copy,
    FaultPointer,
    Fill,
    Launch,
    Number,
    ScratchPointer,
    Source,
    Table,
)
from euler_ir.compiler import Stages, lower, pipeline_of
from euler_ir.graph import Graph
from euler_ir.plan.plan import Plan, Step
from euler_ir.verify import verify

ARCHITECTURE = "sm_90"
"""What is compiled for where nothing else is said: H100 and H200."""


@dataclass(frozen=True)
class StepCalls:
    """What is called for ``step``, the plan's step ``number``, in ``phase``."""

    phase: int
    number: int
    step: Step
    calls: Calls


def lower_for_cuda(graph: Graph) -> Stages:
    """``graph`` at every level down to the plan that the CUDA backend runs. Raises VerifyError and LoweringError."""
    verify(graph)
    return lower(graph, pipeline_of("cuda"))


def step_calls(plan: Plan, architecture: str = ARCHITECTURE) -> list[StepCalls]:
    """The calls of each step of ``plan``, in order. Raises LoweringError for what has no code."""
    from euler_ir.backends.cuda.step import calls_of

    found = []
    for phase, steps in enumerate(plan.phases):
        for step in steps:
            found.append(StepCalls(phase, len(found), step, calls_of(step, plan, architecture)))
    return found


def sources(calls: Iterable[StepCalls]) -> list[Source]:
    """Every source of ``calls`` once, in the order of the first launches."""
    launches = (call for each in calls for call in each.calls.calls if isinstance(call, Launch))
    return list({launch.source.text: launch.source for launch in launches}.values())


def call_text(plan: Plan, call: object) -> str:
    """One call as CUDA would write it, with the buffers by their names in ``plan``."""
    match call:
        case Launch(_, kernel, blocks, threads, shared, arguments):
            given = ", ".join(_argument(plan, argument) for argument in arguments)
            return f"{kernel}<<<{blocks}, {threads}{f', {shared}' if shared else ''}>>>({given})"
        case Copy(target, source, nbytes):
            return f"cudaMemcpyAsync({_argument(plan, target)}, {_argument(plan, source)}, {nbytes})"
        case Fill(target, nbytes, byte):
            return f"cudaMemsetAsync({_argument(plan, target)}, {byte}, {nbytes})"
    return str(call)


def _argument(plan: Plan, argument: object) -> str:
    match argument:
        case BufferPointer(number, offset):
            return plan.buffers[number].name + (f" + {offset} bytes" if offset else "")
        case ScratchPointer(offset):
            return "scratch" + (f" + {offset} bytes" if offset else "")
        case FaultPointer(number):
            return f"fault {number}"
        case Table(pointers):
            return f"{{{', '.join(_argument(plan, pointer) for pointer in pointers)}}}"
        case Number(_, value):
            return repr(value)
    return repr(argument)
