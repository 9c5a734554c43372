"""A fused graph as text: what is in memory from the start, then each group with all that it computes."""

from __future__ import annotations

import json

from euler_ir.graph import Op, Value
from euler_ir.passes.groups import FusedGraph, Group, frame_axes, is_in_memory
from euler_ir.text.origins import OriginTable
from euler_ir.text.printer import op_text, value_names
from euler_ir.text.reader import word


def print_fused(fused: FusedGraph, locations: bool = False) -> str:
    """The text of ``fused``; with ``locations`` each op also says where it comes from.

    A group lists every op that it computes, in the words of the graph's own text: those that only move elements, and
    those that it computes again rather than read, stand in each group that needs them.
    """
    graph, names, origins = fused.graph, value_names(fused.graph), OriginTable()
    order = {op: number for number, op in enumerate(graph.ops)}

    def line(op: Op, indent: str) -> str:
        return f"{indent}{op_text(op, names)}{origins.mark(op) if locations else ''}"

    def typed(values: tuple[Value, ...]) -> str:
        return ", ".join(f"{names[value]}: {value.type}" for value in values)

    lines = [f"fused @{word(graph.name)} {{"]
    lines += [line(op, "  ") for op in graph.ops if is_in_memory(op)]
    for number, group in enumerate(fused.groups):
        lines.append(f"  group {number} {group.name}: {_frame(group)} {{")
        lines += [f"    reads {typed(group.inputs)}", f"    writes {typed(group.outputs)}"]
        lines += [line(op, "    ") for op in sorted(group.computed(), key=order.__getitem__)]
        lines.append("  }")
    lines += [f"  output {json.dumps(name)} = {names[value]}" for name, value in graph.outputs.items()]
    lines += [f"  update {json.dumps(name)} = {names[value]}" for name, value in graph.updates.items()]
    return "\n".join([*lines, "}", *origins.lines(), ""])


def _frame(group: Group) -> str:
    """The kind of ``group`` and its loops, such as ``reduction for i in 4, j in 16 reducing j``."""
    axes = frame_axes(group.frame)
    loops = ", ".join(f"{axis} in {axis.extent}" for axis in axes)
    reduced = ", ".join(str(axes[position]) for position in group.reduced or ())
    return group.kind + (f" for {loops}" if loops else "") + (f" reducing {reduced}" if reduced else "")
