"""Where ops come from, as a table at the end of a text: ``@5`` behind an op stands for the line ``loc @5 = ...``.

A line says the place in the user's program, the scope, and what made the op for that place, those that there are:

    loc @5 = "models/gpt2.py":41 in forward scope "h.0.attn" via gradient, simplify

A path below the current directory is written relative to it, and taken so when it is read.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from euler_ir.errors import Location
from euler_ir.graph import Op
from euler_ir.text.reader import Reader, word


class Origin(NamedTuple):
    """What an op carries for readers: the user's line, the module's path, and what made it; see `Op`."""

    location: Location | None = None
    scope: str = ""
    via: tuple[str, ...] = ()


class OriginTable:
    """The origins of the ops of one text, numbered in the order in which they come up."""

    def __init__(self) -> None:
        self._numbers: dict[Origin, int] = {}

    def mark(self, op: Op) -> str:
        """What follows the line of ``op``; empty when it comes from nowhere."""
        origin = Origin(op.location, op.scope, op.via)
        return f" @{self._numbers.setdefault(origin, len(self._numbers))}" if any(origin) else ""

    def lines(self) -> list[str]:
        return [f"loc @{number} ={_said(origin)}" for origin, number in self._numbers.items()]


def _said(origin: Origin) -> str:
    text = ""
    if origin.location is not None:
        file, line, function = origin.location.file, origin.location.line, origin.location.function
        text += f" {json.dumps(_shown(file))}:{line} in {word(function)}"
    if origin.scope:
        text += f" scope {json.dumps(origin.scope)}"
    return f"{text} via {', '.join(map(word, origin.via))}" if origin.via else text


def read_origins(reader: Reader, folder: str) -> dict[int, Origin]:
    """The lines of the table, which begins at the next token, if any; their paths are relative to ``folder``."""
    table: dict[int, Origin] = {}
    while reader.accept("loc"):
        reader.expect("@")
        at = reader.token
        number = reader.integer("the number of a location")
        if number in table:
            raise reader.error(f"location @{number} is given twice", at.offset)
        reader.expect("=")
        table[number] = Origin(_read_location(reader, folder), _read_scope(reader), _read_via(reader))
    return table


def _read_location(reader: Reader, folder: str) -> Location | None:
    if reader.token.kind != "string":
        return None
    file = reader.string("a file in double quotes")
    reader.expect(":")
    line = reader.integer("a line number")
    reader.expect("in")
    return Location(_meant(file, folder), line, reader.name("a function"))


def _read_scope(reader: Reader) -> str:
    return reader.string("a scope in double quotes") if reader.accept("scope") else ""


def _read_via(reader: Reader) -> tuple[str, ...]:
    return tuple(reader.each(lambda: reader.name("the name of a pass or rule"))) if reader.accept("via") else ()


def _shown(file: str) -> str:
    here = os.path.join(os.getcwd(), "")
    return file[len(here) :] if file.startswith(here) else file


def _meant(file: str, folder: str) -> str:
    return file if not file or file.startswith("<") else os.path.normpath(os.path.join(folder, file))
