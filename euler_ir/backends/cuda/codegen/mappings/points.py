"""The mapping for every nest: a point a thread, neighbours along the last axis in neighbouring threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from euler_ir.backends.cuda.calls import ScratchPointer
from euler_ir.backends.cuda.codegen.indexing import counter_type
from euler_ir.backends.cuda.codegen.sharing import names_at
from euler_ir.backends.cuda.codegen.stage import THREADS, Mapped, Parameter, Spot, position_of, stage_of
from euler_ir.backends.cuda.codegen.statements import Statements
from euler_ir.backends.cuda.codegen.types import memory_type
from euler_ir.index import Axis
from euler_ir.loops.hoist import hoist
from euler_ir.loops.kernel import Nest

MOST_LOCAL_BYTES = 256
"""Memory of a thread's own beyond which locals lie in scratch memory, neighbours of neighbouring threads together."""


def suits(nest: Nest) -> bool:
    return True


def map_nest(nest: Nest, in_place: frozenset[int]) -> Mapped:
    code = Statements(nest)
    code.comment(f"{nest.points} points, one a thread")
    point = code.thread_number("point", nest.points)
    code.place_axes(nest.axes, point, nest.points)
    scratch, scratch_bytes = _place_locals(nest, code, point)
    shared = names_at(nest, in_place)
    code.statements(hoist(nest.body, shared))
    stage = stage_of(nest, in_place, code, -(-nest.points // THREADS))
    return Mapped((replace(stage, parameters=(*stage.parameters, *scratch)),), scratch_bytes)


def _place_locals(nest: Nest, code: Statements, point: str) -> tuple[list[Parameter], int]:
    """What points to the locals in scratch memory, and the bytes of it."""
    is_large = sum(local.size * local.dtype.itemsize for local in nest.locals) > MOST_LOCAL_BYTES
    scratch, taken = [], 0
    for local in nest.locals:
        name, kind = code.names.of("buffer", local.name), memory_type(local.dtype)
        if is_large:
            scratch.append(Parameter(f"{kind}* __restrict__", name, ScratchPointer(taken)))
            taken += -(-local.size * nest.points * local.dtype.itemsize // 16) * 16
            wide = "(long long)" if counter_type(local.size * nest.points) == "long long" else ""
            code.places[local.name] = f"{name}[{wide}({{}}) * {nest.points} + {point}]".format
        else:
            code.line(f"{kind} {name}[{max(local.size, 1)}];")
            code.places[local.name] = f"{name}[{{}}]".format
    return scratch, taken


def spot(nest: Nest, in_place: frozenset[int], point: Mapping[Axis, int]) -> Spot:
    return Spot(*divmod(position_of(nest.axes, point), THREADS))
