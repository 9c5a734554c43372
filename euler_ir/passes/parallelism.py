"""How much a reduction leaves for several threads to do."""

from __future__ import annotations

from collections.abc import Collection

from euler_ir.shapes import Shape

MIN_TASKS = 4
"""Pieces of parallel work that a large loop should have at least."""
SMALL_FRAME = 16384
"""Elements that one thread may well run over alone."""
LANES = 16
"""Neighbouring elements that count as one piece of parallel work."""
SHORTEST_INNER = 1024
"""Steps along the inner axis of a product that a part of it has at least, so that adding up the parts costs little."""


def is_parallel(frame: Shape, reduced: Collection[int]) -> bool:
    """Whether reducing axes of ``frame`` leaves enough pieces of work for several threads, or is little work anyway."""
    size = rows = 1
    for position, extent in enumerate(frame):
        size *= extent
        rows *= 1 if position in reduced else extent
    tasks = rows if len(frame) - 1 in reduced else rows // LANES
    return tasks >= MIN_TASKS or size <= SMALL_FRAME
