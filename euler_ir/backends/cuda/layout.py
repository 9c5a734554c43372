"""Buffers of a plan that lie in one block of memory, so that one copy moves them all."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from euler_ir.plan.plan import Plan

ALIGNMENT = 256
"""Bytes: each buffer begins where an allocation of CUDA could, at which libraries are fastest."""


class Layout:
    """Where each of the buffers ``numbers`` of ``plan`` begins in a block of ``nbytes`` bytes, after a ``header``."""

    def __init__(self, plan: Plan, numbers: Iterable[int], header: int = 0) -> None:
        self.offsets: dict[int, int] = {}
        self._types = {number: plan.buffers[number].type for number in numbers}
        self.nbytes = aligned(header)
        for number, type in self._types.items():
            self.offsets[number] = self.nbytes
            self.nbytes += aligned(type.nbytes)

    def views(self, block: np.ndarray) -> dict[int, np.ndarray]:
        """Each buffer as an array within ``block``, u8[nbytes] of the host."""
        return {
            number: np.ndarray(type.shape, type.dtype.numpy, block, self.offsets[number])
            for number, type in self._types.items()
        }


def aligned(nbytes: int) -> int:
    """``nbytes``, and as many more as it takes to where an allocation could begin."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
