"""A graph with what it is called with, and a file that keeps both as text.

The file is the text of the graph, after comments. Those that begin with ``//=`` are the text of a second graph: it has
a constant and an output for each leaf, under its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from euler_ir import interpreter
from euler_ir.errors import GraphError
from euler_ir.files import write_file
from euler_ir.graph import Graph
from euler_ir.text import parse_graph, print_graph

_GIVEN = "//= "


@dataclass(frozen=True)
class Case:
    """A graph, its inputs, and the parameters and state that it begins with, each by name."""

    graph: Graph
    inputs: Mapping[str, np.ndarray]
    kept: Mapping[str, np.ndarray]

    @property
    def leaves(self) -> dict[str, np.ndarray]:
        """Inputs, parameters and state together, as the interpreter takes them."""
        return {**self.inputs, **self.kept}

    def _repr_pretty_(self, printer, cycle) -> None:
        """How hypothesis shows a failing example."""
        printer.text(f"{self.graph}\ninputs {self.inputs}\nkept {self.kept}")


def write_case(path: Path, case: Case, why: str) -> None:
    """Write ``case`` to ``path``, with the comment ``why`` at its head."""
    given = Graph("given")
    given.set_outputs(**{name: given.constant(array) for name, array in case.leaves.items()})
    lines = [f"// {line}".rstrip() for line in why.splitlines()]
    lines += [_GIVEN + line for line in print_graph(given).splitlines()]
    write_file(path, "\n".join([*lines, print_graph(case.graph)]))


def read_case(path: Path) -> Case:
    """The case that a file written by `write_case` holds, and perhaps a person has changed.

    Raises ParseError for wrong text, and GraphError for a leaf that the file gives no array.
    """
    text = path.read_text(encoding="utf-8")
    graph = parse_graph(text, str(path))
    given = "\n".join(line.removeprefix(_GIVEN) for line in text.splitlines() if line.startswith(_GIVEN))
    arrays, _ = interpreter.run(parse_graph(given, str(path)), {}) if given else ({}, {})
    kinds = graph.inputs, (*graph.parameters, *graph.states)
    names = [[leaf.op.attributes["name"] for leaf in leaves] for leaves in kinds]
    for name in (*names[0], *names[1]):
        if name not in arrays:
            raise GraphError(f"{path} gives no array for {name!r}")
    return Case(graph, *({name: arrays[name] for name in group} for group in names))
