"""A native function: its signature, its module with all that it calls, and its calls from Python."""

from __future__ import annotations

import ast
import ctypes
import functools
import inspect
import operator
from collections.abc import Callable

import numpy as np

from euler_ir.errors import ExecutionError, Location, LoweringError
from euler_ir.native.types import TRUTH, Integer, Pointer, Type, i64, llvm_type, result_type, u64


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
    no types of native functions, and for a function whose text is not in a file.
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
        self._tree = self._parsed()
        self.parameters, self.results = self._signature()
        self._native: Callable | None = None

    @property
    def name_in_module(self) -> str:
        """Its name as LLVM IR writes it."""
        return f'@"{self.symbol}"'

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
        from euler_ir.native.translation import Translator

        translator = Translator(self._outside, self._error)
        try:
            body = translator.function_body(self._tree, self.parameters, self.results)
        except RecursionError:
            message = f"{self.symbol}: an expression has too many parts"
            raise LoweringError(message, location=self._place(0), hint="give some of them a name") from None
        kinds = self.parameters.values()
        parameters = ", ".join(f"{llvm_type(kind)} %given{number}" for number, kind in enumerate(kinds))
        linkage, attributes = "" if exported else "internal ", "nounwind"
        if self.inline and not exported:
            attributes += " alwaysinline"
        head = f"define {linkage}{result_type(self.results)} {self.name_in_module}({parameters}) {attributes}"
        return f"{head} {{\n{body}\n}}\n", translator.code.helpers, list(translator.callees.values())

    def _compiled(self) -> Callable:
        from euler_ir.backends.cpu import jit

        if len(self.results) > 1 or any(isinstance(kind, Pointer) for kind in self.results):
            what = "several values" if len(self.results) > 1 else "a pointer"
            raise LoweringError(f"{self.symbol} returns {what}, which only native functions can take")
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
            try:
                number = operator.index(argument)
            except TypeError:
                found = type(argument).__name__
                raise ExecutionError(f"{self.symbol}: {name} is {found}, not an integer") from None
            lowest = -(1 << (kind.bits - 1)) if kind.signed else 0
            if not lowest <= number < lowest + (1 << kind.bits):
                raise ExecutionError(f"{self.symbol}: {name} is {number}, which does not fit {kind}")
            return number
        if not isinstance(argument, np.ndarray) or argument.dtype != kind.element.dtype:
            found = argument.dtype if isinstance(argument, np.ndarray) else type(argument).__name__
            raise ExecutionError(f"{self.symbol}: {name} is {found}, not an array of {kind.element.dtype}")
        if not argument.flags.c_contiguous or (kind.writable and not argument.flags.writeable):
            raise ExecutionError(f"{self.symbol}: the array {name} is not contiguous, or may not be written")
        return argument.ctypes.data

    def _outside(self, name: str) -> object:
        code = self._definition.__code__
        if name in code.co_varnames:
            raise KeyError(name)
        cells = dict(zip(code.co_freevars, self._definition.__closure__ or (), strict=True))
        if name in cells:
            try:
                return cells[name].cell_contents
            except ValueError:
                raise KeyError(name) from None
        return self._definition.__globals__[name]

    def _parsed(self) -> ast.FunctionDef:
        """The syntax tree of its text, which is read before anybody can change the file."""
        try:
            text = inspect.getsource(self._definition)
        except (OSError, TypeError):
            hint = "write it in a file: what was typed in or made by exec has no text to translate"
            raise LoweringError(f"{self.symbol}: the text of this function is not known", hint=hint) from None
        # Something around it, so that it may stand inside of other functions as it is.
        tree = ast.parse(f"if True:\n{text}" if text[0].isspace() else text).body[0]
        if isinstance(tree, ast.If):
            tree = ast.increment_lineno(tree.body[0], -1)
        if not isinstance(tree, ast.FunctionDef) or tree.name != self.symbol:
            raise LoweringError("a native function is one that `def` makes", location=self._place(0))
        return tree

    def _signature(self) -> tuple[dict[str, Type], tuple[Type, ...]]:
        """The types of the parameters, by name, and of the results."""
        try:
            annotations = inspect.get_annotations(self._definition, eval_str=True)
        except NameError as error:
            raise LoweringError(f"{self.symbol}: {error} in its annotations", location=self._place(0)) from None
        kinds = {name: TRUTH if kind is bool else kind for name, kind in annotations.items()}
        declared = kinds.pop("return", None)
        results = declared if isinstance(declared, tuple) else () if declared is None else (declared,)
        given = inspect.signature(self._definition).parameters.values()
        for each in given:
            if each.kind is not each.POSITIONAL_OR_KEYWORD or each.default is not each.empty:
                message = f"{self.symbol}: the parameter {each.name} is not one that is given by its place"
                raise LoweringError(message, location=self._place(0))
        parameters = {each.name: kinds.get(each.name) for each in given}
        for name, kind in [*parameters.items(), *(("return", kind) for kind in results)]:
            if not isinstance(kind, Pointer) and kind not in (i64, u64, TRUTH):
                message = f"{self.symbol}: {name} has no type of native functions"
                hint = "annotate it as i64, u64, bool, pointer(...) or read_only(...)"
                raise LoweringError(message, location=self._place(0), hint=hint)
        return parameters, results

    def _place(self, line: int) -> Location:
        code = self._definition.__code__
        return Location(code.co_filename, code.co_firstlineno + line, self.symbol)

    def _error(self, node: ast.AST, message: str) -> LoweringError:
        return LoweringError(message, location=self._place(getattr(node, "lineno", 1) - 1))
