"""What rounding may do to a graph: how far another way of computing each operator may lie, and runs that go that far.

A run is *perturbed* when the result of every operator that is not correctly rounded by all backends (elementary
functions, sums) is moved by its own error bound, up or down at random, and the result of each operator that reads what
was moved by another rounding.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Mapping

import ml_dtypes
import numpy as np

from euler_ir.dtypes import as_dtype
from euler_ir.graph import Graph, Op, Value

_ELEMENTARY = frozenset((
    "exp", "log", "sin", "cos", "tanh", "erf", "erfc", "normal_cdf", "normal_pdf", "normal_cdf_tanh", "sigmoid",
    "power", "rsqrt", "remainder",
))  # fmt: skip
_ROUNDED = frozenset(("add", "subtract", "multiply", "divide", "sqrt", "cast"))
SUMS = frozenset(("sum", "prod", "matmul", "cumsum", "scatter_add", "index_add"))
"""Operators that add or multiply up: their rounding depends on the order."""
_EITHER_ZERO = SUMS | {"maximum", "minimum", "max", "min"}

Results = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]
"""Outputs and updates of a graph, each by name."""


def perturbed(
    graph: Graph,
    leaves: Mapping[str, np.ndarray],
    seed: int,
    passed_over: Container[Op] = (),
    everywhere: bool = False,
) -> Results:
    """Outputs and updates of ``graph``, which holds primitive operators only, in a perturbed run.

    In the ops ``passed_over`` 0 times an infinity or NaN is 0, and -inf less anything is -inf: attention may have it so
    for keys that a query must not see. With ``everywhere`` every rounding is another one, also where what is rounded
    was not moved.
    """
    random = np.random.default_rng(seed)
    arrays, moved = {}, set()
    for op in graph.ops:
        if op.definition.has_identity:
            arrays[op.result] = np.asarray(leaves[op.attributes["name"]])
            continue
        operands = [arrays[operand] for operand in op.operands]
        again = everywhere or not moved.isdisjoint(op.operands)
        if again or may_differ(op):
            moved.update(op.results)
        with np.errstate(all="ignore"):
            evaluate = op.definition.evaluate
            if op in passed_over and op.name in _PASSING_OVER and op.result.dtype.is_float:
                evaluate = functools.partial(_PASSING_OVER[op.name], seed % 4 == 3)
            elif seed % 4 == 2 and op.name == "matmul" and op.result.dtype.is_float:
                evaluate = functools.partial(_fused, evaluate)
            results = evaluate(op.attributes, *_reordered(op, operands, random))
            for value, array in zip(op.results, results if isinstance(results, tuple) else (results,)):
                arrays[value] = perturb(value, np.asarray(array), operands, again, random)
    outputs = {name: arrays[value] for name, value in graph.outputs.items()}
    return outputs, {name: arrays[value] for name, value in graph.updates.items()}


def _fused(evaluate: Callable, attributes: Mapping, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The operator matmul by fused multiply-adds, whose products are not rounded and do not overflow."""
    wide = np.longdouble if left.dtype == np.float64 else np.float64
    return evaluate(attributes, left.astype(wide), right.astype(wide)).astype(left.dtype)


def _products_without_zeros(divides_last: bool, attributes: Mapping, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The operator multiply, in which 0 times anything is 0."""
    return np.where((left == 0) | (right == 0), left.dtype.type(0), left * right)


def _matmul_without_zeros(divides_last: bool, attributes: Mapping, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The operator matmul, in which 0 times anything is 0.

    If it ``divides_last``, as attention may by the sum of its weights, it is NaN where its right operands alone add up
    to infinity.
    """
    left = np.swapaxes(left, -1, -2) if attributes["transpose_left"] else left
    right = np.swapaxes(right, -1, -2) if attributes["transpose_right"] else right
    left, right = left[..., None], right[..., None, :, :]
    result = np.sum(_products_without_zeros(divides_last, {}, left, right), axis=-2, dtype=left.dtype)
    if not divides_last:
        return result
    undivided = np.sum(np.where(left == 0, 0, np.abs(right)), axis=-2, dtype=left.dtype)
    return np.where(np.isfinite(undivided), result, left.dtype.type(np.nan))


def _difference_of_masked(divides_last: bool, attributes: Mapping, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The operator subtract, in which the score of a masked key stays -inf, whatever is subtracted."""
    return np.where(left == -np.inf, left, left - right)


_PASSING_OVER = {
    "multiply": _products_without_zeros,
    "matmul": _matmul_without_zeros,
    "subtract": _difference_of_masked,
}


def _reordered(op: Op, operands: list[np.ndarray], random: np.random.Generator) -> list[np.ndarray]:
    """``operands`` with what ``op`` sums or multiplies up in another order: one that overflows, perhaps, on the way."""
    if op.name in ("sum", "prod"):
        (x,) = operands
        for axis in op.attributes["axes"]:
            x = np.take(x, random.permutation(x.shape[axis]), axis)
        return [x]
    if op.name == "matmul":
        left, right = operands
        order = random.permutation(left.shape[-2 if op.attributes["transpose_left"] else -1])
        left = left[..., order, :] if op.attributes["transpose_left"] else left[..., order]
        return [left, right[..., order] if op.attributes["transpose_right"] else right[..., order, :]]
    return operands


def may_differ(op: Op) -> bool:
    """Whether two right ways of computing ``op`` on the same operands may give other bits."""
    return op.name in _ELEMENTARY or op.name in SUMS


def perturb(
    value: Value, array: np.ndarray, operands: list[np.ndarray], again: bool, random: np.random.Generator
) -> np.ndarray:
    """``array``, a result of the op of ``value``, moved by the error bound of the op in the type of ``value``, up or
    down; ``again`` when its operands were moved. The array may be of a wider type.
    """
    return moved(value, array, reach(value, array, operands, again), random) if value.dtype.is_float else array


def moved(value: Value, array: np.ndarray, reach: np.ndarray | None, random: np.random.Generator) -> np.ndarray:
    """``array`` moved by ``reach`` (see `reach`), up or down; where signs of zeros are open, these change too."""
    if value.op.name in _EITHER_ZERO:
        array = np.where(array == 0, array * random_signs(array.shape, random).astype(array.dtype), array)
    if reach is None:
        return array
    wide = array.astype(np.float64)
    return np.where(np.isfinite(wide), wide + random_signs(array.shape, random) * reach, wide).astype(array.dtype)


def reach(value: Value, array: np.ndarray, operands: list[np.ndarray], again: bool) -> np.ndarray | None:
    """How far another way of computing the float ``value`` may be from ``array``, in f64; None for nowhere."""
    bound = error_bound(value.op, array, operands, again)
    if bound is None:
        return None
    bound = np.where(np.isnan(bound), 0, bound)  # of a finite result: what is NaN was passed over
    half = value.dtype.is_half
    roundoff = float(ml_dtypes.finfo(np.float32 if half else value.dtype.numpy).eps) / 2
    last = np.abs(array.astype(np.float64)) * float(ml_dtypes.finfo(value.dtype.numpy).eps) if half else 0
    least = float(ml_dtypes.finfo(value.dtype.numpy).smallest_subnormal)
    return np.where(bound > 0, np.maximum(bound * roundoff + last, least), last)


def random_signs(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """1 or -1 for each element, i8."""
    return 2 * random.integers(0, 2, shape, np.int8) - np.int8(1)


def error_bound(op: Op, array: np.ndarray, operands: list[np.ndarray], again: bool) -> np.ndarray | None:
    """The most that another way of computing ``op`` differs by, in unit roundoffs; None when there is only one way."""
    if op.name in _ELEMENTARY:
        return 8 * np.abs(array.astype(np.float64))
    if op.name in _ROUNDED and again:
        return np.abs(array.astype(np.float64))
    if op.name not in SUMS:
        return None
    *_, x = operands
    if op.name == "prod":
        return x.size / max(array.size, 1) * np.abs(array.astype(np.float64))
    sizes = [np.abs(each.astype(np.float64)) if as_dtype(each.dtype).is_float else each for each in operands]
    count = x.size / max(array.size, 1) if op.name == "sum" else x.size
    if op.name == "matmul":
        count = operands[0].shape[-2 if op.attributes["transpose_left"] else -1]
    return (count + 1) * np.asarray(op.definition.evaluate(op.attributes, *sizes), np.float64)
