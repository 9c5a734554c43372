"""How far arrays are from what they should be, as figures."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from euler_ir.dtypes import DType
from euler_ir.inspect.numerics.elements import as_json
from euler_ir.inspect.numerics.exact import widen_array


@dataclass(frozen=True)
class Error:
    """The largest error in an array: at ``place`` it is ``got`` and not ``wanted``.

    ``relative`` is the error beside the root mean square of the wanted numbers, ``ulps`` in units in the last place of
    the wanted number, in the type of the array (0 for integers). ``nans`` and ``infinities`` count elements got.
    """

    relative: float
    ulps: float
    place: tuple[int, ...]
    got: np.generic | None
    wanted: np.generic | None
    nans: int
    infinities: int

    def record(self) -> dict:
        """The figures as JSON has them."""
        return {
            "relative": as_json(self.relative),
            "ulps": as_json(self.ulps),
            "place": list(self.place),
            "got": None if self.got is None else as_json(self.got),
            "wanted": None if self.wanted is None else as_json(self.wanted),
            "nans": self.nans,
            "infinities": self.infinities,
        }


def error_of(got: np.ndarray, exact: np.ndarray, dtype: DType) -> Error:
    """The largest error of ``got``, an array of ``dtype``; ``exact`` holds what is wanted, floats in f64.

    Equal numbers have none, and neither have two NaN. A NaN or infinity where none is wanted, or none where one is, is
    an infinite error.
    """
    if not got.size:
        return Error(0.0, 0.0, (), None, None, 0, 0)
    given = widen_array(got)
    nans = infinities = 0
    with np.errstate(all="ignore"):
        if dtype.is_float:
            distance = np.abs(given - exact)
            if not np.isfinite(distance).all():
                nans, infinities = int(np.isnan(given).sum()), int(np.isinf(given).sum())
                same = (given == exact) | (np.isnan(given) & np.isnan(exact))
                distance = np.where(same, 0, np.where(np.isnan(distance), np.inf, distance))
        else:
            distance = np.where(given == exact, 0.0, 1.0) if dtype.kind == "bool" else _integer_distance(given, exact)
        place = tuple(map(int, np.unravel_index(np.argmax(distance), got.shape)))
        most = float(distance[place])
        return Error(
            _relative(most, exact), _ulps(most, exact[place], dtype), place, got[place], exact[place], nans, infinities
        )


def _integer_distance(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    return np.where(got == exact, 0.0, np.maximum(np.abs(got.astype(np.float64) - exact.astype(np.float64)), 1.0))


def root_mean_square(array: np.ndarray) -> float:
    """Of the finite elements; 0.0 when there are none."""
    numbers = array.astype(np.float64, copy=False)
    finite = np.isfinite(numbers)
    numbers = numbers if finite.all() else numbers[finite]
    return float(np.sqrt(np.mean(np.square(numbers)))) if numbers.size else 0.0


def _relative(error: float, exact: np.ndarray) -> float:
    size = root_mean_square(exact) if error else 1.0
    return error / size if size else float("inf")


def _ulps(error: float, wanted: np.generic, dtype: DType) -> float:
    if not error or not dtype.is_float:
        return 0.0
    if not np.isfinite(wanted):
        return float("inf")
    info = ml_dtypes.finfo(dtype.numpy)
    exponent = max(np.frexp(abs(float(wanted)))[1] - 1, int(info.minexp)) if wanted else int(info.minexp)
    return error / float(np.ldexp(float(info.eps), exponent))
