"""The mapping for nests without loops: neighbouring points in one thread, which loads and stores them together."""

from __future__ import annotations

from euler_ir.backends.cuda.codegen.stage import THREADS, Mapped, stage_of
from euler_ir.backends.cuda.codegen.statements import Statements
from euler_ir.backends.cuda.codegen.vectors import Vectors, vector_width
from euler_ir.index import Axis
from euler_ir.loops.hoist import buffers_stored, split_invariant
from euler_ir.loops.kernel import Loop, Nest


def suits(nest: Nest) -> bool:
    return bool(nest.axes) and not nest.locals and not any(isinstance(statement, Loop) for statement in nest.body)


def map_nest(nest: Nest, in_place: frozenset[int]) -> Mapped:
    code, axis = Statements(nest), nest.axes[-1]
    width = vector_width((nest.body,), axis, code.buffers, may_have_rest=len(nest.axes) == 1)
    first = Axis(f"{axis.name}0", -(-axis.extent // width))
    groups = nest.points // axis.extent * first.extent
    code.comment(f"{nest.points} points, {width if width > 1 else 'one'} a thread")
    code.place_axes((*nest.axes[:-1], first), code.thread_number("group", groups), groups)
    shared = {nest.parameters[number].name for number in in_place}
    uniform, body = split_invariant(nest.body, (axis,), shared | buffers_stored(nest.body))
    code.statements(uniform)
    Vectors(code, axis, first, width, has_rest=axis.extent % width != 0).write(body)
    return Mapped((stage_of(nest, in_place, code, -(-groups // THREADS)),))
