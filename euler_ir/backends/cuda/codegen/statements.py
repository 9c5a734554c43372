"""Statements of the Loop IR as those of one thread in CUDA C++; loops run in order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from euler_ir.backends.cuda.codegen.indexing import condition_text, counter_type, index_text, is_wide, is_wide_axis
from euler_ir.backends.cuda.codegen.operations import apply, cast, compute
from euler_ir.backends.cuda.codegen.types import from_memory, literal, register_type, to_memory
from euler_ir.backends.cuda.codegen.writer import Names, Writer
from euler_ir.dtypes import DType, i32, i64
from euler_ir.index import Axis, Condition, Dynamic, Index
from euler_ir.loops.kernel import (
    Buffer,
    CheckIndex,
    Compute,
    Constant,
    IndexValue,
    Load,
    Loop,
    Nest,
    Reduction,
    Statement,
    Store,
)

THREADS = 256
"""Threads of a block."""

COMBINE = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
COMBINER = {"sum": "eir::Adding()", "prod": "eir::Multiplying()", "max": "eir::Larger()", "min": "eir::Smaller()"}
"""The operations that reductions combine values with, and what calls them in ``reduce.cuh``."""
LONG_SUM = 64
"""Additions of floats one after the other beyond which their rounding errors are tracked."""


def identity(reduction: Reduction) -> str:
    """What ``reduction`` gives over no iterations."""
    dtype = reduction.dtype
    numbers = {"sum": 0, "prod": 1, "max": dtype.lowest, "min": dtype.highest}
    return literal(dtype, numbers[reduction.combine])


class Accumulator:
    """The running value of one reduction in one thread, in the variable ``name``.

    A long sum of floats keeps the rounding errors of its additions (D. E. Knuth, TAOCP volume 2, 4.2.2, theorem B).
    """

    def __init__(self, code: Statements, reduction: Reduction, additions: int) -> None:
        self._code = code
        self.dtype, self._operation = reduction.dtype, COMBINE[reduction.combine]
        self._is_long = additions > LONG_SUM and reduction.combine == "sum" and reduction.dtype.is_float
        self.name = code.names.of("scalar", reduction.result)
        if self._is_long:
            code.needs.add("reduce.cuh")
            code.line(f"eir::LongSum<{register_type(self.dtype)}> {self.name}_sum;")
        else:
            code.line(f"{register_type(self.dtype)} {self.name} = {identity(reduction)};")

    def add(self, value: str) -> None:
        """Take in ``value``."""
        if self._is_long:
            self._code.line(f"{self.name}_sum.add({value});")
        else:
            self._code.line(f"{self.name} = {self._code.apply(self._operation, self.dtype, [self.name, value])};")

    def end(self) -> None:
        """After the last `add`: the variable holds the result of this thread."""
        if self._is_long:
            self._code.line(f"{register_type(self.dtype)} {self.name} = {self.name}_sum.total();")


class Statements(Writer):
    """Writes the body of a function for one thread.

    ``values`` has an expression, a name or a literal, for each scalar; ``needs`` the source files whose functions are
    called; ``places`` what an element of each buffer is written as, given its index. Nothing of ``nest`` gets one of
    the names ``reserved``.
    """

    def __init__(self, nest: Nest, *reserved: str) -> None:
        super().__init__(depth=1)
        self.names = Names("task", "faults", "shared", "element", "present", "step", *reserved)
        self.values: dict[str, str] = {}
        self.dtypes: dict[str, DType] = {}
        self.needs: set[str] = set()
        self.places: dict[str, Callable[[str], str]] = {}
        self.buffers = {buffer.name: buffer for buffer in (*nest.parameters, *nest.locals)}
        for buffer in nest.parameters:
            self.places[buffer.name] = f"{self.names.of('buffer', buffer.name)}[{{}}]".format

    # -- names and indices ---------------------------------------------------------------------------------------------

    def pointer(self, buffer: str) -> str:
        """The variable that points to a parameter."""
        return self.names.of("buffer", buffer)

    def name_of(self, atom: Axis | Dynamic) -> str:
        """The variable that holds ``atom``."""
        if isinstance(atom, Dynamic):
            return self.values[atom.name]
        return self.names.of("axis", atom.name)

    def index(self, index: Index) -> str:
        return index_text(index, self.name_of)

    def conditions(self, conditions: tuple[Condition, ...]) -> str | None:
        return condition_text(conditions, self.name_of)

    def thread_number(self, wanted: str, count: int) -> str:
        """A variable like ``wanted`` that numbers the threads of all tasks; those from ``count`` on do nothing."""
        name, kind = self.names.new(wanted), counter_type(count + THREADS)
        task = "task" if kind == "int" else "(long long)(task)"
        self.line(f"const {kind} {name} = {task} * {THREADS} + threadIdx.x;")
        self.line(f"if ({name} >= {count}) return;")
        return name

    def place_axes(self, axes: tuple[Axis, ...], position: str, count: int) -> None:
        """Define ``axes`` at the row-major ``position``, a variable below ``count``, the product of their extents."""
        if len(axes) == 1:
            self.names.give("axis", axes[0].name, position)
            return
        inner, suffix = 1, "" if counter_type(count) == "int" else "LL"
        for axis in reversed(axes):
            part = position if inner == 1 else f"eir::quotient({position}, {inner}{suffix})"
            if inner * axis.extent < count:
                part = f"eir::modulo({part}, {axis.extent}{suffix})"
            inner *= axis.extent
            self.define_axis(axis, part, count)

    def define_axis(self, axis: Axis, value: str, count: int = 0) -> None:
        """A variable for ``axis`` at ``value``, an expression below ``count``."""
        kind = "long long" if is_wide_axis(axis) else "int"
        value = f"int({value})" if kind == "int" and counter_type(count) != "int" else value
        self.line(f"const {kind} {self.name_of(axis)} = {value};")

    # -- statements ----------------------------------------------------------------------------------------------------

    def statements(self, body: tuple[Statement, ...]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, statement: Statement) -> None:
        match statement:
            case Constant(result, dtype, value):
                self.values[result], self.dtypes[result] = literal(dtype, value), dtype
            case IndexValue(result, dtype, index):
                self.define(result, dtype, cast(self.index(index), i64 if is_wide(index) else i32, dtype))
            case CheckIndex():
                self._check_index(statement)
            case Compute(result, dtype, _, operands):
                values, dtypes = [self.values[name] for name in operands], [self.dtypes[name] for name in operands]
                expression = compute(statement, values, dtypes)
                self.needs.add(expression.needs)
                self.define(result, dtype, expression.text)
            case Load(result, dtype, buffer, index, conditions):
                element = from_memory(dtype, self.places[buffer](self.index(index)))
                holds = self.conditions(conditions)
                self.define(result, dtype, f"{holds} ? {element} : {literal(dtype, 0)}" if holds else element)
            case Store(buffer, index, value, accumulate):
                self._store(self.buffers[buffer], self.places[buffer](self.index(index)), value, accumulate)
            case Loop():
                self.loop(statement)

    def define(self, name: str, dtype: DType, value: str) -> None:
        """A variable for the scalar ``name``."""
        self.dtypes[name] = dtype
        self.values[name] = self.names.of("scalar", name)
        self.line(f"const {register_type(dtype)} {self.values[name]} = {value};")

    def apply(self, operation: str, dtype: DType, operands: list[str]) -> str:
        """The text of an operation of operands of ``dtype``."""
        expression = apply(operation, dtype, operands)
        self.needs.add(expression.needs)
        return expression.text

    def _check_index(self, check: CheckIndex) -> None:
        holds = self.conditions(check.conditions) or "true"
        value = self.values[check.value]
        self.define(check.result, i64, f"eir::checked({value}, {check.extent}, {holds}, faults, {check.fault})")

    def _store(self, buffer: Buffer, element: str, value: str, accumulate: bool) -> None:
        scalar = self.values[value]
        if accumulate:
            scalar = self.apply("add", buffer.dtype, [from_memory(buffer.dtype, element), scalar])
        self.line(f"{element} = {to_memory(buffer.dtype, scalar)};")

    # -- loops ---------------------------------------------------------------------------------------------------------

    def loop(self, loop: Loop) -> None:
        """All iterations, one after the other."""
        accumulators = [Accumulator(self, reduction, loop.iterations) for reduction in loop.reductions]
        for carry in loop.carries:
            self.dtypes[carry.name], self.values[carry.name] = carry.dtype, self.names.of("scalar", carry.name)
            initial = literal(carry.dtype, carry.initial)
            self.line(f"{register_type(carry.dtype)} {self.values[carry.name]} = {initial};")
        with ExitStack() as blocks:
            for axis in loop.axes:
                name, kind = self.name_of(axis), "long long" if is_wide_axis(axis) else "int"
                blocks.enter_context(self.block(f"for ({kind} {name} = 0; {name} < {axis.extent}; ++{name})"))
            if not loop.axes:
                blocks.enter_context(self.block(""))
            self.statements(loop.body)
            self._carry_on(loop)
            for reduction, accumulator in zip(loop.reductions, accumulators, strict=True):
                accumulator.add(self.values[reduction.value])
        for reduction, accumulator in zip(loop.reductions, accumulators, strict=True):
            accumulator.end()
            self.values[reduction.result], self.dtypes[reduction.result] = accumulator.name, reduction.dtype

    def _carry_on(self, loop: Loop) -> None:
        """All carries at once: an update may be another carry."""
        carried = {carry.name for carry in loop.carries}
        updates = {carry.name: self.values[carry.update] for carry in loop.carries}
        for carry in loop.carries:
            if carry.update in carried - {carry.name}:
                name = self.names.new(f"next_{carry.name}")
                self.line(f"const {register_type(carry.dtype)} {name} = {updates[carry.name]};")
                updates[carry.name] = name
        for carry in loop.carries:
            if carry.update != carry.name:
                self.line(f"{self.values[carry.name]} = {updates[carry.name]};")
