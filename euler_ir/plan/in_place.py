"""Whether a nest may write an output over one of its inputs."""

from __future__ import annotations

from collections.abc import Iterator

from euler_ir.index import Index
from euler_ir.loops.kernel import Load, Loop, Nest, Statement, Store


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
        """Whether ``target`` may have the memory of the input ``source``: every element is read where it is written, and
        before.
        """
        stores = self._stores.get(target, [])
        if len(stores) != 1:
            return False
        ((written, at, accumulates),) = stores
        return not accumulates and all(
            place < written and index == at and not guarded for place, index, guarded in self._loads.get(source, [])
        )


def _in_order(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """Each statement, also those in loops, as they stand in the text."""
    for statement in body:
        if isinstance(statement, Loop):
            yield from _in_order(statement.body)
        else:
            yield statement
