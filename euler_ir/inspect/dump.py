"""A graph at each stage of its way down, as text."""

from __future__ import annotations

from euler_ir.backends.cuda.limits import ARCHITECTURE
from euler_ir.compiler import lower, pipeline_of
from euler_ir.graph import Graph
from euler_ir.inspect.cuda.listing import LEVELS, cuda_text
from euler_ir.inspect.cuda.step_calls import lower_for_cuda
from euler_ir.loops.printer import print_kernels
from euler_ir.passes.fused_printer import print_fused
from euler_ir.plan.kernels import distinct_kernels
from euler_ir.plan.plan import Plan
from euler_ir.text.printer import print_graph
from euler_ir.verify import verify

STAGES = {
    "graph": "the graph as the function built it; reads back",
    "optimized": "the graph after all passes, simplified and decomposed: what fusion sees; reads back",
    "fused": "the groups that become kernels and calls: loops, inputs, outputs, operators of each; reads back",
    "kernels": "the Loop IR of every distinct kernel, with the number of its launches; reads back",
    "plan": "steps in phases, buffers with their places in memory, and the peak",
    "llvm": "the optimised LLVM IR of the step and of its loop nests",
    "asm": "the same as assembly of this machine",
    **LEVELS,
}
"""What ``dump`` can print, from the user's graph downwards; the last three as the backend 'cuda' has it."""

WITH_LOCATIONS = ("graph", "optimized", "fused")
"""The stages whose text can say the user's lines."""


def dump(
    graph: Graph,
    stage: str,
    locations: bool = False,
    passes: str | None = None,
    architecture: str = ARCHITECTURE,
) -> str:
    """The text of ``graph`` at ``stage``, one of STAGES; with ``locations`` each op says the user's line and scope.

    ``passes`` are by default those of the CPU, and of a GPU for the stages 'cuda', 'ptx' and 'sass', which are for
    ``architecture``. Raises VerifyError for a malformed graph, ParseError for a wrong text of passes, LoweringError
    for what has no code and for a tool that is missing, ValueError for an unknown stage or one without locations.
    """
    if stage not in STAGES:
        raise ValueError(f"unknown stage {stage!r}: use one of {', '.join(STAGES)}")
    if locations and stage not in WITH_LOCATIONS:
        raise ValueError(f"stage {stage!r} has no locations: only {', '.join(WITH_LOCATIONS)} have")
    verify(graph)
    if stage == "graph":
        return print_graph(graph, locations)
    if stage in LEVELS:
        return cuda_text(lower_for_cuda(graph, passes).plan, stage, architecture)
    stages = lower(graph, passes or pipeline_of("cpu"))
    match stage:
        case "optimized":
            return print_graph(stages.optimized, locations)
        case "fused":
            return print_fused(stages.fused, locations)
        case "kernels":
            return _distinct_kernels(stages.plan)
        case "plan":
            return str(stages.plan)
    # LLVM is imported where it is used: the stages above need none of it.
    from euler_ir.backends.cpu.program import CpuProgram

    program = CpuProgram(stages.plan)
    return program.llvm_ir() if stage == "llvm" else program.assembly()


def _distinct_kernels(plan: Plan) -> str:
    """Every kernel once: those that differ in nothing but names are one, under the name of the first."""
    kernels = distinct_kernels(plan)
    return print_kernels([each.kernel for each in kernels], [f"launches: {len(each.launches)}" for each in kernels])
