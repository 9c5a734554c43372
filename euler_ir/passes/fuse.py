"""Fusion: cuts a graph of primitive operators into groups, each of which becomes one loop nest or one call.

Every group has a *frame*, the shape over which its loops run, and may reduce some of the frame's axes. An operator
joins the latest group that makes one of its operands when it reads that group's values at the very point at which they
are made; this is decided with index expressions, so reshapes and broadcasts in between do not matter. Joining only the
latest group keeps the groups free of cycles by construction. Operators that only move elements, and those that depend
on no tensor at all, belong to no group: whoever reads them computes the index instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from euler_ir.errors import LoweringError, PassError
from euler_ir.graph import Graph, Op, Value
from euler_ir.index import Indices
from euler_ir.passes.attention_calls import OPERATORS as ATTENTION
from euler_ir.passes.attention_calls import AttentionCall, match_attention
from euler_ir.passes.groups import (
    IN_PLACE,
    MOST_OPS,
    FusedGraph,
    Group,
    Grouping,
    Refusals,
    frame_axes,
    is_in_memory,
    root_of,
)
from euler_ir.passes.library_calls import MatmulCall, match_matmul
from euler_ir.passes.manager import Pass
from euler_ir.passes.options import expect_at_least
from euler_ir.passes.parallelism import is_parallel
from euler_ir.passes.refusals import Refusal
from euler_ir.passes.stored_values import choose_stored
from euler_ir.shapes import Shape

_ALONE = {"scatter_add": ("scatter", 1), "index_add": ("scatter", 2), "dynamic_update_slice": ("update", 1)}
"""Indexing operators that are a loop nest of their own: of which kind, and over which operand the loops run."""
_LOOPS = ("pointwise", "reduction")
"""Kinds of groups that operators may join."""


@dataclass(frozen=True)
class Fuse(Pass):
    """Cut the graph into groups, each of which becomes one loop nest or one call.

    The graph must hold primitive operators only, but for attention, which is a call. ``max_ops`` bounds the operators
    in one group, counting those between them that have no group, and so the size of a kernel, compile time and the
    depth of lowering. ``max_inline_size`` bounds the operators without a group that one element may need before one of
    them is put into memory; one that is read in two places counts twice, because the two may read it at different
    indices. Rather than having another group put a value into memory, a group computes it again by up to
    ``max_repeated`` operators, counted likewise, which take at most ``max_repeated_work``: 5 for an expensive one, 1
    for another. Without ``prologues`` all operands of products lie in memory.
    Raises PassError for ``max_ops`` below 1, another number below 0, and all but the work together above 256;
    LoweringError for another composite in the graph.
    """

    name = "fuse"
    level = "fused"
    max_ops: int = 96
    max_inline_size: int = 24
    max_repeated: int = 24
    max_repeated_work: int = 8
    prologues: bool = True

    def __post_init__(self) -> None:
        expect_at_least(1, max_ops=self.max_ops)
        repeated = {"max_repeated": self.max_repeated, "max_repeated_work": self.max_repeated_work}
        expect_at_least(0, max_inline_size=self.max_inline_size, **repeated)
        # What is placed in a group leaves room for what it repeats of other groups.
        most_placed = MOST_OPS - self.max_repeated
        if self.max_ops + self.max_inline_size > most_placed:
            bounds = f"max_ops is {self.max_ops} and max_inline_size {self.max_inline_size}"
            raise PassError(f"{bounds}, expected at most {most_placed} together")

    def run(self, graph: Graph) -> FusedGraph:
        return _Fusion(graph, self).run()


class _Fusion(Grouping):
    def __init__(self, graph: Graph, limits: Fuse) -> None:
        super().__init__(graph)
        self.limits = limits
        self.readers: dict[int, dict[int, None]] = {}  # by the order of groups: which groups read which
        self.absorbed: dict[int, int] = {}

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
                case "composite":
                    raise LoweringError(
                        f"{op.name} is made of primitive operators, which fusion does not write out",
                        location=op.location,
                        hint="put the pass decompose before, as the preset 'default' does",
                    )
        for value in self.graph.results():
            self._store(value)
        choose_stored(self, self.limits)
        fused = FusedGraph(self.graph, tuple(self.groups), Refusals(self.apart, self.unrepeated, self.read))
        order = fused.order()
        for group in self.groups:
            if group.call is None:
                group.settle(order)
        return fused

    # -- placing one operator ------------------------------------------------------------------------------------------

    def _place_inline(self, op: Op) -> None:
        """Give ``op`` no group, unless its element would need too many such operators."""
        size = self.size(op)
        if size > self.limits.max_inline_size:
            self._start(op, Refusal("long-element", (size, self.limits.max_inline_size)))
        else:
            self.inline_size[op.result] = size

    def _place_elementwise(self, op: Op) -> None:
        bases = self.bases(op)
        if not bases and op.definition.family != "random":
            self._place_inline(op)
            return
        group = self._latest(op)
        root = Refusal("computed-late") if group is None else self._place_in(op, group)
        if isinstance(root, Refusal):
            self._start(op, root, group)
            return
        self._absorb_siblings(op, root, bases, group)
        self._add(op, group, root)

    def _place_in(self, op: Op, group: Group) -> Indices | Refusal:
        """The indices at which ``group`` can make the elementwise ``op``, or why it cannot."""
        refusal = self._closed(group)
        if refusal is not None:
            return refusal
        refusal = Refusal("different-frame", (group.frame, op.result.shape))
        # A row at a time where the whole frame will not do.
        for full in (True, False) if group.reduced else (True,):
            root = root_of(op.result.shape, group, full)
            if root is None:
                continue
            misread = self._misread(op, root, group)
            if misread is None and full and not is_parallel(group.frame, group.reduced or ()):
                misread = Refusal("needs-serial-reduction", (group.frame, _axis_names(group.frame, group.reduced)))
            if misread is None:
                return root
            refusal = misread
        return refusal

    def _place_reduction(self, op: Op) -> None:
        operand, axes = op.operands[0], op.attributes["axes"]
        group = self._latest(op)
        reduced = Refusal("computed-late") if group is None else self._reduce_in(op, group)
        self._keep_apart(op, reduced if isinstance(reduced, Refusal) else None, group)
        if isinstance(reduced, Refusal):
            group = self._new_group("reduction", operand.shape, reduced=axes)
        else:
            group.reduced, group.kind = reduced, "reduction"
        self._add(op, group, root_of(op.result.shape, group, full=False))

    def _reduce_in(self, op: Op, group: Group) -> tuple[int, ...] | Refusal:
        """The axes of ``group`` that the reduction ``op`` sums over in its loops, or why it cannot."""
        refusal = self._closed(group)
        if refusal is not None:
            return refusal
        if self._completes_product(group, op):
            return Refusal("keeps-product-open")
        shape = op.operands[0].shape
        root = root_of(shape, group, full=True)
        if root is None:
            return Refusal("different-frame", (group.frame, shape))
        misread = self._misread(op, root, group)
        if misread is not None:
            return misread
        wanted = {atom for axis in op.attributes["axes"] for atom in root[axis].axes()}
        reduced = tuple(i for i, axis in enumerate(frame_axes(group.frame)) if axis in wanted)
        if group.reduced is not None and group.reduced != reduced:
            return Refusal("other-reduction", tuple(_axis_names(group.frame, r) for r in (group.reduced, reduced)))
        if group.reduced is None and not is_parallel(group.frame, reduced):
            return Refusal("needs-serial-reduction", (group.frame, _axis_names(group.frame, reduced)))
        return reduced

    def _completes_product(self, group: Group, reduction: Op) -> bool:
        """Whether ``group`` alone reads the result of a product, and what ``reduction`` reads of it is stored anyway.

        Such a group can run inside of the product, part by part; with a reduction in it, it could not. But products of
        half types are calls of a library, which stores nothing of another type.
        """
        read = [base for base in self.bases(reduction) if self.home.get(base) is group]
        products = {base.dtype for op in group.ops for base in self.bases(op) if self._is_product(base)}
        if any(dtype.is_half for dtype in products) and not any(base.dtype in products for base in read):
            return False
        if any(len(self.uses[base]) == 1 and base not in self.results for base in read):
            return False
        return self.is_epilogue(group)

    def _is_product(self, value: Value) -> bool:
        return value in self.home and self.home[value].kind == "matmul"

    def _place_alone(self, op: Op, kind: str, frame: Shape) -> None:
        self._keep_apart(op, Refusal("runs-alone", (op.name,)))
        if op.name in IN_PLACE:
            self._store(op.operands[0])
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

    def _start(self, op: Op, refusal: Refusal, latest: Group | None = None) -> None:
        """A pointwise group that begins with ``op``, which joins none: see `_keep_apart`."""
        self._keep_apart(op, refusal, latest)
        group = self._new_group("pointwise", op.result.shape)
        self._add(op, group, root_of(op.result.shape, group, full=True))

    def _new_group(self, kind: str, frame: Shape, **more) -> Group:
        group = Group(kind, frame, len(self.groups), **more)
        self.groups.append(group)
        return group

    def _add(self, op: Op, group: Group, root: Indices) -> None:
        group.ops.append(op)
        group.size += self.size(op)
        group.roots[op.result] = root
        self.home[op.result] = group
        self._note_reads(self.bases(op), group)

    def _note_reads(self, bases: Iterable[Value], group: Group) -> None:
        for base in bases:
            home = self.home.get(base)
            if home is not None and home is not group:
                self.readers.setdefault(home.order, {})[group.order] = None

    def _absorb_siblings(self, op: Op, root: Indices, bases: list[Value], group: Group) -> None:
        """Take into ``group`` the other groups of the same frame that ``op`` reads, where nothing in between needs
        them: the moments of an optimiser and the step that follows from both become one loop.
        """
        for base in bases:
            other = self.home.get(base)
            if other is None or other is group:
                continue
            refusal = self._keeps_sibling(op, root, other, group)
            if refusal is not None:
                self.apart[base, op] = refusal
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

    def _keeps_sibling(self, op: Op, root: Indices, other: Group, group: Group) -> Refusal | None:
        """Why the loops of ``other`` cannot become those of ``group``, where ``op`` reads from it; None if they can."""
        if other.kind not in _LOOPS:
            return _call_or_alone(other)
        if other.frame != group.frame:
            return Refusal("different-frame", (other.frame, group.frame))
        reduced = {axes for axes in (other.reduced, group.reduced) if axes is not None}
        if len(reduced) == 2:
            return Refusal("other-reduction", tuple(_axis_names(group.frame, g.reduced) for g in (other, group)))
        if not all(is_parallel(group.frame, axes) for axes in reduced):
            return Refusal("needs-serial-reduction", (group.frame, _axis_names(group.frame, *reduced)))
        between = [reader for reader in self.readers.get(other.order, ()) if self._runs_at(reader) <= group.order]
        if between:
            return Refusal("in-order", (self.groups[self._runs_at(between[0])].name,))
        if other.size + group.size >= self.limits.max_ops:
            return Refusal("full-group", (other.size, self.limits.max_ops))
        return self._misread(op, root, other)

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
            self._start(value.op, Refusal("own-place", (value.op.name,)))
        self.stored[value] = None

    # -- who reads what ------------------------------------------------------------------------------------------------

    def _latest(self, op: Op) -> Group | None:
        """The latest group that ``op`` reads from and may join."""
        homes = [self.home[base] for base in self.bases(op, even_later=False) if base in self.home]
        return max(homes, key=lambda group: group.order, default=None)

    def _closed(self, group: Group) -> Refusal | None:
        """Why no operator joins ``group``; None if it takes some."""
        if group.kind not in _LOOPS:
            return _call_or_alone(group)
        return Refusal("full-group", (group.size, self.limits.max_ops)) if group.size >= self.limits.max_ops else None

    def _misread(self, op: Op, root: Indices, group: Group) -> Refusal | None:
        """Where ``op``, made at ``root``, reads a value of ``group`` at another point than that at which it is made."""
        for base, indices in self.accesses(op, root):
            if self.home.get(base) is group and indices != group.roots[base]:
                return Refusal("reads-at-other-index", (group.roots[base], indices))
        return None

    def _keep_apart(self, op: Op, refusal: Refusal | None, latest: Group | None = None) -> None:
        """Keep why ``op`` is not in the groups that it reads from: ``refusal`` is of the ``latest``, or of all if None.

        Without a refusal it joins the latest.
        """
        for base in self.bases(op):
            home = self.home.get(base)
            if home is not None and (refusal is not None or home is not latest):
                self.apart[base, op] = refusal if home is latest or latest is None else Refusal("earlier-group")


def _call_or_alone(group: Group) -> Refusal:
    if group.kind == "matmul":
        return Refusal("product-result")
    return Refusal("call-result" if group.call is not None else "runs-alone", (group.ops[0].name,))


def _axis_names(frame: Shape, positions: Iterable[int] | None) -> tuple[str, ...]:
    axes = frame_axes(frame)
    return tuple(str(axes[position]) for position in positions or ())
