"""The body of a native function, from Python's syntax tree to LLVM IR."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from euler_ir.backends.cpu.writer import Register, constant
from euler_ir.native.calls import Calls
from euler_ir.native.expressions import Operand, Typed
from euler_ir.native.types import Type, i64, llvm_type, result_type


@dataclass(frozen=True)
class _Loop:
    following: str
    done: str
    # The variables that have a value at each place from which it is left.
    leaving: list[frozenset[str]] = field(default_factory=list)


class Translator(Calls):
    """Translates one function."""

    def function_body(self, tree: ast.FunctionDef, parameters: dict[str, Type], results: tuple[Type, ...]) -> str:
        """The text between the braces."""
        self._results, self._loops = results, []
        for number, (name, kind) in enumerate(parameters.items()):
            self._variables[name] = (self.code.slot(Register(f"%given{number}", llvm_type(kind))), kind)
        self._certain = frozenset(parameters)
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
        values = self._values(statement.value)
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        if len(values) != len(targets):
            raise self._fail(statement, f"{len(values)} values cannot be assigned to {len(targets)} targets")
        for each, value in zip(targets, values, strict=True):
            self._assign_one(each, value)
        return True

    def _assign_one(self, target: ast.expr, value: Operand) -> None:
        if isinstance(target, ast.Subscript):
            self._store(target, self._place(target), value)
        elif not isinstance(target, ast.Name):
            raise self._fail(target, "a value is assigned to a variable or to an element of a pointer")
        elif target.id in self._variables:
            slot, kind = self._variables[target.id]
            slot.set(self._as(kind, value, target))
        else:
            kind = i64 if isinstance(value, int) else value.type
            self._variables[target.id] = (self.code.slot(self._as(kind, value, target)), kind)
        if isinstance(target, ast.Name):
            self._certain |= {target.id}

    def _augassign(self, statement: ast.AugAssign) -> bool:
        target = statement.target
        if isinstance(target, ast.Subscript):
            place = self._place(target)
            changed = self._arithmetic(statement, statement.op, self._load(place), self._value(statement.value))
            self._store(statement, place, changed)
        else:
            old = self._value(target)
            self._assign_one(target, self._arithmetic(statement, statement.op, old, self._value(statement.value)))
        return True

    def _if(self, statement: ast.If) -> bool:
        then, otherwise, done = (self.code.new_label() for _ in range(3))
        self._branch(statement.test, then, otherwise if statement.orelse else done)
        before, ways = self._certain, []
        self.code.label(then)
        if self._leads_to(done, statement.body):
            ways.append(self._certain)
        self._certain = before
        if statement.orelse:
            self.code.label(otherwise)
        if not statement.orelse or self._leads_to(done, statement.orelse):
            ways.append(self._certain)
        return self._meet(done, ways)

    def _meet(self, label: str, ways: list[frozenset[str]]) -> bool:
        """Go on where ways meet; a variable has a value there if it has one on each of them."""
        if ways:
            self.code.label(label)
            self._certain = frozenset.intersection(*ways)
        return bool(ways)

    def _leads_to(self, label: str, statements: list[ast.stmt]) -> bool:
        falls_through = self._block(statements)
        if falls_through:
            self._jump(label)
        return falls_through

    def _while(self, statement: ast.While) -> bool:
        test, body, done = (self.code.new_label() for _ in range(3))
        forever = isinstance(statement.test, ast.Constant) and statement.test.value is True
        self._jump(test)
        self.code.label(test)
        loop = _Loop(test, done)
        if forever:
            self._jump(body)
        else:
            self._branch(statement.test, body, done)
            loop.leaving.append(self._certain)
        self.code.label(body)
        self._loop_body(statement, loop)
        return self._meet(done, loop.leaving)

    def _for(self, statement: ast.For) -> bool:
        call = statement.iter
        is_range = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"
        if not (is_range and 1 <= len(call.args) <= 2 and isinstance(statement.target, ast.Name)):
            raise self._fail(statement, "a loop goes over range(stop) or range(start, stop)")
        start, stop = [0, *map(self._value, call.args)][-2:]
        counter = self.code.slot(self._as(i64, start, statement))
        stop = self._as(i64, stop, statement)
        test, body, following, done = (self.code.new_label() for _ in range(4))
        self._jump(test)
        self.code.label(test)
        position = counter.get()
        inside = self.code.compare("icmp slt", position, stop)
        self._jump_if(inside, body, done)
        loop = _Loop(following, done, [self._certain])
        self.code.label(body)
        self._assign_one(statement.target, Typed(position, i64))
        self._loop_body(statement, loop)
        self.code.label(following)
        counter.set(self.code.binary("add", counter.get(), constant(1, "i64")))
        self._jump(test)
        return self._meet(done, loop.leaving)

    def _loop_body(self, statement: ast.While | ast.For, loop: _Loop) -> None:
        if statement.orelse:
            raise self._fail(statement, "a loop has no else")
        self._loops.append(loop)
        self._leads_to(loop.following, statement.body)
        self._loops.pop()

    def _break(self, statement: ast.Break) -> bool:
        self._loops[-1].leaving.append(self._certain)
        self._jump(self._loops[-1].done)
        return False

    def _continue(self, statement: ast.Continue) -> bool:
        self._jump(self._loops[-1].following)
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
            kind, whole = result_type(self._results), "poison"
            for position, register in enumerate(registers):
                whole = self.code.emit(f"insertvalue {kind} {whole}, {register.typed}, {position}", kind).text
            self.code.line(f"ret {kind} {whole}")
        return False
