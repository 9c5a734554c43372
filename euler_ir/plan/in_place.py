"""Whether a nest may write an output over one of its inputs."""

from __future__ import annotations

from collections.abc import Iterator

from euler_ir.index import Index
from euler_ir.loops.kernel import Load, Loop, Nest, Statement, Store
from euler_ir.passes.refusals import Refusal


class Accesses:
    """Where a nest reads and writes each of its buffers, and in which order."""

    def __init__(self, nest: Nest) -> None:
        self._loads: dict[str, list[tuple[int, Index, bool]]] = {}
        self._stores: dict[str, list[tuple[int, Index, bool]]] = {}
        for place, statement in enumerate(_in_order(nest.body)):
            if isinstance(statement, Load):
                access = (place, statement.index, bool(statement.conditions))
                self._loads.setdefault(statement.buffer, []).append(access)
            elif isinstance(statement, Store):
                access = (place, statement.index, statement.accumulate)
                self._stores.setdefault(statement.buffer, []).append(access)

    def can_overwrite(self, source: str, target: str) -> bool:
        """Whether ``target`` may have the memory of the input ``source``."""
        return self.hazard(source, target) is None

    def hazard(self, source: str, target: str) -> Refusal | None:
        """Why ``target`` may not have the memory of the input ``source``; None if every element is read where it is
        written, and before.
        """
        stores = self._stores.get(target, [])
        if len(stores) != 1 or stores[0][2]:
            return Refusal("written-in-parts")
        ((written, at, _),) = stores
        for place, index, guarded in self._loads.get(source, []):
            if index != at:
                return Refusal("read-at-other-place", (index, at))
            if guarded:
                return Refusal("read-under-condition")
            if place > written:
                return Refusal("read-after-write")
        return None


def _in_order(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """Each statement, also those in loops, as they stand in the text."""
    for statement in body:
        if isinstance(statement, Loop):
            yield from _in_order(statement.body)
        else:
            yield statement
