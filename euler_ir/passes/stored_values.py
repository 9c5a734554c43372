"""What is put into memory: values that other groups read, unless these compute them again, and the inputs of groups.

Reading a value costs memory traffic, computing it again costs work and whatever that reads: a value is stored when it
has to be. Products make operands themselves where that is cheap.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from euler_ir.graph import Op, Value
from euler_ir.passes.groups import Group, Grouping, root_of, without_ones
from euler_ir.passes.refusals import Refusal
from euler_ir.passes.views import MatrixView

if TYPE_CHECKING:
    from euler_ir.passes.fuse import Fuse

MAX_SPREAD_WORK = 8
"""Work that is repeated for a value that is much smaller than what reads it, such as a number for all elements."""
MAX_PROLOGUE_WORK = 4
"""Work that a product repeats for every thread, and whenever it packs an operand again."""


@dataclass(frozen=True)
class Repetition:
    """What it takes to compute a value outside of its group: work, operators, tensors read that are not small, and of
    those the ones that are not in memory yet.
    """

    work: int
    count: int
    tensors: tuple[Value, ...]
    brought: tuple[Value, ...]


def choose_stored(grouping: Grouping, limits: Fuse) -> None:
    """Decide what each group of ``grouping`` writes to memory and reads from there; drops groups that are idle."""
    _Choice(grouping, limits).run()


class _Choice:
    def __init__(self, grouping: Grouping, limits: Fuse) -> None:
        self.grouping = grouping
        self.limits = limits
        self.home = grouping.home
        self.stored = grouping.stored
        self.movable: dict[Value, Group] = {}
        self.spread: set[Value] = set()
        self.repeatable: dict[Value, Repetition] = {}

    def run(self) -> None:
        self._choose_recomputed()
        self._choose_prologues()
        self._find_inputs()

    def _choose_recomputed(self) -> None:
        """Decide for each value that another group reads: put into memory, or computed again by its readers."""
        readers: dict[Value, list[tuple[Group, Op]]] = {}
        for group in self.grouping.groups:
            for op in group.ops if group.call is None else ():
                for base in self.grouping.bases(op):
                    readers.setdefault(base, []).append((group, op))
        self._find_movable(readers)
        for value, each in readers.items():
            if max(math.prod(reader.frame) for reader, _ in each) > 8 * value.size:
                self.spread.add(value)
        for group in self.grouping.groups:
            for op in group.ops if group.kind in ("pointwise", "reduction") else ():
                if op.result in self.stored:
                    continue
                again = self._work_again(op, group)
                refused = isinstance(again, Refusal)
                if refused:
                    self.grouping.unrepeated[op.result] = again
                else:
                    self.repeatable[op.result] = again
                if any(reader is not group for reader, _ in readers.get(op.result, ())):
                    self.stored.update(dict.fromkeys((op.result,) if refused else again.brought))

    def _find_movable(self, readers: dict[Value, list[tuple[Group, Op]]]) -> None:
        """Find the values that serve one other group alone, of no more points: computing them there costs nothing.

        Most of these are parts of gradients that need only what the forward pass has in memory anyway.
        """
        for group in self.grouping.groups:
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

    def _work_again(self, op: Op, group: Group) -> Repetition | Refusal:
        """What computing ``op`` in another group takes, or why it is too much.

        The tensors that it reads, but for small ones, may together be hardly larger than its value, so that no more
        memory is read than the value itself would take, and they must be in memory anyway.
        """
        if op.definition.family != "elementwise":
            return Refusal("not-elementwise", (op.name,))
        work, count = 0 if op.result in self.movable else _cost(op), self.grouping.size(op)
        tensors: dict[Value, None] = {}
        brought: dict[Value, None] = {}
        for base, times in Counter(base for base, _ in self.grouping.accesses(op, group.roots[op.result])).items():
            if base in self.repeatable:
                again = self.repeatable[base]
                work, count = work + times * again.work, count + times * again.count
                tensors.update(dict.fromkeys(again.tensors))
                brought.update(dict.fromkeys(again.brought))
            elif base.size * 8 > op.result.size:
                if self.home.get(base) is group and base not in self.stored:
                    if op.result not in self.movable or base.size > op.result.size:
                        return Refusal("reads-unstored", (base.op.name,))
                    brought[base] = None  # what moves reads this instead of being stored itself
                tensors[base] = None
        read = sum(tensor.size for tensor in tensors)
        most = min(self.limits.max_repeated_work, MAX_SPREAD_WORK if op.result in self.spread else math.inf)
        if work > most:
            return Refusal("costly", (work, most))
        if count > self.limits.max_repeated:
            return Refusal("long", (count, self.limits.max_repeated))
        if read * 4 > op.result.size * 5:
            return Refusal("reads-more", (read, op.result.size))
        return Repetition(work, count, tuple(tensors), tuple(brought))

    def _choose_prologues(self) -> None:
        """Let products, if they may, make the operands that nothing else reads, where that takes little work on what is
        in memory anyway: a layer norm of known statistics, a cast, a rectifier.
        """
        products: dict[Value, list[Group]] = {}
        readers: dict[Value, str] = dict.fromkeys(self.grouping.results, "the graph's caller")
        in_parts: set[Value] = set()
        for group in self.grouping.groups:
            if group.kind == "matmul":
                for view in (group.call.left, group.call.right):
                    products.setdefault(view.source, []).append(group)
                    if not begins_with(view) or group.call.batch or group.call.left.source is group.call.right.source:
                        in_parts.add(view.source)
            elif group.call is not None:
                readers.update(dict.fromkeys(group.call.sources, group.name))
                refusal = Refusal("call-operand", (group.name,))
                self.grouping.apart.update(((source, group.ops[0]), refusal) for source in group.call.sources)
            else:
                readers.update((base, group.name) for op in group.ops for base in self.grouping.bases(op))
        for value, calls in products.items():
            home = self.home.get(value)
            if home is None:
                continue
            if not self.limits.prologues:
                again = Refusal("no-prologues")
            elif value in readers:
                again = Refusal("operand-read-elsewhere", (readers[value],))
            elif value in in_parts:
                again = Refusal("operand-in-parts")
            else:
                again = self._prologue(value, home)
            if isinstance(again, Refusal):
                self.grouping.apart.update(((value, group.ops[0]), again) for group in calls)
                continue
            self.stored.update(dict.fromkeys(again.brought))
            del self.stored[value]
            for group in calls:
                made = Group("pointwise", value.shape, group.order, ops=[value.op], outputs=(value,))
                made.roots[value] = root_of(value.shape, made, full=True)
                group.prologues[value] = made

    def _prologue(self, value: Value, home: Group) -> Repetition | Refusal:
        """What it takes a product to make its operand ``value``, of the group ``home``, or why it does not."""
        if home.kind not in ("pointwise", "reduction"):
            return Refusal("operand-not-elementwise", (home.name,))
        if self.grouping.is_epilogue(home):
            return Refusal("operand-in-product")
        again = self._work_again(value.op, home)
        if isinstance(again, Refusal):
            return again
        if again.work > MAX_PROLOGUE_WORK:
            return Refusal("costly", (again.work, MAX_PROLOGUE_WORK))
        return again if self._is_plain(value) else Refusal("operand-rearranged")

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
            if op.name == "reshape" and without_ones(op.result.shape) != without_ones(op.operands[0].shape):
                return False
            pending += [
                operand
                for operand in op.operands
                if operand in self.grouping.inline_size or (operand in self.repeatable and operand not in self.stored)
            ]
        return True

    def _find_inputs(self) -> None:
        """Fill in what each group reads from and writes to memory, readers before what they read; drop idle groups."""
        for group in reversed(self.grouping.groups):
            if group.call is not None:
                for prologue in group.prologues.values():
                    prologue.inputs = self._inputs(prologue)
                group.inputs = group.read_by_call
                group.outputs = tuple(dict.fromkeys(group.call.results))
                continue
            group.outputs = tuple(op.result for op in group.ops if op.result in self.stored)
            group.inputs = self._inputs(group)
        self.grouping.groups = [group for group in self.grouping.groups if group.outputs]

    def _inputs(self, group: Group) -> tuple[Value, ...]:
        """What ``group`` reads to make its outputs; has it stored."""
        found: dict[Value, None] = {}
        outputs = [value.op for value in reversed(group.outputs)]
        pending = [(operand, op) for op in outputs for operand in reversed(op.operands)]
        seen: set[Value] = set()
        while pending:
            value, reader = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            home = self.home.get(value)
            # An operator without a group may have been put into memory for a later reader: too late for this one.
            inline = value in self.grouping.inline_size and (home is None or home.order > group.order)
            if home is group or inline or (value in self.repeatable and value not in self.stored):
                pending.extend((operand, value.op) for operand in reversed(value.op.operands))
            else:
                found[value] = None
                if home is not None:
                    self.stored[value] = None
                    is_own = self.home.get(reader.result) in (group, None)
                    self.grouping.read[value, group.order] = (
                        Refusal("stored-anyway") if is_own else Refusal("reads-to-repeat", (reader.name,))
                    )
        return tuple(found)


def begins_with(view: MatrixView) -> bool:
    """Whether ``view`` shows the first rows and columns of a value, perhaps all, whose last axis is the columns; or
    their transpose.
    """
    return view.offset == 0 and view.source.shape[-1:] == (view.leading,) and view.leading > 1


def _cost(op: Op) -> int:
    return 5 if op.definition.is_expensive else 1
