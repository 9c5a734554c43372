"""Fusion: cuts a graph of primitive operators into groups, each of which becomes one loop nest or one library call.

Every group has a *frame*, the shape over which its loops run, and may reduce some of the frame's axes. An operator
joins the latest group that makes one of its operands when it reads that group's values at the very point at which they
are made; this is decided with index expressions, so reshapes and broadcasts in between do not matter. Joining only the
latest group keeps the groups free of cycles by construction. Operators that only move elements, and those that depend
on no tensor at all, belong to no group: whoever reads them computes the index instead.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from euler_ir.graph import Graph, Op, Value
from euler_ir.index import Axis, Dynamic, Index, Indices
from euler_ir.passes.attention_calls import OPERATORS as ATTENTION
from euler_ir.passes.attention_calls import AttentionCall, match_attention
from euler_ir.passes.library_calls import MatmulCall, match_matmul
from euler_ir.passes.parallelism import is_parallel
from euler_ir.passes.views import MatrixView
from euler_ir.shapes import Shape

MAX_OPS = 96
"""Operators in one group, counting those between them that have no group. It bounds the size of a kernel, and with it
compile time and the depth of lowering."""
MAX_INLINE_SIZE = 24
"""Operators without a group that one element may need before one of them is put into memory; one that is read in two
places counts twice, because the two may read it at different indices."""
MAX_RECOMPUTED_WORK = 8
"""Work (see ``_cost``) that a group repeats rather than reading another group's intermediate from memory."""
MAX_PROLOGUE_WORK = 4
"""Work that a product repeats for every thread, and whenever it packs an operand again."""
MAX_REPEATED = 24
"""Operators of other groups that a group computes for one value, also when that moves them and repeats no work."""

_ALONE = {"scatter_add": ("scatter", 1), "index_add": ("scatter", 2), "dynamic_update_slice": ("update", 1)}
"""Indexing operators that are a loop nest of their own: of which kind, and over which operand the loops run."""
IN_PLACE = ("index_add", "dynamic_update_slice")
"""Operators that change their first operand where it lies, which nothing else reads."""

_AXIS_NAMES = "ijklmnpqrstuvw"


@dataclass(eq=False)
class Group:
    """Operators that run as one loop nest (or one library call).

    ``kind`` is 'pointwise', 'reduction', 'scatter', 'update' or 'scan', or for a call its name; ``size`` counts towards
    MAX_OPS. ``frame`` is the shape of the loops and ``reduced`` the frame axes that reductions sum over. ``roots`` says
    at which indices each of its values is made. ``inputs`` are read from memory and ``outputs`` written to it.
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

    @property
    def name(self) -> str:
        """A name for readers, from the operators that say most."""
        names = [op.name for op in self.ops if op.name not in ("add", "multiply", "cast", "where")] or ["pointwise"]
        return "_".join(dict.fromkeys(names[:1] + names[-1:]))


@dataclass(frozen=True)
class FusedGraph:
    """A graph and its groups, in an order in which they can run."""

    graph: Graph
    groups: tuple[Group, ...]

    def __str__(self) -> str:
        from euler_ir.passes.fused_printer import print_fused

        return print_fused(self)


@dataclass(frozen=True)
class Repetition:
    """What it takes to compute a value outside of its group: work, operators, tensors read that are not small, and of
    those the ones that are not in memory yet.
    """

    work: int
    count: int
    tensors: tuple[Value, ...]
    brought: tuple[Value, ...]


def frame_axes(frame: Shape) -> tuple[Axis, ...]:
    """The loop axes of a frame, named i, j, k, ..."""
    names = (*_AXIS_NAMES, *(f"i{position}" for position in range(len(frame))))
    return tuple(Axis(name, size) for name, size in zip(names, frame))


def fuse(graph: Graph) -> FusedGraph:
    """Cut ``graph`` into groups. The graph must hold primitive operators only (see the passes before this one)."""
    return _Fusion(graph).run()


class _Fusion:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.uses = graph.uses()
        self.results = frozenset(graph.results())
        self.groups: list[Group] = []
        self.home: dict[Value, Group] = {}
        self.inline_size: dict[Value, int] = {}
        self.readers: dict[int, dict[int, None]] = {}  # by the order of groups: which groups read which
        self.absorbed: dict[int, int] = {}
        self.stored: dict[Value, None] = {}
        self.movable: dict[Value, Group] = {}
        self.repeatable: dict[Value, Repetition] = {}

    def run(self) -> FusedGraph:
        skipped: set[Op] = set()
        for op in self.graph.ops:
            if is_in_memory(op) or op in skipped:
                continue
            match op.definition.family:
                case "elementwise" | "random":
                    self._place_elementwise(op)
                case "leaf" | "movement" | "indexing" if op.name not in _ALONE:
                    self._place_inline(op)
                case "reduction":
                    self._place_reduction(op)
                case "indexing":
                    kind, frame = _ALONE[op.name]
                    self._place_alone(op, kind, op.operands[frame].shape)
                case "scan":
                    self._place_alone(op, "scan", op.result.shape)
                case "contraction":
                    call = match_matmul(op, self.uses, self.results, self._is_stored)
                    skipped.update(self._place_call("matmul", call))
                case "composite" if op.name in ATTENTION:
                    call = match_attention(op, self.uses, self.results, self._is_stored)
                    skipped.update(self._place_call(op.name, call))
        for value in self.graph.results():
            self._store(value)
        self._choose_recomputed()
        self._choose_prologues()
        self._find_inputs()
        return FusedGraph(self.graph, tuple(self.groups))

    # -- placing one operator ------------------------------------------------------------------------------------------

    def _place_inline(self, op: Op) -> None:
        """Give ``op`` no group, unless its element would need too many such operators."""
        size = self._size(op)
        if size > MAX_INLINE_SIZE:
            self._start(op)
        else:
            self.inline_size[op.result] = size

    def _place_elementwise(self, op: Op) -> None:
        bases = self._bases(op)
        if not bases and op.definition.family != "random":
            self._place_inline(op)
            return
        group = self._latest(op)
        if group is not None and self._may_join(group):
            for full in (True, False):
                root = _root(op.result.shape, group, full)
                if root is None or not self._is_aligned(op, root, group):
                    continue
                if is_parallel(group.frame, group.reduced or ()) if full else group.reduced:
                    self._absorb_siblings(op, root, bases, group)
                    self._add(op, group, root)
                    return
        self._start(op)

    def _place_reduction(self, op: Op) -> None:
        operand, axes = op.operands[0], op.attributes["axes"]
        group = self._latest(op)
        if group is not None and self._may_join(group) and not self._completes_product(group, op):
            root = _root(operand.shape, group, full=True)
            if root is not None and self._is_aligned(op, root, group):
                wanted = {atom for axis in axes for atom in root[axis].axes()}
                reduced = tuple(i for i, axis in enumerate(frame_axes(group.frame)) if axis in wanted)
                if group.reduced == reduced or (group.reduced is None and is_parallel(group.frame, reduced)):
                    group.reduced, group.kind = reduced, "reduction"
                    self._add(op, group, _root(op.result.shape, group, full=False))
                    return
        group = self._new_group("reduction", operand.shape, reduced=axes)
        self._add(op, group, _root(op.result.shape, group, full=False))

    def _completes_product(self, group: Group, reduction: Op) -> bool:
        """Whether ``group`` alone reads the result of a product, and what ``reduction`` reads of it is stored anyway.

        Such a group can run inside of the product, part by part; with a reduction in it, it could not.
        """
        read = [base for base in self._bases(reduction) if self.home.get(base) is group]
        if any(len(self.uses[base]) == 1 and base not in self.results for base in read):
            return False
        return self._is_epilogue(group)

    def _is_epilogue(self, group: Group) -> bool:
        """Whether ``group`` alone reads the result of a product, element by element."""
        if group.kind != "pointwise":
            return False
        for base in dict.fromkeys(base for op in group.ops for base in self._bases(op)):
            home = self.home.get(base)
            if home is not None and home.kind == "matmul" and not home.call.batch:
                if all(self.home.get(use.result) is group for use in self.uses[base]):
                    return True
        return False

    def _place_alone(self, op: Op, kind: str, frame: Shape) -> None:
        self._add(op, self._new_group(kind, frame), ())
        self._store(op.result)

    def _place_call(self, kind: str, call: MatmulCall | AttentionCall) -> tuple[Op, ...]:
        """Make a group of ``call``; gives the operators that it does."""
        for source in call.sources:
            self._store(source)
        group = self._new_group(kind, call.results[0].shape, call=call)
        group.ops.extend(call.ops)
        self.home.update(dict.fromkeys(call.results, group))
        self._note_reads(call.sources, group)
        for result in call.results:
            self._store(result)
        return call.ops

    def _is_stored(self, value: Value) -> bool:
        return value not in self.inline_size or value in self.stored

    def _start(self, op: Op) -> None:
        """A pointwise group that begins with ``op``."""
        group = self._new_group("pointwise", op.result.shape)
        self._add(op, group, _root(op.result.shape, group, full=True))

    def _new_group(self, kind: str, frame: Shape, **more) -> Group:
        group = Group(kind, frame, len(self.groups), **more)
        self.groups.append(group)
        return group

    def _size(self, op: Op) -> int:
        """``op`` and the operators without a group in front of it."""
        return 1 + sum(self.inline_size.get(operand, 0) for operand in op.operands)

    def _add(self, op: Op, group: Group, root: Indices) -> None:
        group.ops.append(op)
        group.size += self._size(op)
        group.roots[op.result] = root
        self.home[op.result] = group
        self._note_reads(self._bases(op), group)

    def _note_reads(self, bases: Iterable[Value], group: Group) -> None:
        for base in bases:
            home = self.home.get(base)
            if home is not None and home is not group:
                self.readers.setdefault(home.order, {})[group.order] = None

    def _absorb_siblings(self, op: Op, root: Indices, bases: list[Value], group: Group) -> None:
        """Take into ``group`` the other groups of the same frame that ``op`` reads, where nothing in between needs them:
        the moments of an optimiser and the step that follows from both become one loop.
        """
        for base in bases:
            other = self.home.get(base)
            if other is None or other is group or not _can_merge(other, group):
                continue
            needed_before = any(self._runs_at(reader) <= group.order for reader in self.readers.get(other.order, ()))
            fits = other.size + group.size < MAX_OPS
            if needed_before or not fits or not self._is_aligned(op, root, other):
                continue
            if other.reduced is not None:
                group.kind, group.reduced = "reduction", other.reduced
            group.ops[:0] = other.ops
            group.size += other.size
            group.roots.update(other.roots)
            self.home.update(dict.fromkeys(other.roots, group))
            self.readers.setdefault(group.order, {}).update(self.readers.pop(other.order, {}))
            self.absorbed[other.order] = group.order
            other.ops, other.roots = [], {}

    def _runs_at(self, order: int) -> int:
        """The order at which what was placed at ``order`` runs now."""
        while order in self.absorbed:
            order = self.absorbed[order]
        return order

    def _store(self, value: Value) -> None:
        """Have ``value`` put into memory; one that has no group gets one of its own."""
        if is_in_memory(value.op) or value in self.stored:
            return
        if value not in self.home:
            self._start(value.op)
        self.stored[value] = None

    # -- who reads what ------------------------------------------------------------------------------------------------

    def _bases(self, op: Op, even_later: bool = True) -> list[Value]:
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

    def _latest(self, op: Op) -> Group | None:
        """The latest group that ``op`` reads from and may join."""
        homes = [self.home[base] for base in self._bases(op, even_later=False) if base in self.home]
        return max(homes, key=lambda group: group.order, default=None)

    def _may_join(self, group: Group) -> bool:
        return group.kind in ("pointwise", "reduction") and group.size < MAX_OPS

    def _is_aligned(self, op: Op, root: Indices, group: Group) -> bool:
        """Whether ``op``, made at ``root``, reads each value of ``group`` at the point at which that is made."""
        return all(
            indices == group.roots[base] for base, indices in self._accesses(op, root) if self.home.get(base) is group
        )

    def _accesses(self, op: Op, root: Indices) -> Iterator[tuple[Value, Indices]]:
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

    # -- what is recomputed --------------------------------------------------------------------------------------------

    def _choose_recomputed(self) -> None:
        """Decide for each value that another group reads: put into memory, or computed again by its readers."""
        readers: dict[Value, list[tuple[Group, Op]]] = {}
        for group in self.groups:
            for op in group.ops if group.call is None else ():
                for base in self._bases(op):
                    readers.setdefault(base, []).append((group, op))
        self._find_movable(readers)
        for group in self.groups:
            for op in group.ops if group.kind in ("pointwise", "reduction") else ():
                if op.result in self.stored:
                    continue
                again = self._work_again(op, group)
                if again is not None:
                    self.repeatable[op.result] = again
                if any(reader is not group for reader, _ in readers.get(op.result, ())):
                    self.stored.update(dict.fromkeys((op.result,) if again is None else again.brought))

    def _find_movable(self, readers: dict[Value, list[tuple[Group, Op]]]) -> None:
        """Find the values that serve one other group alone, of no more points: computing them there costs nothing.

        Most of these are parts of gradients that need only what the forward pass has in memory anyway.
        """
        for group in self.groups:
            for op in reversed(group.ops):
                value = op.result
                if value in self.stored or value not in readers:
                    continue
                targets = {
                    reader if reader is not group else self.movable.get(reading.result, group)
                    for reader, reading in readers[value]
                }
                if len(targets) == 1 and group not in targets:
                    (target,) = targets
                    if math.prod(target.frame) <= value.size:
                        self.movable[value] = target

    def _work_again(self, op: Op, group: Group) -> Repetition | None:
        """What computing ``op`` in another group takes; None when it is too much.

        The tensors that it reads, but for small ones, may together be hardly larger than its value, so that no more
        memory is read than the value itself would take, and they must be in memory anyway.
        """
        if op.definition.family != "elementwise":
            return None
        work, count = 0 if op.result in self.movable else _cost(op), self._size(op)
        tensors: dict[Value, None] = {}
        brought: dict[Value, None] = {}
        for base, times in Counter(base for base, _ in self._accesses(op, group.roots[op.result])).items():
            if base in self.repeatable:
                again = self.repeatable[base]
                work, count = work + times * again.work, count + times * again.count
                tensors.update(dict.fromkeys(again.tensors))
                brought.update(dict.fromkeys(again.brought))
            elif base.size * 8 > op.result.size:
                if self.home.get(base) is group and base not in self.stored:
                    if op.result not in self.movable or base.size > op.result.size:
                        return None
                    brought[base] = None  # what moves reads this instead of being stored itself
                tensors[base] = None
        read = sum(tensor.size for tensor in tensors)
        fits = work <= MAX_RECOMPUTED_WORK and count <= MAX_REPEATED and read * 4 <= op.result.size * 5
        return Repetition(work, count, tuple(tensors), tuple(brought)) if fits else None

    def _choose_prologues(self) -> None:
        """Let products make the operands that nothing else reads, where that takes little work on what is in memory
        anyway: a layer norm of known statistics, a cast, a rectifier.
        """
        products: dict[Value, list[Group]] = {}
        read: set[Value] = set(self.results)
        for group in self.groups:
            if group.kind == "matmul":
                for view in (group.call.left, group.call.right):
                    products.setdefault(view.source, []).append(group)
                    if not _is_whole(view) or group.call.batch or group.call.left.source is group.call.right.source:
                        read.add(view.source)
            elif group.call is not None:
                read.update(group.call.sources)
            else:
                read.update(base for op in group.ops for base in self._bases(op))
        for value, calls in products.items():
            home = self.home.get(value)
            if value in read or home is None or home.kind not in ("pointwise", "reduction") or self._is_epilogue(home):
                continue
            again = self._work_again(value.op, home)
            if again is None or again.work > MAX_PROLOGUE_WORK or not self._is_plain(value):
                continue
            self.stored.update(dict.fromkeys(again.brought))
            del self.stored[value]
            for group in calls:
                made = Group("pointwise", value.shape, group.order, ops=[value.op], outputs=(value,))
                made.roots[value] = _root(value.shape, made, full=True)
                group.prologues[value] = made

    def _is_plain(self, value: Value) -> bool:
        """Whether ``value`` is made, element by element, of what has its shape or is broadcast to it."""
        pending, seen = [value], set()
        while pending:
            op = pending.pop().op
            if op in seen:
                continue
            seen.add(op)
            if op.definition.family != "elementwise" and op.name not in ("broadcast", "reshape", "constant"):
                return False
            if op.name == "reshape" and _without_ones(op.result.shape) != _without_ones(op.operands[0].shape):
                return False
            pending += [
                operand
                for operand in op.operands
                if operand in self.inline_size or (operand in self.repeatable and operand not in self.stored)
            ]
        return True

    def _find_inputs(self) -> None:
        """Fill in what each group reads from and writes to memory, readers before what they read; drop idle groups."""
        for group in reversed(self.groups):
            if group.call is not None:
                for prologue in group.prologues.values():
                    prologue.inputs = self._inputs(prologue)
                group.inputs = group.read_by_call
                group.outputs = tuple(dict.fromkeys(group.call.results))
                continue
            group.outputs = tuple(op.result for op in group.ops if op.result in self.stored)
            group.inputs = self._inputs(group)
        self.groups = [group for group in self.groups if group.outputs]

    def _inputs(self, group: Group) -> tuple[Value, ...]:
        """What ``group`` reads to make its outputs; has it stored."""
        found: dict[Value, None] = {}
        pending = [operand for value in reversed(group.outputs) for operand in reversed(value.op.operands)]
        seen: set[Value] = set()
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            home = self.home.get(value)
            # An operator without a group may have been put into memory for a later reader: too late for this one.
            inline = value in self.inline_size and (home is None or home.order > group.order)
            if home is group or inline or (value in self.repeatable and value not in self.stored):
                pending.extend(reversed(value.op.operands))
            else:
                found[value] = None
                if home is not None:
                    self.stored[value] = None
        return tuple(found)


def _without_ones(shape: Shape) -> list[int]:
    return [extent for extent in shape if extent != 1]


def _is_whole(view: MatrixView) -> bool:
    """Whether ``view`` shows all of a value, its last axis as rows or as columns of the matrix."""
    return view.offset == 0 and bool(view.source.shape) and view.leading == view.source.shape[-1]


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


def _root(shape: Shape, group: Group, full: bool) -> Indices | None:
    """Indices of a value of ``shape`` at a point of the group's frame, or of its rows (not ``full``); None if unlike."""
    reduced = () if full or group.reduced is None else group.reduced
    axes = [axis for position, axis in enumerate(frame_axes(group.frame)) if position not in reduced]
    axes = [axis for axis in axes if axis.extent != 1]
    if _without_ones(shape) != [axis.extent for axis in axes]:
        return None
    rest = iter(axes)
    return tuple(Index() if size == 1 else Index.of(next(rest)) for size in shape)


def _can_merge(other: Group, group: Group) -> bool:
    """Whether the loops of two groups can be the same ones."""
    loops = ("pointwise", "reduction")
    if other.kind not in loops or group.kind not in loops or other.frame != group.frame:
        return False
    reduced = {axes for axes in (other.reduced, group.reduced) if axes is not None}
    return len(reduced) < 2 and all(is_parallel(group.frame, axes) for axes in reduced)


def _cost(op: Op) -> int:
    return 5 if op.definition.is_expensive else 1


