"""When two attributes, ops or graphs are the same: bit for bit, so that 0.0 and -0.0 differ and a NaN equals itself."""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from collections.abc import Hashable, Mapping

import numpy as np

from euler_ir.absent import AbsentArray, content_hash
from euler_ir.dtypes import DType
from euler_ir.graph import Graph, Op, Value
from euler_ir.initializers import Initializer

_SMALL = 16
"""Elements of an array whose bytes are compared themselves, not their hash."""


def attribute_key(value) -> Hashable:
    """A hashable stand-in for an attribute: equal keys mean equal types and equal bits."""
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    if isinstance(value, tuple):
        return tuple(attribute_key(item) for item in value)
    if isinstance(value, np.ndarray):
        return value.dtype.name, value.shape, value.tobytes() if value.size <= _SMALL else content_hash(value)
    if isinstance(value, AbsentArray):
        return value.dtype.name, value.shape, value.hash
    if isinstance(value, Initializer):
        fields = tuple(attribute_key(getattr(value, field.name)) for field in dataclasses.fields(value))
        return type(value), fields
    return value if isinstance(value, DType) else (type(value), value)


def attributes_key(attributes: Mapping) -> Hashable:
    """A hashable stand-in for all attributes of an op, whatever their order."""
    return tuple((name, attribute_key(attributes[name])) for name in sorted(attributes))


def structurally_equal(left: Graph, right: Graph, locations: bool = False, names: bool = True) -> bool:
    """Whether two graphs have the same name, ops in the same order, names of values, outputs and updates.

    Locations, scopes and what the ops were made by count only with ``locations``; names of values not without
    ``names``, as where a pass must give the ops of another graph.
    """
    return _structure(left, locations, names) == _structure(right, locations, names)


def structural_hash(graph: Graph, locations: bool = False, names: bool = True) -> str:
    """Hexadecimal digits that are the same, in every process, for graphs that are `structurally_equal`."""
    return hashlib.sha256(repr(_structure(graph, locations, names)).encode(errors="surrogatepass")).hexdigest()


def _structure(graph: Graph, locations: bool, names: bool) -> list[Hashable]:
    numbers: dict[Value, int] = {}
    parts: list[Hashable] = [graph.name]
    for op in graph.ops:
        parts.append(_op_structure(op, numbers, locations, names))
        for value in op.results:
            numbers[value] = len(numbers)
    parts.append(tuple((name, numbers[value]) for name, value in graph.outputs.items()))
    parts.append(tuple((name, numbers[value]) for name, value in graph.updates.items()))
    return parts


def _op_structure(op: Op, numbers: Mapping[Value, int], locations: bool, names: bool) -> Hashable:
    operands = tuple(numbers[operand] for operand in op.operands)
    results = tuple((value.type, value.name if names else None) for value in op.results)
    origin = (op.location, op.scope, op.via) if locations else None
    return op.name, operands, attributes_key(op.attributes), results, origin
