"""What the CUDA backend makes of a graph as text: CUDA C++, PTX, and the machine code SASS."""

from __future__ import annotations

import re
import textwrap

from euler_ir.backends.cuda.calls import Launch, Source
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
    if level != "cuda":
        return "\n".join(compiled_text(source, level, architecture) for source in calls.sources)
    first = {launch.source.code: launch for launch in reversed(list(calls.launches()))}
    units = [_with_names(first[source.code], plan) for source in calls.sources]
    return "".join(f"// {line}\n" for line in str(calls).splitlines()) + "\n" + together(units)


def compiled_text(source: Source, level: str, architecture: str) -> str:
    """``source`` at the level 'cuda', 'ptx' or 'sass'. Raises LoweringError as `cuda_text` does."""
    if level == "cuda":
        return source.text
    compiled = compile_cuda(source.text, architecture, source.name)
    if level == "ptx":
        return compiled.ptx
    kernels = disassemble(compiled.cubin)
    return "\n".join(f"// {name}, {architecture}\n{text}" for name, text in kernels.items())


_POINTER = re.compile(r"EIR_VIEW\([^,]+, (\w+)\)|\*\s*(?:__restrict__ )?(\w+)(?=,|$)")


def _with_names(launch: Launch, plan: Plan) -> str:
    """The source of ``launch``, after a comment that says which tensor each pointer of the kernel is here."""
    from euler_ir.backends.cuda.step import pointer_text

    parameters = re.search(rf"\b{launch.kernel}\(([^;{{]*)\) \{{", launch.source.text)
    names = ["".join(pair) for pair in _POINTER.findall(parameters[1].strip())]
    tensors = [pointer_text(pointer, plan) for pointer in launch.pointers()]
    said = ", ".join(f"{name} = {tensor}" for name, tensor in zip(names, tensors))
    if len(names) != len(tensors):
        said = f"a table of {len(tensors)} pointers"
    lines = textwrap.wrap(f"{launch.kernel} is launched first with {said}", 116, subsequent_indent="    ")
    return "".join(f"// {line}\n" for line in lines) + launch.source.text
