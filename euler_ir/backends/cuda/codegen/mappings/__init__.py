"""Mappings: how the points of a nest, and the iterations of its loops, are laid over blocks and threads.

Each is a module with `suits`, whether it can take a nest and is the best that can, and `map_nest`, its stages.
"""

from __future__ import annotations

from euler_ir.backends.cuda.codegen.mappings import columns, pointwise, points, rows, scatter, transposed
from euler_ir.backends.cuda.codegen.stage import Mapped
from euler_ir.loops.kernel import Nest

MAPPINGS = (transposed, pointwise, scatter, rows, columns, points)
"""The first that suits a nest takes it; the last one suits all."""


def map_nest(nest: Nest, in_place: frozenset[int] = frozenset()) -> Mapped:
    """``nest``, which has points, as stages; its parameters at the positions ``in_place`` may share memory."""
    mapping = next(mapping for mapping in MAPPINGS if mapping.suits(nest))
    return mapping.map_nest(nest, in_place)
