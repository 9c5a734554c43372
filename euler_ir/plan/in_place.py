"""Whether a nest may write an output over one of its inputs."""

from __future__ import annotations

from collections.abc import Iterator

from euler_ir.loops.kernel import Load, Loop, Nest, Statement, Store


def can_overwrite(nest: Nest, source: str, target: str) -> bool:
    """Whether ``target`` may have the memory of the input ``source``: every element is read where it is written, and
    never in a later loop.
    """
    loads = [(place, s.index, bool(s.conditions)) for place, s in _placed(nest.body) if isinstance(s, Load) and s.buffer == source]
    stores = [(place, s.index) for place, s in _placed(nest.body) if isinstance(s, Store) and s.buffer == target]
    if len(stores) != 1 or any(s.accumulate for _, s in _placed(nest.body) if isinstance(s, Store) and s.buffer == target):
        return False
    (written, at) = stores[0]
    return all(place <= written and index == at and not guarded for place, index, guarded in loads)


def _placed(body: tuple[Statement, ...]) -> Iterator[tuple[int, Statement]]:
    """Each statement with the position in ``body`` of the loop that it is in; one before a loop stands before it."""
    for position, statement in enumerate(body):
        if isinstance(statement, Loop):
            yield from ((position, inner) for _, inner in _placed(statement.body))
        else:
            yield position, statement
