"""Expressions of native functions, from Python's syntax tree to LLVM IR."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass

from euler_ir.backends.cpu.writer import Code, Register, Slot, constant
from euler_ir.errors import LoweringError
from euler_ir.native.types import TRUTH, Integer, Operation, Pointer, Type, i64, pointer, read_only, u64

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


def llvm_type(kind: Type) -> str:
    if isinstance(kind, Pointer):
        return "ptr"
    return "i1" if kind == TRUTH else "i64"


def result_type(results: tuple[Type, ...]) -> str:
    """The LLVM type that a function of these results returns."""
    if len(results) > 1:
        return f"{{ {', '.join(map(llvm_type, results))} }}"
    return llvm_type(results[0]) if results else "void"


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
        self.callees: dict[str, object] = {}
        self._lookup = lookup
        self._fail = fail
        self._variables: dict[str, tuple[Slot, Type]] = {}

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
            slot, kind = self._variables[node.id]
            return Typed(slot.get(), kind)
        value = self._static(node)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._fail(node, f"{node.id} is {value!r}, and only integers are constants")
        return value

    def _static(self, node: ast.expr) -> object:
        """What a name outside of the function stands for, an attribute of it, or the type of a pointer."""
        if isinstance(node, ast.Attribute):
            return getattr(self._static(node.value), node.attr)
        if isinstance(node, ast.Name):
            try:
                return self._lookup(node.id)
            except KeyError:
                raise self._fail(node, f"{node.id} is not known here") from None
        if isinstance(node, ast.Call):
            maker = self._static(node.func)
            if maker in (pointer, read_only):
                return maker(*map(self._static, node.args))
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
        if isinstance(left, int) and isinstance(right, int):
            return folded(left, right)
        if isinstance(left, Typed) and isinstance(left.type, Pointer):
            if opcode != "add":
                raise self._fail(node, "a pointer can only be moved, by +")
            return self._moved(node, left, right)
        common = self._common(node, left, right)
        if opcode == "shr":
            opcode = "ashr" if common.signed else "lshr"
        operands = (self._as(common, value, node) for value in (left, right))
        return Typed(self.code.binary(opcode, *operands), common)

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
        predicate = _COMPARISONS[type(operator)]
        if predicate not in ("eq", "ne"):
            predicate = ("s" if common.signed else "u") + predicate
        operands = (self._as(common, value, node) for value in (left, right))
        return self.code.compare(f"icmp {predicate}", *operands)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> list[Operand]:
        callee = self._static(node.func)
        if node.keywords:
            raise self._fail(node, "arguments of a native call have no names")
        arguments = [self._value(argument) for argument in node.args]
        if isinstance(callee, Operation):
            return getattr(self, f"_{callee.name}")(node, *arguments)
        if isinstance(callee, (Integer, Pointer)):
            return [self._converted(node, callee, *arguments)]
        if not hasattr(callee, "symbol"):
            raise self._fail(node, f"{ast.unparse(node.func)} is not a native function")
        if len(arguments) != len(callee.parameters):
            raise self._fail(node, f"{callee.symbol} takes {len(callee.parameters)} arguments, not {len(arguments)}")
        self.callees[callee.symbol] = callee
        registers = [
            self._as(kind, value, node) for kind, value in zip(callee.parameters.values(), arguments, strict=True)
        ]
        call = f"call {result_type(callee.results)} @{callee.symbol}({', '.join(each.typed for each in registers)})"
        if not callee.results:
            self.code.line(call)
            return []
        whole = self.code.emit(call, result_type(callee.results))
        if len(callee.results) == 1:
            return [Typed(whole, callee.results[0])]
        return [
            Typed(self.code.emit(f"extractvalue {whole.typed}, {position}", llvm_type(kind)), kind)
            for position, kind in enumerate(callee.results)
        ]

    def _converted(self, node: ast.Call, kind: Type, value: Operand) -> Typed:
        if kind in (i64, u64) and (isinstance(value, int) or value.type in (i64, u64)):
            return Typed(self._as(kind, value, node) if isinstance(value, int) else value.register, kind)
        if isinstance(kind, Pointer) and isinstance(value, Typed) and isinstance(value.type, Pointer):
            if value.type.writable or not kind.writable:
                return Typed(value.register, kind)
        raise self._fail(node, f"{described(value)} does not become {kind}")

    def _trailing_zeros(self, node: ast.Call, value: Operand) -> list[Typed]:
        operand = self._as(u64, value, node)
        self.code.helpers.add("declare i64 @llvm.cttz.i64(i64, i1)")
        return [Typed(self.code.emit(f"call i64 @llvm.cttz.i64({operand.typed}, i1 false)", "i64"), i64)]

    def _multiply_wide(self, node: ast.Call, left: Operand, right: Operand) -> list[Typed]:
        factors = [self.code.convert("zext", self._as(u64, value, node), "i128") for value in (left, right)]
        product = self.code.binary("mul", *factors)
        upper = self.code.binary("lshr", product, Register("64", "i128"))
        return [Typed(self.code.convert("trunc", half, "i64"), u64) for half in (product, upper)]

    def _prefetch(self, node: ast.Call, memory: Operand) -> list[Typed]:
        if isinstance(memory, int) or not isinstance(memory.type, Pointer):
            raise self._fail(node, "only memory at a pointer can be prefetched")
        self.code.helpers.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.code.line(f"call void @llvm.prefetch.p0({memory.register.typed}, i32 0, i32 3, i32 1)")
        return []
