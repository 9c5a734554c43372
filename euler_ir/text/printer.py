"""Graphs as text: stable, canonical and complete. ``parser`` reads it back."""

from __future__ import annotations

import json
import re

from euler_ir.graph import Graph, Op, Value
from euler_ir.text.literals import FROM_TYPE, format_attribute
from euler_ir.text.origins import OriginTable
from euler_ir.text.resources import resource_lines
from euler_ir.text.reader import NAME, word

VERSION = 1
_PLAIN_NAME = re.compile(rf"(?!\"){NAME}\Z")


def print_graph(graph: Graph, locations: bool = False) -> str:
    """The text of ``graph``; with ``locations`` each op also says where it comes from: see `text.origins`.

    Data of large constants follow at the end: see `text.resources`.

    Raises GraphError for an initializer that the text form does not know.
    """
    names, origins = value_names(graph), OriginTable()
    lines = [f"eir {VERSION}", f"graph @{word(graph.name)} {{"]
    lines += [f"  {op_text(op, names)}{origins.mark(op) if locations else ''}" for op in graph.ops]
    lines += [f"  output {json.dumps(name)} = {names[value]}" for name, value in graph.outputs.items()]
    lines += [f"  update {json.dumps(name)} = {names[value]}" for name, value in graph.updates.items()]
    return "\n".join([*lines, "}", *origins.lines(), *resource_lines(graph.ops), ""])


def value_names(graph: Graph) -> dict[Value, str]:
    """What each value of ``graph`` is called in its text: its name behind ``%``, in quotes where it needs them."""
    return {value: _reference(value.name) for op in graph.ops for value in op.results}


def _reference(name: str) -> str:
    return f"%{name}" if _PLAIN_NAME.match(name) else f"%{json.dumps(name)}"


def op_text(op: Op, names: dict[Value, str]) -> str:
    """The line of ``op``, with values called as ``names`` says (see ``value_names``)."""
    results = ", ".join(names[value] for value in op.results)
    operands = ", ".join(names[value] for value in op.operands)
    attributes = ", ".join(
        f"{name} = {format_attribute(kind, op.attributes[name])}"
        for name, kind in sorted(op.definition.attributes.items())
        if name not in FROM_TYPE
    )
    types = ", ".join(str(value.type) for value in op.results)
    return " ".join(filter(None, (results, "=", op.name, operands, attributes and f"{{{attributes}}}", ":", types)))
