"""Kernels: the nests of a step side by side in one launch, each with blocks of its own.

Nests that differ in nothing but where their buffers are share a function. The text depends on the nests and the names
of their operators, so equal steps of different layers share a kernel. Kernels of one name differ in nothing but
comments.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from euler_ir.backends.cuda.calls import (
    BufferPointer,
    Calls,
    FaultPointer,
    Launch,
    Pointer,
    ScratchPointer,
    Source,
    Table,
)
from euler_ir.backends.cuda.codegen.indexing import counter_type
from euler_ir.backends.cuda.codegen.mappings import map_nest, spot
from euler_ir.backends.cuda.codegen.stage import THREADS, Mapped, Stage
from euler_ir.backends.cuda.codegen.writer import Writer, c_name
from euler_ir.backends.cuda.sources import unit
from euler_ir.errors import LoweringError
from euler_ir.index import Axis
from euler_ir.loops.kernel import Nest
from euler_ir.plan.plan import KernelStep, Origin

MOST_BLOCKS = 1 << 16
"""Blocks of one nest; where it has more tasks each block does several."""

MOST_POINTERS = 96
"""Arguments of a kernel; where it has more pointers they lie in a table."""

_SCRATCH_ALIGNMENT = 256


@dataclass(frozen=True)
class _Part:
    """Nest ``number`` of a kernel in one of its stages, with what its pointers point to."""

    number: int
    stage: Stage
    pointers: tuple[Pointer, ...]
    origin: Origin

    @property
    def title(self) -> str:
        """What it computes, for readers: of equal nests of several layers the same."""
        return ", ".join(self.origin.operators) or self.origin.name


def kernel_calls(step: KernelStep) -> Calls:
    """The launches of ``step``: one, or as many as the nest of the most stages has; none where it has no points."""
    launches, scratch_bytes = _launches(step)
    return Calls(tuple(_launch(step.kernel.name, parts) for parts in launches), scratch_bytes)


def place_of(step: KernelStep, number: int, point: Mapping[Axis, int]) -> Place | None:
    """Who computes ``point`` of the axes of nest ``number`` of ``step``, and perhaps of loops in it.

    Axes that it does not say are at 0. None where that depends on what is in memory. Raises LoweringError for a nest
    that has no points.
    """
    found = spot(step.kernel.nests[number], step.shared[number], point)
    if found is None:
        return None
    first = 0
    for part in _launches(step)[0][found.stage]:
        blocks = block_count(part.stage)
        if part.number == number:
            return Place(found.stage, first + found.task % blocks, found.thread, found.element)
        first += blocks
    raise LoweringError(f"nest {number} has no points")


@dataclass(frozen=True)
class Place:
    """``thread`` of ``block`` of a step's launch number ``launch``, and which of the points that it computes."""

    launch: int
    block: int
    thread: int
    element: int


def _launches(step: KernelStep) -> tuple[list[list[_Part]], int]:
    """The parts of each launch, those of one structure next to each other; and bytes of scratch memory."""
    launches: list[list[_Part]] = []
    scratch_bytes = 0
    for number, nest in enumerate(step.kernel.nests):
        if nest.points == 0:
            continue
        mapped = _mapped(nest, step.shared[number])
        while len(launches) < len(mapped.stages):
            launches.append([])
        for parts, stage in zip(launches, mapped.stages):
            parts.append(_part(step, number, stage, scratch_bytes))
        scratch_bytes += -(-mapped.scratch_bytes // _SCRATCH_ALIGNMENT) * _SCRATCH_ALIGNMENT
    return [_grouped(parts) for parts in launches], scratch_bytes


def _grouped(parts: list[_Part]) -> list[_Part]:
    place = {part.stage: number for number, part in reversed(list(enumerate(parts)))}
    return sorted(parts, key=lambda part: place[part.stage])


@functools.lru_cache(maxsize=1024)
def _mapped(nest: Nest, in_place: frozenset[int]) -> Mapped:
    return map_nest(nest, in_place)


def _part(step: KernelStep, number: int, stage: Stage, scratch_begin: int) -> _Part:
    pointers: list[Pointer] = []
    for parameter in stage.parameters:
        if isinstance(parameter.argument, ScratchPointer):
            pointers.append(ScratchPointer(scratch_begin + parameter.argument.offset))
        else:
            pointers.append(BufferPointer(step.arguments[number][parameter.argument]))
    if stage.reports_faults:
        pointers.append(FaultPointer(step.faults[number]))
    return _Part(number, stage, tuple(pointers), step.origins[number])


def _launch(name: str, parts: list[_Part]) -> Launch:
    in_table = sum(len(part.pointers) for part in parts) > MOST_POINTERS
    pointers = tuple(pointer for part in parts for pointer in part.pointers)
    source = _source(name, tuple((part.stage, part.title) for part in parts), in_table)
    blocks = sum(block_count(part.stage) for part in parts)
    shared = max(part.stage.shared_bytes for part in parts)
    arguments = (Table(pointers),) if in_table else pointers
    origins = tuple(part.origin for part in parts)
    return Launch(source, source.kernels[0], blocks, THREADS, shared, arguments, origins)


def block_count(stage: Stage) -> int:
    """How many blocks do the tasks of ``stage``."""
    return min(stage.tasks, MOST_BLOCKS)


@functools.lru_cache(maxsize=256)
def _source(name: str, stages: tuple[tuple[Stage, str], ...], in_table: bool) -> Source:
    body = _Kernel(stages, in_table).text()
    code = "\n".join(line for line in body.splitlines() if not line.startswith("//"))
    kernel = f"{c_name(name)}_{hashlib.sha256(code.encode()).hexdigest()[:8]}"
    needs = sorted(set().union(*(stage.needs for stage, _ in stages)))
    return Source(name, unit(name, ("target.cuh", "prelude.cuh", *needs), body.replace("@kernel", kernel)), (kernel,))


class _Kernel(Writer):
    """Writes a function for each distinct stage, below its title, and the kernel that calls one in each block."""

    def __init__(self, stages: tuple[tuple[Stage, str], ...], in_table: bool) -> None:
        super().__init__()
        self._stages = [stage for stage, _ in stages]
        self._titles = dict(reversed(stages))
        self._in_table = in_table
        self._functions: dict[Stage, str] = {}

    def text(self) -> str:
        """The functions, and the kernel under the name ``@kernel``."""
        for stage in self._stages:
            if stage not in self._functions:
                self._functions[stage] = f"nest_{len(self._functions)}"
                self._function(stage)
        self._kernel()
        return "\n".join(self.lines) + "\n"

    def _function(self, stage: Stage) -> None:
        parameters = [f"{counter_type(stage.tasks)} task"]
        parameters += [f"{kind} {name}" for kind, name in _pointers(stage)]
        parameters += ["unsigned char* shared"] if stage.shared_bytes else []
        self.comment(self._titles[stage])
        self.list(f"static __device__ void {self._functions[stage]}(", parameters, ") {")
        self.lines.extend(stage.body)
        self.line("}")
        self.line("")

    def _kernel(self) -> None:
        parameters = ["void* const* __restrict__ pointers"]
        if not self._in_table:
            listed = [(kind, name, n) for n, stage in enumerate(self._stages) for kind, name in _pointers(stage)]
            parameters = [f"{kind} {self._argument(name, number)}" for kind, name, number in listed]
        self.list(f'extern "C" __global__ void __launch_bounds__({THREADS}) @kernel(', parameters, ") {")
        with self.indented():
            if any(stage.shared_bytes for stage in self._stages):
                self.line("EIR_DYNAMIC_SHARED(shared);")
            self._pick()
        self.line("}")

    def _argument(self, name: str, number: int) -> str:
        """The argument of the kernel for a pointer of stage ``number``."""
        return name if len(self._stages) == 1 else f"{name}_{number}"

    def _runs(self) -> list[tuple[int, int]]:
        """The number of a stage and how many like it follow each other: one, unless their pointers lie in a table."""
        runs: list[tuple[int, int]] = []
        for number, stage in enumerate(self._stages):
            if self._in_table and runs and self._stages[runs[-1][0]] == stage:
                runs[-1] = runs[-1][0], runs[-1][1] + 1
            else:
                runs.append((number, 1))
        return runs

    def _pick(self) -> None:
        """Each run has its range of blocks."""
        runs = self._runs()
        block = pointer = 0
        for place, (number, count) in enumerate(runs):
            stage = self._stages[number]
            end = block + count * block_count(stage)
            if len(runs) > 1:
                test = f"if (blockIdx.x < {end}) " if place < len(runs) - 1 else ""
                self.line(f"{'} else ' if place else ''}{test}{{")
            with self.indented(len(runs) > 1):
                self._call(number, count, block, pointer)
            block, pointer = end, pointer + count * len(_pointers(stage))
        if len(runs) > 1:
            self.line("}")

    def _call(self, number: int, count: int, first_block: int, first_pointer: int) -> None:
        stage = self._stages[number]
        blocks, pointers = block_count(stage), _pointers(stage)
        block = f"int(blockIdx.x) - {first_block}" if first_block else "int(blockIdx.x)"
        arguments = [self._argument(name, number) for _, name in pointers]
        if self._in_table:
            self.comment(f"{count} nests of {blocks} blocks each")
            self.line(f"const int block = {block};")
            self.line(f"void* const* own = pointers + {first_pointer} + block / {blocks} * {len(pointers)};")
            block = f"block % {blocks}"
            kinds = [kind.removesuffix(" __restrict__") for kind, _ in pointers]
            arguments = [f"({kind})own[{position}]" for position, kind in enumerate(kinds)]
        arguments += ["shared"] if stage.shared_bytes else []
        function = self._functions[stage]
        if stage.tasks > blocks:
            kind = counter_type(stage.tasks)
            with self.block(f"for ({kind} task = {block}; task < {stage.tasks}; task += {blocks})"):
                self.list(f"{function}(", ["task", *arguments], ");")
        else:
            self.list(f"{function}(", [block, *arguments], ");")


def _pointers(stage: Stage) -> list[tuple[str, str]]:
    """Types and names of what a function for ``stage`` takes beside the number of its task."""
    own = [(parameter.type, parameter.name) for parameter in stage.parameters]
    return own + [("int*", "faults")] * stage.reports_faults
