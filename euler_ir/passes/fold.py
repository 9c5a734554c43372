"""Constant folding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from euler_ir.errors import EulerError
from euler_ir.graph import Graph, Op, Value
from euler_ir.passes.manager import Pass
from euler_ir.passes.options import expect_at_least
from euler_ir.rebuild import Rebuild
from euler_ir.verify import random_streams

_REARRANGING = ("reshape", "transpose", "flip", "slice")


@dataclass(frozen=True)
class Fold(Pass):
    """Compute what depends on constants alone, as long as operands and result take at most ``byte_limit`` bytes.

    A constant repeated by broadcast stays one: what is computed from such is computed once and repeated again. Small
    index grids count as constants for what is computed from them. Random ops are never folded, and an op that would
    fail when run is left to fail when run.
    """

    name = "fold"
    byte_limit: int = 65536

    def __post_init__(self) -> None:
        expect_at_least(0, byte_limit=self.byte_limit)

    def run(self, graph: Graph) -> Graph:
        rebuild = Rebuild(graph, self.name)
        for op in rebuild:
            values = None if op.definition.family == "leaf" else self._fold(op, rebuild)
            if values is None:
                rebuild.copy(op)
            else:
                rebuild.replace(op, values)
        return rebuild.finish()

    def _fold(self, op: Op, rebuild: Rebuild) -> list[Value] | None:
        if random_streams(op) or op.name == "broadcast":
            return None
        operands = rebuild.operands(op)
        return _fold_repeated(op, operands, rebuild.target) or self._fold_arrays(op, operands, rebuild.target)

    def _fold_arrays(self, op: Op, operands: Sequence[Value], target: Graph) -> list[Value] | None:
        if any(value.type.nbytes > self.byte_limit for value in (*operands, *op.results)):
            return None
        arrays = [_array(operand) for operand in operands]
        if any(array is None for array in arrays):
            return None
        results = _evaluate(op, arrays)
        return results and [target.emit("constant", (), value=array) for array in results]


def _fold_repeated(op: Op, operands: Sequence[Value], target: Graph) -> list[Value] | None:
    """``op`` done once, where every operand repeats one number and every element of the result is the same."""
    scalars = [_repeated_scalar(operand) for operand in operands]
    if any(scalar is None for scalar in scalars):
        return None
    if op.definition.family == "elementwise":
        results = _evaluate(op, [scalar.op.attributes["value"] for scalar in scalars])
        if results is None:
            return None
        scalar = target.emit("constant", (), value=results[0])
    elif op.name in _REARRANGING:
        scalar = scalars[0]
    else:
        return None
    return [target.emit("broadcast", (scalar,), shape=op.result.shape)]


def _repeated_scalar(value: Value) -> Value | None:
    """The 0-d constant that ``value`` broadcasts, or None."""
    if value.op.name != "broadcast":
        return None
    scalar = value.op.operands[0]
    return scalar if scalar.op.name == "constant" and scalar.shape == () else None


def _array(value: Value) -> np.ndarray | None:
    """The array of a constant, an index grid, or a constant under a broadcast; None for all else or without data."""
    op = value.op
    if op.name == "iota":
        return op.definition.evaluate(op.attributes)
    source = op.operands[0].op if op.name == "broadcast" else op
    array = source.attributes["value"] if source.name == "constant" else None
    return np.broadcast_to(array, value.shape) if isinstance(array, np.ndarray) else None


def _evaluate(op: Op, arrays: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    try:
        with np.errstate(all="ignore"):
            results = op.definition.evaluate(op.attributes, *arrays)
    except EulerError:
        return None
    results = results if isinstance(results, tuple) else (results,)
    return [np.array(array, value.dtype.numpy, order="C") for array, value in zip(results, op.results, strict=True)]
