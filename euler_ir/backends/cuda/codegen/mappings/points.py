"""The mapping for every nest: a point a thread, neighbours along the last axis in neighbouring threads."""

from __future__ import annotations

from collections.abc import Mapping

from euler_ir.backends.cuda.codegen.stage import THREADS, Mapped, Spot, position_of, stage_of
from euler_ir.backends.cuda.codegen.statements import Statements
from euler_ir.backends.cuda.codegen.types import memory_type
from euler_ir.index import Axis
from euler_ir.loops.hoist import hoist
from euler_ir.loops.kernel import Nest


def suits(nest: Nest) -> bool:
    return True


def map_nest(nest: Nest, in_place: frozenset[int]) -> Mapped:
    code = Statements(nest)
    tasks = -(-nest.points // THREADS)
    code.comment(f"{nest.points} points, one a thread")
    code.place_axes(nest.axes, code.thread_number("point", nest.points), nest.points)
    for buffer in nest.locals:
        name = code.names.of("buffer", buffer.name)
        code.line(f"{memory_type(buffer.dtype)} {name}[{max(buffer.size, 1)}];")
        code.places[buffer.name] = f"{name}[{{}}]".format
    shared = {nest.parameters[number].name for number in in_place}
    code.statements(hoist(nest.body, shared))
    return Mapped((stage_of(nest, in_place, code, tasks),))


def spot(nest: Nest, in_place: frozenset[int], point: Mapping[Axis, int]) -> Spot:
    return Spot(*divmod(position_of(nest.axes, point), THREADS))
