"""What all panes of the page speak of, numbered: the user's lines, the layers, and the values of every stage."""

from __future__ import annotations

import os
from pathlib import Path

from euler_ir.errors import Location
from euler_ir.graph import Graph, Op, Value
from euler_ir.inspect.history import History
from euler_ir.text.printer import value_names

NONE = -1
"""Stands where something has no line, layer or value."""


class Places:
    """The user's lines and the layers (scopes), numbered as they come up."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._lines: dict[tuple[int, int], int] = {}
        self._scopes: dict[str, int] = {}

    def line(self, location: Location | None) -> int:
        """The number of the line of ``location``, or NONE."""
        if location is None:
            return NONE
        file = self._files.setdefault(location.file, len(self._files))
        return self._lines.setdefault((file, location.line), len(self._lines))

    def scope(self, scope: str) -> int:
        return self._scopes.setdefault(scope, len(self._scopes))

    def record(self) -> dict:
        return {
            "files": [_file_record(file) for file in self._files],
            "lines": {"file": [file for file, _ in self._lines], "line": [line for _, line in self._lines]},
            "scopes": list(self._scopes),
        }


def _file_record(file: str) -> dict:
    """The path, from the current folder where it is in it, and the text; or why there is none."""
    inside = os.path.relpath(file)
    record = {"path": file if inside.startswith("..") else inside, "text": None, "missing": None}
    try:
        record["text"] = Path(file).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        record["missing"] = "the file is not there"
    except (OSError, UnicodeDecodeError) as error:
        record["missing"] = getattr(error, "strerror", None) or "the file is not text"
    return record


class Values:
    """The values of every graph on the way, by name: one that passes keep is one value.

    What is known of a value is what the last graph that has it says. ``first`` and ``last`` are the numbers of the
    stages it lives in; results of one operator share their ``op``, the number of the first of them. ``numbers`` has
    them by the name in the text, ``unquoted`` by the name itself.
    """

    def __init__(self, places: Places) -> None:
        self.places = places
        self.numbers: dict[str, int] = {}
        self.unquoted: dict[str, int] = {}
        self._living: tuple[int, ...] = ()
        self._columns: dict[str, list] = {
            name: [] for name in ("operator", "type", "op", "operands", "line", "scope", "via", "first", "last")
        }

    def __len__(self) -> int:
        return len(self.numbers)

    def add(self, graph: Graph, stage: int) -> dict[Value, int]:
        """Take in all values of ``graph``, which is the stage number ``stage``; the number of each."""
        names = value_names(graph)
        numbers: dict[Value, int] = {}
        for op in graph.ops:
            for value in op.results:
                number = self.numbers.setdefault(names[value], len(self.numbers))
                numbers[value] = self.unquoted[value.name] = number
            self._describe(op, numbers, stage)
        self._living = tuple(numbers.values())
        return numbers

    def keep(self, stage: int) -> None:
        """All values of the last graph live in the stage number ``stage`` too."""
        for number in self._living:
            self._columns["last"][number] = stage

    def follow(self, history: History) -> None:
        """Of each value that a pass did away with, which one its readers read instead; NONE where they went too."""
        final = max(self._columns["last"], default=0)
        became = [NONE] * len(self)
        for name, number in self.numbers.items():
            if self._columns["last"][number] < final:
                replaced = [event.now for event in history.of(name) if event.fate == "replaced"]
                became[number] = self.numbers[replaced[-1]] if replaced else NONE
        self._columns["became"] = became

    def set(self, column: str, numbers: dict[Value, int], amounts: dict[Value, float]) -> None:
        """What each value costs, 0 where ``amounts`` does not say."""
        filled = [0] * len(self)
        for value, amount in amounts.items():
            filled[numbers[value]] = float(f"{amount:.6g}") if isinstance(amount, float) else amount
        self._columns[column] = filled

    def _describe(self, op: Op, numbers: dict[Value, int], stage: int) -> None:
        known = {
            "operator": op.name,
            "op": numbers[op.result],
            "operands": [numbers[operand] for operand in op.operands],
            "line": self.places.line(op.location),
            "scope": self.places.scope(op.scope),
            "via": list(op.via),
            "last": stage,
        }
        for value in op.results:
            number = numbers[value]
            if number == len(self._columns["first"]):
                for column in self._columns.values():
                    column.append(None)
                self._columns["first"][number] = stage
            self._columns["type"][number] = str(value.type)
            for name, what in known.items():
                self._columns[name][number] = what

    def record(self) -> dict:
        return {"name": list(self.numbers), **self._columns}
