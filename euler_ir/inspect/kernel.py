"""Single kernels of a program: listed, shown at each level below, and replaced by edited ones."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import ml_dtypes
import numpy as np

from euler_ir.backends.cuda.limits import ARCHITECTURE
from euler_ir.compiler import Executable, lower, lower_fused
from euler_ir.dtypes import as_dtype
from euler_ir.graph import Graph
from euler_ir.inspect.cuda.listing import LEVELS, compiled_text
from euler_ir.inspect.cuda.step_calls import lower_for_cuda
from euler_ir.inspect.program_file import Program
from euler_ir.inspect.random_inputs import random_inputs
from euler_ir.inspect.run import compile_any, graph_of
from euler_ir.inspect.user_graph import UserGraphError, text_of
from euler_ir.loops.kernel import Kernel
from euler_ir.loops.parser import parse_kernel
from euler_ir.loops.printer import print_kernel
from euler_ir.passes.groups import FusedGraph
from euler_ir.plan.kernels import DistinctKernel, distinct_kernels, find_kernel, plan_of_kernels
from euler_ir.plan.plan import Plan
from euler_ir.state import State, initial_state
from euler_ir.verify import verify

EMIT = {
    "loops": "the Loop IR, as a file that reads back",
    "llvm": "the LLVM IR of its nests, a function each",
    "asm": "their assembly on this machine",
    "cuda": "the CUDA C++ of its launches, complete, as the plan for the backend cuda has it",
    "ptx": "the same as PTX",
    "sass": "the same as machine code of a GPU",
}
"""The levels at which a kernel is shown."""

MIN_CALLS, MAX_CALLS, MAX_SECONDS = 3, 30, 2.0
"""How often a substituted step is timed: until either maximum is reached."""


@dataclass(frozen=True)
class Difference:
    """How a result with other kernels differs: ``largest`` is the largest distance, ``scale`` the largest magnitude.

    ``agrees`` says whether rounding may explain it: the same places are NaN or infinite, and elsewhere the distance is
    at most the square root of the type's rounding unit, times the scale; integers and truth values are equal.
    """

    name: str
    role: str
    same_bits: bool
    largest: float
    scale: float
    agrees: bool


@dataclass(frozen=True)
class Comparison:
    """A step beside itself with other kernels: its results after one call, and the median seconds of a call."""

    differences: tuple[Difference, ...]
    seconds: float
    substituted_seconds: float

    @property
    def agrees(self) -> bool:
        return all(each.agrees for each in self.differences)

    def record(self) -> dict:
        return {
            "agrees": self.agrees,
            "seconds": self.seconds,
            "substituted_seconds": self.substituted_seconds,
            "results": [asdict(each) for each in self.differences],
        }


def plan_of(program: Program, emit: str = "loops") -> Plan:
    """The plan in which the kernels of ``program`` are launched, that for GPUs where ``emit`` is a level of theirs.

    Raises VerifyError and LoweringError.
    """
    if isinstance(program, tuple):
        return plan_of_kernels(program[0].name, program)
    if isinstance(program, FusedGraph):
        return lower_fused(program).plan
    if emit in LEVELS:
        return lower_for_cuda(program).plan
    verify(program)
    return lower(program).plan


def kernel_list(program: Program, emit: str = "loops") -> list[DistinctKernel]:
    """Every kernel of `plan_of` that differs from the others in more than names, with its launches."""
    return distinct_kernels(plan_of(program, emit))


def kernel_text(program: Program, wanted: str, emit: str, architecture: str = ARCHITECTURE) -> str:
    """The kernel called ``wanted``, a name or number, at the level ``emit`` of EMIT, on ``architecture`` where it is of
    a GPU.

    Raises LoweringError when there is none, ValueError for an unknown level.
    """
    if emit not in EMIT:
        raise ValueError(f"unknown level {emit!r}: use one of {', '.join(EMIT)}")
    found = find_kernel(plan_of(program, emit), wanted)
    if emit == "loops":
        return print_kernel(found.kernel)
    if emit in LEVELS:
        from euler_ir.backends.cuda.codegen import kernel_calls

        launches = kernel_calls(found.launches[0]).calls
        return "\n".join(compiled_text(launch.source, emit, architecture) for launch in launches)
    # LLVM is imported where it is used.
    from euler_ir.backends.cpu.jit import assembly, optimized_ir
    from euler_ir.backends.cpu.kernel_code import kernel_modules

    show = optimized_ir if emit == "llvm" else assembly
    return "\n".join(map(show, kernel_modules(found.launches).values()))


def read_substitutes(arguments: Sequence[str]) -> dict[str, Kernel | str]:
    """What each ``K=FILE`` says, by K: the kernel of a file of Loop IR, or LLVM IR or CUDA C++ as text.

    Raises UserGraphError for what is not of that form, ParseError for wrong Loop IR.
    """
    kernels: dict[str, Kernel | str] = {}
    for argument in arguments:
        name, _, file = argument.partition("=")
        if not name or not file:
            raise UserGraphError(f"{argument!r} is not K=FILE, such as sum=sum.eir")
        if name in kernels:
            raise UserGraphError(f"kernel {name!r} is given twice")
        text = text_of(file)
        kernels[name] = text if file.endswith((".ll", ".cu")) else parse_kernel(text, file)
    return kernels


def compare_substituted(
    program: Graph | FusedGraph, kernels: Mapping[str, Kernel | str], seed: int = 0, threads: int | None = None
) -> Comparison:
    """A step of ``program`` on random inputs, beside the same with ``kernels`` replaced, on 'cpu'.

    Raises what compiling raises, and LoweringError as ``Executable.with_kernels`` does.
    """
    graph = graph_of(program)
    plain = compile_any(program, "cpu", threads)
    other = plain.with_kernels(kernels)
    inputs, state = random_inputs(graph, seed), initial_state(graph, seed=seed)
    wanted, got = (_results(each, state.copy(), inputs) for each in (plain, other))
    differences = tuple(_difference(*key, wanted[key], got[key]) for key in wanted)
    seconds = [_seconds(each, state.copy(), inputs) for each in (plain, other)]
    return Comparison(differences, *seconds)


def _results(executable: Executable, state: State, inputs: Mapping[str, np.ndarray]) -> dict:
    outputs = executable(state, **inputs)
    results = {(name, "output"): array for name, array in outputs.items()}
    return results | {(name, "update"): state[name] for name in executable.graph.updates}


def _difference(name: str, role: str, wanted: np.ndarray, got: np.ndarray) -> Difference:
    same_bits = wanted.tobytes() == got.tobytes()
    dtype = as_dtype(wanted.dtype)
    with np.errstate(all="ignore"):
        one, two = wanted.astype(np.float64), got.astype(np.float64)
        finite = np.isfinite(one) & np.isfinite(two)
        same_elsewhere = bool(np.all(finite | (one == two) | (np.isnan(one) & np.isnan(two))))
        largest = float(np.max(np.abs(one - two), where=finite, initial=0.0))
        scale = float(np.max(np.abs(one), where=np.isfinite(one), initial=0.0))
    allowed = scale * (float(ml_dtypes.finfo(dtype.numpy).eps) / 2) ** 0.5 if dtype.is_float else 0.0
    return Difference(name, role, same_bits, largest, scale, same_bits or (same_elsewhere and largest <= allowed))


def _seconds(executable: Executable, state: State, inputs: Mapping[str, np.ndarray]) -> float:
    """The median of some calls, after one that warms up."""
    executable(state, **inputs)
    taken: list[float] = []
    while len(taken) < MIN_CALLS or (len(taken) < MAX_CALLS and sum(taken) < MAX_SECONDS):
        start = time.perf_counter()
        executable(state, **inputs)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)
