"""Loop IR: a ``Kernel`` is a set of independent ``Nest``s; each is a loop nest over named axes, scalar SSA inside.

A nest runs its body once for each point of its ``axes``, in any order, on any number of threads: points never touch
the same element. Inside, ``Loop``s run in order and may reduce. Buffers are flat; every index is an ``Index`` over the
axes in scope. Scalars have names that are defined once, before they are used; a name defined inside a loop is not
seen outside of it, but for its reductions.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from euler_ir.dtypes import DType
from euler_ir.index import Axis, Condition, Index


@dataclass(frozen=True)
class Buffer:
    """A flat array of ``size`` elements. ``role`` is 'input', 'output' (all of it is written), 'inout' (what is not
    written stays as it was), or 'local' (scratch of one point of the nest, gone with it).
    """

    name: str
    dtype: DType
    size: int
    role: str

    @property
    def is_read(self) -> bool:
        """Whether what was in it before the launch matters."""
        return self.role in ("input", "inout")

    @property
    def is_written(self) -> bool:
        """Whether the launch changes what the others see of it."""
        return self.role in ("output", "inout")


@dataclass(frozen=True)
class Constant:
    """``result`` is ``value``, a Python number that ``dtype`` holds exactly. Equal ones have equal bits."""

    result: str
    dtype: DType
    value: bool | int | float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple:
        return self.result, self.dtype, _bits(self.dtype, self.value)


def _bits(dtype: DType, number: bool | int | float) -> bytes | int:
    """What tells apart numbers of ``dtype``: 0.0 and -0.0 differ, a NaN equals itself, and 1 is 1.0."""
    return struct.pack("<d", number) if dtype.is_float else number


@dataclass(frozen=True)
class IndexValue:
    """``result`` is the value of ``index``, as a number of ``dtype``."""

    result: str
    dtype: DType
    index: Index


@dataclass(frozen=True)
class CheckIndex:
    """``result`` (i64) is the integer scalar ``value``, for use as ``Dynamic(result, extent)``.

    When ``conditions`` hold and it is outside of 0..extent-1 the launch reports fault number ``fault`` (1 or more) and
    goes on with index 0.
    """

    result: str
    value: str
    extent: int
    fault: int
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Compute:
    """``result`` is ``operation`` of scalars: the name of an elementwise operator, or 'philox' (seed, step, index).

    Operands of arithmetic, comparison and logic have one dtype. Half types compute in f32 and round the result once.
    ``stream`` is for philox alone.
    """

    result: str
    dtype: DType
    operation: str
    operands: tuple[str, ...]
    stream: int = 0


@dataclass(frozen=True)
class Load:
    """``result`` is ``buffer[index]``; without all ``conditions`` it is 0 and memory is not touched."""

    result: str
    dtype: DType
    buffer: str
    index: Index
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Store:
    """``buffer[index] = value``; with ``accumulate`` it is added to what is there.

    An accumulating index may repeat from iteration to iteration of a loop, never between points of the nest or lanes.
    """

    buffer: str
    index: Index
    value: str
    accumulate: bool = False


@dataclass(frozen=True)
class Reduction:
    """After the loop ``result`` is ``combine`` ('sum', 'prod', 'max', 'min') of ``value`` over all iterations.

    ``dtype`` is that of ``value`` and never a half type. Sums and products may be taken in another order, one that does
    not depend on the number of threads; max and min propagate NaN. Over no iterations it is the identity: 0, 1, or
    the lowest or highest value of ``dtype``.
    """

    result: str
    dtype: DType
    combine: str
    value: str


@dataclass(frozen=True)
class Carry:
    """A value passed from iteration to iteration: ``name`` inside the loop, ``initial`` at first, then ``update``.

    Equal ones begin with equal bits.
    """

    name: str
    dtype: DType
    initial: bool | int | float
    update: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Carry) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple:
        return self.name, self.dtype, _bits(self.dtype, self.initial), self.update


@dataclass(frozen=True)
class Loop:
    """Runs ``body`` for each point of ``axes``, row-major; with ``vector`` neighbours along the last axis at once.

    A vector loop has no carries, and none stands inside of another or of a nest whose last axis is a vector.
    """

    axes: tuple[Axis, ...]
    body: tuple[Statement, ...]
    vector: bool = False
    reductions: tuple[Reduction, ...] = ()
    carries: tuple[Carry, ...] = ()

    @property
    def iterations(self) -> int:
        """How often the body runs, each time that the loop does."""
        return math.prod(axis.extent for axis in self.axes)


Statement = Constant | IndexValue | CheckIndex | Compute | Load | Store | Loop


@dataclass(frozen=True)
class Nest:
    """One loop nest: ``body`` for each point of ``axes``; with ``vector`` neighbours along the last axis at once."""

    parameters: tuple[Buffer, ...]
    axes: tuple[Axis, ...]
    body: tuple[Statement, ...]
    vector: bool = False
    locals: tuple[Buffer, ...] = ()

    @property
    def points(self) -> int:
        """How often the body runs."""
        return math.prod(axis.extent for axis in self.axes)


@dataclass(frozen=True)
class Kernel:
    """Nests that do not depend on each other and are launched together. ``name`` comes from the model's operators."""

    name: str
    nests: tuple[Nest, ...]

    def __str__(self) -> str:
        from euler_ir.loops.printer import print_kernel

        return print_kernel(self)
