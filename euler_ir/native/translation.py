"""The body of a native function, from Python's syntax tree to LLVM IR."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from euler_ir.backends.cpu.writer import Code, Register, Slot, constant
from euler_ir.errors import LoweringError
from euler_ir.native.types import TRUTH, Integer, Operation, Pointer, i64, u64

Type = Integer | Pointer

_BITS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor"}
_FOLDED = {
    ast.Add: int.__add__,
    ast.Sub: int.__sub__,
    ast.Mult: int.__mul__,
    ast.BitAnd: int.__and__,
    ast.BitOr: int.__or__,
    ast.BitXor: int.__xor__,
    ast.LShift: int.__lshift__,
    ast.RShift: int.__rshift__,
}
_COMPARISONS = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}


def llvm_type(kind: Type) -> str:
    if isinstance(kind, Pointer):
        return "ptr"
    return "i1" if kind == TRUTH else "i64"


@dataclass(frozen=True)
class Typed:
    """A value: a register and its type. Plain numbers, which fit either integer type, are ints instead."""

    register: Register
    type: Type


@dataclass(frozen=True)
class _Loop:
    following: str
    done: str


class Translator:
    """Translates one function. ``lookup`` gives what a name means outside of it, or raises KeyError.

    ``callees`` are the functions that it calls, found on the way; ``fail`` makes the error for a place in the text.
    """

    def __init__(self, lookup: Callable[[str], object], fail: Callable[[ast.AST, str], LoweringError]) -> None:
        self.code = Code()
        self.callees: dict[str, object] = {}
        self._lookup = lookup
        self._fail = fail
        self._variables: dict[str, tuple[Slot, Type]] = {}
        self._loops: list[_Loop] = []

    def function_body(self, tree: ast.FunctionDef, parameters: dict[str, Type], results: tuple[Type, ...]) -> str:
        """The text between the braces."""
        self._results = results
        for name, kind in parameters.items():
            self._variables[name] = (self.code.slot(Register(f"%given.{name}", llvm_type(kind))), kind)
        falls_through = self._block(tree.body)
        if falls_through and results:
            raise self._fail(tree, f"{tree.name} may end without a return")
        return self.code.body("ret void" if falls_through else "unreachable")

    # -- statements: each says whether what follows it can be reached --------------------------------------------------

    def _block(self, statements: list[ast.stmt]) -> bool:
        for statement in statements:
            method = getattr(self, f"_{type(statement).__name__.lower()}", None)
            if method is None:
                raise self._fail(statement, f"a native function has no {type(statement).__name__.lower()} statement")
            if not method(statement):
                return False
        return True

    def _pass(self, statement: ast.Pass) -> bool:
        return True

    def _expr(self, statement: ast.Expr) -> bool:
        if isinstance(statement.value, ast.Call):
            self._call(statement.value)
        elif not (isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)):
            raise self._fail(statement, "this expression does nothing")
        return True

    def _assign(self, statement: ast.Assign) -> bool:
        (target, *others) = statement.targets
        if others:
            raise self._fail(statement, "one assignment has one target")
        if not isinstance(target, ast.Tuple):
            self._store(target, self._value(statement.value))
            return True
        values = self._values(statement.value)
        if len(values) != len(target.elts):
            raise self._fail(statement, f"{len(values)} values cannot be assigned to {len(target.elts)} targets")
        for each, value in zip(target.elts, values, strict=True):
            self._store(each, value)
        return True

    def _augassign(self, statement: ast.AugAssign) -> bool:
        left = ast.copy_location(ast.parse(ast.unparse(statement.target), mode="eval").body, statement)
        ast.fix_missing_locations(left)
        self._store(statement.target, self._operation(statement, statement.op, left, statement.value))
        return True

    def _if(self, statement: ast.If) -> bool:
        then, otherwise, done = (self.code.new_label() for _ in range(3))
        self._branch(statement.test, then, otherwise if statement.orelse else done)
        self.code.label(then)
        then_ends = self._leads_to(done, statement.body)
        else_ends = True
        if statement.orelse:
            self.code.label(otherwise)
            else_ends = self._leads_to(done, statement.orelse)
        if then_ends or else_ends:
            self.code.label(done)
        return then_ends or else_ends

    def _leads_to(self, label: str, statements: list[ast.stmt]) -> bool:
        falls_through = self._block(statements)
        if falls_through:
            self.code.line(f"br label %{label}")
        return falls_through

    def _while(self, statement: ast.While) -> bool:
        test, body, done = (self.code.new_label() for _ in range(3))
        forever = isinstance(statement.test, ast.Constant) and statement.test.value is True
        self.code.line(f"br label %{test}")
        self.code.label(test)
        if forever:
            self.code.line(f"br label %{body}")
        else:
            self._branch(statement.test, body, done)
        self.code.label(body)
        self._loop_body(statement, _Loop(test, done))
        self.code.label(done)
        return not forever or any(isinstance(node, ast.Break) for node in ast.walk(statement))

    def _for(self, statement: ast.For) -> bool:
        call = statement.iter
        is_range = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"
        if not (is_range and 1 <= len(call.args) <= 2 and isinstance(statement.target, ast.Name)):
            raise self._fail(statement, "a loop goes over range(stop) or range(start, stop)")
        start, stop = [0, *map(self._value, call.args)][-2:]
        counter = self.code.slot(self._as(i64, start, statement))
        stop = self._as(i64, stop, statement)
        test, body, following, done = (self.code.new_label() for _ in range(4))
        self.code.line(f"br label %{test}")
        self.code.label(test)
        position = counter.get()
        inside = self.code.compare("icmp slt", position, stop)
        self.code.line(f"br {inside.typed}, label %{body}, label %{done}")
        self.code.label(body)
        self._store(statement.target, Typed(position, i64))
        self._loop_body(statement, _Loop(following, done))
        self.code.label(following)
        counter.set(self.code.binary("add", counter.get(), constant(1, "i64")))
        self.code.line(f"br label %{test}")
        self.code.label(done)
        return True

    def _loop_body(self, statement: ast.While | ast.For, loop: _Loop) -> None:
        if statement.orelse:
            raise self._fail(statement, "a loop has no else")
        self._loops.append(loop)
        self._leads_to(loop.following, statement.body)
        self._loops.pop()

    def _break(self, statement: ast.Break) -> bool:
        self.code.line(f"br label %{self._loops[-1].done}")
        return False

    def _continue(self, statement: ast.Continue) -> bool:
        self.code.line(f"br label %{self._loops[-1].following}")
        return False

    def _return(self, statement: ast.Return) -> bool:
        given = statement.value
        values = self._values(given) if given is not None else []
        if len(values) != len(self._results):
            raise self._fail(statement, f"{len(values)} values are returned, {len(self._results)} are declared")
        registers = [self._as(kind, value, statement) for kind, value in zip(self._results, values, strict=True)]
        if not registers:
            self.code.line("ret void")
        elif len(registers) == 1:
            self.code.line(f"ret {registers[0].typed}")
        else:
            kind, whole = _struct(self._results), "poison"
            for position, register in enumerate(registers):
                whole = self.code.emit(f"insertvalue {kind} {whole}, {register.typed}, {position}", kind).text
            self.code.line(f"ret {kind} {whole}")
        return False

    def _store(self, target: ast.expr, value: Typed | int) -> None:
        if isinstance(target, ast.Subscript):
            memory = self._pointer(target.value)
            if not memory.type.writable:
                raise self._fail(target, f"{memory.type} is written")
            element = memory.type.element
            place = self._element(memory, target.slice)
            # Both kinds have the same low bits.
            register = self._as(element.value if isinstance(value, int) else value.type, value, target)
            if register.element != "i64" or (element.bits == 64 and not self._is(element, value)):
                raise self._fail(target, f"a {value.type} is written to {memory.type}")
            if element.bits < 64:
                register = self.code.convert("trunc", register, f"i{element.bits}")
            self.code.line(f"store {register.typed}, {place.typed}, align 1")
            return
        if not isinstance(target, ast.Name):
            raise self._fail(target, "a value is assigned to a variable or to an element of a pointer")
        if target.id not in self._variables:
            kind = i64 if isinstance(value, int) else value.type
            self._variables[target.id] = (self.code.slot(self._as(kind, value, target)), kind)
            return
        slot, kind = self._variables[target.id]
        slot.set(self._as(kind, value, target))

    # -- expressions ---------------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr) -> Typed | int:
        values = self._values(node)
        if len(values) != 1:
            raise self._fail(node, f"this is {len(values)} values where one is needed")
        return values[0]

    def _values(self, node: ast.expr) -> list[Typed | int]:
        if isinstance(node, ast.Tuple):
            return [self._value(each) for each in node.elts]
        if isinstance(node, ast.Call):
            return self._call(node)
        return [self._single(node)]

    def _single(self, node: ast.expr) -> Typed | int:
        match node:
            case ast.Constant(value=int() as number):
                return Typed(constant(number, "i1"), TRUTH) if isinstance(number, bool) else number
            case ast.Name():
                return self._name(node)
            case ast.Subscript():
                return self._load(node)
            case ast.BinOp():
                return self._operation(node, node.op, node.left, node.right)
            case ast.UnaryOp(op=ast.USub()):
                return self._operation(node, ast.Sub(), ast.Constant(0), node.operand)
            case ast.UnaryOp(op=ast.Invert()):
                return self._operation(node, ast.BitXor(), node.operand, ast.Constant(-1))
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return self._chosen(node, node, ast.Constant(True), ast.Constant(False))
            case ast.IfExp():
                return self._chosen(node, node.test, node.body, node.orelse)
        raise self._fail(node, "a native function has no such expression")

    def _name(self, node: ast.Name) -> Typed | int:
        if node.id in self._variables:
            slot, kind = self._variables[node.id]
            return Typed(slot.get(), kind)
        value = self._static(node)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._fail(node, f"{node.id} is {value!r}, and only integers are constants")
        return value

    def _static(self, node: ast.expr) -> object:
        """What a name outside of the function stands for, or an attribute of it."""
        if isinstance(node, ast.Attribute):
            return getattr(self._static(node.value), node.attr)
        if isinstance(node, ast.Name):
            try:
                return self._lookup(node.id)
            except KeyError:
                raise self._fail(node, f"{node.id} is not known here") from None
        raise self._fail(node, "this must be a name")

    def _pointer(self, node: ast.expr) -> Typed:
        value = self._value(node)
        if isinstance(value, int) or not isinstance(value.type, Pointer):
            raise self._fail(node, "only a pointer has elements")
        return value

    def _element(self, memory: Typed, index: ast.expr) -> Register:
        position = self._as(i64, self._value(index), index)
        return self.code.emit(
            f"getelementptr i{memory.type.element.bits}, {memory.register.typed}, {position.typed}", "ptr"
        )

    def _load(self, node: ast.Subscript) -> Typed:
        memory = self._pointer(node.value)
        element = memory.type.element
        place = self._element(memory, node.slice)
        register = self.code.emit(f"load i{element.bits}, {place.typed}, align 1", f"i{element.bits}")
        if element.bits < 64:
            register = self.code.convert("sext" if element.signed else "zext", register, "i64")
        return Typed(register, element.value)

    def _operation(self, node: ast.AST, operator: ast.operator, left: ast.expr, right: ast.expr) -> Typed | int:
        first, second = self._value(left), self._value(right)
        kind = type(operator)
        if kind not in _FOLDED:
            raise self._fail(node, f"a native function has no operator {kind.__name__}")
        if isinstance(first, int) and isinstance(second, int):
            return _FOLDED[kind](first, second)
        if isinstance(first, Typed) and isinstance(first.type, Pointer):
            if kind is not ast.Add:
                raise self._fail(node, "a pointer can only be moved, by +")
            return Typed(self._element(first, right), first.type)
        common = self._common(node, first, second)
        if kind in _BITS:
            opcode = _BITS[kind]
        else:
            opcode = "shl" if kind is ast.LShift else ("ashr" if common.signed else "lshr")
        operands = (self._as(common, value, node) for value in (first, second))
        return Typed(self.code.binary(opcode, *operands), common)

    def _common(self, node: ast.AST, first: Typed | int, second: Typed | int) -> Integer:
        kinds = {value.type for value in (first, second) if isinstance(value, Typed)}
        if len(kinds) > 1:
            raise self._fail(node, f"{' and '.join(map(str, (first.type, second.type)))} do not mix: convert one")
        (kind,) = kinds or {i64}
        if kind not in (i64, u64):
            raise self._fail(node, f"there is no arithmetic of {kind}")
        return kind

    def _chosen(self, node: ast.expr, test: ast.expr, then: ast.expr, otherwise: ast.expr) -> Typed:
        """One of two values; only that one is worked out."""
        yes, no, done = (self.code.new_label() for _ in range(3))
        self._branch(test, yes, no)
        self.code.label(yes)
        value = self._value(then)
        kind = i64 if isinstance(value, int) else value.type
        slot = self.code.slot(self._as(kind, value, node))
        self.code.line(f"br label %{done}")
        self.code.label(no)
        slot.set(self._as(kind, self._value(otherwise), node))
        self.code.line(f"br label %{done}")
        self.code.label(done)
        return Typed(slot.get(), kind)

    def _branch(self, test: ast.expr, yes: str, no: str) -> None:
        """Go on at one label or the other; `and` and `or` look at no more than they need."""
        match test:
            case ast.BoolOp(op=operator, values=[*firsts, last]):
                for each in firsts:
                    following = self.code.new_label()
                    self._branch(each, *((following, no) if isinstance(operator, ast.And) else (yes, following)))
                    self.code.label(following)
                self._branch(last, yes, no)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._branch(operand, no, yes)
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                condition = self._compare(test, operator, left, right)
                self.code.line(f"br {condition.typed}, label %{yes}, label %{no}")
            case ast.Compare():
                parts = [test.left, *test.comparators]
                pairs = zip(parts, test.ops, parts[1:], strict=False)
                each = [ast.copy_location(ast.Compare(left, [op], [right]), test) for left, op, right in pairs]
                self._branch(ast.copy_location(ast.BoolOp(ast.And(), each), test), yes, no)
            case _:
                condition = self._as(TRUTH, self._value(test), test)
                self.code.line(f"br {condition.typed}, label %{yes}, label %{no}")

    def _compare(self, node: ast.expr, operator: ast.cmpop, left: ast.expr, right: ast.expr) -> Register:
        first, second = self._value(left), self._value(right)
        if type(operator) not in _COMPARISONS:
            raise self._fail(node, f"a native function has no comparison {type(operator).__name__}")
        common = self._common(node, first, second)
        predicate = _COMPARISONS[type(operator)]
        if predicate not in ("eq", "ne"):
            predicate = ("s" if common.signed else "u") + predicate
        operands = (self._as(common, value, node) for value in (first, second))
        return self.code.compare(f"icmp {predicate}", *operands)

    def _is(self, kind: Type, value: Typed | int) -> bool:
        return isinstance(value, int) or value.type == kind

    def _as(self, kind: Type, value: Typed | int, node: ast.AST) -> Register:
        """The register of a value that must be of this type."""
        if isinstance(value, int) and kind in (i64, u64):
            if not -(1 << 63) <= value < 1 << (63 if kind.signed else 64):
                raise self._fail(node, f"{value} does not fit {kind}")
            return constant(value, "i64")
        if not isinstance(value, int) and value.type == kind:
            return value.register
        if not isinstance(value, int) and isinstance(kind, Pointer) and value.type == Pointer(kind.element, True):
            return value.register
        found = "a number" if isinstance(value, int) else str(value.type)
        raise self._fail(node, f"this is {found} where {kind} is needed")

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> list[Typed | int]:
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

    def _converted(self, node: ast.Call, kind: Type, value: Typed | int) -> Typed:
        if kind in (i64, u64):
            if isinstance(value, int):
                return Typed(self._as(kind, value, node), kind)
            if value.type in (i64, u64):
                return Typed(value.register, kind)
        elif isinstance(kind, Pointer) and isinstance(value, Typed) and isinstance(value.type, Pointer):
            if kind.writable <= value.type.writable:
                return Typed(value.register, kind)
        raise self._fail(node, f"{'a number' if isinstance(value, int) else value.type} does not become {kind}")

    def _trailing_zeros(self, node: ast.Call, value: Typed | int) -> list[Typed]:
        operand = self._as(u64, value, node)
        self.code.helpers.add("declare i64 @llvm.cttz.i64(i64, i1)")
        return [Typed(self.code.emit(f"call i64 @llvm.cttz.i64({operand.typed}, i1 false)", "i64"), i64)]

    def _multiply_wide(self, node: ast.Call, left: Typed | int, right: Typed | int) -> list[Typed]:
        factors = [self.code.convert("zext", self._as(u64, value, node), "i128") for value in (left, right)]
        product = self.code.binary("mul", *factors)
        upper = self.code.binary("lshr", product, Register("64", "i128"))
        return [Typed(self.code.convert("trunc", half, "i64"), u64) for half in (product, upper)]

    def _prefetch(self, node: ast.Call, memory: Typed | int) -> list[Typed]:
        if isinstance(memory, int) or not isinstance(memory.type, Pointer):
            raise self._fail(node, "only memory at a pointer can be prefetched")
        self.code.helpers.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.code.line(f"call void @llvm.prefetch.p0({memory.register.typed}, i32 0, i32 3, i32 1)")
        return []


def _struct(results: tuple[Type, ...]) -> str:
    return f"{{ {', '.join(map(llvm_type, results))} }}"


def result_type(results: tuple[Type, ...]) -> str:
    """The LLVM type that a function of these results returns."""
    if len(results) > 1:
        return _struct(results)
    return llvm_type(results[0]) if results else "void"
