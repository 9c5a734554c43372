"""Graphs looked into and changed by the names of their values. The given graph stays as it is; a new one is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from euler_ir.errors import GraphError
from euler_ir.graph import Graph, Value
from euler_ir.rebuild import Rebuild
from euler_ir.tensor import broadcast_to


def replace_values(graph: Graph, replacements: Mapping[str, Callable[[Value], Value] | object]) -> Graph:
    """``graph`` with other values in the place of those named: all that read one, outputs too, read what replaces it.

    A replacement is a function of the value, such as ``lambda x: x * 0.5`` or ``lambda x: ei.input("patch", x.shape)``,
    that returns a value of the same type; it is called once, with the new graph as the current one. Or it is an array
    or number, which is broadcast to the shape. The old value keeps its name and can be read beside the new one; ops of
    an edit say so in ``via``. A gradient that is in the graph already does not know of the edit: differentiate later.

    Raises GraphError for a name that is not in the graph, and for a replacement of another type or graph.
    """
    edits = {graph.value(name): replacement for name, replacement in replacements.items()}
    rebuild = Rebuild(graph, "replace_values")
    for op in rebuild:
        copied = rebuild.copy(op)
        for old, kept in zip(op.results, copied.results):
            if old in edits:
                with rebuild.target:
                    rebuild.values[old] = _replaced(kept, edits[old])
    return rebuild.finish()


def _replaced(old: Value, replacement) -> Value:
    if callable(replacement):
        new = replacement(old)
    else:
        new = broadcast_to(old.graph.constant(replacement, old.dtype), old.shape)
    if not isinstance(new, Value) or new.graph is not old.graph:
        error = GraphError(f"{old.name} is replaced by {new!r}, which is no value of the new graph")
        raise old.graph.explain(error, (old,))
    if new.type != old.type:
        raise old.graph.explain(
            GraphError(f"{old.name} is replaced by a value of another type"), (old, new), ("old", "new")
        )
    return new


def read_values(graph: Graph, names: Iterable[str] | Mapping[str, str], stop: bool = False) -> Graph:
    """``graph`` with the values called ``names`` as outputs too, each under its own name, or a mapping's keys.

    With ``stop`` they are its only outputs, nothing is updated, and what they do not need is not there, inputs
    included. Raises GraphError for a name that is not in the graph, or that another value has as an output.
    """
    if isinstance(names, str):
        raise GraphError(f"read_values takes a list of names, not {names!r} alone", hint=f"write [{names!r}]")
    called = names if isinstance(names, Mapping) else {name: name for name in names}
    wanted = {output: graph.value(name) for output, name in called.items()}
    needed = set(graph.needed(wanted.values()) if stop else graph.ops)
    rebuild = Rebuild(graph, "read_values")
    for op in rebuild:
        if op in needed:
            rebuild.copy(op)
    target = rebuild.target if stop else rebuild.finish()
    for name, value in wanted.items():
        if target.outputs.get(name) is not rebuild.values[value]:
            target.set_outputs(**{name: rebuild.values[value]})
    return target
