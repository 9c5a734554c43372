"""What the CUDA backend makes of a graph as text: CUDA C++, PTX, and the machine code SASS."""

from __future__ import annotations

from euler_ir.backends.cuda.calls import Source
from euler_ir.backends.cuda.limits import ARCHITECTURE
from euler_ir.backends.cuda.nvrtc import compile_cuda
from euler_ir.backends.cuda.sass import disassemble
from euler_ir.backends.cuda.sources import together
from euler_ir.plan.plan import Plan

LEVELS = {
    "cuda": "the calls of a step on a GPU, and the CUDA C++ of its kernels",
    "ptx": "the same kernels as PTX, made by NVRTC, which needs no GPU",
    "sass": "the same as machine code of a GPU",
}
"""What there is between the plan and a GPU."""


def cuda_text(plan: Plan, level: str, architecture: str = ARCHITECTURE) -> str:
    """All of ``plan``, which comes from the passes for CUDA, at one of LEVELS.

    CUDA C++ begins with the calls of a step, as comments; what several units include is printed in the first of them.
    Raises LoweringError for what has no code or does not compile, and for a tool that is missing.
    """
    from euler_ir.backends.cuda.step import planned_calls

    calls = planned_calls(plan, architecture)
    if level == "cuda":
        comment = "".join(f"// {line}\n" for line in str(calls).splitlines())
        return comment + "\n" + together([source.text for source in calls.sources])
    return "\n".join(compiled_text(source, level, architecture) for source in calls.sources)


def compiled_text(source: Source, level: str, architecture: str) -> str:
    """``source`` at the level 'cuda', 'ptx' or 'sass'. Raises LoweringError as `cuda_text` does."""
    if level == "cuda":
        return source.text
    compiled = compile_cuda(source.text, architecture, source.name)
    if level == "ptx":
        return compiled.ptx
    kernels = disassemble(compiled.cubin)
    return "\n".join(f"// {name}, {architecture}\n{text}" for name, text in kernels.items())
