"""Values and lines of a graph by the words that a person uses, with what they may have meant instead."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TypeVar

from euler_ir.errors import GraphError, Location
from euler_ir.graph import Graph, Op, Value
from euler_ir.text.printer import value_names

Thing = TypeVar("Thing")


def find_value(graph: Graph, name: str) -> Value:
    """The value called ``name`` in the text of ``graph``, with or without ``%``; or the leaf or output of that name.

    Raises GraphError, with the names that come close.
    """
    by_name = {shown.removeprefix("%"): value for value, shown in value_names(graph).items()}
    for names in (by_name, {**graph.outputs, **{leaf.op.attributes["name"]: leaf for leaf in _leaves(graph)}}):
        for wanted in (name.removeprefix("%"), name.removeprefix("%").strip('"')):
            if wanted in names:
                return names[wanted]
    raise GraphError(f"graph {graph.name!r} has no value %{name.removeprefix('%')}", hint=names_like(name, by_name))


def names_like(word: str, known: Collection[str], prefix: str = "%") -> str:
    """A hint: up to three of the ``known`` names that are near ``word`` or contain it, or how to see all."""
    word = word.removeprefix("%")
    parts = [name for name in known if word and word in name][:3]
    close = list(dict.fromkeys((*difflib.get_close_matches(word, known, n=3), *parts)))[:3]
    if close:
        return f"did you mean {' or '.join(prefix + name for name in close)}?"
    return "`euler-ir dump TARGET --stage optimized` prints all names"


def place_of(text: str) -> tuple[str, int] | None:
    """The file and number of ``FILE:N``; None for other text."""
    file, _, number = text.rpartition(":")
    return (file, int(number)) if file and number.isdecimal() else None


def ops_of_line(graph: Graph, file: str, line: int) -> list[Op]:
    """The operators from ``line`` of the user's ``file``, whose path may be shortened from the left.

    Raises GraphError when there are none, with the lines that come closest.
    """
    wanted = Path(file).parts
    found, lines = [], set()
    for op in graph.ops:
        if op.location is not None and Path(op.location.file).parts[-len(wanted) :] == wanted:
            lines.add(op.location.line)
            if op.location.line == line:
                found.append(op)
    if found:
        return found
    if lines:
        closest = sorted(sorted(lines, key=lambda other: abs(other - line))[:3])
        more = f" and {len(lines) - len(closest)} more" if len(lines) > len(closest) else ""
        hint = f"lines with operators: {', '.join(map(str, closest))}{more}"
    else:
        files = dict.fromkeys(Path(op.location.file).name for op in graph.ops if op.location is not None)
        hint = f"operators come from {', '.join(files) or 'no file: the graph has no locations'}"
    raise GraphError(f"no operator of {graph.name!r} comes from {file}:{line}", hint=hint)


def ops_of_scope(graph: Graph, scope: str) -> list[Op]:
    """The operators made in the module ``scope`` or inside of it. Raises GraphError when there are none."""
    found = [op for op in graph.ops if op.scope == scope or op.scope.startswith(f"{scope}.")]
    if not found:
        scopes = {op.scope for op in graph.ops if op.scope}
        raise GraphError(f"no operator of {graph.name!r} is in scope {scope!r}", hint=names_like(scope, scopes, ""))
    return found


def by_line(things: Iterable[Thing], location_of: Callable[[Thing], Location | None]) -> list[list[Thing]]:
    """``things`` that come from the same line of the user's program together, and those of no line."""
    found: dict[tuple[str, int] | None, list[Thing]] = {}
    for thing in things:
        at = location_of(thing)
        found.setdefault(None if at is None else (at.file, at.line), []).append(thing)
    return list(found.values())


def short(location: Location | None) -> str:
    """``location`` as ``model.py:41``, or ``(no line)``."""
    return "(no line)" if location is None else f"{Path(location.file).name}:{location.line}"


def location_lines(location: Location | None) -> list[str]:
    """``location`` and the line of the user's program that it is, as below an error; nothing when it is not known."""
    if location is None:
        return []
    source = location.source_line()
    return [f"  --> {location}", *([f"      {source}"] if source else [])]


def location_record(location: Location | None) -> dict | None:
    """``location`` as JSON, with the text of the line."""
    if location is None:
        return None
    return {
        "file": location.file,
        "line": location.line,
        "function": location.function,
        "text": location.source_line(),
    }


def _leaves(graph: Graph) -> list[Value]:
    return [*graph.inputs, *graph.parameters, *graph.states]
