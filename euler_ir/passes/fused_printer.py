"""A fused graph as text: what is in memory from the start, then each group with all that it computes.

It is stable and complete; ``fused_parser`` reads it back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from euler_ir.graph import Op, Value
from euler_ir.index import Indices
from euler_ir.passes.groups import FusedGraph, Group, frame_axes, is_in_memory
from euler_ir.text.origins import OriginTable
from euler_ir.text.printer import VERSION, op_text, value_names
from euler_ir.text.reader import word
from euler_ir.text.resources import resource_lines


def print_fused(fused: FusedGraph, locations: bool = False) -> str:
    """The text of ``fused``; with ``locations`` each op also says where it comes from.

    A group lists every op that it computes, in the words of the graph's own text: those that only move elements, and
    those that it computes again rather than read, stand in each group that needs them. Those of its own say at which
    indices of its loops they are made.
    """
    return _Printer(fused, locations).text()


class _Printer:
    def __init__(self, fused: FusedGraph, locations: bool) -> None:
        self.fused = fused
        self.locations = locations
        self.names = value_names(fused.graph)
        self.order = fused.order()
        self.origins = OriginTable()

    def text(self) -> str:
        graph = self.fused.graph
        lines = [f"eir {VERSION}", f"fused @{word(graph.name)} {{"]
        lines += [f"  {self.line(op)}" for op in graph.ops if is_in_memory(op)]
        for number, group in enumerate(self.fused.groups):
            lines.append(f"  group {number} {group.name}: {_frame(group)} {{")
            lines += [f"    {line}" for line in self.body(group)]
            lines.append("  }")
        lines += [f"  output {json.dumps(name)} = {self.names[value]}" for name, value in graph.outputs.items()]
        lines += [f"  update {json.dumps(name)} = {self.names[value]}" for name, value in graph.updates.items()]
        return "\n".join([*lines, "}", *self.origins.lines(), *resource_lines(graph.ops), ""])

    def body(self, group: Group) -> list[str]:
        lines = [f"reads {self.typed(group.inputs)}"] if group.inputs else []
        lines.append(f"writes {self.typed(group.outputs)}")
        apart: set[Op] = set()
        for made in group.made_operands():
            lines += [f"prologue {self.names[made.outputs[0]]} {{"]
            lines += [f"  reads {self.typed(made.inputs)}"] if made.inputs else []
            lines += [f"  {self.line(op)}" for op in self.sorted(made.computed())]
            lines.append("}")
            apart |= made.computed()
        return lines + [self.line(op, group.roots.get(op.result)) for op in self.sorted(group.computed() - apart)]

    def line(self, op: Op, root: Indices | None = None) -> str:
        at = "" if root is None else f" at [{', '.join(map(str, root))}]"
        return f"{op_text(op, self.names)}{at}{self.origins.mark(op) if self.locations else ''}"

    def sorted(self, ops: Iterable[Op]) -> list[Op]:
        return sorted(ops, key=self.order.__getitem__)

    def typed(self, values: Iterable[Value]) -> str:
        return ", ".join(f"{self.names[value]}: {value.type}" for value in values)


def _frame(group: Group) -> str:
    """The kind of ``group`` and its loops, such as ``reduction for i in 4, j in 16 reducing j``."""
    axes = frame_axes(group.frame)
    loops = ", ".join(f"{axis} in {axis.extent}" for axis in axes)
    reduced = ", ".join(str(axes[position]) for position in group.reduced or ())
    return group.kind + (f" for {loops}" if loops else "") + (f" reducing {reduced}" if reduced else "")
