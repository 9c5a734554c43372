"""What the values of a graph are called: by the user's line, or by what they are made for, and each differently."""

from __future__ import annotations

import ast
import functools
import linecache
import os

from euler_ir.errors import Location
from euler_ir.ops.definition import OPS


_LONGEST_NUMBER = 10
"""Digits that no counter reaches."""


class Names:
    """The names that are taken in a graph. A copy of a graph begins with those of its source, and takes others."""

    __slots__ = ("_taken", "_numbers", "_variables")

    def __init__(self, source: Names | None = None) -> None:
        self._taken: set[str] = set() if source is None else set(source._taken)
        # For each name that is repeated the highest number of a repeat so far.
        self._numbers: dict[str, int] = {} if source is None else dict(source._numbers)
        self._variables: dict[str, dict[int, str]] = {} if source is None else source._variables

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def take(self, name: str) -> str:
        """``name`` if it is free, or it with the number behind that of its last repeat; it is taken now."""
        if name not in self._taken:
            if "#" in name:
                self._count(name)
            self._taken.add(name)
            return name
        number = self._numbers.get(name, 1) + 1
        while (repeat := f"{name}#{number}") in self._taken:
            number += 1
        self._numbers[name] = number
        self._taken.add(repeat)
        return repeat

    def _count(self, repeat: str) -> None:
        """Let later repeats have higher numbers than ``repeat``, which somebody wrote."""
        name, _, number = repeat.rpartition("#")
        if number.isdecimal() and len(number) < _LONGEST_NUMBER:
            self._numbers[name] = max(self._numbers.get(name, 1), int(number))

    def release(self, name: str) -> None:
        """Let ``name`` be taken again."""
        self._taken.remove(name)

    def of_line(self, location: Location | None, scope: str, operator: str) -> str:
        """The name of what ``operator`` makes at the user's line: scope, variable and operator, those that there are.

        The variable is the one that the statement at that line assigns to.
        """
        variable = None if location is None else self._variable_at(location)
        return ".".join(filter(None, (scope, variable, operator)))

    def _variable_at(self, location: Location) -> str | None:
        variables = self._variables.get(location.file)
        if variables is None:
            variables = self._variables[location.file] = _variables(location.file, _stamp(location.file))
        return variables.get(location.line)


@functools.lru_cache(maxsize=4096)
def derived_name(name: str, operator: str) -> str:
    """The name of what ``operator`` makes in place of, or for, the value ``name``: ``h.gelu#2`` gives ``h.tanh``."""
    stem = name.partition("#")[0]
    front, _, last = stem.rpartition(".")
    if last in OPS:
        stem = front
    return f"{stem}.{operator}" if stem else operator


def _stamp(file: str) -> tuple[int, int] | None:
    """What changes when ``file`` is written; None for source that is no file, such as a notebook's cell."""
    try:
        status = os.stat(file)
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size


@functools.lru_cache(maxsize=256)
def _variables(file: str, stamp: tuple[int, int] | None) -> dict[int, str]:
    """The variable that is assigned to at each line of ``file``; lines that assign to none or to several have none."""
    linecache.checkcache(file)
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[int, str | None] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            variable = _variable(node.targets[0] if isinstance(node, ast.Assign) else node.target)
            for line in range(node.lineno, node.end_lineno + 1):
                found[line] = variable if found.get(line, variable) == variable else None
    return {line: variable for line, variable in found.items() if variable is not None}


def _variable(target: ast.expr) -> str | None:
    while isinstance(target, ast.Subscript):
        target = target.value
    return target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else None
