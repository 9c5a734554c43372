"""The mapping for nests without loops: neighbouring points in one thread, which loads and stores them together."""

from __future__ import annotations

from euler_ir.backends.cuda.codegen.stage import THREADS, Mapped, stage_of
from euler_ir.backends.cuda.codegen.statements import Statements
from euler_ir.backends.cuda.codegen.types import from_memory, memory_type, to_memory
from euler_ir.index import Axis, Index
from euler_ir.loops.hoist import buffers_loaded, buffers_stored, split_invariant
from euler_ir.loops.kernel import Load, Loop, Nest, Statement, Store

VECTOR_BYTES = 16


def suits(nest: Nest) -> bool:
    return bool(nest.axes) and not nest.locals and not any(isinstance(statement, Loop) for statement in nest.body)


def map_nest(nest: Nest, in_place: frozenset[int]) -> Mapped:
    axis, code = nest.axes[-1], Statements(nest)
    width = vector_width(nest)
    has_rest = axis.extent % width != 0
    groups = nest.points // axis.extent * -(-axis.extent // width)
    tasks = -(-groups // THREADS)
    code.comment(f"{nest.points} points, {width} a thread" if width > 1 else f"{nest.points} points, one a thread")
    group = code.thread_number("group", groups)
    shared = {nest.parameters[number].name for number in in_place}
    if width == 1:
        code.place_axes(nest.axes, group, nest.points)
        code.statements(nest.body)
    else:
        _Vectors(code, axis, width, has_rest).run(nest, group, groups, shared)
    return Mapped((stage_of(nest, in_place, code, tasks),))


def vector_width(nest: Nest) -> int:
    """How many neighbours along the last axis a thread takes: what 16 bytes hold of the widest that lies together."""
    axis = nest.axes[-1]
    vectors = [access for access in nest.body if is_vector(nest, access, axis, 1)]
    if not any(isinstance(access, Store) for access in vectors):
        return 1
    buffers = {buffer.name: buffer for buffer in nest.parameters}
    width = VECTOR_BYTES // max(buffers[access.buffer].dtype.itemsize for access in vectors)
    while width > 1 and not _fits(nest, vectors, axis, width):
        width //= 2
    return width


def _fits(nest: Nest, vectors: list[Statement], axis: Axis, width: int) -> bool:
    """Whether rows begin at whole vectors and all stores can be of vectors."""
    whole = axis.extent % width == 0 or (len(nest.axes) == 1 and axis.extent > width)
    return whole and all(is_vector(nest, access, axis, width) for access in vectors if isinstance(access, Store))


def is_vector(nest: Nest, access: Statement, axis: Axis, width: int) -> bool:
    """Whether ``width`` neighbours along ``axis``, the first at a multiple of that, lie together and aligned for
    ``access``, and nobody else of the nest uses the buffer in another way.
    """
    if not isinstance(access, (Load, Store)) or (isinstance(access, Load) and access.conditions):
        return False
    if isinstance(access, Store) and (access.accumulate or access.buffer in buffers_loaded(nest.body)):
        return False
    if isinstance(access, Load) and access.buffer in buffers_stored(nest.body):
        return False
    return access.index.coefficient(axis) == 1 and is_multiple(access.index - Index.of(axis), width)


def is_multiple(index: Index, width: int) -> bool:
    """Whether ``index`` is a multiple of ``width`` wherever it is."""
    return index.constant % width == 0 and all(factor % width == 0 for _, factor in index.terms)


class _Vectors:
    """Writes loads of vectors, a loop over their lanes, and stores of vectors."""

    def __init__(self, code: Statements, axis: Axis, width: int, has_rest: bool) -> None:
        self.code, self.axis, self.width = code, axis, width
        self.rest = ", present" if has_rest else ""

    def run(self, nest: Nest, group: str, groups: int, in_place: set[str]) -> None:
        code, axis, width = self.code, self.axis, self.width
        first = Axis(f"{axis.name}0", -(-axis.extent // width))
        code.place_axes((*nest.axes[:-1], first), group, groups)
        first_of = {axis: Index.of(first) * width}
        if self.rest:
            code.line(f"const int present = {axis.extent} - {code.index(first_of[axis])};")
        written = in_place | buffers_stored(nest.body)
        uniform, body = split_invariant(nest.body, (axis,), written)
        code.statements(uniform)
        packs: dict[Load | Store, str] = {}
        for load in body:
            if isinstance(load, Load) and is_vector(nest, load, axis, width):
                packs[load] = code.names.new(f"{load.result}_of")
                start = self._start(load, first_of)
                code.line(f"const {self._pack(load)} {packs[load]} = eir::load<{width}>({start}{self.rest});")
        for store in body:
            if isinstance(store, Store) and is_vector(nest, store, axis, width):
                packs[store] = code.names.new(f"{store.buffer}_of")
                code.line(f"{self._pack(store)} {packs[store]};")
        code.line("#pragma unroll")
        with code.block(f"for (int lane = 0; lane < {width}; ++lane)"):
            if self.rest:
                code.line("if (lane >= present) break;")
            code.define_axis(axis, f"{code.index(first_of[axis])} + lane")
            for statement in body:
                self._in_lane(statement, packs)
        for store, pack in packs.items():
            if isinstance(store, Store):
                code.line(f"eir::store({self._start(store, first_of)}, {pack}{self.rest});")

    def _start(self, access: Load | Store, first_of: dict[Axis, Index]) -> str:
        return f"{self.code.pointer(access.buffer)} + {self.code.index(access.index.substitute(first_of))}"

    def _pack(self, access: Load | Store) -> str:
        return f"eir::Pack<{memory_type(self.code.buffers[access.buffer].dtype)}, {self.width}>"

    def _in_lane(self, statement: Statement, packs: dict[Load | Store, str]) -> None:
        code = self.code
        if statement not in packs:
            code.statement(statement)
        elif isinstance(statement, Load):
            code.define(statement.result, statement.dtype, from_memory(statement.dtype, f"{packs[statement]}.at[lane]"))
        else:
            value = to_memory(code.buffers[statement.buffer].dtype, code.values[statement.value])
            code.line(f"{packs[statement]}.at[lane] = {value};")
