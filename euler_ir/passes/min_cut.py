"""A minimum cut of a network, by the largest flow (E. Dinic, 1970)."""

from __future__ import annotations

from collections.abc import Hashable

UNBOUNDED = 1 << 62
"""The capacity of an edge that no cut may hold."""


class Network:
    """Directed edges with integer capacities between hashable nodes."""

    def __init__(self) -> None:
        self._number: dict[Hashable, int] = {}
        self._edges_of: list[list[int]] = []
        # Edge e and its reverse e ^ 1: where they lead, and how much more they can carry.
        self._head: list[int] = []
        self._room: list[int] = []

    def add_edge(self, tail: Hashable, head: Hashable, capacity: int = UNBOUNDED) -> None:
        """Let up to ``capacity`` flow from ``tail`` to ``head``."""
        first, last = self._node(tail), self._node(head)
        for start, end, room in (first, last, capacity), (last, first, 0):
            self._edges_of[start].append(len(self._head))
            self._head.append(end)
            self._room.append(room)

    def near_sink(self, source: Hashable, sink: Hashable) -> set[Hashable]:
        """The nodes on the sink's side of a cut of the least capacity; of several such cuts, the one with fewest there.

        Raises ValueError when every cut holds an edge without a bound.
        """
        start, end = self._node(source), self._node(sink)
        while (levels := self._levels(start, end)) is not None:
            self._saturate(start, end, levels)
        reached, pending = {end}, [end]
        while pending:
            for edge in self._edges_of[pending.pop()]:
                tail = self._head[edge]
                if self._room[edge ^ 1] and tail not in reached:
                    reached.add(tail)
                    pending.append(tail)
        return {node for node, number in self._number.items() if number in reached}

    def _node(self, node: Hashable) -> int:
        number = self._number.setdefault(node, len(self._number))
        if number == len(self._edges_of):
            self._edges_of.append([])
        return number

    def _levels(self, start: int, end: int) -> list[int] | None:
        """The distance of each node from ``start`` over edges with room, or -1; None if ``end`` is not reached."""
        levels = [-1] * len(self._edges_of)
        levels[start] = 0
        layer = [start]
        while layer and levels[end] < 0:
            reached = []
            for node in layer:
                for edge in self._edges_of[node]:
                    head = self._head[edge]
                    if self._room[edge] and levels[head] < 0:
                        levels[head] = levels[node] + 1
                        reached.append(head)
            layer = reached
        return levels if levels[end] >= 0 else None

    def _saturate(self, start: int, end: int, levels: list[int]) -> None:
        """Fill all shortest ways from ``start`` to ``end``."""
        tried = [0] * len(self._edges_of)
        way: list[int] = []
        node = start
        while True:
            if node == end:
                flow = min(self._room[edge] for edge in way)
                if flow >= UNBOUNDED >> 1:
                    raise ValueError("every cut holds an edge without a bound")
                for edge in way:
                    self._room[edge] -= flow
                    self._room[edge ^ 1] += flow
                way, node = [], start
            edges = self._edges_of[node]
            while tried[node] < len(edges):
                edge = edges[tried[node]]
                if self._room[edge] and levels[self._head[edge]] == levels[node] + 1:
                    break
                tried[node] += 1
            if tried[node] < len(edges):
                way.append(edge)
                node = self._head[edge]
            elif way:
                node = self._head[way.pop() ^ 1]
                tried[node] += 1
            else:
                return
