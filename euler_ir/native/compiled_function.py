"""A native function: its signature, its module with all that it calls, and its calls from Python."""

from __future__ import annotations

import ast
import ctypes
import functools
import inspect
import operator
import textwrap
from collections.abc import Callable

import numpy as np

from euler_ir.errors import ExecutionError, Location, LoweringError
from euler_ir.native.types import TRUTH, Integer, Pointer, i64, u64


@functools.cache
def is_available() -> bool:
    """Whether native functions can be compiled here: LLVM is installed and loads."""
    try:
        import llvmlite.binding  # noqa: F401
    except (ImportError, OSError):
        return False
    return True


def function(definition: Callable | None = None, *, inline: bool = False) -> Function | Callable[[Callable], Function]:
    """A decorator: the function as machine code, compiled when it is first called.

    With ``inline`` it becomes part of each native function that calls it. Raises LoweringError for annotations that are
    no types of native functions.
    """
    if definition is None:
        return lambda given: Function(given, inline)
    return Function(definition, inline)


class Function:
    """What `function` makes. Calls may come from several threads, and run at once."""

    def __init__(self, definition: Callable, inline: bool) -> None:
        functools.update_wrapper(self, definition)
        self._definition = definition
        self.inline = inline
        self.symbol = definition.__name__
        annotations = {
            name: TRUTH if kind is bool else kind for name, kind in inspect.get_annotations(definition).items()
        }
        declared = annotations.pop("return", None)
        self.results = declared if isinstance(declared, tuple) else () if declared is None else (declared,)
        self.parameters = {name: annotations.get(name) for name in inspect.signature(definition).parameters}
        for name, kind in [*self.parameters.items(), *(("return", kind) for kind in self.results)]:
            if not isinstance(kind, Pointer) and kind not in (i64, u64, TRUTH):
                hint = "annotate it as i64, u64, pointer(...) or read_only(...)"
                raise LoweringError(
                    f"{self.symbol}: {name} has no type of native functions", location=self._place(0), hint=hint
                )
        self._native: Callable | None = None

    def __call__(self, *arguments):
        """Run it. Raises ExecutionError for arguments of other types, and LoweringError if it cannot be compiled."""
        if self._native is None:
            # Two threads may both do so: a lock would stay closed for ever in the child of a fork.
            self._native = self._compiled()
        if len(arguments) != len(self.parameters):
            raise ExecutionError(f"{self.symbol} takes {len(self.parameters)} arguments, not {len(arguments)}")
        return self._native(*map(self._passed, self.parameters.items(), arguments))

    def llvm_ir(self) -> str:
        """The module that is compiled: this function and, private to it, all that it calls."""
        functions, texts, helpers = {self.symbol: self}, {}, set()
        while waiting := functions.keys() - texts.keys():
            symbol = min(waiting)
            texts[symbol], its_helpers, callees = functions[symbol]._translated(exported=symbol == self.symbol)
            helpers |= its_helpers
            for callee in callees:
                if functions.setdefault(callee.symbol, callee) is not callee:
                    raise LoweringError(f"{self.symbol} calls two functions of the name {callee.symbol}")
        return "\n".join([*sorted(helpers), *texts.values()])

    def _translated(self, exported: bool) -> tuple[str, set[str], list[Function]]:
        from euler_ir.native.expressions import llvm_type, result_type
        from euler_ir.native.translation import Translator

        tree = ast.parse(textwrap.dedent(inspect.getsource(self._definition))).body[0]
        translator = Translator(self._outside, self._error)
        body = translator.function_body(tree, self.parameters, self.results)
        parameters = ", ".join(f"{llvm_type(kind)} %given.{name}" for name, kind in self.parameters.items())
        linkage, attributes = "" if exported else "internal ", "nounwind"
        if self.inline and not exported:
            attributes += " alwaysinline"
        head = f"define {linkage}{result_type(self.results)} @{self.symbol}({parameters}) {attributes}"
        return f"{head} {{\n{body}\n}}\n", translator.code.helpers, list(translator.callees.values())

    def _compiled(self) -> Callable:
        from euler_ir.backends.cpu import jit

        if len(self.results) > 1:
            raise LoweringError(f"{self.symbol} returns several values, which only native functions can take")
        code = jit.LoadedCode([jit.compile_object(self.llvm_ir(), jit.INTEGERS)], [self.symbol])
        kinds = {i64: ctypes.c_int64, u64: ctypes.c_uint64, TRUTH: ctypes.c_bool}
        result = kinds[self.results[0]] if self.results else None
        parameters = [kinds.get(kind, ctypes.c_void_p) for kind in self.parameters.values()]
        native = ctypes.CFUNCTYPE(result, *parameters)(code.address(self.symbol))
        native.code = code
        return native

    def _passed(self, parameter: tuple[str, Integer | Pointer], argument) -> int:
        """An argument as ctypes takes it."""
        name, kind = parameter
        if not isinstance(kind, Pointer):
            number = operator.index(argument)
            if not -(1 << 63) <= number < 1 << (63 if kind.signed else 64):
                raise ExecutionError(f"{self.symbol}: {name} is {number}, which does not fit {kind}")
            return number
        if not isinstance(argument, np.ndarray) or argument.dtype != kind.element.dtype:
            found = argument.dtype if isinstance(argument, np.ndarray) else type(argument).__name__
            raise ExecutionError(f"{self.symbol}: {name} is {found}, not an array of {kind.element.dtype}")
        if not argument.flags.c_contiguous or (kind.writable and not argument.flags.writeable):
            raise ExecutionError(f"{self.symbol}: the array {name} is not contiguous, or may not be written")
        return argument.ctypes.data

    def _outside(self, name: str) -> object:
        names = inspect.getclosurevars(self._definition)
        for known in (names.nonlocals, names.globals):
            if name in known:
                return known[name]
        raise KeyError(name)

    def _place(self, line: int) -> Location:
        code = self._definition.__code__
        return Location(code.co_filename, code.co_firstlineno + line, self.symbol)

    def _error(self, node: ast.AST, message: str) -> LoweringError:
        return LoweringError(message, location=self._place(getattr(node, "lineno", 1) - 1))
