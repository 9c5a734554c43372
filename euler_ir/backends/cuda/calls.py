"""What a step does on the device, one call after the other on one stream, in terms of the plan's buffers.

Each part of the backend turns its kind of step into a list of these; the program resolves the pointers, which never
change, and enqueues them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from euler_ir.plan.plan import Origin


@dataclass(frozen=True)
class BufferPointer:
    """Points ``offset`` bytes into buffer ``number`` of the plan."""

    number: int
    offset: int = 0


@dataclass(frozen=True)
class ScratchPointer:
    """Points ``offset`` bytes into memory that all calls of one step of the plan share and no other step needs."""

    offset: int


@dataclass(frozen=True)
class FaultPointer:
    """Points to the i32 in which a nest reports fault numbers from 1 on: that of the plan's fault ``number``."""

    number: int


Pointer = BufferPointer | ScratchPointer | FaultPointer


@dataclass(frozen=True)
class Table:
    """An array in device memory of what ``pointers`` point to, for kernels with more pointers than arguments can be."""

    pointers: tuple[Pointer, ...]


@dataclass(frozen=True)
class Number:
    """A number by value, of ``kind`` 'i32', 'i64', 'f32' or 'f64'."""

    kind: str
    value: int | float


Argument = Pointer | Table | Number


@dataclass(frozen=True)
class Source:
    """A unit of CUDA C++ that compiles alone, with all that it needs before its own code; ``name`` is for readers.

    ``kernels`` are the names of its functions ``extern "C" __global__``.
    """

    name: str
    text: str
    kernels: tuple[str, ...]

    @cached_property
    def code(self) -> str:
        """The text without its comments, in which kernels of different layers alone may differ: it is compiled once."""
        return re.sub(r"//[^\n]*", "", self.text)


@dataclass(frozen=True)
class Launch:
    """Run ``kernel`` of ``source`` on ``blocks`` blocks (1 or more, along x alone) of ``threads`` threads each.

    ``shared_bytes`` is dynamic shared memory. ``origins`` say where in the user's model this comes from.
    """

    source: Source
    kernel: str
    blocks: int
    threads: int
    shared_bytes: int
    arguments: tuple[Argument, ...]
    origins: tuple[Origin, ...]

    def pointers(self) -> Iterator[Pointer]:
        """Those among the arguments, and in tables, in order."""
        for argument in self.arguments:
            if isinstance(argument, Table):
                yield from argument.pointers
            elif not isinstance(argument, Number):
                yield argument


@dataclass(frozen=True)
class Copy:
    """Copy ``nbytes`` bytes from ``source`` to ``target``, which do not overlap."""

    target: Pointer
    source: Pointer
    nbytes: int
    origins: tuple[Origin, ...] = ()


@dataclass(frozen=True)
class Fill:
    """Set each of ``nbytes`` bytes at ``target`` to ``byte``."""

    target: Pointer
    nbytes: int
    byte: int


@dataclass(frozen=True)
class Calls:
    """What does one step of the plan: ``calls`` in order, with ``scratch_bytes`` of memory for ScratchPointers.

    A call is a Launch, Copy or Fill, or a `gemm.Product`, which is put into the stream by its library.
    """

    calls: tuple
    scratch_bytes: int = 0
