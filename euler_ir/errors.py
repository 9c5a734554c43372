"""What goes wrong, said for people: the fault, the operands with their types, the user's line, one hint."""

from __future__ import annotations

import difflib
import functools
import linecache
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_FEW = 300
"""Words that a misspelt one is compared with."""
_PACKAGE_DIRECTORY = os.path.dirname(os.path.abspath(__file__)) + os.sep


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the user's program: the innermost frame outside of euler_ir."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"

    def source_line(self) -> str:
        return linecache.getline(self.file, self.line).strip()


@functools.lru_cache(maxsize=256)
def _absolute(filename: str) -> str:
    """What is no file, such as ``<stdin>``, stays as it is."""
    return filename if filename.startswith("<") else os.path.abspath(filename)


def user_location() -> Location | None:
    """The innermost calling frame whose file lies outside of the euler_ir package."""
    frame = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith(_PACKAGE_DIRECTORY):
            return Location(_absolute(filename), frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None


class EulerError(Exception):
    """Base of every error that euler_ir raises on purpose.

    ``message`` says what was wrong; ``details`` are extra lines (operands with names and types); ``location`` is the
    user's line; ``hint`` is one suggestion. They are kept apart so that the graph builder can add what the raising
    rule does not know. ``reproducer`` is text that shows the fault again, where a pass is to blame (see PassManager).
    """

    reproducer: str | None = None

    def __init__(
        self,
        message: str,
        *,
        details: tuple[str, ...] = (),
        location: Location | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.location = location
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.message]
        lines += [f"  {detail}" for detail in self.details]
        if self.location is not None:
            lines.append(f"  --> {self.location}")
            source = self.location.source_line()
            if source:
                lines.append(f"      {source}")
                lines.append(f"      {'^' * len(source)}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class ShapeError(EulerError, ValueError):
    """Shapes that do not fit an operator."""


class DTypeError(EulerError, TypeError):
    """Element types that do not fit an operator."""


class GraphError(EulerError):
    """A graph that is put together wrongly: foreign values, two parameters of one name, an update without a state."""


class PassError(EulerError):
    """A pass or rule that is defined or named wrongly, or that failed."""


class VerifyError(EulerError):
    """A graph, kernel or plan that breaks a rule of its level; ``subject`` is the part that does, where it is known."""

    def __init__(self, message: str, *, subject: object = None, **rest) -> None:
        super().__init__(message, **rest)
        self.subject = subject


class ParseError(EulerError):
    """Text that is not the IR it claims to be. ``errors`` are all that were found in it: one, or several at once."""

    _parts: tuple[ParseError, ...] = ()

    @property
    def errors(self) -> tuple[ParseError, ...]:
        return self._parts or (self,)

    @classmethod
    def of(cls, errors: Sequence[ParseError], message: str) -> ParseError:
        """Several ``errors`` as one, which lists them below ``message``."""
        whole = cls(message, details=tuple(line for error in errors for line in str(error).split("\n")))
        whole._parts = tuple(errors)
        return whole


class LoweringError(EulerError):
    """The compiler cannot turn a graph or kernel into code."""


class ExecutionError(EulerError):
    """A compiled graph was called with arguments that it cannot take."""


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """The hint for a ``word`` that is none of the ``known`` ones: the nearest of them, or None when none is near."""
    known = list(known)
    if len(known) > _FEW:  # of many only those that begin or end alike are compared, which takes time
        half = len(word) // 2
        known = [name for name in known if name.startswith(word[:half]) or name.endswith(word[half:])][:_FEW]
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}?" if near else None
