"""Calls in native functions: of each other, of the machine's operations, and of types, which convert."""

from __future__ import annotations

import ast

from euler_ir.backends.cpu.writer import Register
from euler_ir.native.compiled_function import Function
from euler_ir.native.expressions import Expressions, Operand, Typed, described
from euler_ir.native.types import Integer, Operation, Pointer, Type, i64, llvm_type, result_type, u64


class Calls(Expressions):
    """Translates the expressions of one function that are calls."""

    def _call(self, node: ast.Call) -> list[Operand]:
        callee = self._static(node.func)
        if node.keywords:
            raise self._fail(node, "arguments of a native call have no names")
        arguments = [self._value(argument) for argument in node.args]
        match callee:
            case Operation():
                expected = callee.arguments
            case Integer() | Pointer():
                expected = 1
            case Function():
                expected = len(callee.parameters)
            case _:
                raise self._fail(node, f"{ast.unparse(node.func)} is not a native function")
        if len(arguments) != expected:
            raise self._fail(node, f"{ast.unparse(node.func)} takes {expected} arguments, not {len(arguments)}")
        if isinstance(callee, Operation):
            return getattr(self, f"_{callee.name}")(node, *arguments)
        if isinstance(callee, (Integer, Pointer)):
            return [self._converted(node, callee, *arguments)]
        if self.callees.setdefault(callee.symbol, callee) is not callee:
            raise self._fail(node, f"before, {callee.symbol} was the name of another function")
        registers = [
            self._as(kind, value, node) for kind, value in zip(callee.parameters.values(), arguments, strict=True)
        ]
        given = ", ".join(each.typed for each in registers)
        call = f"call {result_type(callee.results)} {callee.name_in_module}({given})"
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
