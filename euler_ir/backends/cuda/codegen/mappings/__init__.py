"""Mappings: how the points of a nest, and the iterations of its loops, are laid over blocks and threads.

Each is a module with `suits`, whether it can take a nest and is the best that can, `map_nest`, its stages, and `spot`,
who computes a point of the nest and of loops in it, None where that depends on what is in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from euler_ir.backends.cuda.codegen.mappings import columns, pointwise, points, rows, scans, scatter, transposed
from euler_ir.backends.cuda.codegen.stage import Mapped, Spot
from euler_ir.index import Axis
from euler_ir.loops.kernel import Nest

MAPPINGS = (transposed, pointwise, scatter, rows, scans, columns, points)
"""The first that suits a nest takes it; the last one suits all."""


def map_nest(nest: Nest, in_place: frozenset[int] = frozenset()) -> Mapped:
    """``nest``, which has points, as stages; its parameters at the positions ``in_place`` may share memory."""
    return mapping_of(nest).map_nest(nest, in_place)


def spot(nest: Nest, in_place: frozenset[int], point: Mapping[Axis, int]) -> Spot | None:
    """Who computes ``point`` of ``nest``, an axis that it does not say being at 0; None where that depends on data."""
    return mapping_of(nest).spot(nest, in_place, point)


def mapping_of(nest: Nest) -> ModuleType:
    """The one of MAPPINGS that lays out ``nest``."""
    return next(mapping for mapping in MAPPINGS if mapping.suits(nest))
