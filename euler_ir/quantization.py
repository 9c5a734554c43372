"""Weights in fewer bits for graphs that only read them: a product that waits for memory runs as much faster.

Only what is stored changes. Products are computed in the type of their other operand, from weights that are made wide
again in registers. A column of the product becomes a row of the stored weight, [columns, inner], whichever way it was
stored before: narrow elements are read fastest when those that are summed up lie side by side. An i8 weight is
``round(w / scale)``, with one scale for each row, whose largest element becomes 127. A half-type weight is rounded and
has no scale.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from euler_ir import tensor as T
from euler_ir.dtypes import DType, as_dtype, i8
from euler_ir.errors import DTypeError, ExecutionError
from euler_ir.graph import Graph, Op, Value
from euler_ir.initializers import Ones, Zeros
from euler_ir.rebuild import Rebuild
from euler_ir.state import State

_LARGEST = 127


def quantize_weights(graph: Graph, dtype=i8) -> Graph:
    """``graph`` with every weight in ``dtype``: i8, bf16 or f16. Its State is that of `quantized_state`.

    A weight is an f32 or f64 parameter of two axes that nothing updates, and that is only the right operand of products
    and, where each of its rows is a column of the product, a table to take rows from (a tied embedding). Weight ``w``
    becomes the parameters ``w.i8`` and ``w.scale``, or ``w.bf16``. Raises DTypeError for another ``dtype``.
    """
    dtype = _checked(dtype)
    rebuild, weights = Rebuild(graph, "quantize"), _weights(graph)
    stored: dict[Value, tuple[Value, Value | None]] = {}
    for op in rebuild:
        if op.results[0] in weights:
            stored[op.result] = _leaves(rebuild.target, op, weights[op.result], dtype)
        elif op.name == "matmul" and op.operands[1] in stored:
            rebuild.replace(op, (_product(op, rebuild.values[op.operands[0]], *stored[op.operands[1]]),))
        elif op.name == "take" and op.operands[0] in stored:
            rebuild.replace(op, (_rows(op, rebuild.values[op.operands[1]], *stored[op.operands[0]]),))
        else:
            rebuild.copy(op)
    return rebuild.finish()


def quantized_state(graph: Graph, state: Mapping[str, np.ndarray], dtype=i8) -> State:
    """What ``quantize_weights(graph, dtype)`` reads, made from the ``state`` of ``graph``, which stays as it is.

    Leaves of ``graph`` that are not in ``state`` are not in the result either, for ``State.add`` to begin. Raises
    ExecutionError for a weight that i8 cannot hold because it is not finite.
    """
    dtype, weights = _checked(dtype), _weights(graph)
    result = State()
    for leaf in (*graph.parameters, *graph.states):
        name = leaf.op.attributes["name"]
        if name not in state:
            continue
        if leaf not in weights:
            result[name] = state[name]
            continue
        rows = state[name].T if weights[leaf] else state[name]
        if dtype == i8:
            result[f"{name}.i8"], result[f"{name}.scale"] = _rounded(rows, name)
        else:
            with np.errstate(over="ignore"):
                result[f"{name}.{dtype}"] = rows.astype(dtype.numpy)
    return result


def _checked(dtype) -> DType:
    dtype = as_dtype(dtype)
    if dtype != i8 and not dtype.is_half:
        raise DTypeError(f"weights are not kept in {dtype}", hint="use i8, bf16 or f16")
    return dtype


def _weights(graph: Graph) -> dict[Value, int]:
    """The weights, and which axis of each is that of the product's columns."""
    uses = graph.uses()
    changed = {graph.leaf(name) for name in graph.updates} | set(graph.results())
    found = {}
    for leaf in graph.parameters:
        is_wide = leaf.dtype.is_float and not leaf.dtype.is_half
        if len(leaf.shape) == 2 and is_wide and leaf not in changed:
            axes = [_columns_axis(op, leaf) for op in uses.get(leaf, ()) if not _takes_rows(op, leaf)]
            takes = len(axes) < len(uses.get(leaf, ()))
            if axes and set(axes) in ({0}, {1}) and not (takes and axes[0]):
                found[leaf] = axes[0]
    return found


def _columns_axis(op: Op, leaf: Value) -> int | None:
    """The axis of ``leaf``, the right operand of a product, that is the result's columns; None for any other use."""
    if op.name != "matmul" or op.operands[0] is leaf:
        return None
    return 0 if op.attributes["transpose_right"] else 1


def _takes_rows(op: Op, leaf: Value) -> bool:
    return op.name == "take" and op.operands[0] is leaf and op.attributes["axis"] == 0


def _leaves(graph: Graph, op: Op, columns_axis: int, dtype: DType) -> tuple[Value, Value | None]:
    """The stored weight and its scale in the new graph."""
    name, type = op.attributes["name"], op.result.type
    shape = type.shape[::-1] if columns_axis else type.shape
    weight = graph.parameter(f"{name}.{dtype}", shape, Zeros(), dtype)
    return weight, graph.parameter(f"{name}.scale", shape[:1], Ones(), type.dtype) if dtype == i8 else None


def _product(op: Op, left: Value, weight: Value, scale: Value | None) -> Value:
    product = T.matmul(left, T.cast(weight, left.dtype), op.attributes["transpose_left"], transpose_right=True)
    return product if scale is None else product * scale


def _rows(op: Op, indices: Value, weight: Value, scale: Value | None) -> Value:
    rows = T.cast(T.take(weight, indices), op.result.dtype)
    return rows if scale is None else rows * T.expand_dims(T.take(scale, indices), -1)


def _rounded(rows: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The nearest i8 numbers and the scale of each row, 1 for a row of zeros."""
    largest = np.max(np.abs(rows), axis=1, initial=0)
    if not np.all(np.isfinite(largest)):
        raise ExecutionError(f"parameter {name!r} is not finite, and i8 cannot hold that", hint="use bf16")
    # Of denormal numbers the scale could be rounded to zero.
    scale = np.where(largest == 0, 1, np.maximum(largest / _LARGEST, np.finfo(rows.dtype).tiny)).astype(rows.dtype)
    return np.clip(np.rint(rows / scale[:, None]), -_LARGEST, _LARGEST).astype(np.int8), scale
