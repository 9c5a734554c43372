"""The graph that a command is about: made by a function of a user's file, or read from text; or why there is none."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

from euler_ir.errors import EulerError, did_you_mean
from euler_ir.graph import Graph
from euler_ir.passes import PASSES, RULES
from euler_ir.text import parse_graph

_MODULE = "euler_ir_user_file"


class UserGraphError(Exception):
    """The file, the function or what it does is not as wanted; the message is for the user."""


def load_graph(target: str) -> Graph:
    """The graph of ``FILE.py:function``: what the function returns when called, or the graph of that name; or the graph
    that the text of ``FILE.eir`` says, or of stdin for ``-``.

    A Python file is imported as Python would run it, its own folder first on the path; what it prints goes to stderr.
    Raises UserGraphError, and ParseError for wrong text.
    """
    if target == "-":
        return parse_graph(text_of_stdin(), "<stdin>")
    if target.endswith(".eir"):
        return parse_graph(text_of(target), target)
    path, name = _file_and_name(target, "examples/mlp.py:train_graph, nor FILE.eir")
    with contextlib.redirect_stdout(sys.stderr), _first_on_path(path.resolve().parent):
        found = _imported(path, name)
        if callable(found):
            found = _guarded(path, f"calling {name}()", lambda: _call(found, name))
    if not isinstance(found, Graph):
        raise UserGraphError(f"{target} gives {_kind(found)}, not a Graph")
    return found


def load_function(target: str) -> Callable:
    """The function ``FILE.py:function``, imported as `load_graph` does; what it raises when called, and what it prints,
    is told in the same way. Raises UserGraphError.
    """
    path, name = _file_and_name(target, "checks.py:is_right")
    with contextlib.redirect_stdout(sys.stderr), _first_on_path(path.resolve().parent):
        found = _imported(path, name)
    if not callable(found):
        raise UserGraphError(f"{target} is {_kind(found)}, not a function")

    def guarded(*arguments):
        with contextlib.redirect_stdout(sys.stderr), _first_on_path(path.resolve().parent):
            return _guarded(path, f"calling {name}(...)", lambda: found(*arguments))

    return guarded


def _file_and_name(target: str, example: str) -> tuple[Path, str]:
    filename, _, name = target.rpartition(":")
    if not filename or not name:
        raise UserGraphError(f"{target!r} is not FILE.py:function, such as {example}")
    return _file(filename), name


def _imported(path: Path, name: str):
    """What is called ``name`` in the file."""
    return _member(_guarded(path, f"importing {path}", lambda: _import(path)), name, str(path))


def load_files(filenames: Iterable[str]) -> None:
    """Import Python files, as ``load_graph`` does, for the passes and rules that they define. Raises UserGraphError."""
    for filename in filenames:
        path = _file(filename)
        with contextlib.redirect_stdout(sys.stderr), _first_on_path(path.resolve().parent):
            _guarded(path, f"importing {filename}", lambda: _import(path))


def defining_files(loaded: Iterable[str], target: str) -> tuple[str, ...]:
    """The files to load before passes and rules are known to a command on a text: those ``loaded`` and, where any come
    from elsewhere, the Python file of ``target``.
    """
    loaded, file = tuple(loaded), target.rpartition(":")[0]
    package, known = Path(__file__).parents[1], {Path(each).resolve() for each in loaded}
    sources = {Path(each.run.__code__.co_filename) for each in PASSES.values()}
    sources |= {Path(rule.location.file) for rule in RULES.values() if rule.location is not None}
    from_elsewhere = any(package not in source.parents for source in sources - known)
    return (*loaded, file) if from_elsewhere and file.endswith(".py") and file not in loaded else loaded


def _file(filename: str) -> Path:
    path = Path(filename)
    if not path.is_file():
        raise UserGraphError(f"there is no file {filename!r}")
    return path


def text_of(filename: str) -> str:
    try:
        return Path(filename).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserGraphError(f"there is no file {filename!r}") from None
    except UnicodeDecodeError as error:
        raise UserGraphError(f"{filename!r} is not text: {error.reason} at byte {error.start}") from None


def text_of_stdin() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UserGraphError(f"stdin is not text: {error.reason} at byte {error.start}") from None


@contextlib.contextmanager
def _first_on_path(folder: Path):
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _import(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_MODULE, path.resolve())
    if spec is None:
        raise UserGraphError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def _member(module: ModuleType, name: str, filename: str):
    if hasattr(module, name):
        return getattr(module, name)
    own = [
        key
        for key, value in vars(module).items()
        if isinstance(value, Graph) or getattr(value, "__module__", None) == _MODULE
    ]
    hint = did_you_mean(name, own) or f"it has {', '.join(own) or 'none'}"
    raise UserGraphError(f"{filename} has no function {name!r}; {hint}")


def _call(function: Callable, name: str):
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise UserGraphError(f"{name}() cannot be called without arguments: {error}") from None
    return function()


def _guarded(path: Path, doing: str, action: Callable):
    """The value of ``action``; what the user's code raises becomes one message with the user's line."""
    try:
        return action()
    except UserGraphError:
        raise
    except EulerError as error:
        raise UserGraphError(f"{doing}: {error}") from None
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise UserGraphError(f"{doing}: {what}{_users_line(path, error)}") from None


def _users_line(path: Path, error: BaseException) -> str:
    """The innermost line of the user's file that ``error`` came through; a SyntaxError says its own."""
    file = str(path.resolve())
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"\n  --> {file}:{own[-1].lineno} in {own[-1].name}\n      {own[-1].line}" if own else ""


def _kind(value) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__!r}"
