"""Turns what loops and library calls cannot do directly into what they can.

Half types are summed in f32; integer products become sums of products; a reduction with too little parallel work is
cut into two, a product with too small a result into parts and their sum; every matmul that steps over many batch axes
gets explicit ones; a product of one row becomes a sum; a slice is written in place or not at all, and what is scattered
is added where it goes when nothing else needs the old value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from euler_ir import tensor as T
from euler_ir.dtypes import DType, bool_, f32, i32
from euler_ir.graph import Graph, Op, Value
from euler_ir.passes.manager import Pass
from euler_ir.passes.parallelism import LANES, MIN_TASKS, SHORTEST_INNER, SMALL_FRAME, is_parallel
from euler_ir.passes.views import MAX_BATCH_AXES
from euler_ir.rebuild import Rebuild


@dataclass(frozen=True)
class Legalize(Pass):
    """Rewrite half and empty sums, integer products, and thin or batched contractions into forms that lower.

    With ``half_calls`` products and attention of half types stay as they are, for a backend that accumulates them in
    f32 itself. Without ``split_products`` a product with a small result stays whole however long its sums are.
    """

    name = "legalize"
    numerics = "reassociating"
    half_calls: bool = False
    split_products: bool = True

    def run(self, graph: Graph) -> Graph:
        rebuild, uses = Rebuild(graph, self.name), graph.uses()
        for op in rebuild:
            if op.name == "dynamic_update_slice":
                value = None if _is_in_place(op, uses) else _chosen(op, rebuild.operands(op))
            elif op.name == "add" and (place := _where_added(op, uses)) is not None:
                value = _added_in_place(op, place, rebuild)
            elif op.name == "index_add":
                value = None if _can_be_added_to(op.operands[0], op, uses) else _added(rebuild.apart(op), self)
            else:
                value = self._legal(op, rebuild)
            if value is None:
                rebuild.copy(op)
            else:
                rebuild.replace(op, value if isinstance(value, tuple) else (value,))
        return rebuild.finish()

    def _legal(self, op: Op, rebuild: Rebuild) -> Value | tuple[Value, ...] | None:
        """What replaces ``op``, its only result or all of them, or None when it is legal as it is."""
        rule = _RULES.get(op.name)
        reads_nothing = rule is not None and any(not operand.size for operand in op.operands)
        is_whole = op.definition.has_identity or op.definition.family == "composite"
        if not is_whole and (reads_nothing or not op.result.size):
            return _from_nothing(op, rebuild.target)
        return rule(op, rebuild.operands(op), self) if rule else None


def _is_in_place(op: Op, uses: Mapping[Value, list[Op]]) -> bool:
    """Whether a dynamic_update_slice writes into a state (or parameter) whose old value nothing else reads."""
    leaf = op.operands[0]
    return (
        leaf.op.name in ("state", "parameter")
        and op.graph.updates.get(leaf.op.attributes["name"]) is op.result
        and uses[leaf] == [op]
        and op.operands[1].size > 0
    )


def _where_added(op: Op, uses: Mapping[Value, list[Op]]) -> int | None:
    """Which operand of an ``add`` is a scatter_add whose updates can be added where the other one lies; or None.

    Nothing else may read either. It sums the same terms in another order.
    """
    for place, value in enumerate(op.operands):
        if value.op.name == "scatter_add" and value.op.operands[1].size and _only_for(value, op, uses):
            if _can_be_added_to(op.operands[1 - place], op, uses):
                return place
    return None


def _can_be_added_to(value: Value, op: Op, uses: Mapping[Value, list[Op]]) -> bool:
    """Whether what ``op`` adds to ``value`` can be added where it lies: it is computed, and for ``op`` alone."""
    is_computed = value.op.definition.family not in ("leaf", "movement", "indexing")
    return is_computed and value.size > 0 and not value.dtype.is_half and _only_for(value, op, uses)


def _only_for(value: Value, op: Op, uses: Mapping[Value, list[Op]]) -> bool:
    return uses[value] == [op] and value not in op.graph.results()


def _added_in_place(op: Op, place: int, rebuild: Rebuild) -> Value:
    scatter = op.operands[place].op
    operands = (op.operands[1 - place], *scatter.operands)
    axis = scatter.attributes["axis"]
    return rebuild.target.emit("index_add", tuple(rebuild.values[value] for value in operands), axis=axis)


def _added(op: Op, options: Legalize) -> Value:
    """An index_add as a sum, which makes a new tensor."""
    (total,) = op.definition.decompose(op)
    scatter = total.op.operands[1].op
    wide = _in_f32(scatter, scatter.operands, options)
    return total if wide is None else T.add(op.operands[0], wide)


def _chosen(op: Op, operands: tuple[Value, ...]) -> Value:
    """A dynamic_update_slice as a choice for every element, which makes a new tensor."""
    whole = operands[0].graph.emit(op.name, operands, **op.attributes)
    return op.definition.decompose(whole.op)[0]


def _from_nothing(op: Op, graph: Graph) -> Value:
    """The result of an operator that has no elements, or that sums no elements: no loop has to run for it."""
    type = op.result.type
    is_reduction = op.name in ("prod", "max", "min")
    value = neutral_element(op.name, op.operands[0].dtype) if is_reduction else type.dtype.numpy.type(0)
    return T.broadcast_to(graph.constant(value, type.dtype), type.shape)


def _in_f32(op: Op, operands: tuple[Value, ...], options: Legalize) -> Value | None:
    """``op`` in f32 when it would accumulate in a half type."""
    dtype = op.result.dtype
    if not dtype.is_half:
        return None
    wide = tuple(T.cast(operand, f32) if operand.dtype.is_half else operand for operand in operands)
    graph = wide[0].graph
    again = graph.emit(op.name, wide, **op.attributes)
    rule = _RULES[op.name]
    return T.cast(_legal(rule, again.op, wide, options), dtype)


def _legal(rule, op: Op, operands: tuple[Value, ...], options: Legalize) -> Value:
    value = rule(op, operands, options)
    return op.result if value is None else value


def _reduction(op: Op, operands: tuple[Value, ...], options: Legalize) -> Value | None:
    (x,), axes = operands, op.attributes["axes"]
    if all(x.shape[axis] == 1 for axis in axes):
        return T.reshape(x, op.result.shape)
    if x.dtype == bool_:
        wide = x.graph.emit(op.name, (T.cast(x, i32),), axes=axes)
        return T.cast(_legal(_reduction, wide.op, (T.cast(x, i32),), options), bool_)
    return _in_f32(op, operands, options) if x.dtype.is_half else _split(op, x, axes)


def _split(op: Op, x: Value, axes: tuple[int, ...]) -> Value | None:
    """Two reductions instead of one that has few rows: first of many pieces, then of what they give."""
    if is_parallel(x.shape, axes):
        return None
    longest = max(axes, key=lambda axis: x.shape[axis])
    length = x.shape[longest]
    rest = tuple(axis for axis in axes if axis != longest)
    if rest and length >= MIN_TASKS and x.size // length >= LANES:
        partial = x.graph.emit(op.name, (x,), axes=rest)
        return x.graph.emit(op.name, (partial,), axes=(longest - sum(axis < longest for axis in rest),))
    pieces = 1 << ((length.bit_length() - 1) // 2)
    width = -(-length // pieces)
    low = (0,) * len(x.shape)
    high = tuple((pieces * width - length) * (axis == longest) for axis in range(len(x.shape)))
    neutral = neutral_element(op.name, x.dtype)
    padded = T.pad_with_interior(x, low, high, low, neutral) if pieces * width != length else x
    cut = T.reshape(padded, x.shape[:longest] + (pieces, width) + x.shape[longest + 1 :])
    inner = tuple(axis + (axis >= longest) for axis in axes)
    partial = x.graph.emit(op.name, (cut,), axes=inner)
    place = longest - sum(axis < longest for axis in axes)
    return x.graph.emit(op.name, (partial,), axes=(place,))


def neutral_element(reduction: str, dtype: DType):
    """The number of ``dtype`` that changes no result of ``reduction``, an operator's name."""
    return {"sum": 0, "prod": 1, "max": dtype.lowest, "min": dtype.highest}[reduction]


def _matmul(op: Op, operands: tuple[Value, ...], options: Legalize) -> Value | None:
    left, right = operands
    is_half_call = left.dtype.is_half and options.half_calls
    if left.dtype.is_half and not is_half_call:
        return _in_f32(op, operands, options)
    if left.dtype.is_integer:
        return _sum_of_products(op, left, right)
    if not is_half_call and op.result.shape[-2] == 1 and math.prod(op.result.shape[:-2]) == math.prod(right.shape[:-2]):
        return _row_product(op, left, right, options)
    batch = op.result.shape[:-2]
    if sum(size != 1 for size in batch) > MAX_BATCH_AXES and left.shape[:-2] != right.shape[:-2]:
        wide = tuple(T.broadcast_to(operand, batch + operand.shape[-2:]) for operand in operands)
        if wide != operands:
            return left.graph.emit("matmul", wide, **op.attributes)
    return _split_inner(op, left, right) if options.split_products else None


def _split_inner(op: Op, left: Value, right: Value) -> Value | None:
    """Products over parts of the inner axis, then their sum, where the result alone leaves threads too little to share:
    gradients of small weights, summed over many tokens.
    """
    inner = left.shape[-2 if op.attributes["transpose_left"] else -1]
    parts = 1
    while (
        parts * op.result.size < SMALL_FRAME
        and inner % (2 * parts) == 0
        and inner // (2 * parts) >= SHORTEST_INNER
    ):
        parts *= 2
    if parts == 1 or len(op.result.shape) > 2:
        return None

    def cut(operand: Value, along_rows: bool) -> Value:
        rows, columns = operand.shape
        if along_rows:
            return T.reshape(operand, (parts, rows // parts, columns))
        return T.swap_axes(T.reshape(operand, (rows, parts, columns // parts)), 0, 1)

    pieces = cut(left, op.attributes["transpose_left"]), cut(right, not op.attributes["transpose_right"])
    products = left.graph.emit("matmul", pieces, **op.attributes)
    return left.graph.emit("sum", (products,), axes=(0,))


def _attention(op: Op, operands: tuple[Value, ...], options: Legalize) -> tuple[Value, ...] | None:
    if not operands[0].dtype.is_half or options.half_calls:
        return None
    floats = tuple(T.cast(operand, f32) if operand.dtype.is_half else operand for operand in operands)
    wide = operands[0].graph.emit(op.name, floats, **op.attributes)
    return tuple(T.cast(value, result.dtype) for value, result in zip(wide, op.results))


def _sum_of_products(op: Op, left: Value, right: Value) -> Value:
    """An integer product: wraps around as the interpreter's does."""
    left = T.swap_axes(left, -1, -2) if op.attributes["transpose_left"] else left
    right = right if op.attributes["transpose_right"] else T.swap_axes(right, -1, -2)
    products = T.multiply(T.expand_dims(left, -2), T.expand_dims(right, -3))
    return left.graph.emit("sum", (products,), axes=(len(products.shape) - 1,))


def _row_product(op: Op, left: Value, right: Value, options: Legalize) -> Value:
    """A product of one row with each right matrix: a sum that walks through that as it is stored, once, and fuses with
    what is around it. There is nothing to pack or to reuse, so that memory is the limit.
    """
    along = -1 if op.attributes["transpose_right"] else -2
    if op.attributes["transpose_left"] == op.attributes["transpose_right"]:
        left = T.swap_axes(left, -1, -2)
    products = T.multiply(T.expand_dims(left, -2 if along == -1 else -3), T.expand_dims(right, -3))
    total = left.graph.emit("sum", (products,), axes=(len(products.shape) + along,))
    return _legal(_reduction, total.op, (products,), options)


_RULES = {
    "sum": _reduction,
    "prod": _reduction,
    "max": _reduction,
    "min": _reduction,
    "matmul": _matmul,
    "attention": _attention,
    "attention_gradient": _attention,
    "cumsum": _in_f32,
    "scatter_add": _in_f32,
}
