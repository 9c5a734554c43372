"""The mapping for nests without loops: neighbouring points in one thread, which loads and stores them together."""

from __future__ import annotations

from collections.abc import Mapping

from euler_ir.backends.cuda.codegen.sharing import names_at
from euler_ir.backends.cuda.codegen.stage import THREADS, Mapped, Spot, position_of, stage_of
from euler_ir.backends.cuda.codegen.statements import Statements
from euler_ir.backends.cuda.codegen.vectors import Vectors, vector_axis, vector_width
from euler_ir.index import Axis
from euler_ir.loops.hoist import buffers_stored, split_invariant
from euler_ir.loops.kernel import Loop, Nest


def suits(nest: Nest) -> bool:
    return bool(nest.axes) and not nest.locals and not any(isinstance(statement, Loop) for statement in nest.body)


def map_nest(nest: Nest, in_place: frozenset[int]) -> Mapped:
    code, axis = Statements(nest), nest.axes[-1]
    width, first = _vectors(nest)
    groups = nest.points // axis.extent * first.extent
    code.comment(f"{nest.points} points, {width if width > 1 else 'one'} a thread")
    code.place_axes((*nest.axes[:-1], first), code.thread_number("group", groups), groups)
    shared = names_at(nest, in_place)
    uniform, body = split_invariant(nest.body, (axis,), shared | buffers_stored(nest.body))
    code.statements(uniform)
    Vectors(code, axis, first, width, has_rest=axis.extent % width != 0).write(body)
    return Mapped((stage_of(nest, in_place, code, -(-groups // THREADS)),))


def _vectors(nest: Nest) -> tuple[int, Axis]:
    """How many points along the last axis a thread takes, and the axis that counts them in such steps."""
    axis, buffers = nest.axes[-1], {buffer.name: buffer for buffer in nest.parameters}
    width = vector_width((nest.body,), axis, buffers, may_have_rest=len(nest.axes) == 1)
    return width, vector_axis(nest, axis, width)


def spot(nest: Nest, in_place: frozenset[int], point: Mapping[Axis, int]) -> Spot:
    width, first = _vectors(nest)
    vector, element = divmod(point.get(nest.axes[-1], 0), width)
    group = position_of((*nest.axes[:-1], first), {**point, first: vector})
    return Spot(*divmod(group, THREADS), element)
