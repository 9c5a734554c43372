"""A graph in f64: the same computation with every float twice as exact, or four times, as it was."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from euler_ir.absent import AbsentArray
from euler_ir.dtypes import DType, as_dtype, f64
from euler_ir.graph import Graph
from euler_ir.rebuild import Rebuild


def in_f64(graph: Graph) -> Graph:
    """``graph`` with every float leaf, constant, cast and result in f64; integers and bools stay as they are.

    Constants and initial values keep the numbers that they had in their own type. Random operators draw other
    numbers, because those of f64 have more bits.
    """
    rebuild = Rebuild(graph, "in-f64")
    target = rebuild.target
    for op in rebuild:
        attributes = widened(op.attributes)
        if op.definition.has_identity:
            results = getattr(target, op.name)(**attributes)
        else:
            results = target.emit(op.name, rebuild.operands(op), **attributes)
        rebuild.replace(op, results if isinstance(results, tuple) else (results,))
    return rebuild.finish()


def widened(attributes: Mapping) -> dict:
    """Attributes of an operator with f64 for every float type, and in every array of floats."""
    return {name: _wide(attribute) for name, attribute in attributes.items()}


def _wide(attribute):
    if isinstance(attribute, DType):
        return f64 if attribute.is_float else attribute
    if isinstance(attribute, (np.ndarray, AbsentArray)) and as_dtype(attribute.dtype).is_float:
        return np.asarray(attribute).astype(np.float64)
    return attribute
