"""The pipeline from a graph to something that runs: passes, fusion, plan, backend."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import NoReturn

import numpy as np

from euler_ir.backends.base import Call, Program
from euler_ir.dtypes import as_dtype, convert
from euler_ir.errors import DTypeError, ExecutionError, GraphError, LoweringError
from euler_ir.graph import Graph, Value
from euler_ir.loops.kernel import Kernel
from euler_ir.passes.fuse import Fuse
from euler_ir.passes.groups import FusedGraph
from euler_ir.passes.instruments import Instrument
from euler_ir.passes.manager import Pass, PassManager
from euler_ir.passes.pipeline import PIPELINE, as_pipeline
from euler_ir.passes.rematerialize import Rematerialize
from euler_ir.passes.verify_fused import verify_fused
from euler_ir.plan.build import build_plan
from euler_ir.plan.footprint import Footprint, footprint, readable
from euler_ir.plan.kernels import with_kernels
from euler_ir.plan.plan import Plan
from euler_ir.state import State
from euler_ir.verify import verify

BACKENDS = ("cpu", "reference", "cuda", "cuda-emulator")
"""What graphs are compiled for; ``cuda:1`` is the second device, and ``cuda`` the first."""

_SMALL = 4096
"""Bytes of an input that are copied sooner than compared with what a call changes."""


@dataclass(frozen=True)
class Stages:
    """A graph at each level on its way down: after the passes, cut into groups, and planned."""

    optimized: Graph
    fused: FusedGraph
    plan: Plan


def lower(
    graph: Graph,
    passes: str | Iterable[Pass] = PIPELINE,
    instruments: Iterable[Instrument] = (),
    memory_budget: int | None = None,
) -> Stages:
    """``graph`` at every level below it, down to the plan: it depends on the passes, and on no backend.

    ``passes``, as text or as passes, must leave primitive operators that fusion knows; the last may be ``fuse`` with
    its options. `pipeline_of` names those for a backend. ``instruments`` watch all passes. Where the plan needs more
    than ``memory_budget`` bytes, values are computed again instead of kept, as little as fits. Raises LoweringError
    when nothing fits.
    """
    *passes, fuse = _ending_in_fusion(as_pipeline(passes))
    with _collector_at_rest():
        optimized = PassManager(passes, instruments).run(graph)
        gc.collect(0)  # the graphs between the passes are cycles, and what follows can use their memory
        stages = _planned(optimized, fuse, instruments)
        if memory_budget is None or footprint(stages.plan).total <= memory_budget:
            return stages
        tried = [stages]
        for each in (Rematerialize(), Rematerialize(products=True), Rematerialize(products=True, long_pieces=True)):
            stages = _planned(PassManager((each,), instruments).run(optimized), fuse, instruments)
            if footprint(stages.plan).total <= memory_budget:
                return stages
            tried.append(stages)
    _raise_over_budget(graph, [footprint(stages.plan) for stages in tried], memory_budget)


def lower_fused(fused: FusedGraph) -> Stages:
    """``fused`` with its plan. Raises VerifyError for groups that break a rule of their level, and LoweringError."""
    verify(fused.graph)
    verify_fused(fused)
    return Stages(fused.graph, fused, build_plan(fused))


def _ending_in_fusion(passes: Sequence[Pass]) -> Sequence[Pass]:
    return passes if passes and passes[-1].level == "fused" else (*passes, Fuse())


def _planned(optimized: Graph, fuse: Pass, instruments: Iterable[Instrument]) -> Stages:
    fused = PassManager((fuse,), instruments).run(optimized)
    return Stages(optimized, fused, build_plan(fused))


def _raise_over_budget(graph: Graph, tried: Sequence[Footprint], budget: int) -> NoReturn:
    least = min(tried, key=lambda needs: needs.total)
    raise LoweringError(
        f"{graph.name!r} needs {readable(least.total)} at least, and the budget is {readable(budget)}",
        details=(f"without a budget it needs {readable(tried[0].total)}", *str(least).splitlines()),
        hint="a smaller batch needs less, since most of it is proportional to the batch",
    )


@contextlib.contextmanager
def _collector_at_rest():
    """Python's cycle collector looks at all live ops again and again while passes make more: it waits."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Executable:
    """A compiled graph. ``executable(state, name=array, ...)`` runs it once and returns its outputs by name."""

    def __init__(self, graph: Graph, stages: Stages, program: Program) -> None:
        self.graph = graph
        self.stages = stages
        self.program = program
        self._inputs = {leaf.op.attributes["name"]: leaf for leaf in graph.inputs}
        self._kept = {leaf.op.attributes["name"]: leaf for leaf in (*graph.parameters, *graph.states)}
        self._numbers = {
            buffer.name: number
            for number, buffer in enumerate(stages.plan.buffers)
            if buffer.place in ("input", "parameter", "state")
        }
        # A State is checked once: its arrays never move nor change type. One tuple, so that threads see all or nothing.
        self._bound: tuple[Callable[[], State | None], Call, list[np.ndarray]] | None = None

    @property
    def plan(self) -> Plan:
        return self.stages.plan

    @property
    def memory(self) -> Footprint:
        """The bytes that a call needs, known before the first one: what is in them, and whose most of them are."""
        return footprint(self.plan, self.program.scratch_bytes)

    def with_kernels(self, kernels: Mapping[str, Kernel | str]) -> Executable:
        """This with other code for kernels of the plan, which are called by name or number (see ``plan.kernels``).

        A Kernel takes the place of another of the same parameters in all of its launches. Text takes that of what the
        backend makes of a kernel: LLVM IR on 'cpu', that of the functions which it defines; CUDA C++ on 'cuda' and
        'cuda-emulator', a whole unit with kernels of the same names. Raises LoweringError for what does not fit there,
        VerifyError for a malformed kernel.
        """
        plan = with_kernels(self.plan, {name: each for name, each in kernels.items() if isinstance(each, Kernel)})
        texts = {name: each for name, each in kernels.items() if not isinstance(each, Kernel)}
        stages = replace(self.stages, plan=plan)
        return Executable(self.graph, stages, self.program.on_plan(plan, texts))

    def __call__(self, state: State | None = None, /, **inputs) -> Mapping[str, np.ndarray]:
        """Run once. Inputs are arrays of the declared shapes, or what numpy makes arrays of without losing anything.

        Outputs are new arrays, which no later call overwrites; updates are written into ``state``. Raises
        ExecutionError for a missing or unknown input, a wrong shape, a dtype that does not convert, or an index out of
        range. After the last, updates may have been written: keep ``state.copy()`` where inputs are not to be trusted.

        On a GPU a call returns before it is done. Reading an output, or an array from ``state``, waits for it. An index
        out of range is reported then, or else by one of the next two calls.

        On 'cpu' a signal is handled before or after a run, never within: once KeyboardInterrupt was raised here,
        ``state`` holds either all updates of the call or none, and works on. 'reference' may stop between two of them.
        Python threads may call one executable, or several, at once. They take turns where these share worker threads,
        but nothing keeps apart calls that update a State and others that read it at the same time: see `State`.
        """
        call, updated = self._bind(state)
        arrays = {}
        unknown = [name for name in inputs if name not in self._inputs]
        if unknown:
            raise ExecutionError(f"{self.graph.name!r} has no input {unknown[0]!r}", hint=self._input_list())
        for name, leaf in self._inputs.items():
            if name not in inputs:
                raise ExecutionError(f"input {name!r} is missing", location=leaf.op.location, hint=self._input_list())
            array = _as_input(name, leaf, inputs[name])
            # What is read must not change while updates are written over it.
            if array is inputs[name] and updated and _may_share_memory(array, updated):
                array = array.copy()
            arrays[self._numbers[name]] = array
        return call(arrays)

    def _bind(self, state: State | None) -> tuple[Call, list[np.ndarray]]:
        """What runs the program on ``state``, and those of its arrays that a run changes."""
        if self._kept and not isinstance(state, State):
            raise ExecutionError(
                f"{self.graph.name!r} has parameters or state, so the first argument is a State, not {state!r}",
                hint="make one with initial_state(graph)",
            )
        bound = self._bound
        if bound is not None and bound[0]() is state:
            return bound[1:]
        kept = {name: state.kept(leaf) for name, leaf in self._kept.items()}
        call = self.program.bind_state({self._numbers[name]: each for name, each in kept.items()})
        updated = [kept[name].array for name in self.graph.updates]
        self._bound = (lambda: None) if state is None else weakref.ref(state), call, updated
        return call, updated

    def _input_list(self) -> str:
        return "its inputs are " + (", ".join(f"{n}: {leaf.type}" for n, leaf in self._inputs.items()) or "none")


def _may_share_memory(array: np.ndarray, others: Sequence[np.ndarray]) -> bool:
    """Whether ``array`` may; of a small one that is taken for granted, since a copy takes less time than a look."""
    return array.nbytes <= _SMALL or any(np.may_share_memory(array, other) for other in others)


def _as_input(name: str, leaf: Value, given) -> np.ndarray:
    """``given`` as a contiguous array of the type of ``leaf``."""
    try:
        if isinstance(given, np.ndarray):
            array = given
            if array.dtype != leaf.dtype.numpy:
                if not np.can_cast(array.dtype, leaf.dtype.numpy, "safe"):
                    raise DTypeError(f"{array.dtype} does not convert to {leaf.dtype} without loss")
                array = array.astype(leaf.dtype.numpy)
        else:
            array = convert(given, leaf.dtype)
    except (DTypeError, TypeError, ValueError) as error:
        reason = error.message if isinstance(error, DTypeError) else error
        raise ExecutionError(
            f"input {name!r} needs {leaf.type}: {reason}", location=leaf.op.location, hint="convert it with astype"
        ) from None
    if array.shape != leaf.shape:
        raise ExecutionError(
            f"input {name!r} needs {leaf.type}, not {as_dtype(array.dtype)}[{', '.join(map(str, array.shape))}]",
            location=leaf.op.location,
        )
    return array if array.flags.c_contiguous else np.array(array, order="C")


def compile(
    graph: Graph,
    backend: str = "cpu",
    threads: int | None = None,
    passes: str | Iterable[Pass] | None = None,
    memory_budget: int | None = None,
    tf32: bool = False,
) -> Executable:
    """Compile ``graph`` for ``backend``: 'cpu' (LLVM), 'cuda' (the first GPU; 'cuda:1' the second), 'reference' (the
    plan run in numpy, slow), or 'cuda-emulator' (the code for GPUs run on the CPU, with checks, slower).

    ``threads`` is the number of worker threads of the CPU backend, by default all cores; results do not depend on it.
    ``passes`` are those to run, in order, as text such as ``"my-pass,default"``, or passes of ``euler_ir.passes``; put
    yours among or before the backend's own, the preset that `pipeline_of` names.
    ``memory_budget`` bounds in bytes what a call needs, but for the threads' scratch memory: parameters, state, inputs,
    outputs, constants, and the arena of intermediate tensors (see ``Executable.memory``). To stay below it values are
    computed a second time instead of kept, which costs time and changes no bit of a result.
    With ``tf32`` a GPU rounds what products of f32 multiply to 10 bits of mantissa, for its tensor cores.
    Raises GraphError for what is no graph, VerifyError for a malformed one, ParseError for a wrong text of passes,
    LoweringError for what has no code or does not fit into the budget or into memory, and ValueError for an unknown
    backend, a wrong number of threads, a budget that is no positive integer, or ``tf32`` for a backend without it.
    """
    if not isinstance(graph, Graph):
        raise GraphError(f"compile needs a Graph, not {graph!r}", hint="call the function that builds it")
    if threads is not None and not _is_count(threads):
        raise ValueError(f"threads is a number of 1 or more, not {threads!r}")
    if memory_budget is not None and not _is_count(memory_budget):
        raise ValueError(f"memory_budget is a number of bytes above 0, not {memory_budget!r}")
    if tf32 and not _kind_of(backend).startswith("cuda"):
        raise ValueError(f"tf32 is for products on a GPU, not for the backend {backend!r}")
    verify(graph)
    passes = pipeline_of(backend) if passes is None else passes
    stages = lower(graph, passes, memory_budget=memory_budget)
    return Executable(graph, stages, new_program(stages.plan, backend, threads, tf32))


def pipeline_of(backend: str) -> str:
    """The preset of passes for ``backend``. Raises ValueError for an unknown one."""
    return "cuda" if _kind_of(backend).startswith("cuda") else "default"


def _kind_of(backend: str) -> str:
    """Which of BACKENDS ``backend`` is, perhaps with the number of a device after it."""
    kind, _, number = backend.partition(":") if isinstance(backend, str) else ("", "", "")
    if kind not in BACKENDS or (":" in backend and not (kind == "cuda" and number.isdecimal())):
        raise ValueError(f"unknown backend {backend!r}: use one of {', '.join(BACKENDS)}, or cuda:1 for a second GPU")
    return kind


def compile_fused(fused: FusedGraph, backend: str = "cpu", threads: int | None = None) -> Executable:
    """Compile a graph that is cut into groups already, such as one that was read from text; else as `compile`.

    Raises what `lower_fused` raises, and ValueError for an unknown backend.
    """
    stages = lower_fused(fused)
    return Executable(fused.graph, stages, new_program(stages.plan, backend, threads))


def _is_count(number) -> bool:
    """Whether ``number`` is an integer of Python's or numpy's, and at least 1."""
    return isinstance(number, Integral) and not isinstance(number, bool) and number >= 1


def new_program(plan: Plan, backend: str, threads: int | None = None, tf32: bool = False) -> Program:
    """``plan`` made ready to run on raw buffers.

    Raises ValueError for an unknown backend, LoweringError for what it has no code, memory or device for.
    """
    # Backends are imported when asked for: `import euler_ir` needs neither LLVM nor CUDA.
    kind = _kind_of(backend)
    if kind == "cpu":
        from euler_ir.backends.cpu.program import CpuProgram

        return CpuProgram(plan, threads)
    if kind == "reference":
        from euler_ir.backends.reference import ReferenceProgram

        return ReferenceProgram(plan)
    from euler_ir.backends.cuda.open_device import open_device
    from euler_ir.backends.cuda.product_choice import product_options
    from euler_ir.backends.cuda.program import CudaProgram

    device = open_device(backend)
    return CudaProgram(plan, device, products=product_options(device, tf32))
