"""Groups: what runs as one loop nest or as one call, and how a graph is cut into them so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from euler_ir.graph import Graph, Op, Value
from euler_ir.index import Axis, Dynamic, Index, Indices
from euler_ir.passes.attention_calls import AttentionCall
from euler_ir.passes.library_calls import MatmulCall
from euler_ir.passes.refusals import Refusal
from euler_ir.shapes import Shape

IN_PLACE = ("index_add", "dynamic_update_slice")
"""Operators that change their first operand where it lies, which nothing else reads."""

MOST_OPS = 256
"""Operators that a group computes at most: lowering recurses over them."""

_AXIS_NAMES = "ijklmnpqrstuvw"


@dataclass(eq=False)
class Group:
    """Operators that run as one loop nest (or one call).

    ``kind`` is 'pointwise', 'reduction', 'scatter', 'update' or 'scan', or for a call its name; ``size`` counts towards
    ``max_ops``. ``frame`` is the shape of the loops, ``reduced`` the frame axes that reductions sum over. ``roots`` say
    at which indices each of its values is made. ``inputs`` are read from memory and ``outputs`` written to it.
    ``prologues`` are pointwise groups that make operands of the call, by operand; these then lie nowhere in memory.
    """

    kind: str
    frame: Shape
    order: int
    reduced: tuple[int, ...] | None = None
    size: int = 0
    ops: list[Op] = field(default_factory=list)
    roots: dict[Value, Indices] = field(default_factory=dict)
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    call: MatmulCall | AttentionCall | None = None
    prologues: dict[Value, Group] = field(default_factory=dict)

    @property
    def changed(self) -> Value | None:
        """The input that an operator in IN_PLACE changes to make the output."""
        return self.ops[0].operands[0] if self.ops[0].name in IN_PLACE else None

    @property
    def read_by_call(self) -> tuple[Value, ...]:
        """What the call reads from memory, to the end, itself or by its prologues."""
        if self.call is None:
            return ()
        read: dict[Value, None] = {}
        for source in self.call.sources:
            prologue = self.prologues.get(source)
            read.update(dict.fromkeys((source,) if prologue is None else prologue.inputs))
        return tuple(read)

    def computed(self) -> set[Op]:
        """The operators between what the group reads and what it writes: its own, and those that it only passes through
        or computes again.
        """
        read = set(self.inputs)
        computed: set[Op] = set()
        pending = list(self.outputs)
        while pending:
            value = pending.pop()
            if value not in read and value.op not in computed:
                computed.add(value.op)
                pending.extend(value.op.operands)
        return computed

    def made_operands(self) -> list[Group]:
        """The prologues, in the order of the call's operands."""
        sources = () if self.call is None else dict.fromkeys(self.call.sources)
        return [self.prologues[source] for source in sources if source in self.prologues]

    def settle(self, order: Mapping[Op, int]) -> None:
        """Keep the operators that the outputs need, in ``order``; the others are computed where they are read."""
        computed = self.computed()
        self.ops = sorted((op for op in self.ops if op in computed), key=order.__getitem__)
        self.roots = {value: root for value, root in self.roots.items() if value.op in computed}

    @property
    def name(self) -> str:
        """A name for readers, from the operators that say most."""
        names = [op.name for op in self.ops if op.name not in ("add", "multiply", "cast", "where")] or ["pointwise"]
        return "_".join(dict.fromkeys(names[:1] + names[-1:]))


@dataclass(frozen=True)
class Refusals:
    """Why values are read from memory, kept where that was decided.

    ``apart`` says for a value and an operator that reads it, perhaps through operators without a group, why that does
    not run in the loops that make the value; ``unrepeated`` why readers in other groups do not compute a value again.
    ``read`` says for a value and the order of a group that reads it why, where no operator of the group had the choice.
    """

    apart: Mapping[tuple[Value, Op], Refusal]
    unrepeated: Mapping[Value, Refusal]
    read: Mapping[tuple[Value, int], Refusal]


@dataclass(frozen=True)
class FusedGraph:
    """A graph and its groups, in an order in which they can run. Groups read from text have no ``refusals``."""

    graph: Graph
    groups: tuple[Group, ...]
    refusals: Refusals | None = None

    def order(self) -> dict[Op, int]:
        """The order in which a reader meets the operators: those in memory, then group by group those that it computes,
        what earlier groups compute too first.
        """
        numbers = {op: number for number, op in enumerate(self.graph.ops)}
        met = {op: number for number, op in enumerate(op for op in self.graph.ops if is_in_memory(op))}
        for group in self.groups:
            for part in (*group.made_operands(), group):
                new = (op for op in part.computed() if op not in met)
                met.update((op, len(met)) for op in sorted(new, key=numbers.__getitem__))
        return met

    def __str__(self) -> str:
        from euler_ir.passes.fused_printer import print_fused

        return print_fused(self)


class Grouping:
    """A graph while it is cut into groups.

    ``home`` maps each value to the group that makes it, ``inline_size`` those without a group to how many operators
    their element takes, and ``stored`` holds the values that are put into memory. ``apart``, ``unrepeated``
    and ``read`` become the Refusals.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.uses = graph.uses()
        self.results = frozenset(graph.results())
        self.groups: list[Group] = []
        self.home: dict[Value, Group] = {}
        self.inline_size: dict[Value, int] = {}
        self.stored: dict[Value, None] = {}
        self.apart: dict[tuple[Value, Op], Refusal] = {}
        self.unrepeated: dict[Value, Refusal] = {}
        self.read: dict[tuple[Value, int], Refusal] = {}

    def size(self, op: Op) -> int:
        """``op`` and the operators without a group in front of it."""
        return 1 + sum(self.inline_size.get(operand, 0) for operand in op.operands)

    def bases(self, op: Op, even_later: bool = True) -> list[Value]:
        """The values in groups or leaves that ``op`` reads, looking through operators without a group.

        Those that it reads by way of ``later`` are left out unless ``even_later``.
        """
        found: dict[Value, None] = {}
        pending = list(reversed(op.operands))
        seen: set[Value] = set()
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            if value.op.name == "later" and not even_later:
                continue
            if value in self.inline_size:
                pending.extend(reversed(value.op.operands))
            else:
                found[value] = None
        return list(found)

    def accesses(self, op: Op, root: Indices) -> Iterator[tuple[Value, Indices]]:
        """Each base of ``op`` with the indices at which ``op`` reads it."""
        pending = [(operand, root) for operand in op.operands]
        seen: set[tuple[Value, Indices]] = set()
        while pending:
            value, indices = pending.pop()
            if (value, indices) in seen:
                continue
            seen.add((value, indices))
            if value in self.inline_size:
                pending.extend(inline_sources(value.op, indices))
            else:
                yield value, indices

    def is_epilogue(self, group: Group) -> bool:
        """Whether ``group`` alone reads the result of a product, element by element."""
        if group.kind != "pointwise":
            return False
        for base in dict.fromkeys(base for op in group.ops for base in self.bases(op)):
            home = self.home.get(base)
            if home is not None and home.kind == "matmul" and not home.call.batch:
                if all(self.home.get(use.result) is group for use in self.uses[base]):
                    return True
        return False


def frame_axes(frame: Shape) -> tuple[Axis, ...]:
    """The loop axes of a frame, named i, j, k, ..."""
    names = (*_AXIS_NAMES, *(f"i{position}" for position in range(len(frame))))
    return tuple(Axis(name, size) for name, size in zip(names, frame))


def is_in_memory(op: Op) -> bool:
    """Whether the value of ``op`` is in memory before the graph runs: a leaf with identity or an array constant."""
    return op.definition.has_identity or (op.name == "constant" and op.result.size != 1)


def inline_sources(op: Op, indices: Indices) -> list[tuple[Value, Indices]]:
    """What an operator without a group reads to make its element at ``indices``."""
    if op.name == "take":
        source, picks = op.operands
        axis, rank = op.attributes["axis"], len(picks.shape)
        at = (*indices[:axis], Index.of(Dynamic("taken", source.shape[axis])), *indices[axis + rank :])
        return [(source, at), (picks, indices[axis : axis + rank])]
    if op.definition.family == "movement":
        return [(op.operands[source.operand], source.indices) for source in op.definition.index_map(op, indices)]
    return [(operand, indices) for operand in op.operands]


def root_of(shape: Shape, group: Group, full: bool) -> Indices | None:
    """Indices of a value of ``shape`` at a point of the group's frame, or its rows unless ``full``; None if unlike."""
    reduced = () if full or group.reduced is None else group.reduced
    axes = [axis for position, axis in enumerate(frame_axes(group.frame)) if position not in reduced]
    axes = [axis for axis in axes if axis.extent != 1]
    if without_ones(shape) != [axis.extent for axis in axes]:
        return None
    rest = iter(axes)
    return tuple(Index() if size == 1 else Index.of(next(rest)) for size in shape)


def without_ones(shape: Shape) -> list[int]:
    """The extents that say anything about where an element is."""
    return [extent for extent in shape if extent != 1]
