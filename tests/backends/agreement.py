"""How far a compiled graph may be from the interpreter: as far as rounding explains, found by perturbing each result.

The graph is cut into primitive operators and run several times. Each time, the result of every operator that is not
correctly rounded by all backends (elementary functions, sums) is moved by its own error bound, up or down at random,
and the result of each operator that reads what was moved by another rounding. What moves with it may differ by a
multiple of the largest move; what does not move at all must be equal. Attention may pass over what it gives the weight
0, so in a graph with attention every other run takes 0 times an infinity or NaN for 0: what depends on it is left open,
and so is what depends on values whose sum overflows.
"""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np

import euler_ir as ei
from euler_ir import interpreter
from euler_ir.graph import Graph, Op
from euler_ir.passes.attention_calls import OPERATORS as ATTENTION
from euler_ir.passes.decompose import Decompose

RUNS, MORE_RUNS = 6, 100
"""Few runs first. Where they do not explain a difference, more may meet the rare signs that do."""
SAFETY = 4
"""Times the largest move that is allowed: draws of signs seldom meet the worst case."""

_ELEMENTARY = frozenset((
    "exp", "log", "sin", "cos", "tanh", "erf", "erfc", "normal_cdf", "normal_pdf", "normal_cdf_tanh", "sigmoid",
    "power", "rsqrt", "remainder",
))  # fmt: skip
_ROUNDED = frozenset(("add", "subtract", "multiply", "divide", "sqrt", "cast"))
_SUMS = frozenset(("sum", "prod", "matmul", "cumsum", "scatter_add"))
_EITHER_ZERO = _SUMS | {"maximum", "minimum", "max", "min"}

Results = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]


def assert_agrees(graph: Graph, leaves: Mapping[str, np.ndarray], got: Results) -> None:
    """Assert that ``got`` (outputs and updates) are the interpreter's, up to rounding."""
    wanted = interpreter.run(graph, leaves)
    primitive = Decompose().run(graph)
    passes_over = any(op.name in ATTENTION for op in graph.ops)

    def perturbed(seeds: range) -> list[Results]:
        return [_perturbed(primitive, leaves, seed, passes_over and seed % 2 == 1) for seed in seeds]

    moved = perturbed(range(RUNS))
    try:
        _assert_all_close(got, wanted, moved)
    except AssertionError:
        moved += perturbed(range(RUNS, MORE_RUNS))
        _assert_all_close(got, wanted, moved)


def _assert_all_close(got: Results, wanted: Results, moved: list[Results]) -> None:
    for place, label in enumerate(("output", "update")):
        assert list(got[place]) == list(wanted[place])
        for name, want in wanted[place].items():
            _assert_close(f"{label} {name}", got[place][name], want, [each[place][name] for each in moved])


def _assert_close(label: str, got: np.ndarray, want: np.ndarray, moved: list[np.ndarray]) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape), label
    wide = np.float64 if ei.dtypes.as_dtype(want.dtype).is_float else object
    exact = want.astype(wide)
    given = got.astype(wide)
    with np.errstate(all="ignore"):
        same = np.asarray(given == exact)
        unstable = np.zeros(want.shape, bool)
        for each in moved:
            each = each.astype(wide)
            if wide is object:
                unstable |= np.asarray(each != exact, bool)
                continue
            same |= np.isnan(given) & np.isnan(exact)
            unstable |= (np.isfinite(each) != np.isfinite(exact)) | (np.isnan(each) != np.isnan(exact))
            unstable |= np.isinf(each) & (each != exact)
        if wide is not object:
            reach = np.max([np.abs(each.astype(wide) - exact) for each in moved], axis=0)
            step = float(ml_dtypes.finfo(want.dtype).smallest_subnormal)
            same |= (np.abs(given - exact) <= SAFETY * reach + step * (reach > 0))
    bad = ~(same.astype(bool) | unstable)
    if bad.any():
        place = tuple(np.argwhere(bad)[0].tolist()) if want.shape else ()
        differ = f"{bad.sum()} of {want.size} differ"
        raise AssertionError(f"{label} at {place}: {got[place]!r}, not {want[place]!r}; {differ}")


def _perturbed(graph: Graph, leaves: Mapping[str, np.ndarray], seed: int, passes_over: bool) -> Results:
    random = np.random.default_rng(seed)
    arrays, moved = {}, set()
    for op in graph.ops:
        if op.definition.has_identity:
            arrays[op.result] = np.asarray(leaves[op.attributes["name"]])
            continue
        operands = [arrays[operand] for operand in op.operands]
        again = not moved.isdisjoint(op.operands)
        if again or op.name in _ELEMENTARY or op.name in _SUMS:
            moved.update(op.results)
        with np.errstate(all="ignore"):
            evaluate = op.definition.evaluate
            if passes_over and op.name in ("multiply", "matmul") and op.result.dtype.is_float:
                evaluate = _products_without_zeros
            results = evaluate(op.attributes, *_reordered(op, operands, random))
            for value, array in zip(op.results, results if isinstance(results, tuple) else (results,)):
                arrays[value] = _move(op, np.asarray(array), operands, again, random) if value.dtype.is_float else array
    outputs = {name: arrays[value] for name, value in graph.outputs.items()}
    return outputs, {name: arrays[value] for name, value in graph.updates.items()}


def _products_without_zeros(attributes: Mapping, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The operator multiply, or matmul if it has attributes, in which 0 times anything is 0.

    A matmul is NaN where its right operands alone add up to infinity: attention divides by the sum of its weights last.
    """
    if attributes:
        left = np.swapaxes(left, -1, -2) if attributes["transpose_left"] else left
        right = np.swapaxes(right, -1, -2) if attributes["transpose_right"] else right
        left, right = left[..., None], right[..., None, :, :]
        result = np.sum(_products_without_zeros({}, left, right), axis=-2, dtype=left.dtype)
        undivided = np.sum(np.where(left == 0, 0, np.abs(right)), axis=-2, dtype=left.dtype)
        return np.where(np.isfinite(undivided), result, left.dtype.type(np.nan))
    return np.where((left == 0) | (right == 0), left.dtype.type(0), left * right)


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


def _move(
    op: Op, array: np.ndarray, operands: list[np.ndarray], again: bool, random: np.random.Generator
) -> np.ndarray:
    """``array`` moved by the error bound of ``op``, up or down; ``again`` when its operands were moved."""
    reach = _bound(op, array, operands, again)
    if op.name in _EITHER_ZERO:
        array = np.where(array == 0, array * random.choice((-1, 1), array.shape).astype(array.dtype), array)
    if reach is None:
        return array
    reach = np.where(np.isnan(reach), 0, reach)  # of a finite result: what is NaN was passed over
    half = ei.dtypes.as_dtype(array.dtype).is_half
    roundoff = float(ml_dtypes.finfo(np.float32 if half else array.dtype).eps) / 2
    signs = random.choice((-1.0, 1.0), array.shape)
    wide = array.astype(np.float64)
    move = reach * roundoff + (np.abs(wide) * float(ml_dtypes.finfo(array.dtype).eps) if half else 0)
    return np.where(np.isfinite(wide), wide + signs * move, wide).astype(array.dtype)


def _bound(op: Op, array: np.ndarray, operands: list[np.ndarray], again: bool) -> np.ndarray | None:
    """The most that another way of computing ``op`` differs by, in unit roundoffs; None when there is only one way."""
    if op.name in _ELEMENTARY:
        return 8 * np.abs(array.astype(np.float64))
    if op.name in _ROUNDED and again:
        return np.abs(array.astype(np.float64))
    if op.name not in _SUMS:
        return None
    *_, x = operands
    if op.name == "prod":
        return x.size / max(array.size, 1) * np.abs(array.astype(np.float64))
    sizes = [np.abs(operand.astype(np.float64)) for operand in operands]
    count = x.size / max(array.size, 1) if op.name == "sum" else x.size
    if op.name == "matmul":
        count = operands[0].shape[-2 if op.attributes["transpose_left"] else -1]
    if op.name == "scatter_add":
        sizes[0] = operands[0]
    return (count + 1) * np.asarray(op.definition.evaluate(op.attributes, *sizes), np.float64)
