"""What a rule or pass may do to the numbers: a label each, from strict to loose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

NUMERICS = {
    "exact": "the same bits for every input, where any NaN equals any other",
    "better": "at least as near to the real number as before, but for luck within what rounding explains",
    "reassociating": "sums, products and roundings in another order: the error bound stays, the last bits do not",
    "nan-unsafe": "the same for ordinary numbers; NaN, an infinity or the sign of a zero may be lost",
    "approximate": "another function that is near: a stated error comes in",
}
"""Every label with its meaning. Whoever allows one allows those before it."""

Numerics = Literal[*NUMERICS]

_ORDER = {label: position for position, label in enumerate(NUMERICS)}


def is_within(label: str, most: str) -> bool:
    """Whether ``label`` is ``most`` or stricter."""
    return _ORDER[label] <= _ORDER[most]


def loosest(labels: Iterable[str]) -> str:
    """The loosest of ``labels``; 'exact' when there are none."""
    return max(labels, key=_ORDER.__getitem__, default="exact")
