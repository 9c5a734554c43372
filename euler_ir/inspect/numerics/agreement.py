"""How far a compiled graph may be from the interpreter: as far as rounding explains, found by perturbing each result.

The graph is cut into primitive operators and run several times, perturbed (see ``rounding``). What moves with it may
differ by a multiple of the largest move; what does not move at all must be equal. Attention may pass over what it gives
the weight 0, so every other run takes 0 times an infinity or NaN for 0 inside of attention: what depends on it is left
open, and so is what depends on values whose sum overflows, or whose products do if they are not fused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from euler_ir import interpreter
from euler_ir.dtypes import as_dtype
from euler_ir.graph import Graph
from euler_ir.inspect.numerics.elements import place_text, shown
from euler_ir.ops.definition import OPS
from euler_ir.passes.attention_calls import OPERATORS as ATTENTION
from euler_ir.passes.decompose import Decompose
from euler_ir.rounding import Results, perturbed

RUNS, MORE_RUNS = 6, 100
"""Few runs first. Where they do not explain a difference, more may meet the rare signs that do."""
SAFETY = 4
"""Times the largest move that is allowed: draws of signs seldom meet the worst case."""


@dataclass(frozen=True)
class _DecomposeAttention(Decompose):
    """Leaves its name to what attention is made of."""

    name = "decompose attention"


class Agreement:
    """What ``graph`` gives for ``leaves`` by the interpreter, ``wanted``, and how far from it others may be.

    Others compute the operators of ``graph`` in another way, or with ``everywhere`` in other types. The perturbed runs
    are made when they are first needed, and kept for the next results to be judged.
    """

    def __init__(self, graph: Graph, leaves: Mapping[str, np.ndarray], everywhere: bool = False) -> None:
        self.wanted: Results = interpreter.run(graph, leaves)
        of_attention = _DecomposeAttention(frozenset(OPS) - frozenset(ATTENTION))
        self._primitive = Decompose().run(of_attention.run(graph))
        self._of_attention = {op for op in self._primitive.ops if of_attention.name in op.via}
        self._leaves = leaves
        self._everywhere = everywhere
        self._moved: list[Results] = []

    def fault(self, got: Results) -> str | None:
        """The first output or update in ``got`` that differs from ``wanted`` by more than rounding explains, and where;
        None when there is none.
        """
        for runs in (RUNS, MORE_RUNS):
            for seed in range(len(self._moved), runs):
                passed_over = self._of_attention if seed % 2 == 1 else ()
                self._moved.append(perturbed(self._primitive, self._leaves, seed, passed_over, self._everywhere))
            found = _first_difference(got, self.wanted, self._moved)
            if found is None:
                return None
        return found


def _first_difference(got: Results, wanted: Results, moved: Sequence[Results]) -> str | None:
    for place, label in enumerate(("output", "update")):
        if list(got[place]) != list(wanted[place]):
            return f"{label}s are {', '.join(got[place]) or 'none'}, not {', '.join(wanted[place]) or 'none'}"
        for name, want in wanted[place].items():
            found = _difference(got[place][name], want, [each[place][name] for each in moved])
            if found is not None:
                return f"{label} {name!r}{found}"
    return None


def _difference(got: np.ndarray, want: np.ndarray, moved: Sequence[np.ndarray]) -> str | None:
    """Where ``got`` is not ``want`` and the runs in ``moved`` do not explain it, or None."""
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f" is {got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}"
    wide = np.float64 if as_dtype(want.dtype).is_float else object
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
    if not bad.any():
        return None
    place = tuple(np.argwhere(bad)[0].tolist()) if want.shape else ()
    return f" at {place_text(place)}: {shown(got[place])}, not {shown(want[place])}; {bad.sum()} of {want.size} differ"
