"""When two fused graphs are the same: their values by name, their operators in whatever order the groups leave open."""

from __future__ import annotations

from collections.abc import Hashable

from euler_ir.graph import Op, Value
from euler_ir.graph_equality import attributes_key
from euler_ir.passes.attention_calls import AttentionCall
from euler_ir.passes.groups import FusedGraph, Group, is_in_memory
from euler_ir.passes.library_calls import MatmulCall
from euler_ir.passes.views import MatrixView


def fused_equal(left: FusedGraph, right: FusedGraph, locations: bool = False) -> bool:
    """Whether two fused graphs have the same names, leaves, groups in the same order, outputs and updates.

    Locations, scopes and what the ops were made by count only with ``locations``.
    """
    return _structure(left, locations) == _structure(right, locations)


def _structure(fused: FusedGraph, locations: bool) -> Hashable:
    graph = fused.graph
    return (
        graph.name,
        tuple(_op(op, locations) for op in graph.ops if is_in_memory(op)),
        tuple(_group(group, locations) for group in fused.groups),
        tuple((name, value.name) for name, value in graph.outputs.items()),
        tuple((name, value.name) for name, value in graph.updates.items()),
    )


def _group(group: Group, locations: bool) -> Hashable:
    return (
        (group.kind, group.frame, group.reduced),
        tuple(value.name for op in group.ops for value in op.results),
        frozenset((value.name, root) for value, root in group.roots.items()),
        (_names(group.inputs), _names(group.outputs)),
        frozenset(_op(op, locations) for op in group.computed()),
        None if group.call is None else _call(group.call),
        frozenset((value.name, _group(made, locations)) for value, made in group.prologues.items()),
    )


def _op(op: Op, locations: bool) -> Hashable:
    origin = (op.location, op.scope, op.via) if locations else None
    results = tuple((value.name, value.type) for value in op.results)
    return op.name, _names(op.operands), attributes_key(op.attributes), results, origin


def _call(call: MatmulCall | AttentionCall) -> Hashable:
    """The fields of a call, which are numbers, views and operators."""
    return type(call), tuple(_field(value) for value in vars(call).values())


def _field(value) -> Hashable:
    match value:
        case tuple():
            return tuple(map(_field, value))
        case MatrixView(source, offset, batch_strides, leading, transposed):
            return source.name, offset, batch_strides, leading, transposed
        case Op():
            return _names(value.results)
    return value


def _names(values: tuple[Value, ...]) -> tuple[str, ...]:
    return tuple(value.name for value in values)
