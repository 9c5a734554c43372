"""What the planner decided on the way to a plan: where values and groups went, and why not elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from euler_ir.graph import Value
from euler_ir.passes.groups import Group
from euler_ir.passes.refusals import Refusal


@dataclass(frozen=True)
class Place:
    """Where a group runs: the position of its step in ``Plan.steps()``, and the number of its nest in that kernel, None
    for a call. ``inside`` is the product's result when the group runs inside of that product.
    """

    step: int
    nest: int | None = None
    inside: Value | None = None


@dataclass(frozen=True)
class Overwrite:
    """Whether ``value`` lies in the memory of ``source``: it does if there is no ``refusal``. With ``is_update`` the
    source is the parameter or state that the value replaces, and is copied to at the end where it is refused.
    """

    value: Value
    source: Value | None
    refusal: Refusal | None
    is_update: bool = False


@dataclass(frozen=True)
class Decisions:
    """``buffers`` has the number of the buffer of each value in memory (a product's result that an epilogue takes lies
    in that of an output); ``slots`` that of the piece of the arena of each buffer there: buffers of one slot follow
    each other in the same place. ``places`` are those of the fused groups; ``unfused`` says of a product's result and
    a group that reads it from memory why that does not run inside of the product.
    """

    buffers: Mapping[Value, int]
    slots: Mapping[int, int]
    places: Mapping[Group, Place]
    unfused: Mapping[tuple[Value, Group], Refusal]
    overwrites: tuple[Overwrite, ...]
