"""Operators in f64 with the range of their own types: what a graph means, but for rounding.

Floats are kept in f64 whatever their type. A result beyond the largest number of its type is infinite, as it is there,
so that what overflows, and what that makes NaN, is seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from euler_ir.dtypes import DType, accumulation_dtype, as_dtype
from euler_ir.errors import EulerError
from euler_ir.graph import Op
from euler_ir.ops.random import box_muller, uniform_array
from euler_ir.widen import widened


def widen_array(array: np.ndarray) -> np.ndarray:
    """``array`` in f64 if it is of floats, else as it is."""
    return array.astype(np.float64, copy=False) if as_dtype(array.dtype).is_float else array


def apply_exactly(op: Op, operands: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The results of ``op`` on operands in f64. Random operators draw what they draw in their own type.

    Raises ExecutionError, with the user's line, for an index out of range.
    """
    try:
        with np.errstate(all="ignore"):
            results = _evaluated(op, operands)
    except EulerError as error:
        error.location = error.location or op.location
        raise
    results = results if isinstance(results, tuple) else (results,)
    return tuple(
        _in_range(widen_array(np.asarray(array)), value.dtype) if value.dtype.is_float else np.asarray(array)
        for value, array in zip(op.results, results, strict=True)
    )


def _evaluated(op: Op, operands: Sequence[np.ndarray]):
    if op.name == "random_uniform":
        return op.definition.evaluate(op.attributes, *operands)
    if op.name == "random_normal":
        shape, dtype, stream = (op.attributes[name] for name in ("shape", "dtype", "stream"))
        uniform = (uniform_array(shape, dtype.numpy, stream + word, *map(int, operands)) for word in range(2))
        return box_muller(*map(widen_array, uniform))
    if op.definition.family == "composite" and _may_overflow_within(op, operands):
        own = [array.astype(value.dtype.numpy) for array, value in zip(operands, op.operands)]
        return op.definition.evaluate(op.attributes, *own)
    return op.definition.evaluate(widened(op.attributes), *operands)


def _may_overflow_within(op: Op, operands: Sequence[np.ndarray]) -> bool:
    """Whether sums of squares, within an operator that is computed whole, may be beyond its type: that is told by the
    operator in its own type.
    """
    for array, value in zip(operands, op.operands):
        if value.dtype.is_float and array.size:
            largest = float(ml_dtypes.finfo(accumulation_dtype(value.dtype).numpy).max)
            if not np.max(np.abs(array)) < (largest / array.size) ** 0.5:
                return True
    return False


def _in_range(array: np.ndarray, dtype: DType) -> np.ndarray:
    """``array`` with infinity for what rounds to infinity in ``dtype``."""
    if dtype.bits == 64:
        return array
    info = ml_dtypes.finfo(dtype.numpy)
    largest, epsilon = float(info.max), float(info.eps)
    limit = largest + largest / (2 - epsilon) * epsilon / 2  # half a unit in the last place above the largest
    beyond = np.abs(array) >= limit
    return np.where(beyond, np.copysign(np.inf, array), array) if beyond.any() else array
