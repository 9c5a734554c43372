"""One element of a tensor, by the name and the indices that a person writes: ``h.0.attn.c_attn.weight[3,1024]``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from euler_ir.compiler import Stages
from euler_ir.errors import GraphError, Location
from euler_ir.graph import Graph, Value
from euler_ir.inspect.find import find_value, location_record
from euler_ir.plan.plan import Plan
from euler_ir.shapes import row_major_strides
from euler_ir.state import block_offsets
from euler_ir.text.printer import value_names

_ELEMENT = re.compile(r"\s*(?P<name>.+?)\s*(?:\[(?P<indices>[^\[\]]*)\])?\s*\Z", re.DOTALL)


@dataclass(frozen=True)
class Element:
    """Element ``indices`` of ``value``: number ``flat`` of its buffer, ``byte`` bytes from the buffer's beginning.

    ``place`` is that of the buffer in the plan. A parameter's or state's byte in the block of a State that this graph
    alone has begun is ``block_byte``; that of a tensor in the arena, from its beginning, is ``arena_byte``.
    """

    name: str
    value: str
    type: str
    indices: tuple[int, ...]
    buffer: int
    place: str
    flat: int
    byte: int
    nbytes: int
    block_byte: int | None
    arena_byte: int | None
    location: Location | None
    scope: str

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.indices))}]"

    def record(self) -> dict:
        return {
            "name": self.name,
            "value": self.value,
            "type": self.type,
            "indices": list(self.indices),
            "buffer": self.buffer,
            "place": self.place,
            "element": self.flat,
            "byte": self.byte,
            "buffer_bytes": self.nbytes,
            "state_block_byte": self.block_byte,
            "arena_byte": self.arena_byte,
            "location": location_record(self.location),
            "scope": self.scope,
        }


def find_element(graph: Graph, stages: Stages, text: str) -> Element:
    """The element that ``text`` names in the plan of ``graph``; negative indices count from the end.

    Raises GraphError for an unknown name, a wrong number of indices, one out of range, and a value that has no memory.
    """
    found = _ELEMENT.match(text)
    name = found["name"] if found else text
    value = find_value(stages.optimized, name)
    indices = _indices(found["indices"], name, value)
    plan = stages.plan
    buffer = plan.decisions.buffers.get(value)
    if buffer is None:
        raise GraphError(
            f"{name!r} lies nowhere in memory: its elements are computed where they are read, in registers",
            location=value.op.location,
            hint="`euler-ir explain` says which loops compute it; parameters, inputs and outputs have memory",
        )
    flat = sum(index * stride for index, stride in zip(indices, row_major_strides(value.shape)))
    planned, byte = plan.buffers[buffer], flat * value.dtype.itemsize
    return Element(
        name.removeprefix("%"),
        value_names(stages.optimized)[value],
        str(value.type),
        indices,
        buffer,
        planned.place,
        flat,
        byte,
        value.type.nbytes,
        _block_byte(graph, plan, buffer, byte),
        planned.offset + byte if planned.place == "arena" else None,
        value.op.location,
        value.op.scope,
    )


def _indices(text: str | None, name: str, value: Value) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")] if text and text.strip() else []
    if words and not words[-1]:
        words.pop()  # as in Python, where x[3,] is x[3]
    shape = value.shape
    for word in words:
        if not re.fullmatch(r"[+-]?\d+", word):
            raise GraphError(f"{word!r} is not an index of {name!r}", hint="write numbers, such as weight[3,1024]")
    if len(words) != len(shape):
        example = f"{name}[{','.join(str(extent // 2) for extent in shape)}]"
        raise GraphError(
            f"{name!r} is {value.type}: an element has {len(shape)} indices, not {len(words)}",
            location=value.op.location,
            hint=f"such as {example}",
        )
    indices = []
    for axis, (word, extent) in enumerate(zip(words, shape)):
        index = int(word)
        if not -extent <= index < extent:
            raise GraphError(
                f"index {index} is out of range for axis {axis} of {name!r}, {value.type}", location=value.op.location
            )
        indices.append(index % extent)
    return tuple(indices)


def _block_byte(graph: Graph, plan: Plan, buffer: int, byte: int) -> int | None:
    planned = plan.buffers[buffer]
    if planned.place not in ("parameter", "state"):
        return None
    return block_offsets(graph)[planned.name] + byte
