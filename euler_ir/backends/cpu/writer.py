"""Writing LLVM IR text: registers that are scalars or vectors, and a function that grows instruction by instruction."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from euler_ir.backends.cpu import vector_math
from euler_ir.dtypes import DType

#: Calls of math functions that are inlined in one function. LLVM's time grows faster than a function's length.
MAX_INLINED = 4

_SUFFIXES = {"float": "f32", "double": "f64", "half": "f16"}
_ITEM_BYTES = {"float": 4, "double": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8}


@dataclass(frozen=True)
class Register:
    """An SSA value or constant: ``text`` as an operand, the LLVM type of an element, and how many there are.

    With one lane it is a scalar, the same for all lanes of whatever it is combined with.
    """

    text: str
    element: str
    lanes: int = 1

    @property
    def type(self) -> str:
        return vector_type(self.element, self.lanes)

    @property
    def typed(self) -> str:
        return f"{self.type} {self.text}"


def vector_type(element: str, lanes: int) -> str:
    """The LLVM type of so many elements: of one, the element's own."""
    return f"<{lanes} x {element}>" if lanes > 1 else element


def register_element(dtype: DType) -> str:
    """The LLVM type that holds a ``dtype`` in registers: half types are f32 values, bool is i1."""
    if dtype.is_float:
        return "double" if dtype.bits == 64 else "float"
    return f"i{dtype.bits}"


def constant(value: bool | int | float, element: str) -> Register:
    """A number; for 'float' and 'double' rounded to that type."""
    if element in ("float", "double"):
        if element == "float":
            value = struct.unpack("f", struct.pack("f", value))[0]
        return Register(f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}", element)
    return Register(str(int(value)), element)


def lane_constants(values: list[int], element: str) -> Register:
    """A different integer in each lane."""
    return Register(f"<{', '.join(f'{element} {value}' for value in values)}>", element, len(values))


def first_lanes(count: int, lanes: int) -> Register:
    """The mask of the first ``count`` of ``lanes`` lanes."""
    return lane_constants([int(lane < count) for lane in range(lanes)], "i1")


@functools.cache
def _math_definition(name: str, dtype: str, lanes: int) -> str:
    return vector_math.emit(name, dtype, lanes)


@dataclass(frozen=True)
class Definition:
    """The definition of a function, and the definitions and declarations that it needs in its module."""

    text: str
    helpers: frozenset[str]

    def module(self) -> str:
        """A module that holds it alone, as LLVM IR text."""
        return "\n".join([*sorted(self.helpers), self.text])


class Code:
    """The body of one function in the making.

    Instructions take scalars and vectors alike: where they meet, scalars are spread over the lanes. Memory slots stand
    for values that change in loops; LLVM turns them into registers. ``helpers`` are the definitions and declarations
    that the function needs.
    """

    def __init__(self) -> None:
        self._slots: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self._splats: dict[tuple[str, int], Register] = {}
        self._zeros: Register | None = None
        self._math_calls = 0
        self.helpers: set[str] = set()

    def body(self, end: str = "ret void") -> str:
        """All of it; ``end`` is the last instruction."""
        lines = ["entry:", *(f"  {line}" for line in self._slots), *self._lines, f"  {end}"]
        return "\n".join(lines)

    # -- instructions --------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self._lines.append(f"  {text}")

    def emit(self, instruction: str, element: str, lanes: int = 1) -> Register:
        self._count += 1
        self.line(f"%v{self._count} = {instruction}")
        return Register(f"%v{self._count}", element, lanes)

    def splat(self, value: Register, lanes: int) -> Register:
        """``value`` in each of ``lanes`` lanes."""
        if value.lanes == lanes:
            return value
        if not value.text.startswith("%"):
            return Register(f"splat ({value.typed})", value.element, lanes)
        key = (value.text, lanes)
        if key not in self._splats:
            kind = vector_type(value.element, lanes)
            first = self.emit(f"insertelement {kind} poison, {value.typed}, i64 0", value.element, lanes)
            self._splats[key] = self.emit(
                f"shufflevector {first.typed}, {kind} poison, <{lanes} x i32> zeroinitializer", value.element, lanes
            )
        return self._splats[key]

    def aligned(self, *values: Register) -> list[Register]:
        """All of them with as many lanes as the widest has."""
        lanes = max(value.lanes for value in values)
        return [self.splat(value, lanes) for value in values]

    def binary(self, opcode: str, left: Register, right: Register) -> Register:
        left, right = self.aligned(left, right)
        return self.emit(f"{opcode} {left.typed}, {right.text}", left.element, left.lanes)

    def compare(self, predicate: str, left: Register, right: Register) -> Register:
        """``predicate`` with its instruction: 'fcmp olt', 'icmp eq'."""
        left, right = self.aligned(left, right)
        return self.emit(f"{predicate} {left.typed}, {right.text}", "i1", left.lanes)

    def select(self, condition: Register, chosen: Register, other: Register) -> Register:
        if condition.lanes == 1:
            chosen, other = self.aligned(chosen, other)
        else:
            condition, chosen, other = self.aligned(condition, chosen, other)
        return self.emit(f"select {condition.typed}, {chosen.typed}, {other.typed}", chosen.element, chosen.lanes)

    def convert(self, opcode: str, value: Register, element: str) -> Register:
        return self.emit(f"{opcode} {value.typed} to {vector_type(element, value.lanes)}", element, value.lanes)

    def shuffle(self, left: Register, right: Register, lanes: list[int]) -> Register:
        """The elements at ``lanes`` of ``left`` followed by ``right``."""
        chosen = ", ".join(f"i32 {lane}" for lane in lanes)
        mask = f"<{len(lanes)} x i32> <{chosen}>"
        return self.emit(f"shufflevector {left.typed}, {right.typed}, {mask}", left.element, len(lanes))

    def both(self, left: Register | None, right: Register | None) -> Register | None:
        """The conjunction of two conditions, None being always true."""
        if left is None or right is None:
            return right if left is None else left
        return self.binary("and", left, right)

    def intrinsic(self, name: str, *operands: Register, extra: str = "") -> Register:
        """An LLVM intrinsic whose operands and result are of one type. ``extra`` are operands of other types."""
        operands = self.aligned(*operands)
        first = operands[0]
        arguments = ", ".join(operand.typed for operand in operands) + extra
        return self.emit(f"call {first.type} @llvm.{name}.{mangled(first)}({arguments})", first.element, first.lanes)

    def math(self, name: str, *operands: Register) -> Register:
        """One of ``vector_math.FUNCTIONS``."""
        operands = self.aligned(*operands)
        first = operands[0]
        dtype = _SUFFIXES[first.element]
        self.helpers.add(_math_definition(name, dtype, first.lanes))
        arguments = ", ".join(operand.typed for operand in operands)
        function = vector_math.symbol(name, dtype, first.lanes)
        self._math_calls += 1
        place = "" if self._math_calls <= MAX_INLINED else " noinline"
        return self.emit(f"call {first.type} {function}({arguments}){place}", first.element, first.lanes)

    # -- memory --------------------------------------------------------------------------------------------------------

    def load(self, pointer: Register, element: str, lanes: int = 1, mask: Register | None = None) -> Register:
        """A scalar, neighbours, or what each lane of ``pointer`` points to; lanes beside ``mask`` are 0, not read."""
        kind, size = vector_type(element, lanes), _ITEM_BYTES[element]
        if pointer.lanes == 1 and mask is None:
            return self.emit(f"load {kind}, {pointer.typed}, align {size}", element, lanes)
        mask = self.splat(mask or constant(True, "i1"), lanes)
        name = _masked("gather" if pointer.lanes > 1 else "load", element, lanes, pointer)
        self.helpers.add(f"declare {kind} {name}({pointer.type}, i32, {mask.type}, {kind})")
        call = f"call {kind} {name}({pointer.typed}, i32 {size}, {mask.typed}, {kind} zeroinitializer)"
        return self.emit(call, element, lanes)

    def store(self, value: Register, pointer: Register, mask: Register | None = None) -> None:
        """``value`` to neighbours, or each lane to where that of ``pointer`` points, but for lanes beside ``mask``."""
        size = _ITEM_BYTES[value.element]
        if pointer.lanes == 1 and mask is None:
            self.line(f"store {value.typed}, {pointer.typed}, align {size}")
            return
        mask = self.splat(mask or constant(True, "i1"), value.lanes)
        name = _masked("scatter" if pointer.lanes > 1 else "store", value.element, value.lanes, pointer)
        self.helpers.add(f"declare void {name}({value.type}, {pointer.type}, i32, {mask.type})")
        self.line(f"call void {name}({value.typed}, {pointer.typed}, i32 {size}, {mask.typed})")

    # -- memory slots and control flow ---------------------------------------------------------------------------------

    def allocate(self, element: str, count: int, alignment: int) -> Register:
        """Stack memory that lives as long as the function runs."""
        self._count += 1
        name = f"%s{self._count}"
        self._slots.append(f"{name} = alloca [{count} x {element}], align {alignment}")
        return Register(name, "ptr")

    def zeros(self) -> Register:
        """Memory that holds a zero of any type."""
        if self._zeros is None:
            self._zeros = self.allocate("i64", 1, 8)
            self._slots.append(f"store i64 0, {self._zeros.typed}")
        return self._zeros

    def slot(self, initial: Register) -> Slot:
        """A variable of the type of ``initial``."""
        self._count += 1
        name = f"%s{self._count}"
        self._slots.append(f"{name} = alloca {initial.type}")
        slot = Slot(self, name, initial.element, initial.lanes)
        slot.set(initial)
        return slot

    def label(self, name: str) -> None:
        self._lines.append(f"{name}:")
        self._splats.clear()

    def new_label(self) -> str:
        self._count += 1
        return f"l{self._count}"

    @contextmanager
    def loop(self, start: Register, stop: Register, step: int | Register, nonempty: bool) -> Iterator[Register]:
        """Run what is written inside for ``start``, ``start + step`` ... below ``stop``; gives the i64 counter."""
        body, done = self.new_label(), self.new_label()
        counter = self.slot(start)
        if nonempty:
            self.line(f"br label %{body}")
        else:
            some = self.compare("icmp slt", start, stop)
            self.line(f"br {some.typed}, label %{body}, label %{done}")
        self.label(body)
        position = counter.get()
        yield position
        step = constant(step, "i64") if isinstance(step, int) else step
        following = self.binary("add nsw", position, step)
        counter.set(following)
        more = self.compare("icmp slt", following, stop)
        self.line(f"br {more.typed}, label %{body}, label %{done}")
        self.label(done)

    @contextmanager
    def when(self, condition: Register) -> Iterator[None]:
        """Run what is written inside if ``condition`` (a scalar) holds."""
        body, done = self.new_label(), self.new_label()
        self.line(f"br {condition.typed}, label %{body}, label %{done}")
        self.label(body)
        yield
        self.line(f"br label %{done}")
        self.label(done)


@dataclass(frozen=True)
class Slot:
    """A variable: memory on the stack that LLVM turns into registers."""

    code: Code
    name: str
    element: str
    lanes: int

    def get(self) -> Register:
        kind = vector_type(self.element, self.lanes)
        return self.code.emit(f"load {kind}, ptr {self.name}", self.element, self.lanes)

    def set(self, value: Register) -> None:
        self.code.line(f"store {self.code.splat(value, self.lanes).typed}, ptr {self.name}")


def mangled(value: Register) -> str:
    """The type as it stands in the names of overloaded intrinsics: v16f32."""
    name = _SUFFIXES.get(value.element, value.element)
    return f"v{value.lanes}{name}" if value.lanes > 1 else name


def _masked(what: str, element: str, lanes: int, pointer: Register) -> str:
    pointers = f"v{lanes}p0" if pointer.lanes > 1 else "p0"
    return f"@llvm.masked.{what}.{mangled(Register('', element, lanes))}.{pointers}"
