"""Whether a nest may write an output over one of its inputs."""

from __future__ import annotations

from collections.abc import Iterator

from euler_ir.index import Index
from euler_ir.loops.kernel import Load, Loop, Nest, Statement, Store


class Accesses:
    """Where a nest reads and writes each of its buffers."""

    def __init__(self, nest: Nest) -> None:
        self._loads: dict[str, list[tuple[int, Index, bool]]] = {}
        self._stores: dict[str, list[tuple[int, Index, bool]]] = {}
        for place, statement in _placed(nest.body):
            if isinstance(statement, Load):
                access = (place, statement.index, bool(statement.conditions))
                self._loads.setdefault(statement.buffer, []).append(access)
            elif isinstance(statement, Store):
                access = (place, statement.index, statement.accumulate)
                self._stores.setdefault(statement.buffer, []).append(access)

    def can_overwrite(self, source: str, target: str) -> bool:
        """Whether ``target`` may have the memory of the input ``source``: every element is read where it is written,
        and never in a later loop.
        """
        stores = self._stores.get(target, [])
        if len(stores) != 1:
            return False
        ((written, at, accumulates),) = stores
        return not accumulates and all(
            place <= written and index == at and not guarded for place, index, guarded in self._loads.get(source, [])
        )


def _placed(body: tuple[Statement, ...]) -> Iterator[tuple[int, Statement]]:
    """Each statement with the position in ``body`` of the loop that it is in; one before a loop stands before it."""
    for position, statement in enumerate(body):
        if isinstance(statement, Loop):
            yield from ((position, inner) for _, inner in _placed(statement.body))
        else:
            yield position, statement
