"""What a mapping makes of a nest: functions of the device, each called once for every task.

A task is what one block of ``THREADS`` threads does at a time; what it computes does not depend on which block does it.
The stages of a nest run one after the other; those of the nests of a kernel run side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from euler_ir.backends.cuda.calls import ScratchPointer
from euler_ir.backends.cuda.codegen.statements import THREADS, Statements
from euler_ir.backends.cuda.codegen.types import memory_type
from euler_ir.backends.cuda.limits import WARP
from euler_ir.index import Axis
from euler_ir.loops.kernel import CheckIndex, Loop, Nest, Statement

__all__ = ["THREADS", "WARP", "WARPS", "Mapped", "Parameter", "Spot", "Stage", "position_of", "stage_of"]

WARPS = THREADS // WARP
"""Of a block."""


@dataclass(frozen=True)
class Parameter:
    """A pointer that a stage takes: ``type`` and ``name`` in C++; to what the nest has as its parameter number
    ``argument``, or to scratch memory of the nest's own.
    """

    type: str
    name: str
    argument: int | ScratchPointer


@dataclass(frozen=True)
class Stage:
    """The ``body`` of a function that does task number ``task`` of ``tasks``, with all threads of a block.

    It may use its ``parameters``, ``task`` (an int, or a long long where ``tasks`` needs it), ``faults`` if
    ``reports_faults``, and ``shared``, the first of ``shared_bytes`` bytes of shared memory aligned to 16, in which
    another task may have left something. ``needs`` are the source files it calls functions of.
    """

    tasks: int
    parameters: tuple[Parameter, ...]
    body: tuple[str, ...]
    needs: frozenset[str]
    reports_faults: bool = False
    shared_bytes: int = 0


@dataclass(frozen=True)
class Spot:
    """Where a point is computed: by ``thread`` of whoever does task number ``task`` of stage number ``stage``, as its
    element number ``element``.
    """

    task: int
    thread: int
    element: int = 0
    stage: int = 0


@dataclass(frozen=True)
class Mapped:
    """A nest as stages, which share ``scratch_bytes`` bytes of memory for the ScratchPointers of their parameters."""

    stages: tuple[Stage, ...]
    scratch_bytes: int = 0


def stage_of(nest: Nest, in_place: frozenset[int], code: Statements, tasks: int, shared_bytes: int = 0) -> Stage:
    """The stage that does all of ``nest`` with the statements in ``code``.

    Parameters at the positions ``in_place`` may share memory.
    """
    parameters = []
    for number, buffer in enumerate(nest.parameters):
        kind = f"{'const ' if buffer.role == 'input' else ''}{memory_type(buffer.dtype)}*"
        kind += "" if number in in_place else " __restrict__"
        parameters.append(Parameter(kind, code.pointer(buffer.name), number))
    needs, reports = frozenset(code.needs - {""}), _checks(nest.body)
    return Stage(tasks, tuple(parameters), tuple(code.lines), needs, reports, shared_bytes)


def position_of(axes: tuple[Axis, ...], point: Mapping[Axis, int]) -> int:
    """The row-major number of ``point`` among all of ``axes``; an axis that it does not say is at 0."""
    number = 0
    for axis in axes:
        number = number * axis.extent + point.get(axis, 0)
    return number


def _checks(body: tuple[Statement, ...]) -> bool:
    return any(isinstance(s, CheckIndex) or (isinstance(s, Loop) and _checks(s.body)) for s in body)
