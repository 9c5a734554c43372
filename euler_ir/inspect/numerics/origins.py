"""Where NaN and infinities come from: each element that is one carries a set of the ops that first made it so.

An element of a result is *born* NaN where nothing that it is made of is NaN, and born infinite where nothing is
infinite or NaN; else it inherits. What ``where`` does not choose is not what it is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from euler_ir.graph import Op

MOST = 62
"""Births that are told apart: a set is a u64. Those after them share the bit MOST, and MOST + 1 is for constants."""


@dataclass(frozen=True)
class Origins:
    """For each element the births that it became NaN by, or infinite by, as bits of a u64; 0 elsewhere."""

    nan: np.ndarray
    infinite: np.ndarray

    @property
    def births(self) -> int:
        """All births of all elements, as bits."""
        return union(self.nan) | union(self.infinite)


def union(sets: np.ndarray) -> int:
    """The bits that are in any of ``sets``."""
    return int(np.bitwise_or.reduce(sets, axis=None))


def inherited(
    op: Op, arrays: Sequence[np.ndarray], origins: Sequence[Origins | None], result: np.ndarray, as_one: bool
) -> Origins:
    """What the elements of ``result`` inherit from the operands of ``op``; operands without origins are finite.

    With ``as_one`` a NaN inherits from infinities too, but for those of constants. For operators that are not known
    here all of an operand counts.
    """
    nan, infinite = (
        _reaching(op, arrays, [None if each is None else getattr(each, kind) for each in origins], result.shape)
        for kind in ("nan", "infinite")
    )
    zero = np.uint64(0)
    if as_one:
        nan = nan | infinite & ~np.uint64(1 << MOST + 1)
    return Origins(np.where(np.isnan(result), nan, zero), np.where(np.isinf(result), nan | infinite, zero))


def _reaching(
    op: Op, arrays: Sequence[np.ndarray], origins: Sequence[np.ndarray | None], shape: tuple[int, ...]
) -> np.ndarray:
    """For each element of the result the births of what it is made of."""
    given = [each for each in origins if each is not None]
    if not given:
        return np.zeros(shape, np.uint64)
    full = [np.zeros(array.shape, np.uint64) if each is None else each for array, each in zip(arrays, origins)]
    attributes, family = op.attributes, op.definition.family
    if op.name == "where":
        return np.where(arrays[0], full[1], full[2])
    if family == "elementwise":
        return np.bitwise_or.reduce(full)
    if family == "movement":
        return op.definition.evaluate(attributes, *full)
    if family == "reduction" and "axes" in attributes:
        return np.bitwise_or.reduce(full[0], axis=attributes["axes"])
    if op.name == "matmul":
        left = np.bitwise_or.reduce(full[0], axis=-2 if attributes["transpose_left"] else -1)
        right = np.bitwise_or.reduce(full[1], axis=-1 if attributes["transpose_right"] else -2)
        return left[..., :, None] | right[..., None, :]
    if op.name == "take":
        return op.definition.evaluate(attributes, full[0], arrays[1])
    if op.name == "cumsum":
        axis, reverse = attributes["axis"], attributes["reverse"]
        reached = np.bitwise_or.accumulate(np.flip(full[0], axis) if reverse else full[0], axis)
        return np.flip(reached, axis) if reverse else reached
    if op.name == "dynamic_update_slice":
        return op.definition.evaluate(attributes, full[0], full[1], arrays[2])
    return np.full(shape, union(np.array([union(each) for each in given], np.uint64)), np.uint64)
