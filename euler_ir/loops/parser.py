"""Text to Loop IR: every fault reported at its place. ``printer`` says how the text looks."""

from __future__ import annotations

from euler_ir.dtypes import DTYPES, DType
from euler_ir.errors import ParseError, VerifyError, did_you_mean
from euler_ir.index import Axis, Index
from euler_ir.loops.index_reader import IndexReader, Scope
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
from euler_ir.loops.verify import COMBINES, verify_nest
from euler_ir.ops import OPS
from euler_ir.text.literals import Literal, LiteralError, read_number
from euler_ir.text.printer import VERSION
from euler_ir.text.reader import Token

_STATEMENTS = ("nest", "local", "store", "loop")
"""The words that a statement begins with, where it does not begin with a scalar."""
PARAMETERS = ("input", "output", "inout")
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


class _Parser(IndexReader):
    def __init__(self, text: str, filename: str) -> None:
        super().__init__(text, filename, _STATEMENTS)
        self.places: dict[int, int] = {}  # where each part of a kernel stands, by its id

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
        body = self.body(Scope({}, {}).inside(axes), locals)
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

    def body(self, scope: Scope, locals: list[Buffer] | None = None) -> tuple[Statement, ...]:
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

    def statement(self, scope: Scope) -> Statement:
        start = self.token
        if self.accept("loop"):
            return self.loop(scope, start)
        if self.accept("store"):
            return self.at(start, self.store(scope))
        if start.kind == "value":
            return self.at(start, self.definition(scope))
        raise self.expected("a scalar such as %v, 'store', 'loop' or '}'")

    def definition(self, scope: Scope) -> Statement:
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

    def check(self, scope: Scope, result: str) -> CheckIndex:
        value = self.scalar("a scalar")
        self.expect("in")
        extent = self.whole("the extent of the index", least=0)
        self.expect("fault")
        fault = self.whole("the number of the fault", least=1)
        conditions = self.conditions(scope)
        scope.checked[result] = extent
        return CheckIndex(result, value, extent, fault, conditions)

    def store(self, scope: Scope) -> Store:
        buffer, index = self.place(scope)
        accumulate = self.accept("+=")
        if not accumulate and not self.accept("="):
            raise self.expected("'=' or '+='")
        return Store(buffer, index, self.scalar("a scalar"), accumulate)

    def place(self, scope: Scope) -> tuple[str, Index]:
        buffer = self.scalar("a buffer")
        self.expect("[")
        index = self.index(scope)
        self.expect("]")
        return buffer, index

    def loop(self, scope: Scope, start: Token) -> Loop:
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

    # -- words and numbers ---------------------------------------------------------------------------------------------

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

    def at(self, start: Token, part):
        """``part``, remembered to stand at ``start``."""
        self.places[id(part)] = start.offset
        return part
