"""What labels of numerics allow: how far results may move, on which numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np

from euler_ir import interpreter
from euler_ir.dtypes import as_dtype
from euler_ir.graph import Graph
from euler_ir.inspect.numerics.agreement import Agreement
from euler_ir.passes.meaning import difference
from euler_ir.testing.real_numbers import real_results

NEAR = 2
"""Units in the last place by which a better result may be further from the real number now and then, by luck."""
ROUNDINGS = 16
"""Roundings of the largest number on the way that a looser result may be off by, on ordinary numbers."""
APPROXIMATE = 1e-3
"""How far an approximate result may be off beside that, relative to 1 plus the number."""
ORDINARY = "random numbers"
"""What ``input_sets`` calls the inputs that are not special: looser labels promise something for these alone."""


def loose_fault(
    numerics: str, graph: Graph, leaves: Mapping[str, np.ndarray], what: str, wanted: np.ndarray, found: np.ndarray
) -> str | None:
    """Where ``found`` differs from ``wanted``, a result of ``graph``, by more than a label looser than 'better' allows;
    None when it does not, or when the inputs are not ordinary.
    """
    if what != ORDINARY:
        return None
    if not as_dtype(wanted.dtype).is_float:
        return difference(wanted, found)
    with np.errstate(all="ignore"):
        one, other = wanted.astype(np.float64), found.astype(np.float64)
        bound = ROUNDINGS * float(ml_dtypes.finfo(wanted.dtype).eps) * _largest(graph, leaves)
        if numerics == "approximate":
            bound = bound + APPROXIMATE * (1 + np.abs(one))
        differs = np.isfinite(one) & ~(np.abs(one - other) <= bound)
    return difference(wanted, found) if differs.any() else None


def _largest(graph: Graph, leaves: Mapping) -> float:
    """The largest finite number that is met on the way, or 1."""
    arrays = interpreter.evaluate(graph, leaves, [value for op in graph.ops for value in op.results])
    floats = [array.astype(np.float64) for value, array in arrays.items() if value.dtype.is_float]
    return max((float(np.max(np.abs(each), where=np.isfinite(each), initial=1)) for each in floats), default=1.0)


def further_from_real(
    graph: Graph, leaves: Mapping[str, np.ndarray], wanted: np.ndarray, found: np.ndarray, numbers: Sequence[float]
) -> str | None:
    """An element of ``found`` that is further from the real number than that of ``wanted``, the output "result" of
    ``graph``, by more than NEAR units and than rounding explains on the way. ``numbers`` as for ``real_results``.
    """
    real = real_results(graph, leaves, numbers)
    agreement = Agreement(graph, leaves)
    if real is None:
        return agreement.fault(({"result": found}, {}))
    further = [place for place in np.ndindex(found.shape) if _is_further(wanted[place], found[place], real[place])]
    if not further:
        return None
    only_these = wanted.copy()
    for place in further:
        only_these[place] = found[place]
    if agreement.fault(({"result": only_these}, {})) is None:
        return None
    place = further[0]
    return f"{wanted[place]!s} became {found[place]!s} at {list(place)}, and the real number is {float(real[place])}"


def _is_further(before, after, real) -> bool:
    """Whether ``after`` is further from ``real`` than ``before`` is, by more than NEAR units; no where that is NaN."""
    one, other = float(before), float(after)
    if one == other or real != real:
        return False
    with np.errstate(all="ignore"):
        rounded = np.array(float(real)).astype(after.dtype)
        unit = float(np.abs(np.spacing(rounded if np.isfinite(rounded) else ml_dtypes.finfo(after.dtype).max)))
    errors = [abs(number - real) if np.isfinite(number) else np.inf for number in (one, other)]
    return other != float(rounded) and not errors[1] <= errors[0] + NEAR * unit
