"""Whether arrays are what a graph says, as far as rounding explains: computed in f64 from what is known around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from euler_ir.dtypes import DType, accumulation_dtype
from euler_ir.graph import Graph, Op, Value
from euler_ir.inspect.numerics.exact import apply_exactly, widen_array
from euler_ir.inspect.numerics.measure import root_mean_square
from euler_ir.interpreter import apply
from euler_ir.rounding import SUMS, error_bound, random_signs, reach
from euler_ir.rounding import moved as moved_by

RUNS, MORE_RUNS = 3, 48
"""Perturbed runs: few first, more where these do not explain a difference."""
SAFETY = 4
"""Times the largest move that is allowed: draws of signs seldom meet the worst case."""
_COMPOSITE_ROUNDOFFS = 8
"""By how many roundoffs the operands and results of an operator that is kept whole are moved."""


@dataclass(frozen=True)
class Difference:
    """Where an array is not what it should be: at ``place`` most of all, and in ``wrong`` of its elements.

    ``wanted`` is a number in f64.
    """

    place: tuple[int, ...]
    got: np.generic
    wanted: np.generic
    wrong: int


class Judge:
    """Judges arrays of values of ``graph``, given those of ``known`` values; every leaf must be among these.

    What is within ``tolerance``, beside the root mean square of a value, is right whatever rounding explains.
    """

    def __init__(self, graph: Graph, known: Mapping[Value, np.ndarray], tolerance: float = 0.0) -> None:
        self.known = known
        self.tolerance = tolerance
        self._order = {op: position for position, op in enumerate(graph.ops)}

    def differences(self, given: Mapping[Value, np.ndarray]) -> dict[Value, Difference]:
        """For each array in ``given`` that is not what follows from the known values around it, where it is not.

        What is given is not taken as known, whether or not it is.
        """
        ops = self.between(given)
        exact = self.exact(ops)
        plain = self._run(ops, apply, lambda array: array)
        suspects = {
            value: array
            for value, array in given.items()
            if not _is_plainly_right(array, exact[value], plain[value], value)
        }
        del plain
        ops = self.between(suspects, apart_from=given)
        reaches = {value: _reach(value, exact) for op in ops for value in op.results}
        moved: list[dict[Value, np.ndarray]] = []
        for runs in (RUNS, MORE_RUNS) if suspects else ():
            moved += [self._perturbed(ops, exact, reaches, seed) for seed in range(len(moved), runs)]
            differing = {value: self._difference(value, array, exact, moved) for value, array in suspects.items()}
            suspects = {value: given[value] for value, difference in differing.items() if difference is not None}
            ops = self.between(suspects, apart_from=given)
        return {value: differing[value] for value in suspects}

    def _difference(
        self,
        value: Value,
        got: np.ndarray,
        exact: Mapping[Value, np.ndarray],
        moved: Sequence[Mapping[Value, np.ndarray]],
    ) -> Difference | None:
        others = [each[value] for each in moved if value in each]
        return _difference(got, exact[value], others, value, self.tolerance)

    def between(self, values: Iterable[Value], apart_from: Iterable[Value] = ()) -> list[Op]:
        """The ops, in order, that make ``values`` from known ones that are neither among them nor in ``apart_from``."""
        unknown = {*values, *apart_from}
        found: set[Op] = set()
        pending = [value.op for value in values]
        while pending:
            op = pending.pop()
            if op in found or op.definition.has_identity:
                continue
            found.add(op)
            pending += [operand.op for operand in op.operands if operand in unknown or operand not in self.known]
        return sorted(found, key=self._order.__getitem__)

    def exact(self, ops: Sequence[Op]) -> dict[Value, np.ndarray]:
        """What ``ops`` read of known arrays, and what they make, in f64."""
        return self._run(ops, apply_exactly, widen_array)

    def _run(self, ops: Sequence[Op], applied: Callable, read: Callable) -> dict[Value, np.ndarray]:
        """What ``ops`` make, as ``applied`` does it, and what they read of known arrays, passed through ``read``."""
        arrays: dict[Value, np.ndarray] = {}
        for op in ops:
            for operand in op.operands:
                if operand not in arrays:
                    arrays[operand] = read(self.known[operand])
            arrays.update(zip(op.results, applied(op, [arrays[operand] for operand in op.operands])))
        return arrays

    def _perturbed(
        self,
        ops: Sequence[Op],
        exact: Mapping[Value, np.ndarray],
        reaches: Mapping[Value, np.ndarray | None],
        seed: int,
    ) -> dict[Value, np.ndarray]:
        """What a run of ``ops`` gives, each result moved by its error bound, for those that move at all."""
        random = np.random.default_rng(seed)
        moved: dict[Value, np.ndarray] = {}
        for op in ops:
            operands = [moved.get(operand, exact[operand]) for operand in op.operands]
            is_whole = op.definition.family == "composite"
            if is_whole:
                operands = [_shaken(each, operand.dtype, random) for each, operand in zip(operands, op.operands)]
            if is_whole or any(operand in moved for operand in op.operands):
                results = apply_exactly(op, operands)
            else:
                results = tuple(exact[value] for value in op.results)
            for value, array in zip(op.results, results):
                if is_whole:
                    array = _shaken(array, value.dtype, random)
                elif value.dtype.is_float:
                    array = _moved(value, array, reaches[value], random)
                if array is not exact[value]:
                    moved[value] = array
        return moved


def _reach(value: Value, exact: Mapping[Value, np.ndarray]) -> np.ndarray | None:
    """How far rounding may move ``value`` when its operands are as they are: without bound where a sum or product may
    overflow on its way, in one order and not in another.
    """
    if not value.dtype.is_float:
        return None
    op, operands = value.op, [exact[operand] for operand in value.op.operands]
    with np.errstate(all="ignore"):
        found = reach(value, exact[value], operands, True)
        if op.name not in SUMS:
            return found
        largest = float(ml_dtypes.finfo(accumulation_dtype(value.dtype).numpy).max)
        if op.name == "prod":
            most = op.definition.evaluate(op.attributes, np.maximum(np.abs(operands[0]), 1))
        else:
            most = error_bound(op, exact[value], operands, True)
        return np.where(most < largest, found, np.inf)


def _moved(
    value: Value, array: np.ndarray, reach: np.ndarray | None, random: np.random.Generator
) -> np.ndarray:
    """``array`` moved by ``reach``, up or down; NaN where that is without bound."""
    with np.errstate(all="ignore"):
        array = moved_by(value, array, reach, random)
        return array if reach is None else np.where(np.isinf(reach), np.nan, array)


def _shaken(array: np.ndarray, dtype: DType, random: np.random.Generator) -> np.ndarray:
    """``array`` with each float moved by some roundoffs of ``dtype``, up or down."""
    if not dtype.is_float:
        return array
    epsilon = float(ml_dtypes.finfo(dtype.numpy).eps)
    with np.errstate(all="ignore"):
        return array * (1 + random_signs(array.shape, random) * (_COMPOSITE_ROUNDOFFS * epsilon / 2))


def _is_plainly_right(got: np.ndarray, exact: np.ndarray, plain: np.ndarray, value: Value) -> bool:
    """Whether ``got`` is no further from ``exact`` than the interpreter in the value's own type, ``plain``, nearly.

    It says no more often than need be; a yes needs no further look.
    """
    if not value.dtype.is_float:
        return np.array_equal(got, exact)
    with np.errstate(all="ignore"):
        given = widen_array(got)
        if not np.isfinite(exact).all():
            ordinary = np.isfinite(exact)
            if not (np.array_equal(given[~ordinary], exact[~ordinary], equal_nan=True)):
                return False
            given, exact, plain = given[ordinary], exact[ordinary], plain[ordinary]
        if not exact.size:
            return True
        size, error = np.abs(exact), np.abs(widen_array(plain) - exact)
        distance = np.abs(given - exact)
        unit = float(ml_dtypes.finfo(value.dtype.numpy).eps) / 2
        right = distance <= SAFETY * (2 * error + unit * size)
        if right.all():
            return True
        return bool((right | (distance <= 2 * SAFETY * _usual(error, size))).all())


def _difference(
    got: np.ndarray, exact: np.ndarray, moved: Sequence[np.ndarray], value: Value, tolerance: float
) -> Difference | None:
    given = widen_array(got)
    with np.errstate(all="ignore"):
        if value.dtype.is_float:
            allowed, open_ = _float_limits(exact, moved, value)
            if tolerance:
                allowed = np.maximum(allowed, tolerance * root_mean_square(exact))
            distance = np.abs(given - exact)
            right = (given == exact) | (np.isnan(given) & np.isnan(exact)) | (distance <= allowed) | open_
            excess = np.where(right, 0, np.nan_to_num(distance, nan=np.inf) / (allowed + np.finfo(float).tiny))
        else:
            open_ = np.zeros(got.shape, bool)
            for each in moved:
                open_ |= each != exact
            right = (given == exact) | open_
            allowed, excess = np.zeros(got.shape), ~right
    if right.all():
        return None
    place = tuple(map(int, np.unravel_index(np.argmax(excess), got.shape)))
    return Difference(place, got[place], exact[place], int((~right).sum()))


def _float_limits(
    exact: np.ndarray, moved: Sequence[np.ndarray], value: Value
) -> tuple[np.ndarray, np.ndarray]:
    """How far each element may be from ``exact``, and which are left open: rounding may make them infinite or NaN."""
    reach, open_ = np.zeros(exact.shape), np.zeros(exact.shape, bool)
    for each in moved:
        reach = np.fmax(reach, np.abs(each - exact))
        open_ |= (np.isfinite(each) != np.isfinite(exact)) | (np.isnan(each) != np.isnan(exact))
        open_ |= np.isinf(each) & (each != exact)
    if value.op.definition.family == "composite":
        open_ |= ~np.isfinite(exact)  # attention may pass over what it gives the weight 0
    reach = np.nan_to_num(reach, posinf=0)
    step = float(ml_dtypes.finfo(value.dtype.numpy).smallest_subnormal)
    return SAFETY * np.maximum(reach, _usual(reach, np.abs(exact))) + step * (reach > 0), open_


def _usual(error: np.ndarray, size: np.ndarray) -> np.ndarray:
    """What elements of ``size`` may be expected to miss by where others miss by ``error``: the average, unless that is
    more, beside the element, than it is anywhere.
    """
    ordinary = np.isfinite(size)
    if not ordinary.any():
        return np.zeros(size.shape)
    average = np.sqrt(np.mean(np.square(error), where=ordinary))
    relative = np.max(np.divide(error, size, out=np.zeros(size.shape), where=ordinary & (size > 0)))
    return np.minimum(average, relative * size)
