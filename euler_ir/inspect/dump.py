"""A graph at each stage of its way down, as text."""

from __future__ import annotations

from euler_ir.compiler import lower
from euler_ir.graph import Graph
from euler_ir.loops.printer import structural_key
from euler_ir.passes.fused_printer import print_fused
from euler_ir.plan.plan import Plan
from euler_ir.text.printer import print_graph
from euler_ir.verify import verify

STAGES = {
    "graph": "the graph as the function built it; reads back",
    "grad": "the graph after all passes, gradients simplified and composites decomposed: what fusion sees; reads back",
    "fused": "the groups that become kernels and library calls: loops, inputs, outputs and the operators of each",
    "kernels": "the Loop IR of every distinct kernel, with the number of its launches",
    "plan": "steps in phases, buffers with their places in memory, and the peak",
    "llvm": "the optimised LLVM IR of the step and of its loop nests",
    "asm": "the same as assembly of this machine",
}
"""What ``dump`` can print, from the user's graph downwards."""

WITH_LOCATIONS = ("graph", "grad", "fused")
"""The stages whose text can say the user's lines."""


def dump(graph: Graph, stage: str, locations: bool = False) -> str:
    """The text of ``graph`` at ``stage``, one of STAGES; with ``locations`` each op says the user's line and scope.

    Raises VerifyError for a malformed graph, LoweringError for what has no code, ValueError for an unknown stage or
    one that has no locations.
    """
    if stage not in STAGES:
        raise ValueError(f"unknown stage {stage!r}: use one of {', '.join(STAGES)}")
    if locations and stage not in WITH_LOCATIONS:
        raise ValueError(f"stage {stage!r} has no locations: only {', '.join(WITH_LOCATIONS)} have")
    verify(graph)
    if stage == "graph":
        return print_graph(graph, locations)
    stages = lower(graph)
    match stage:
        case "grad":
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
    """Every kernel once; those that differ in nothing but names are one, printed under the name of the first."""
    launches = {}
    for step in plan.kernels():
        key = tuple(structural_key(nest) for nest in step.kernel.nests)
        launches.setdefault(key, []).append(step.kernel)
    return "\n".join(f"// launches: {len(kernels)}\n{kernels[0]}" for kernels in launches.values())
