"""A program of any level, run once: on what it is given, and on what is drawn for the rest."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from euler_ir import compiler, interpreter
from euler_ir.compiler import Executable, compile, compile_fused, new_program
from euler_ir.dtypes import as_dtype
from euler_ir.errors import ExecutionError, did_you_mean
from euler_ir.graph import Graph
from euler_ir.inspect.program_file import Program, level_of
from euler_ir.inspect.random_inputs import random_inputs, random_kernel_inputs
from euler_ir.loops.kernel import Kernel, Loop, Statement
from euler_ir.passes.groups import FusedGraph
from euler_ir.plan.footprint import readable
from euler_ir.plan.kernels import plan_of_kernels
from euler_ir.plan.plan import PlannedBuffer
from euler_ir.shapes import TensorType
from euler_ir.state import State, check_array

BACKENDS = ("interpreter", *compiler.BACKENDS)
SHOWN = 4
"""Elements of a result that are shown."""

_AT_ONCE = 1 << 20
"""Elements of a result that are looked at together."""
MOST_ITERATIONS = 10**13
"""Runs of loops that a kernel may ask for: a day of one core, if each took 10 ns."""

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Result:
    """An array that a run gave: ``role`` is 'output', or 'update' of a parameter, a state or a buffer."""

    name: str
    role: str
    array: np.ndarray

    @property
    def type(self) -> TensorType:
        return TensorType(as_dtype(self.array.dtype), self.array.shape)

    def record(self) -> dict:
        """What is said of it: extremes and mean are of what is no NaN, None where nothing is; ``first`` elements.

        Infinities and NaN are words, which JSON has no numbers for.
        """
        flat, valid, low, high, total = self.array.reshape(-1), 0, math.inf, -math.inf, 0.0
        for start in range(0, flat.size, _AT_ONCE):
            numbers = flat[start : start + _AT_ONCE].astype(np.float64)
            numbers = numbers[~np.isnan(numbers)]
            with np.errstate(all="ignore"):
                valid, total = valid + numbers.size, total + float(numbers.sum())
            low, high = numbers.min(initial=low), numbers.max(initial=high)
        extremes = (float(low), float(high), total / valid) if valid else (None,) * 3
        low, high, mean = (None if number is None else _said(number) for number in extremes)
        return {
            "name": self.name,
            "role": self.role,
            "type": str(self.type),
            "min": low,
            "max": high,
            "mean": mean,
            "nan": flat.size - valid,
            "first": [_said(number) for number in flat[:SHOWN].tolist()],
        }


@dataclass(frozen=True)
class Run:
    """A run of ``program`` on ``backend``: what was ``drawn`` from the seed, which state was ``begun``, which arrays of
    the state's file nothing read (``unused``), and what came out.
    """

    program: Program
    backend: str
    seed: int
    drawn: tuple[str, ...]
    begun: tuple[str, ...]
    unused: tuple[str, ...]
    results: tuple[Result, ...]

    @property
    def level(self) -> str:
        return level_of(self.program)

    @property
    def name(self) -> str:
        if isinstance(self.program, tuple):
            return ", ".join(kernel.name for kernel in self.program)
        return graph_of(self.program).name

    def arrays(self) -> dict[str, np.ndarray]:
        """The results by name; an output that bears the name of an update is called ``output.NAME``."""
        updates = {result.name for result in self.results if result.role == "update"}
        return {
            f"output.{result.name}" if result.role == "output" and result.name in updates else result.name: result.array
            for result in self.results
        }

    def record(self) -> dict:
        return {
            "level": self.level,
            "name": self.name,
            "backend": self.backend,
            "seed": self.seed,
            "drawn": list(self.drawn),
            "begun": list(self.begun),
            "unused": list(self.unused),
            "results": [result.record() for result in self.results],
        }


def run_program(
    program: Program,
    backend: str = "interpreter",
    inputs: Arrays | None = None,
    state: Arrays | None = None,
    seed: int = 0,
    threads: int | None = None,
    kernels: Mapping[str, Kernel | str] | None = None,
) -> Run:
    """Run ``program`` once on ``inputs`` and ``state``; what is missing is drawn, or begun, by ``seed``. Among the
    ``inputs`` there may be parameters and state too.

    'interpreter' is the meaning of the level: a graph op by op, kernels by the interpreter of the Loop IR; the others
    are those of `compile`, of which 'cpu' has ``threads`` threads. ``kernels`` replace those of the plan as
    ``Executable.with_kernels`` says. Raises ExecutionError for arrays that do not fit, ValueError for ``kernels`` where
    there is no plan, and what the compiler raises.
    """
    inputs, state, kernels = inputs or {}, state or {}, kernels or {}
    if backend.partition(":")[0] not in BACKENDS:  # what follows a colon is the compiler's to read
        raise ValueError(f"unknown backend {backend!r}: use one of {', '.join(BACKENDS)}")
    if kernels and (backend == "interpreter" or isinstance(program, tuple)):
        raise ValueError("kernels are replaced in a plan: with a graph, on a backend that has one")
    try:
        if isinstance(program, tuple):
            return _run_kernels(program, backend, {**state, **inputs}, seed, threads)
        return _run_graph(program, backend, inputs, state, seed, threads, kernels)
    except MemoryError as error:
        raise ExecutionError("the arrays do not fit into memory", details=(str(error),)) from None


def _run_graph(
    program: Graph | FusedGraph,
    backend: str,
    inputs: Arrays,
    state: Arrays,
    seed: int,
    threads: int | None,
    kernels: Mapping[str, Kernel | str],
) -> Run:
    graph = graph_of(program)
    _expect_memory(sum(leaf.type.nbytes for leaf in (*graph.inputs, *graph.parameters, *graph.states)))
    _check_inputs(graph, inputs)
    kept, begun = begun_state(graph, {**state, **inputs}, seed)
    given = random_inputs(graph, seed) | {name: array for name, array in inputs.items() if name not in kept}
    if backend == "interpreter":
        outputs, updates = interpreter.run(graph, {**given, **kept})
    else:
        executable = compile_any(program, backend, threads)
        executable = executable.with_kernels(kernels) if kernels else executable
        outputs = executable(kept, **given)
        updates = {name: kept[name] for name in graph.updates}
    drawn = tuple(name for name in given if name not in inputs)
    unused = tuple(name for name in state if name not in kept)
    return Run(program, backend, seed, drawn, begun, unused, _results(outputs, updates))


def _said(number: bool | int | float) -> bool | int | float | str:
    return number if math.isfinite(number) else str(number)


def graph_of(program: Graph | FusedGraph) -> Graph:
    return program if isinstance(program, Graph) else program.graph


def compile_any(program: Graph | FusedGraph, backend: str, threads: int | None) -> Executable:
    return (compile if isinstance(program, Graph) else compile_fused)(program, backend, threads)


def _check_inputs(graph: Graph, inputs: Arrays) -> None:
    """Each of ``inputs`` must be an input, parameter or state of ``graph``. Raises ExecutionError."""
    leaves = {leaf.op.attributes["name"]: leaf for leaf in (*graph.inputs, *graph.parameters, *graph.states)}
    for name, array in inputs.items():
        if name not in leaves:
            hint = did_you_mean(name, leaves) or f"it has {', '.join(leaves) or 'none'}"
            raise ExecutionError(f"{graph.name!r} has no input {name!r}", hint=hint)
        check_array(array, leaves[name], name)


def begun_state(graph: Graph, given: Arrays, seed: int) -> tuple[State, tuple[str, ...]]:
    """The parameters and state of ``graph``: those that are given, the others begun by ``seed``, and their names.

    Raises ExecutionError for one of another type.
    """
    leaves = {leaf.op.attributes["name"]: leaf for leaf in (*graph.parameters, *graph.states)}
    state = State()
    for name in (name for name in leaves if name in given):
        check_array(given[name], leaves[name], name)
        state[name] = given[name]
    return state.add(graph, seed), tuple(name for name in leaves if name not in given)


def _run_kernels(kernels: tuple[Kernel, ...], backend: str, given: Arrays, seed: int, threads: int | None) -> Run:
    plan = plan_of_kernels(kernels[0].name, kernels)
    _expect_memory(sum(buffer.type.nbytes for buffer in plan.buffers))
    iterations = sum(nest.points * _iterations(nest.body) for kernel in kernels for nest in kernel.nests)
    if iterations > MOST_ITERATIONS:
        raise ExecutionError(f"the loops run {iterations:,} times, and that would take days")
    named = {buffer.name: buffer for buffer in plan.buffers if buffer.place != "output"}
    for name, array in given.items():
        _check_buffer(name, array, named)
    drawn = random_kernel_inputs(plan, seed)
    arrays = {}
    for number, buffer in enumerate(plan.buffers):
        if buffer.place == "output":
            arrays[number] = np.zeros(buffer.type.shape, buffer.type.dtype.numpy)
        else:
            arrays[number] = np.array(given.get(buffer.name, drawn.get(buffer.name)), order="C")
    # The interpreter of the Loop IR is what the reference backend runs kernels with.
    new_program(plan, "reference" if backend == "interpreter" else backend, threads).run(arrays)
    by_place = {
        place: {buffer.name: arrays[number] for number, buffer in enumerate(plan.buffers) if buffer.place == place}
        for place in ("output", "state")
    }
    missing = tuple(name for name in named if name not in given)
    return Run(kernels, backend, seed, missing, (), (), _results(by_place["output"], by_place["state"]))


def _iterations(body: tuple[Statement, ...]) -> int:
    """How often the innermost statements run for one run of ``body``."""
    loops = [statement for statement in body if isinstance(statement, Loop)]
    return 1 + sum(loop.iterations * _iterations(loop.body) for loop in loops)


def _check_buffer(name: str, array: np.ndarray, buffers: Mapping[str, PlannedBuffer]) -> None:
    if name not in buffers:
        hint = did_you_mean(name, buffers) or f"what is read is {', '.join(buffers) or 'nothing'}"
        raise ExecutionError(f"the kernels read no buffer {name!r}", hint=hint)
    type = buffers[name].type
    if array.shape != type.shape or array.dtype != type.dtype.numpy:
        raise ExecutionError(f"buffer {name!r} is {type}, not {array.dtype}{list(array.shape)}")


def _results(outputs: Arrays, updates: Arrays) -> tuple[Result, ...]:
    return (
        *(Result(name, "output", np.asarray(array)) for name, array in outputs.items()),
        *(Result(name, "update", np.asarray(array)) for name, array in updates.items()),
    )


def _expect_memory(nbytes: int) -> None:
    """Refuse what this machine can never hold, before it is filled with random numbers."""
    held = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if nbytes > held:
        raise ExecutionError(f"the arrays take {readable(nbytes)}, and this machine has {readable(held)} of memory")
