"""Neighbours along an axis in one thread: loaded and stored together where they lie together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from euler_ir.backends.cuda.codegen.indexing import is_wide_axis
from euler_ir.backends.cuda.codegen.statements import Statements
from euler_ir.backends.cuda.codegen.types import from_memory, memory_type, to_memory
from euler_ir.index import Axis, Bound, Condition, Index
from euler_ir.loops.hoist import buffers_loaded, buffers_stored
from euler_ir.loops.kernel import Buffer, CheckIndex, Load, Loop, Nest, Statement, Store

VECTOR_BYTES = 16


def vector_width(
    bodies: Iterable[tuple[Statement, ...]], axis: Axis, buffers: Mapping[str, Buffer], may_have_rest: bool = False
) -> int:
    """How many neighbours along ``axis``, the last one of each of ``bodies``, a thread takes: what 16 bytes hold of
    the widest that lies together. A store keeps them from being more than lie aligned for it.

    The extent is a multiple of the width, unless it ``may_have_rest``.
    """
    near = [(body, access) for body in bodies for access in body if is_vector(access, body, axis, 1)]
    near = [(body, access) for body, access in near if buffers[access.buffer].role != "local"]
    stores = [(body, access) for body, access in near if isinstance(access, Store)]
    loads = [(body, access) for body, access in near if isinstance(access, Load)]
    if not near:
        return 1
    width = VECTOR_BYTES // max(buffers[access.buffer].dtype.itemsize for _, access in near)
    while width > 1:
        whole = axis.extent % width == 0 or (may_have_rest and axis.extent > width)
        fitting = [is_vector(access, body, axis, width) for body, access in stores or loads]
        if whole and (all(fitting) if stores else any(fitting)):
            break
        width //= 2
    return width


def is_vector(access: Statement, body: tuple[Statement, ...], axis: Axis, width: int) -> bool:
    """Whether ``width`` neighbours along ``axis``, the first at a multiple of that, lie together and aligned for
    ``access``, and nothing else in ``body`` uses its buffer so that their order would matter.
    """
    if isinstance(access, Load):
        apart = access.buffer not in buffers_stored(body)
        apart = apart and all(_holds_for_all(condition, axis, width) for condition in access.conditions)
    elif isinstance(access, Store):
        apart = not access.accumulate and access.buffer not in buffers_loaded(body)
        apart = apart and sum(isinstance(other, Store) and other.buffer == access.buffer for other in body) == 1
    else:
        return False
    found = {statement.result for statement in body if isinstance(statement, CheckIndex)}
    indices = [access.index, *(condition.index for condition in getattr(access, "conditions", ()))]
    if not apart or any(dynamic.name in found for index in indices for dynamic in index.dynamics()):
        return False  # what was found for one element may not hold for the next
    return access.index.coefficient(axis) == 1 and _is_multiple(access.index - Index.of(axis), width)


def _holds_for_all(condition: Condition, axis: Axis, width: int) -> bool:
    """Whether ``condition`` holds for all elements of a vector or for none."""
    if axis not in condition.index.axes():
        return True
    if not isinstance(condition, Bound) or condition.index.coefficient(axis) != 1:
        return False
    ends_between = _is_multiple(condition.index - Index.of(axis) - condition.low, width)
    return ends_between and (condition.high - condition.low) % width == 0


def _is_multiple(index: Index, width: int) -> bool:
    return index.constant % width == 0 and all(factor % width == 0 for _, factor in index.terms)


def vector_axis(nest: Nest, axis: Axis, width: int) -> Axis:
    """An axis that counts the vectors along ``axis`` of ``nest``, of a name that no other has."""
    taken = {each.name for each in (*nest.axes, *_axes_of_loops(nest.body))}
    name = f"{axis.name}0"
    while name in taken:
        name += "0"
    return Axis(name, -(-axis.extent // width))


def _axes_of_loops(body: tuple[Statement, ...]) -> Iterator[Axis]:
    for statement in body:
        if isinstance(statement, Loop):
            yield from statement.axes
            yield from _axes_of_loops(statement.body)


class Vectors:
    """Writes ``body`` for ``width`` neighbours along ``axis``: loads of vectors, each element, stores of vectors.

    They begin at ``width * first``, an axis that is defined. ``has_rest`` if the last ones may be fewer.
    """

    def __init__(self, code: Statements, axis: Axis, first: Axis, width: int, has_rest: bool) -> None:
        self._code, self._axis, self._width = code, axis, width
        self._first: dict[Axis, Index] = {axis: Index.of(first) * width}
        self._present = ", present" if has_rest else ""

    def write(self, body: tuple[Statement, ...], after_each: Callable[[], None] = lambda: None) -> None:
        """``after_each`` writes what follows ``body`` for each element."""
        code, axis, width = self._code, self._axis, self._width
        begin = code.index(self._first[axis])
        if width == 1:
            code.define_axis(axis, begin)
            code.statements(body)
            after_each()
            return
        if self._present:
            rest = f"{axis.extent} - {begin}"
            rest = f"int(eir::minimum<long long>({rest}, {width}))" if is_wide_axis(axis) else rest
            code.line(f"const int present = {rest};")
        packs = {
            access: code.names.new(f"{access.result if isinstance(access, Load) else access.buffer}_of")
            for access in body
            if is_vector(access, body, axis, width) and code.buffers[access.buffer].role != "local"
        }
        for access, pack in packs.items():
            if isinstance(access, Load):
                first = (replace(each, index=each.index.substitute(self._first)) for each in access.conditions)
                holds = code.conditions(tuple(first))
                arguments = f"{self._start(access)}{self._present}"
                load = f"load_if<{width}>({holds}, {arguments})" if holds else f"load<{width}>({arguments})"
                code.line(f"const {self._pack_type(access)} {pack} = eir::{load};")
            else:
                code.line(f"{self._pack_type(access)} {pack};")
        code.line("#pragma unroll")
        with code.block(f"for (int element = 0; element < {width}; ++element)"):
            if self._present:
                code.line("if (element >= present) break;")
            code.define_axis(axis, f"{begin} + element")
            for statement in body:
                self._element(statement, packs)
            after_each()
        for access, pack in packs.items():
            if isinstance(access, Store):
                code.line(f"eir::store({self._start(access)}, {pack}{self._present});")

    def _start(self, access: Load | Store) -> str:
        return f"{self._code.pointer(access.buffer)} + {self._code.index(access.index.substitute(self._first))}"

    def _pack_type(self, access: Load | Store) -> str:
        return f"eir::Pack<{memory_type(self._code.buffers[access.buffer].dtype)}, {self._width}>"

    def _element(self, statement: Statement, packs: dict[Load | Store, str]) -> None:
        code = self._code
        if isinstance(statement, Load) and statement in packs:
            element = from_memory(statement.dtype, f"{packs[statement]}.at[element]")
            code.define(statement.result, statement.dtype, element)
        elif isinstance(statement, Store) and statement in packs:
            value = to_memory(code.buffers[statement.buffer].dtype, code.values[statement.value])
            code.line(f"{packs[statement]}.at[element] = {value};")
        else:
            code.statement(statement)
