"""Whether passes keep the meaning of a graph: run it before and after each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from euler_ir import interpreter
from euler_ir.errors import VerifyError
from euler_ir.graph import Graph
from euler_ir.passes.manager import Pass
from euler_ir.rounding import Results


def check_meaning(
    graph: Graph, passes: Sequence[Pass], leaves: Mapping[str, np.ndarray], ulps: Mapping[str, float] | None = None
) -> Graph:
    """The graph after ``passes``. Raises VerifyError for the first pass that changed an output or update.

    Results must be equal bit for bit, NaN for NaN, unless ``ulps`` gives a tolerance under the name of the pass: units
    in the last place of the largest finite element of that result.
    """
    wanted = interpreter.run(graph, leaves)
    for each in passes:
        graph = each.run(graph)
        found = interpreter.run(graph, leaves)
        fault = first_difference(wanted, found, (ulps or {}).get(each.name, 0))
        if fault:
            raise VerifyError(f"pass {each} changes {fault}")
        wanted = found
    return graph


def first_difference(before: Results, after: Results, ulps: float = 0) -> str | None:
    """The first output or update that differs as `difference` says, and how; None when there is none."""
    for label, one, other in zip(("output", "update"), before, after):
        if list(one) != list(other):
            return f"{label}s {', '.join(one)} became {', '.join(other)}"
        for name in one:
            fault = difference(one[name], other[name], ulps)
            if fault:
                return f"{label} {name!r}: {fault}"
    return None


def difference(before: np.ndarray, after: np.ndarray, ulps: float = 0) -> str | None:
    """Where two arrays differ by more than ``ulps`` and by how much, or None. A NaN is equal to any other NaN."""
    if (before.dtype, before.shape) != (after.dtype, after.shape):
        return f"{before.dtype}{list(before.shape)} became {after.dtype}{list(after.shape)}"
    differs = _differs(before, after, ulps)
    if not differs.any():
        return None
    place = [int(index) for index in np.argwhere(differs)[0]]
    one, other = before[tuple(place)], after[tuple(place)]
    return f"{int(differs.sum())} of {differs.size} elements, first {one} became {other} at {place}"


def _differs(before: np.ndarray, after: np.ndarray, ulps: float) -> np.ndarray:
    if before.dtype.kind in "iub":
        return before != after
    nans = np.isnan(before) & np.isnan(after)
    bits = np.dtype(f"u{before.dtype.itemsize}")
    differs = ~nans & (np.array(before).view(bits) != np.array(after).view(bits))
    if not ulps:
        return differs
    finite = np.isfinite(before) & np.isfinite(after)
    largest = np.max(np.abs(before), where=finite, initial=0).astype(before.dtype)
    unit = np.spacing(largest).astype(np.float64)
    with np.errstate(invalid="ignore"):
        distance = np.abs(before.astype(np.float64) - after.astype(np.float64))
    return differs & ~(finite & (distance <= ulps * unit))
