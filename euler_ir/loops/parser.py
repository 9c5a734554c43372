"""Text to Loop IR: every fault reported at its place. ``printer`` says how the text looks.

Index expressions are brought into their normal form, so that ``(128 i + j) floordiv 128`` is read as what it comes to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from euler_ir.dtypes import DTYPES, DType
from euler_ir.errors import ParseError, VerifyError, did_you_mean
from euler_ir.index import Axis, Bound, Condition, Dynamic, Index, Multiple
from euler_ir.loops.kernel import (
    Buffer,
    Carry,
    CheckIndex,
    Compute,
    Constant,
    IndexValue,
    Kernel,
    Load,
    Loop,
    Nest,
    Reduction,
    Statement,
    Store,
)
from euler_ir.loops.printer import KEYWORDS
from euler_ir.loops.verify import COMBINES, verify_nest
from euler_ir.ops import OPS
from euler_ir.text.literals import Literal, LiteralError, read_number
from euler_ir.text.printer import VERSION
from euler_ir.text.reader import Reader, Token

_STATEMENTS = ("nest", "local", "store", "loop")
"""The words that a statement begins with, where it does not begin with a scalar."""
PARAMETERS = ("input", "output", "inout")
MOST = 2**63 - 1
MOST_NESTED = 64
"""Loops inside of each other, or parentheses: whatever walks over a kernel recurses as deep."""
_OPERATIONS = ("load", "constant", "index", "check", "philox")


def parse_kernel(text: str, filename: str = "<text>") -> Kernel:
    """The one kernel that ``text`` describes. Raises ParseError as `parse_kernels` does, and when there are more."""
    kernels = parse_kernels(text, filename)
    if len(kernels) != 1:
        raise ParseError(f"{filename}: expected one kernel, found {len(kernels)}")
    return kernels[0]


def parse_kernels(text: str, filename: str = "<text>") -> tuple[Kernel, ...]:
    """The kernels that ``text`` describes, which keep the rules of ``verify``.

    Raises ParseError with the file, line and column of each fault, what was expected there, and the nearest known name
    for a misspelt one.
    """
    return _Parser(text, filename).kernels()


@dataclass(frozen=True)
class _Scope:
    """What an index can mention: the axes around it, and the extents of checked indices."""

    axes: dict[str, Axis]
    checked: dict[str, int]

    def inside(self, axes: tuple[Axis, ...]) -> _Scope:
        return _Scope(self.axes | {axis.name: axis for axis in axes}, dict(self.checked))


class _Parser(Reader):
    def __init__(self, text: str, filename: str) -> None:
        super().__init__(text, filename, _STATEMENTS)
        self.places: dict[int, int] = {}  # where each part of a kernel stands, by its id
        self.depth = 0

    # -- kernels and nests ---------------------------------------------------------------------------------------------

    def kernels(self) -> tuple[Kernel, ...]:
        self.version(VERSION)
        kernels = [self.kernel()]
        while self.token.kind != "end":
            kernels.append(self.kernel())
        self.finish()
        for kernel in kernels:
            for nest in kernel.nests:
                self.verify(kernel.name, nest)
        self.finish()
        return tuple(kernels)

    def verify(self, kernel: str, nest: Nest) -> None:
        """Note the first rule that ``nest`` breaks, at the statement that breaks it."""
        try:
            verify_nest(nest, kernel)
        except VerifyError as error:
            self.keep(self.error(error.message, self.places[id(error.subject)], error.hint))

    def kernel(self) -> Kernel:
        self.expect("kernel")
        self.expect("@")
        name = self.name("the name of the kernel")
        self.expect("{")
        nests: list[Nest] = []
        self.statements(lambda: nests.append(self.nest()), "'nest' or '}'")
        return Kernel(name, tuple(nests))

    def nest(self) -> Nest:
        start = self.token
        self.expect("nest")
        self.expect("(")
        parameters: tuple[Buffer, ...] = ()
        if not self.accept(")"):
            parameters = tuple(self.each(lambda: self.buffer(PARAMETERS)))
            self.expect(")")
        axes = tuple(self.each(self.axis)) if self.accept("for") else ()
        vector = self.accept("vector")
        self.expect("{")
        locals: list[Buffer] = []
        body = self.body(_Scope({}, {}).inside(axes), locals)
        return self.at(start, Nest(parameters, axes, body, vector, tuple(locals)))

    def buffer(self, roles: tuple[str, ...]) -> Buffer:
        start = self.token
        if start.text not in roles:
            raise self.expected(" or ".join(map(repr, roles)), roles)
        self.advance()
        name = self.scalar("the name of a buffer")
        self.expect(":")
        type = self.take("type", "the type of a buffer, such as f32[16]")
        dtype, size = type.text[:-1].split("[")
        if dtype not in DTYPES:
            raise self.error(f"there is no element type {dtype!r}", type.offset, did_you_mean(dtype, DTYPES))
        if not size.isdecimal():
            raise self.error(f"a buffer is flat: [{size}] is no size", type.offset, "one number: f32[16]")
        return self.at(start, Buffer(name, DTYPES[dtype], self.bounded(size, type.offset), start.text))

    def axis(self) -> Axis:
        name = self.name("the name of an axis")
        self.expect("in")
        return Axis(name, self.whole("the extent of the axis", least=0))

    # -- statements ----------------------------------------------------------------------------------------------------

    def body(self, scope: _Scope, locals: list[Buffer] | None = None) -> tuple[Statement, ...]:
        """Statements up to the closing brace; of a nest, whose ``locals`` are given, also buffers before them."""
        body: list[Statement] = []

        def statement() -> None:
            if locals is not None and not body and self.token.text == "local":
                locals.append(self.buffer(("local",)))
            else:
                body.append(self.statement(scope))

        with self.nested():
            self.statements(statement, "a scalar such as %v, 'store', 'loop' or '}'")
        return tuple(body)

    def statement(self, scope: _Scope) -> Statement:
        start = self.token
        if self.accept("loop"):
            return self.loop(scope, start)
        if self.accept("store"):
            return self.at(start, self.store(scope))
        if start.kind == "value":
            return self.at(start, self.definition(scope))
        raise self.expected("a scalar such as %v, 'store', 'loop' or '}'")

    def definition(self, scope: _Scope) -> Statement:
        result = self.scalar("a scalar")
        dtype = self.dtype() if self.accept(":") else None
        self.expect("=")
        operation = self.take("word", "an operation")
        if operation.text == "check":
            if dtype is not None:
                raise self.error("a checked index is an i64: no type is written", operation.offset)
            return self.check(scope, result)
        if dtype is None:
            raise self.error(f"the type of %{result} is missing", operation.offset, f"write %{result}: f32 = ...")
        match operation.text:
            case "load":
                buffer, index = self.place(scope)
                return Load(result, dtype, buffer, index, self.conditions(scope))
            case "constant":
                return Constant(result, dtype, self.number(dtype))
            case "index":
                return IndexValue(result, dtype, self.index(scope))
        if operation.text not in OPS and operation.text != "philox":
            hint = did_you_mean(operation.text, (*_OPERATIONS, *OPS))
            raise self.error(f"there is no operation {operation.text!r}", operation.offset, hint)
        operands = tuple(self.each(lambda: self.scalar("a scalar")))
        stream = 0
        if operation.text == "philox":
            self.expect("stream")
            stream = self.whole("the number of the stream", least=0)
        return Compute(result, dtype, operation.text, operands, stream)

    def check(self, scope: _Scope, result: str) -> CheckIndex:
        value = self.scalar("a scalar")
        self.expect("in")
        extent = self.whole("the extent of the index", least=0)
        self.expect("fault")
        fault = self.whole("the number of the fault", least=1)
        conditions = self.conditions(scope)
        scope.checked[result] = extent
        return CheckIndex(result, value, extent, fault, conditions)

    def store(self, scope: _Scope) -> Store:
        buffer, index = self.place(scope)
        accumulate = self.accept("+=")
        if not accumulate and not self.accept("="):
            raise self.expected("'=' or '+='")
        return Store(buffer, index, self.scalar("a scalar"), accumulate)

    def place(self, scope: _Scope) -> tuple[str, Index]:
        buffer = self.scalar("a buffer")
        self.expect("[")
        index = self.index(scope)
        self.expect("]")
        return buffer, index

    def loop(self, scope: _Scope, start: Token) -> Loop:
        axes = tuple(self.each(self.axis)) if self.follows("in") else ()
        vector = self.accept("vector")
        carries: dict[str, tuple[Token, DType, bool | int | float]] = {}
        if self.accept("carry"):
            self.each(lambda: self.carry(carries))
        self.expect("{")
        body = self.body(scope.inside(axes))
        reductions: list[Reduction] = []
        updates: dict[str, str] = {}
        if self.token.text in ("next", *COMBINES):
            self.each(lambda: self.loop_result(carries, updates, reductions))
        for name in carries:
            if name not in updates:
                raise self.error(f"the loop does not say the next %{name}", start.offset, f"}} next %{name} = ...")
        carried = tuple(
            self.at(token, Carry(name, dtype, initial, updates[name]))
            for name, (token, dtype, initial) in carries.items()
        )
        return self.at(start, Loop(axes, body, vector, tuple(reductions), carried))

    def carry(self, carries: dict[str, tuple[Token, DType, bool | int | float]]) -> None:
        start = self.token
        name = self.scalar("a scalar")
        if name in carries:
            raise self.error(f"%{name} is carried twice", start.offset)
        self.expect(":")
        dtype = self.dtype()
        self.expect("=")
        carries[name] = start, dtype, self.number(dtype)

    def loop_result(self, carries: dict, updates: dict[str, str], reductions: list[Reduction]) -> None:
        """One of ``next %carry = %update`` and ``sum %result: f32 = %value``."""
        start = self.token
        if self.accept("next"):
            token = self.token
            name = self.scalar("a carried scalar")
            if name not in carries:
                raise self.error(f"the loop does not carry %{name}", token.offset, did_you_mean(name, carries))
            if name in updates:
                raise self.error(f"the next %{name} is given twice", token.offset)
            self.expect("=")
            updates[name] = self.scalar("a scalar")
            return
        if start.text not in COMBINES:
            raise self.expected("'next' or a reduction: " + ", ".join(COMBINES), ("next", *COMBINES))
        self.advance()
        result = self.scalar("a scalar")
        self.expect(":")
        dtype = self.dtype()
        self.expect("=")
        reductions.append(self.at(start, Reduction(result, dtype, start.text, self.scalar("a scalar"))))

    # -- indices -------------------------------------------------------------------------------------------------------

    def index(self, scope: _Scope) -> Index:
        """A sum of terms such as ``4 i``, ``%row``, ``3 (i floordiv 2)`` and ``-1``."""
        total = self.term(scope, -1 if self.accept("-") else 1)
        while True:
            token = self.token
            if self.accept("+"):
                total = total + self.term(scope, 1)
            elif self.accept("-"):
                total = total + self.term(scope, -1)
            elif token.kind == "number" and token.text.startswith("-"):
                total = total + self.term(scope, 1)
            else:
                return total

    def term(self, scope: _Scope, sign: int) -> Index:
        token = self.token
        if token.kind != "number":
            return self.divided(self.atom(scope)) * sign
        factor = sign * self.whole("a number")
        place = self.token.offset
        if self.token.text == "*":
            raise self.error("a multiple is written without a '*'", place, "4 i is four times i")
        if not self.is_atom():
            return Index.of(factor)
        atom = self.atom(scope)
        if self.token.text in ("floordiv", "mod"):
            raise self.error("what is divided needs parentheses", place, "3 (i floordiv 2), (3 i) mod 4")
        return atom * factor

    def is_atom(self) -> bool:
        """Whether an atom follows here, and not the end of the index: no statement begins with ``(``, and those that
        begin with a value go on with its type or ``=``.
        """
        token = self.token
        if token.kind == "value":
            return not self.follows(":", "=")
        return token.text == "(" or token.kind == "string" or (token.kind == "word" and token.text not in KEYWORDS)

    def divided(self, index: Index) -> Index:
        while True:
            if self.accept("floordiv"):
                index = index // self.whole("a positive number", least=1)
            elif self.accept("mod"):
                index = index % self.whole("a positive number", least=1)
            else:
                return index

    def atom(self, scope: _Scope) -> Index:
        token = self.token
        if self.accept("("):
            with self.nested():
                index = self.index(scope)
            self.expect(")")
            return index
        if token.kind == "value":
            name = self.scalar("a checked index")
            if name not in scope.checked:
                hint = did_you_mean(name, scope.checked) or f"%{name} = check ... makes one of an integer"
                raise self.error(f"%{name} is no checked index here", token.offset, hint)
            return Index.of(Dynamic(name, scope.checked[name]))
        name = self.name("an axis, a checked index, a number or '('")
        if name not in scope.axes:
            around = ", ".join(scope.axes) or "none"
            hint = did_you_mean(name, scope.axes) or f"the axes here are {around}"
            raise self.error(f"there is no axis {name!r} around this", token.offset, hint)
        return Index.of(scope.axes[name])

    def conditions(self, scope: _Scope) -> tuple[Condition, ...]:
        if not self.accept("if"):
            return ()
        conditions = [self.condition(scope)]
        while self.accept("and"):
            conditions.append(self.condition(scope))
        return tuple(conditions)

    def condition(self, scope: _Scope) -> Condition:
        """``0 <= i - 1 < 4`` or ``(i + 1) mod 2 == 0``."""
        if self.follows("<="):
            low = self.whole("the least value")
            self.expect("<=")
            index = self.index(scope)
            self.expect("<")
            return Bound(index, low, self.whole("the end of the values"))
        index = self.atom(scope)
        self.expect("mod")
        divisor = self.whole("a positive number", least=1)
        self.expect("==")
        place = self.token.offset
        if self.whole("0"):
            raise self.error("a condition on multiples ends with '== 0'", place)
        return Multiple(index, divisor)

    def follows(self, *texts: str) -> bool:
        """Whether the token after the next one is one of ``texts``."""
        token = self.advance()
        found = self.token.text in texts
        self._move(token.offset)
        return found

    # -- words and numbers ---------------------------------------------------------------------------------------------

    def whole(self, what: str, least: int | None = None) -> int:
        if self.token.kind != "number" or not self.token.text.lstrip("-").isdecimal():
            raise self.expected(what)
        token = self.advance()
        number = self.bounded(token.text, token.offset)
        if least is not None and number < least:
            raise self.error(f"expected {what} of {least} or more, found {number}", token.offset)
        return number

    def bounded(self, digits: str, offset: int) -> int:
        """The integer ``digits``, which 64 bits hold."""
        if len(digits) > len(str(MOST)) or abs(int(digits)) > MOST:
            raise self.error(f"the number is larger than {MOST}", offset)
        return int(digits)

    def scalar(self, what: str) -> str:
        """The name of a scalar or a buffer, without its ``%``."""
        return self.value_name(self.take("value", what))

    def dtype(self) -> DType:
        token = self.take("word", "an element type")
        if token.text not in DTYPES:
            raise self.error(f"there is no element type {token.text!r}", token.offset, did_you_mean(token.text, DTYPES))
        return DTYPES[token.text]

    def number(self, dtype: DType) -> bool | int | float:
        token = self.token
        if token.kind not in ("number", "word"):
            raise self.expected(f"a number of {dtype}")
        self.advance()
        try:
            return read_number(Literal(token.kind, token.text, token.offset), dtype)
        except LiteralError as error:
            raise self.error(str(error), token.offset, did_you_mean(token.text, error.words)) from None

    @contextmanager
    def nested(self) -> Iterator[None]:
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise self.error(f"this is nested more than {MOST_NESTED} deep", self.token.offset)
        try:
            yield
        finally:
            self.depth -= 1

    def at(self, start: Token, part):
        """``part``, remembered to stand at ``start``."""
        self.places[id(part)] = start.offset
        return part
