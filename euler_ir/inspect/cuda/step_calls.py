"""A graph as the CUDA backend sees it: its plan, and what is called for each step of it."""

from __future__ import annotations

from dataclasses import dataclass

from euler_ir.backends.cuda.calls import Calls
from euler_ir.backends.cuda.limits import ARCHITECTURE
from euler_ir.compiler import Stages, lower, pipeline_of
from euler_ir.graph import Graph
from euler_ir.plan.plan import Plan, Step
from euler_ir.verify import verify


@dataclass(frozen=True)
class StepCalls:
    """What is called for ``step``, the plan's step ``number``, in ``phase``."""

    phase: int
    number: int
    step: Step
    calls: Calls


def lower_for_cuda(graph: Graph, passes: str | None = None) -> Stages:
    """``graph`` at every level down to the plan that the CUDA backend runs, by its own passes unless others are given.

    Raises VerifyError, ParseError for a wrong text of passes, and LoweringError.
    """
    verify(graph)
    return lower(graph, passes or pipeline_of("cuda"))


def step_calls(plan: Plan, architecture: str = ARCHITECTURE) -> list[StepCalls]:
    """The calls of each step of ``plan``, in order. Raises LoweringError for what has no code."""
    from euler_ir.backends.cuda.gemm import ProductOptions
    from euler_ir.backends.cuda.step import calls_of

    found: list[StepCalls] = []
    for phase, steps in enumerate(plan.phases):
        for step in steps:
            found.append(StepCalls(phase, len(found), step, calls_of(step, plan, architecture, ProductOptions())))
    return found
