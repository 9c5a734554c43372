"""Graphs as text: stable, canonical and complete. ``parser`` reads it back.

A value is called by its hint, in quotes where that is no plain word, with ``#2``, ``#3`` ... where hints repeat. A
value without a hint is called by its operator and its ordinal among the unnamed values of that operator, so that a
new op changes few lines.
"""

from __future__ import annotations

import json
import re

from euler_ir.graph import Graph, Op, Value
from euler_ir.text.literals import FROM_TYPE, format_attribute

VERSION = 1
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")
_ORDINAL = re.compile(r"(_[0-9]+)?(\.[0-9]+)?\Z")


def print_graph(graph: Graph, locations: bool = False) -> str:
    """The text of ``graph``; with ``locations`` each op also says the user's line and scope.

    Raises GraphError for an initializer that the text form does not know.
    """
    names = value_names(graph)
    lines = [f"eir {VERSION}", f"graph @{word(graph.name)} {{"]
    lines += [f"  {op_text(op, names)}{origin_text(op) if locations else ''}" for op in graph.ops]
    lines += [f"  output {json.dumps(name)} = {names[value]}" for name, value in graph.outputs.items()]
    lines += [f"  update {json.dumps(name)} = {names[value]}" for name, value in graph.updates.items()]
    return "\n".join([*lines, "}", ""])


def value_names(graph: Graph) -> dict[Value, str]:
    """What each value of ``graph`` is called in its text, with the leading ``%``."""
    names: dict[Value, str] = {}
    repeats: dict[str, int] = {}
    for op in graph.ops:
        for value in op.results:
            if value.name is not None:
                names[value] = _hinted(value.name, op.name, repeats)
    taken = set(names.values())
    ordinals: dict[str, int] = {}
    for op in graph.ops:
        unnamed = [value for value in op.results if value.name is None]
        if unnamed:
            base = _next_free(op, ordinals, taken)
            names.update((value, _default(base, value)) for value in unnamed)
    return names


def is_default_name(name: str, operator: str) -> bool:
    """Whether ``name`` (without ``%``) is what an unnamed result of ``operator`` is called."""
    return name.startswith(operator) and _ORDINAL.match(name, len(operator)) is not None


def _hinted(hint: str, operator: str, repeats: dict[str, int]) -> str:
    plain = PLAIN.match(hint) and not is_default_name(hint, operator)
    base = hint if plain else json.dumps(hint)
    repeats[base] = repeats.get(base, 0) + 1
    return f"%{base}" if repeats[base] == 1 else f"%{base}#{repeats[base]}"


def _default(base: str, value: Value) -> str:
    return base if len(value.op.results) == 1 else f"{base}.{value.index}"


def _next_free(op: Op, ordinals: dict[str, int], taken: set[str]) -> str:
    while True:
        ordinal = ordinals.get(op.name, 0)
        ordinals[op.name] = ordinal + 1
        base = f"%{op.name}_{ordinal}" if ordinal else f"%{op.name}"
        if not any(_default(base, value) in taken for value in op.results):
            return base


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


def origin_text(op: Op) -> str:
    """What follows the line of ``op`` to say the user's line and scope; empty when it has neither."""
    text = ""
    if op.location is not None:
        text = f"  @ {json.dumps(op.location.file)}:{op.location.line} in {word(op.location.function)}"
    return f"{text} scope {json.dumps(op.scope)}" if op.scope else text


def word(text: str) -> str:
    """``text`` as it is when it is a plain word, else in quotes."""
    return text if PLAIN.match(text) else json.dumps(text)
