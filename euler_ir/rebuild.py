"""Making a new graph of an old one op by op, which is how passes change graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from euler_ir.graph import Graph, Op, Value, extended_history
from euler_ir.names import Names


class Rebuild:
    """Copies a graph op by op into a new one; the way in which the pass ``by`` changes a graph.

    ``values`` maps each value of ``source`` to its replacement in ``target``. A pass iterates over the rebuild, which
    gives the ops of ``source`` in order, calls ``copy`` for what it keeps and ``replace`` for what it does not, and
    ends with ``finish``. What it emits meanwhile is derived from the op that it has been given.
    """

    def __init__(self, source: Graph, by: str) -> None:
        self.source = source
        self.by = by
        self.target = Graph(source.name)
        self.target._streams = source._streams
        self.target._names = Names(source._names)
        self.values: dict[Value, Value] = {}
        self._standing: set[Value] = set()

    def __iter__(self) -> Iterator[Op]:
        target, by = self.target, self.by
        outer = target._origin
        try:
            for op in self.source.ops:
                target._origin = op, by
                yield op
        finally:
            target._origin = outer

    def derived_from(self, op: Op):
        """Ops made inside are derived from ``op`` by this pass: see `Graph.derived_from`."""
        return self.target.derived_from(op, self.by)

    def operands(self, op: Op) -> tuple[Value, ...]:
        return tuple([self.values[operand] for operand in op.operands])

    def apart(self, op: Op, operands: tuple[Value, ...] | None = None) -> Op:
        """The same op on the replaced operands, but not among the ops of the new graph until it is kept."""
        return self._copied(op, operands, [value.name for value in op.results], op.via)

    def again(self, op: Op, operands: tuple[Value, ...]) -> Op:
        """The same op once more in the new graph, on ``operands`` and under names of its own; stands for nothing."""
        names = [self.target._names.take(value.name.partition("#")[0]) for value in op.results]
        repeated = self._copied(op, operands, names, extended_history(op.via, self.by))
        self.target.ops.append(repeated)
        return repeated

    def _copied(self, op: Op, operands: tuple[Value, ...] | None, names: Sequence[str], via: tuple[str, ...]) -> Op:
        operands = self.operands(op) if operands is None else operands
        types = [value.type for value in op.results]
        return Op(op.definition, operands, op.attributes, types, names, self.target, op.location, op.scope, via)

    def keep(self, op: Op, copied: Op) -> None:
        """Append to the new graph what `apart` made of ``op``."""
        self.target.ops.append(copied)
        if op.definition.has_identity:
            self.target._leaves[op.attributes["name"]] = copied.result
        self.values.update(zip(op.results, copied.results))
        self._standing.update(copied.results)

    def copy(self, op: Op, operands: tuple[Value, ...] | None = None) -> Op:
        """The same op in the new graph, on the replaced operands."""
        copied = self.apart(op, operands)
        self.keep(op, copied)
        return copied

    def replace(self, op: Op, values: Sequence[Value]) -> None:
        """Let ``values`` stand for the results of ``op``: each takes over the name, unless it stands for another
        already, so that what a value is called stays the same from pass to pass.
        """
        for old, new in zip(op.results, values, strict=True):
            self.values[old] = new
            if new not in self._standing:
                self._standing.add(new)
                if new.name != old.name:
                    self.target._names.release(new.name)
                    new.name = old.name

    def finish(self) -> Graph:
        """The new graph, with the outputs and updates of the source."""
        self.target.outputs = {name: self.values[value] for name, value in self.source.outputs.items()}
        self.target.updates = {name: self.values[value] for name, value in self.source.updates.items()}
        return self.target
