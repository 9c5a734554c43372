"""Expressions of native functions, from Python's syntax tree to LLVM IR: all but calls, which are in `calls`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass

from euler_ir.backends.cpu.writer import Code, Register, Slot, constant
from euler_ir.errors import LoweringError
from euler_ir.native.compiled_function import Function
from euler_ir.native.types import TRUTH, Integer, Pointer, Type, i64, pointer, read_only, u64

_ARITHMETIC = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("sub", operator.sub),
    ast.Mult: ("mul", operator.mul),
    ast.BitAnd: ("and", operator.and_),
    ast.BitOr: ("or", operator.or_),
    ast.BitXor: ("xor", operator.xor),
    ast.LShift: ("shl", operator.lshift),
    ast.RShift: ("shr", operator.rshift),
}
_COMPARISONS = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}


@dataclass(frozen=True)
class Typed:
    """A value: a register and its type."""

    register: Register
    type: Type


Operand = Typed | int
"""Plain numbers fit either integer type, and stay Python's until one is chosen."""


def described(value: Operand) -> str:
    return "a number" if isinstance(value, int) else f"{value.type}"


@dataclass(frozen=True)
class Place:
    """An integer in memory."""

    register: Register
    memory: Pointer


class Expressions:
    """Translates the expressions of one function. ``lookup`` gives what a name means outside of it, or raises KeyError.

    ``callees`` are the functions that it calls, found on the way; ``fail`` makes the error for a place in the text.
    """

    def __init__(self, lookup: Callable[[str], object], fail: Callable[[ast.AST, str], LoweringError]) -> None:
        self.code = Code()
        self.callees: dict[str, Function] = {}
        self._lookup = lookup
        self._fail = fail
        self._variables: dict[str, tuple[Slot, Type]] = {}
        # Those that have a value at this place, on whatever way it was reached.
        self._certain: frozenset[str] = frozenset()

    def _value(self, node: ast.expr) -> Operand:
        values = self._values(node)
        if len(values) != 1:
            raise self._fail(node, f"this is {len(values)} values where one is needed")
        return values[0]

    def _values(self, node: ast.expr) -> list[Operand]:
        if isinstance(node, ast.Tuple):
            return [self._value(each) for each in node.elts]
        return self._call(node) if isinstance(node, ast.Call) else [self._single(node)]

    def _single(self, node: ast.expr) -> Operand:
        match node:
            case ast.Constant(value=bool() as truth):
                return Typed(constant(truth, "i1"), TRUTH)
            case ast.Constant(value=int() as number):
                return number
            case ast.Name():
                return self._name(node)
            case ast.Subscript():
                return self._load(self._place(node))
            case ast.BinOp():
                return self._arithmetic(node, node.op, self._value(node.left), self._value(node.right))
            case ast.UnaryOp(op=ast.USub()):
                return self._arithmetic(node, ast.Sub(), 0, self._value(node.operand))
            case ast.UnaryOp(op=ast.Invert()):
                return self._arithmetic(node, ast.BitXor(), self._value(node.operand), -1)
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return self._chosen(node, node, ast.Constant(True), ast.Constant(False))
            case ast.IfExp():
                return self._chosen(node, node.test, node.body, node.orelse)
        raise self._fail(node, "a native function has no such expression")

    # -- names, memory, arithmetic -------------------------------------------------------------------------------------

    def _name(self, node: ast.Name) -> Operand:
        if node.id in self._variables:
            if node.id not in self._certain:
                raise self._fail(node, f"{node.id} has no value on some way to this line")
            slot, kind = self._variables[node.id]
            return Typed(slot.get(), kind)
        value = self._static(node)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._fail(node, f"{node.id} is {value!r}, and only integers are constants")
        return value

    def _static(self, node: ast.expr) -> object:
        """What a name outside of the function stands for, an attribute of it, or the type of a pointer."""
        if isinstance(node, ast.Attribute):
            owner = self._static(node.value)
            if not hasattr(owner, node.attr):
                raise self._fail(node, f"{ast.unparse(node)} is not known here")
            return getattr(owner, node.attr)
        if isinstance(node, ast.Name):
            try:
                return self._lookup(node.id)
            except KeyError:
                raise self._fail(node, f"{node.id} is not known here") from None
        if isinstance(node, ast.Call):
            maker, elements = self._static(node.func), [self._static(each) for each in node.args]
            if maker in (pointer, read_only) and len(elements) == 1 and isinstance(elements[0], Integer):
                return maker(*elements)
        raise self._fail(node, "this must be a name")

    def _place(self, node: ast.Subscript) -> Place:
        memory = self._value(node.value)
        if isinstance(memory, int) or not isinstance(memory.type, Pointer):
            raise self._fail(node, f"{described(memory)} has no elements, only a pointer has")
        return Place(self._moved(node, memory, self._value(node.slice)).register, memory.type)

    def _moved(self, node: ast.AST, memory: Typed, distance: Operand) -> Typed:
        """A pointer so many elements further."""
        steps = self._as(i64, distance, node)
        element = f"i{memory.type.element.bits}"
        place = self.code.emit(f"getelementptr {element}, {memory.register.typed}, {steps.typed}", "ptr")
        return Typed(place, memory.type)

    def _load(self, place: Place) -> Typed:
        element = place.memory.element
        register = self.code.emit(f"load i{element.bits}, {place.register.typed}, align 1", f"i{element.bits}")
        if element.bits < 64:
            register = self.code.convert("sext" if element.signed else "zext", register, "i64")
        return Typed(register, element.value)

    def _store(self, node: ast.AST, place: Place, value: Operand) -> None:
        element = place.memory.element
        if not place.memory.writable:
            raise self._fail(node, f"{place.memory} is written")
        # Either kind of integer has the low bits that a narrower one keeps.
        narrowed = element.bits < 64 and isinstance(value, Typed) and value.type in (i64, u64)
        register = self._as(value.type if narrowed else element.value, value, node)
        if element.bits < 64:
            register = self.code.convert("trunc", register, f"i{element.bits}")
        self.code.line(f"store {register.typed}, {place.register.typed}, align 1")

    def _arithmetic(self, node: ast.AST, operator: ast.operator, left: Operand, right: Operand) -> Operand:
        if type(operator) not in _ARITHMETIC:
            raise self._fail(node, f"a native function has no operator {type(operator).__name__}")
        opcode, folded = _ARITHMETIC[type(operator)]
        if opcode in ("shl", "shr") and isinstance(right, int) and not 0 <= right <= 64:
            raise self._fail(node, f"a shift by {right} is not one by 0 to 64 bits")
        if isinstance(left, int) and isinstance(right, int):
            return folded(left, right)
        if isinstance(left, Typed) and isinstance(left.type, Pointer):
            if opcode != "add":
                raise self._fail(node, "a pointer can only be moved, by +")
            return self._moved(node, left, right)
        common = self._common(node, left, right)
        operands = [self._as(common, value, node) for value in (left, right)]
        if opcode in ("shl", "shr"):
            return Typed(self._shifted(opcode, common, *operands), common)
        return Typed(self.code.binary(opcode, *operands), common)

    def _shifted(self, opcode: str, kind: Integer, value: Register, count: Register) -> Register:
        """A shift, also by more bits than there are, which the machine's own instruction leaves open."""
        fits = self.code.compare("icmp ult", count, constant(64, "i64"))
        if opcode == "shr" and kind.signed:
            return self.code.binary("ashr", value, self.code.select(fits, count, constant(63, "i64")))
        shifted = self.code.binary("lshr" if opcode == "shr" else "shl", value, count)
        return self.code.select(fits, shifted, constant(0, "i64"))

    def _common(self, node: ast.AST, left: Operand, right: Operand) -> Integer:
        kinds = {value.type for value in (left, right) if isinstance(value, Typed)}
        if len(kinds) > 1:
            raise self._fail(node, f"{described(left)} and {described(right)} do not mix: convert one")
        (kind,) = kinds or {i64}
        if kind not in (i64, u64):
            raise self._fail(node, f"there is no arithmetic of {kind}")
        return kind

    def _as(self, kind: Type, value: Operand, node: ast.AST) -> Register:
        """The register of a value that must be of this type."""
        if isinstance(value, int) and kind in (i64, u64):
            if not -(1 << 63) <= value < 1 << (63 if kind.signed else 64):
                raise self._fail(node, f"{value} does not fit {kind}")
            return constant(value, "i64")
        if isinstance(value, Typed):
            writable = isinstance(kind, Pointer) and value.type == Pointer(kind.element, writable=True)
            if value.type == kind or writable:
                return value.register
        raise self._fail(node, f"this is {described(value)} where {kind} is needed")

    # -- conditions ----------------------------------------------------------------------------------------------------

    def _chosen(self, node: ast.expr, test: ast.expr, then: ast.expr, otherwise: ast.expr) -> Typed:
        """One of two values; only that one is worked out."""
        yes, no, done = (self.code.new_label() for _ in range(3))
        self._branch(test, yes, no)
        self.code.label(yes)
        value = self._value(then)
        kind = i64 if isinstance(value, int) else value.type
        slot = self.code.slot(self._as(kind, value, node))
        self._jump(done)
        self.code.label(no)
        slot.set(self._as(kind, self._value(otherwise), node))
        self._jump(done)
        self.code.label(done)
        return Typed(slot.get(), kind)

    def _jump(self, label: str) -> None:
        self.code.line(f"br label %{label}")

    def _branch(self, test: ast.expr, yes: str, no: str) -> None:
        """Go on at one label or the other; no more of the test is worked out than it takes to know."""
        match test:
            case ast.BoolOp(op=operator, values=[*firsts, last]):
                for each in firsts:
                    following = self.code.new_label()
                    self._branch(each, *((following, no) if isinstance(operator, ast.And) else (yes, following)))
                    self.code.label(following)
                self._branch(last, yes, no)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._branch(operand, no, yes)
            case ast.Compare(left=first, ops=operators, comparators=others):
                left = self._value(first)
                for number, (operator, other) in enumerate(zip(operators, others, strict=True), start=1):
                    right = self._value(other)
                    following = yes if number == len(others) else self.code.new_label()
                    self._jump_if(self._compared(test, operator, left, right), following, no)
                    if following != yes:
                        self.code.label(following)
                    left = right
            case _:
                self._jump_if(self._as(TRUTH, self._value(test), test), yes, no)

    def _jump_if(self, condition: Register, yes: str, no: str) -> None:
        self.code.line(f"br {condition.typed}, label %{yes}, label %{no}")

    def _compared(self, node: ast.expr, operator: ast.cmpop, left: Operand, right: Operand) -> Register:
        if type(operator) not in _COMPARISONS:
            raise self._fail(node, f"a native function has no comparison {type(operator).__name__}")
        common = self._common(node, left, right)
        if common == u64 and any(isinstance(value, int) and value < 0 for value in (left, right)):
            raise self._fail(node, "a u64 is compared with a number below 0")
        predicate = _COMPARISONS[type(operator)]
        if predicate not in ("eq", "ne"):
            predicate = ("s" if common.signed else "u") + predicate
        operands = (self._as(common, value, node) for value in (left, right))
        return self.code.compare(f"icmp {predicate}", *operands)
