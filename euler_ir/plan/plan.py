"""What a backend runs: steps in phases, buffers with their places, and what to say when an index is out of range."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from euler_ir.dtypes import DType
from euler_ir.errors import Location
from euler_ir.loops.kernel import Kernel, Nest
from euler_ir.ops import OPS
from euler_ir.shapes import TensorType

if TYPE_CHECKING:
    from euler_ir.plan.decisions import Decisions

PLACES = ("input", "parameter", "state", "constant", "output", "arena")


@dataclass(frozen=True)
class PlannedBuffer:
    """A tensor in memory. ``place`` is one of PLACES; an arena buffer lies at ``offset`` bytes and is in use from phase
    ``first`` to phase ``last``, both included. ``name`` is the leaf's or the output's, or a label of the value.
    """

    name: str
    type: TensorType
    place: str
    offset: int = 0
    first: int = 0
    last: int = 0


@dataclass(frozen=True)
class Origin:
    """What a nest or a call computes of the user's model: operators, the module of the last one, and the lines.

    ``name`` is for readers.
    """

    name: str
    operators: tuple[str, ...]
    scope: str
    locations: tuple[Location, ...]


@dataclass(frozen=True)
class KernelStep:
    """Launch ``kernel``: nest n works on the buffers ``arguments[n]``; its fault number 1 is ``faults[n]`` of the plan.

    ``shared[n]`` holds the positions of arguments whose memory another argument of the nest overwrites in place.
    ``origins[n]`` is where nest n comes from.
    """

    kernel: Kernel
    arguments: tuple[tuple[int, ...], ...]
    faults: tuple[int, ...]
    shared: tuple[frozenset[int], ...]
    origins: tuple[Origin, ...]

    def reads(self) -> Iterator[int]:
        for nest, arguments in zip(self.kernel.nests, self.arguments):
            yield from (b for buffer, b in zip(nest.parameters, arguments) if buffer.is_read)

    def writes(self) -> Iterator[int]:
        for nest, arguments in zip(self.kernel.nests, self.arguments):
            yield from (b for buffer, b in zip(nest.parameters, arguments) if buffer.is_written)


@dataclass(frozen=True)
class PlannedView:
    """Matrices inside of ``buffer``: element (r, c) at ``offset + batch steps + r leading + c``, or with ``transposed``
    at ``... + c leading + r``; all counted in elements.
    """

    buffer: int
    offset: int
    batch_strides: tuple[int, ...]
    leading: int
    transposed: bool


@dataclass(frozen=True)
class MadeOperand:
    """An operand that has no buffer: ``nest``, its prologue, makes rows and columns of it when the product packs them.

    The nest has one output, its last parameter, row-major with ``leading`` columns; its other parameters are the
    buffers ``arguments``. The operand is its first rows and columns, as many as the product needs, or with
    ``transposed`` the transpose of those.
    """

    nest: Nest
    arguments: tuple[int, ...]
    leading: int
    transposed: bool
    batch_strides: tuple[int, ...] = ()


@dataclass(frozen=True)
class MatmulStep:
    """``result = left @ right`` for each point of ``batch`` (at most two axes); the result is never transposed.

    An operand may be made on the way: there is no batch then.

    ``epilogue``, a launch of one nest, then changes the result where it lies, and writes whatever else it has as
    outputs. It may run for some rows and columns as soon as these are complete: each of its points reads the result at
    its own place alone. There is no batch then. With ``running``, a buffer in the memory of the result, the product is
    added to what that holds.
    """

    dtype: DType
    batch: tuple[int, ...]
    rows: int
    columns: int
    inner: int
    left: PlannedView | MadeOperand
    right: PlannedView | MadeOperand
    result: PlannedView
    origins: tuple[Origin]
    epilogue: KernelStep | None = None
    running: int | None = None

    def reads(self) -> Iterator[int]:
        for operand in (self.left, self.right):
            yield from operand.arguments if isinstance(operand, MadeOperand) else (operand.buffer,)
        if self.running is not None:
            yield self.running
        if self.epilogue is not None:
            yield from (buffer for buffer in self.epilogue.reads() if buffer != self.result.buffer)

    def writes(self) -> Iterator[int]:
        yield self.result.buffer
        if self.epilogue is not None:
            yield from self.epilogue.writes()


@dataclass(frozen=True)
class AttentionStep:
    """``operator``, 'attention' or 'attention_gradient', at each point of ``batch`` (at most two axes and the group's).

    ``group`` heads of queries share one of keys and values; if there are more than 1, they are the last axis of
    ``batch``, along which views of keys and values have the step 0: their gradients are sums over it.

    ``operands`` and ``results`` are the operator's, in order, none of them transposed: matrices of ``queries`` or
    ``keys`` rows, of ``width`` (values: ``value_width``) columns; vectors of one element for each query, as matrices of
    one column. Matrices are of ``dtype``, vectors of its accumulation type (f32 for half types), and ``visible_from``,
    an optional last operand, of i64.
    """

    operator: str
    dtype: DType
    causal: bool
    scale: float
    batch: tuple[int, ...]
    group: int
    queries: int
    keys: int
    width: int
    value_width: int
    operands: tuple[PlannedView, ...]
    results: tuple[PlannedView, ...]
    origins: tuple[Origin]

    def extents(self) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
        """Rows and columns of each operand and of each result."""
        query, key = (self.queries, self.width), (self.keys, self.width)
        value, output, vector = (self.keys, self.value_width), (self.queries, self.value_width), (self.queries, 1)
        visible_from = (vector,) * self.has_visible_from
        if self.operator == "attention":
            return (query, key, value, *visible_from), (output, vector)
        return (query, key, value, vector, output, vector, *visible_from), (query, key, value)

    @property
    def has_visible_from(self) -> bool:
        return len(self.operands) == len(OPS[self.operator].operand_names)

    @property
    def key_batch(self) -> tuple[int, ...]:
        """``batch`` without the axis of the group."""
        return self.batch[:-1] if self.group > 1 else self.batch

    def reads(self) -> Iterator[int]:
        yield from dict.fromkeys(view.buffer for view in self.operands)

    def writes(self) -> Iterator[int]:
        yield from dict.fromkeys(view.buffer for view in self.results)


@dataclass(frozen=True)
class CopyStep:
    """Copy all of the buffer ``source`` to ``target``."""

    source: int
    target: int
    origins: tuple[Origin, ...] = ()

    def reads(self) -> Iterator[int]:
        yield self.source

    def writes(self) -> Iterator[int]:
        yield self.target


Step = KernelStep | MatmulStep | AttentionStep | CopyStep


@dataclass(frozen=True)
class Fault:
    """What is wrong when an index is outside of ``0 .. extent - 1``, and where the user wrote it."""

    operator: str
    extent: int
    location: Location | None


@dataclass(frozen=True)
class Plan:
    """``phases`` run one after the other; the steps of one phase do not depend on each other.

    ``outputs`` maps each output's name to its buffer. ``constants`` holds the arrays of constant buffers.
    ``arena_bytes`` is the size of the arena and ``lower_bound`` the most bytes of arena buffers alive in one phase.
    ``decisions`` say how it came about; a plan that was not made of a graph has none.
    """

    name: str
    buffers: tuple[PlannedBuffer, ...]
    phases: tuple[tuple[Step, ...], ...]
    outputs: dict[str, int]
    constants: dict[int, np.ndarray]
    faults: tuple[Fault, ...]
    arena_bytes: int
    lower_bound: int
    decisions: Decisions | None = field(default=None, repr=False, compare=False)

    def steps(self) -> Iterator[Step]:
        for phase in self.phases:
            yield from phase

    def kernels(self) -> list[KernelStep]:
        """The kernel launches, in order."""
        return [step for step in self.steps() if isinstance(step, KernelStep)]

    def __str__(self) -> str:
        from euler_ir.plan.printer import print_plan

        return print_plan(self)
