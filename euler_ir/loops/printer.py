"""Loop IR as text: complete and stable. ``parser`` reads it back.

``structural_key`` is the text of a nest with every name replaced by its number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from euler_ir.dtypes import DType
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
from euler_ir.text.literals import format_number
from euler_ir.text.printer import VERSION
from euler_ir.text.reader import word


KEYWORDS = ("floordiv", "mod", "if", "and", "store", "loop")
"""Words that may follow an index: an axis of such a name is quoted."""


def print_kernel(kernel: Kernel) -> str:
    """``kernel`` as the text of a file, one statement a line."""
    return print_kernels((kernel,))


def print_kernels(kernels: Sequence[Kernel], comments: Sequence[str] = ()) -> str:
    """The text of a file of ``kernels``, each below its own of ``comments`` where these are given."""
    lines = [f"eir {VERSION}"]
    for number, kernel in enumerate(kernels):
        lines += [f"// {comments[number]}"] if comments else []
        lines.append(f"kernel @{word(kernel.name)} {{")
        for nest in kernel.nests:
            lines += _Printer(_Names(), 1).nest(nest)
        lines.append("}")
    return "\n".join((*lines, ""))


def print_nest(nest: Nest) -> str:
    """``nest`` alone, as the text of a kernel has it."""
    return "\n".join((*_Printer(_Names(), 0).nest(nest), ""))


def print_part(part: Statement | Nest | Buffer | Carry | Reduction) -> str:
    """How messages show a part of a kernel: as its text has it; of a loop or a nest the first line."""
    printer = _Printer(_Names(), 0)
    match part:
        case Nest():
            return printer.head(part)
        case Buffer():
            return printer.buffer(part)
        case Carry():
            return printer.carry(part)
        case Reduction():
            return printer.reduction(part)
        case Loop():
            return printer.loop_head(part)
    return printer.statement(part)


def structural_key(nest: Nest) -> str:
    """The text of a verified ``nest`` with buffers named b0, b1, ..., axes i0, ... and scalars s0, ...

    It is equal for two nests exactly if they differ in nothing but names, so that they need the same code.
    """
    return "\n".join(_Printer(_Numbers(), 0).nest(nest))


class _Names:
    """Every name as it is, in quotes where that is no plain word."""

    def buffer(self, name: str) -> str:
        return word(name)

    def scalar(self, name: str) -> str:
        return word(name)

    def declare(self, axes: Iterable[Axis]) -> None:
        """Called where a nest or a loop brings its axes into scope."""

    def axis(self, axis: Axis) -> Axis:
        return Axis(json.dumps(axis.name) if axis.name in KEYWORDS else word(axis.name), axis.extent)


class _Numbers(_Names):
    """Names counted in the order in which they come up; loops side by side count their axes apart, shared or not."""

    def __init__(self) -> None:
        self._buffers: dict[str, str] = {}
        self._scalars: dict[str, str] = {}
        self._axes: dict[Axis, Axis] = {}
        self._axis_count = 0

    def buffer(self, name: str) -> str:
        return self._buffers.setdefault(name, f"b{len(self._buffers)}")

    def scalar(self, name: str) -> str:
        return self._scalars.setdefault(name, f"s{len(self._scalars)}")

    def declare(self, axes: Iterable[Axis]) -> None:
        for axis in axes:
            self._axes[axis] = Axis(f"i{self._axis_count}", axis.extent)
            self._axis_count += 1

    def axis(self, axis: Axis) -> Axis:
        return self._axes[axis]


class _Printer:
    """Lines of text, ``depth`` levels in, with names from ``names``."""

    def __init__(self, names: _Names, depth: int) -> None:
        self._names = names
        self._depth = depth
        self._lines: list[str] = []

    def nest(self, nest: Nest) -> list[str]:
        self._line(self.head(nest))
        self._depth += 1
        for buffer in nest.locals:
            self._line(self.buffer(buffer))
        self._body(nest.body)
        self._depth -= 1
        self._line("}")
        return self._lines

    def head(self, nest: Nest) -> str:
        parameters = ", ".join(self.buffer(buffer) for buffer in nest.parameters)
        over = f" for {self._axes(nest.axes)}" if nest.axes else ""
        return f"nest ({parameters}){over}{_flag(nest.vector)} {{"

    def _line(self, text: str) -> None:
        self._lines.append("  " * self._depth + text)

    def _body(self, body: tuple[Statement, ...]) -> None:
        for statement in body:
            if isinstance(statement, Loop):
                self._loop(statement)
            else:
                self._line(self.statement(statement))

    def loop_head(self, loop: Loop) -> str:
        over = f" {self._axes(loop.axes)}" if loop.axes else ""
        carries = ", ".join(self.carry(carry) for carry in loop.carries)
        return f"loop{over}{_flag(loop.vector)}{' carry ' + carries if carries else ''} {{"

    def _loop(self, loop: Loop) -> None:
        self._line(self.loop_head(loop))
        self._depth += 1
        self._body(loop.body)
        self._depth -= 1
        results = [f"next {self._scalar(carry.name)} = {self._scalar(carry.update)}" for carry in loop.carries]
        results += [self.reduction(reduction) for reduction in loop.reductions]
        self._line(" ".join(("}", ", ".join(results))).rstrip())

    def statement(self, statement: Statement) -> str:
        match statement:
            case Constant(result, dtype, value):
                return f"{self._typed(result, dtype)} = constant {_number(dtype, value)}"
            case IndexValue(result, dtype, index):
                return f"{self._typed(result, dtype)} = index {self._index(index)}"
            case CheckIndex(result, value, extent, fault, conditions):
                check = f"check {self._scalar(value)} in {extent} fault {fault}"
                return f"{self._scalar(result)} = {check}{self._conditions(conditions)}"
            case Compute(result, dtype, operation, operands, stream):
                names = ", ".join(self._scalar(operand) for operand in operands)
                suffix = f" stream {stream}" if operation == "philox" else ""
                return f"{self._typed(result, dtype)} = {operation} {names}{suffix}"
            case Load(result, dtype, buffer, index, conditions):
                place = f"%{self._names.buffer(buffer)}[{self._index(index)}]"
                return f"{self._typed(result, dtype)} = load {place}{self._conditions(conditions)}"
            case Store(buffer, index, value, accumulate):
                place = f"%{self._names.buffer(buffer)}[{self._index(index)}]"
                return f"store {place} {'+=' if accumulate else '='} {self._scalar(value)}"

    def buffer(self, buffer: Buffer) -> str:
        return f"{buffer.role} %{self._names.buffer(buffer.name)}: {buffer.dtype}[{buffer.size}]"

    def _axes(self, axes: tuple[Axis, ...]) -> str:
        self._names.declare(axes)
        return ", ".join(f"{self._names.axis(axis)} in {axis.extent}" for axis in axes)

    def carry(self, carry: Carry) -> str:
        return f"{self._typed(carry.name, carry.dtype)} = {_number(carry.dtype, carry.initial)}"

    def reduction(self, reduction: Reduction) -> str:
        return f"{reduction.combine} {self._typed(reduction.result, reduction.dtype)} = {self._scalar(reduction.value)}"

    def _scalar(self, name: str) -> str:
        return f"%{self._names.scalar(name)}"

    def _typed(self, name: str, dtype: DType) -> str:
        return f"{self._scalar(name)}: {dtype}"

    def _conditions(self, conditions: tuple[Condition, ...]) -> str:
        texts = []
        for condition in conditions:
            index = self._renamed(condition.index)
            match condition:
                case Bound(_, low, high):
                    texts.append(str(Bound(index, low, high)))
                case Multiple(_, divisor):
                    texts.append(str(Multiple(index, divisor)))
        return " if " + " and ".join(texts) if texts else ""

    def _index(self, index: Index) -> str:
        return str(self._renamed(index))

    def _renamed(self, index: Index) -> Index:
        names = {axis: Index.of(self._names.axis(axis)) for axis in index.axes()}
        for dynamic in index.dynamics():
            names[dynamic] = Index.of(Dynamic(self._names.scalar(dynamic.name), dynamic.extent))
        return index.substitute(names)


def _flag(vector: bool) -> str:
    return " vector" if vector else ""


def _number(dtype: DType, value: bool | int | float) -> str:
    """One spelling for equal numbers: 1, 1.0 and True are the same constant of a type. No number is shown as it is."""
    try:
        if dtype.is_float:
            return format_number(value, dtype)
        return str(bool(value)).lower() if dtype.kind == "bool" else str(int(value))
    except (ValueError, OverflowError, TypeError):
        return repr(value)
