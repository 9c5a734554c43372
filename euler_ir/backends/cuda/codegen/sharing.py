"""What threads that share a point of a nest, its loops laid over them, see of each other in memory.

Iteration by iteration the loops of equal axes are laid over threads in the same way, and what stands outside of loops
every thread does, but for stores: these only the first one does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from euler_ir.index import Axis, Index
from euler_ir.loops.bounds import apart
from euler_ir.loops.kernel import Load, Loop, Nest, Statement, Store


@dataclass(frozen=True)
class Access:
    """A load or store of ``buffer`` at ``index``, in a loop over ``axes``; None outside of loops."""

    buffer: str
    index: Index
    is_store: bool
    axes: tuple[Axis, ...] | None


def accesses(statement: Statement) -> Iterator[Access]:
    """Those of a statement that stands outside of loops."""
    axes = statement.axes if isinstance(statement, Loop) else None
    pending = [statement]
    while pending:
        inner = pending.pop()
        if isinstance(inner, Loop):
            pending.extend(inner.body)
        elif isinstance(inner, (Load, Store)):
            yield Access(inner.buffer, inner.index, isinstance(inner, Store), axes)


def names_at(nest: Nest, positions: frozenset[int]) -> frozenset[str]:
    """The parameters of ``nest`` at ``positions``, by name."""
    return frozenset(nest.parameters[number].name for number in positions)


def can_be_shared(loop: Loop) -> bool:
    """Whether the iterations of ``loop`` may run at once: none carries anything on, or touches what another stores."""
    found = list(accesses(loop))
    stores = [access for access in found if access.is_store]
    if loop.carries or any(access.index.dynamics() for access in stores):
        return False
    for store in stores:
        if any(other.buffer == store.buffer and other.index != store.index for other in found):
            return False
        if not apart([store.index], loop.axes):
            return False
    return True


def meet(earlier: Access, later: Access, in_place: frozenset[str]) -> bool:
    """Whether one of two accesses must wait for the other in another thread.

    Buffers in ``in_place`` may lie in the memory of each other, and then element for element, as the plan has seen to.
    """
    if not (earlier.is_store or later.is_store):
        return False
    if earlier.buffer != later.buffer and not {earlier.buffer, later.buffer} <= in_place:
        return False
    if earlier.buffer != later.buffer and earlier.index != later.index:
        return False
    if earlier.axes is None and later.axes is None and earlier.is_store and later.is_store:
        return False  # the first thread does both
    in_one_thread = earlier.axes is not None and earlier.axes == later.axes and earlier.index == later.index
    return not in_one_thread
