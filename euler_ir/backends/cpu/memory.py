"""Loads and stores in generated code. In memory half types take 16 bits, and bool is a byte, 0 or 1.

What is written to a buffer larger than the last cache is not there any more when it is read: such stores go around the
caches, which saves reading the lines that they fill (x86 has them for aligned vectors; elsewhere they are a hint).
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

from euler_ir.backends.cpu.indexing import Scope, condition, lane_step, scalar_index, vector_index
from euler_ir.backends.cpu.jit import vector_bytes
from euler_ir.backends.cpu.scalar_ops import combine
from euler_ir.backends.cpu.writer import Code, Register, constant, first_lanes, lane_constants, register_element
from euler_ir.dtypes import DType
from euler_ir.errors import LoweringError
from euler_ir.index import Condition, Index

_LINE = 64


@dataclass(frozen=True)
class Place:
    """A buffer at ``pointer``. With ``lanes`` above 1 each of its elements lies there once for every lane.

    ``streams`` is None, or says (an i1) whether the pointer is aligned to ``vector_bytes()``, so that stores may go
    around the caches.
    """

    pointer: str
    dtype: DType
    lanes: int = 1
    streams: Register | None = None


def streaming_place(code: Code, pointer: str, dtype: DType) -> Place:
    """A buffer whose stores go around the caches where they can; the function must end with `end_streams`."""
    address = code.emit(f"ptrtoint ptr {pointer} to i64", "i64")
    rest = code.binary("and", address, constant(vector_bytes() - 1, "i64"))
    return Place(pointer, dtype, streams=code.compare("icmp eq", rest, constant(0, "i64")))


def end_streams(code: Code) -> None:
    """Order stores around the caches before those that follow; on other machines they are ordered as any store is."""
    if platform.machine() == "x86_64":
        code.helpers.add("declare void @llvm.x86.sse.sfence()")
        code.line("call void @llvm.x86.sse.sfence()")


def memory_element(dtype: DType) -> str:
    """The LLVM type of an element in memory: half types are the i16 of their bits, bool is i8."""
    if dtype.kind == "bool":
        return "i8"
    return "i16" if dtype.is_half else register_element(dtype)


@dataclass(frozen=True)
class _Access:
    """Pointer to the first lane's element; or, with many lanes, to the element of each."""

    pointer: Register
    uniform: bool


def load(scope: Scope, place: Place, index: Index, conditions: tuple[Condition, ...]) -> Register:
    """``place[index]``, and 0 in lanes where not all ``conditions`` hold; those do not touch memory."""
    code, element = scope.code, memory_element(place.dtype)
    holds = condition(scope, conditions)
    access = _access(scope, place, index, holds)
    if access.uniform:
        pointer = access.pointer
        if holds is not None:
            pointer = code.select(holds, pointer, code.zeros())
        value = code.load(pointer, element)
    else:
        value = code.load(access.pointer, element, scope.width, code.both(holds, scope.mask))
    return from_memory(code, value, place.dtype)


def load_line(scope: Scope, place: Place, index: Index, offset: int) -> Register:
    """As many neighbours in memory as the scope has lanes, from ``offset`` elements after ``place[index]`` on."""
    code, element = scope.code, memory_element(place.dtype)
    first = code.binary("add", scalar_index(scope, index), constant(offset, "i64"))
    return code.load(_element_pointer(code, place, first), element, scope.width)


def prefetch(scope: Scope, place: Place, index: Index) -> None:
    """Begin to fetch the lines of the vector at ``index``, which need not lie inside of the buffer."""
    code = scope.code
    code.helpers.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    first = scalar_index(scope, index)
    for offset in range(0, scope.width, _LINE // place.dtype.itemsize):
        pointer = _element_pointer(code, place, code.binary("add", first, constant(offset, "i64")))
        code.line(f"call void @llvm.prefetch.p0({pointer.typed}, i32 0, i32 3, i32 1)")


def store(scope: Scope, place: Place, index: Index, value: Register, accumulate: bool) -> None:
    """``place[index] = value``, or added to what is there, in all lanes of the mask."""
    code, element = scope.code, memory_element(place.dtype)
    access = _access(scope, place, index, None)
    if access.uniform and scope.width > 1:
        raise LoweringError(f"all lanes of a vector along {scope.axis} would store to one element, at {index}")
    if accumulate:
        if access.uniform:
            old = code.load(access.pointer, element)
        else:
            old = code.load(access.pointer, element, scope.width, scope.mask)
        value = combine(code, "add", place.dtype, from_memory(code, old, place.dtype), value)
    value = _to_memory(code, value, place.dtype)
    if access.uniform:
        code.store(value, access.pointer)
        return
    value = code.splat(value, scope.width)
    if place.streams is None or accumulate or scope.mask is not None or not _starts_lines(scope, place, index):
        _store_vector(scope, access.pointer, value)
        return
    code.helpers.add("!0 = !{i32 1}")
    with code.when(place.streams):
        code.line(f"store {value.typed}, {access.pointer.typed}, align {vector_bytes()}, !nontemporal !0")
    with code.when(code.binary("xor", place.streams, constant(True, "i1"))):
        _store_vector(scope, access.pointer, value)


def _starts_lines(scope: Scope, place: Place, index: Index) -> bool:
    """Whether the vector at ``index`` is one of neighbours and begins at a multiple of a register's elements."""
    lanes = vector_bytes() // place.dtype.itemsize
    others = index - Index.of(scope.axis) if lane_step(scope, index) == 1 else None
    if others is None or scope.width % lanes or scope.axis in others.axes():
        return False
    return others.constant % lanes == 0 and all(factor % lanes == 0 for _, factor in others.terms)


def _access(scope: Scope, place: Place, index: Index, holds: Register | None) -> _Access:
    code, step, width = scope.code, lane_step(scope, index), scope.width
    if place.lanes > 1:
        if step == 0:
            first = code.binary("mul", scalar_index(scope, index), constant(width, "i64"))
            return _Access(_element_pointer(code, place, first), uniform=False)
        each = vector_index(scope, index)
        each = code.binary("mul", each, constant(width, each.element))
        return _Access(_element_pointer(code, place, code.binary("add", each, _lane_numbers(each))), uniform=False)
    varies = holds is not None and holds.lanes > 1
    if step == 0 and not varies:
        return _Access(_element_pointer(code, place, scalar_index(scope, index)), uniform=True)
    if step == 1:
        return _Access(_element_pointer(code, place, scalar_index(scope, index)), uniform=False)
    return _Access(_element_pointer(code, place, vector_index(scope, index)), uniform=False)


def _lane_numbers(like: Register) -> Register:
    return lane_constants(list(range(like.lanes)), like.element)


def _element_pointer(code: Code, place: Place, index: Register) -> Register:
    kind = memory_element(place.dtype)
    return code.emit(f"getelementptr {kind}, ptr {place.pointer}, {index.typed}", "ptr", index.lanes)


def _store_vector(scope: Scope, pointer: Register, value: Register) -> None:
    mask = scope.mask
    if pointer.lanes == 1 and mask == first_lanes(1, scope.width):
        # LLVM 22 on x86 would store a truncated value at its full width under this mask.
        value, mask = scope.code.emit(f"extractelement {value.typed}, i64 0", value.element), None
    scope.code.store(value, pointer, mask)


def from_memory(code: Code, value: Register, dtype: DType) -> Register:
    """What a buffer of ``dtype`` holds, as registers hold it."""
    if dtype.kind == "bool":
        return code.compare("icmp ne", value, constant(0, "i8"))
    if dtype.name == "f16":
        return code.convert("fpext", code.convert("bitcast", value, "half"), "float")
    if dtype.name == "bf16":
        bits = code.binary("shl", code.convert("zext", value, "i32"), constant(16, "i32"))
        return code.convert("bitcast", bits, "float")
    return value


def _to_memory(code: Code, value: Register, dtype: DType) -> Register:
    if dtype.kind == "bool":
        return code.convert("zext", value, "i8")
    if dtype.name == "f16":
        return code.convert("bitcast", code.convert("fptrunc", value, "half"), "i16")
    if dtype.name == "bf16":
        bits = code.binary("lshr", code.convert("bitcast", value, "i32"), constant(16, "i32"))
        return code.convert("trunc", bits, "i16")
    return value
