"""From a fused graph to a plan: which steps run when, and where each value lies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from euler_ir.errors import LoweringError
from euler_ir.graph import Graph, Value
from euler_ir.loops.kernel import Kernel
from euler_ir.loops.lower import lower
from euler_ir.passes.attention_calls import AttentionCall
from euler_ir.passes.groups import FusedGraph, Group, is_in_memory
from euler_ir.passes.refusals import Refusal
from euler_ir.passes.views import MatrixView
from euler_ir.plan.decisions import Decisions, Overwrite, Place
from euler_ir.plan.epilogues import Unit, units
from euler_ir.plan.in_place import Accesses
from euler_ir.plan.memory import Lifetime, assign_offsets, lower_bound
from euler_ir.plan.naming import fault_of, kernel_name, origin_of
from euler_ir.plan.plan import (
    AttentionStep,
    CopyStep,
    Fault,
    KernelStep,
    MadeOperand,
    MatmulStep,
    Plan,
    PlannedBuffer,
    PlannedView,
    Step,
)
from euler_ir.plan.schedule import Task, dependencies, schedule


def build_plan(fused: FusedGraph) -> Plan:
    """The plan of ``fused``: groups lowered, ordered, and given memory."""
    return _Builder(fused).build()


class _Builder:
    def __init__(self, fused: FusedGraph) -> None:
        self.graph: Graph = fused.graph
        replaced: dict[Value, list[Value]] = {}
        for name, value in self.graph.updates.items():
            replaced.setdefault(value, []).append(self.graph.leaf(name))
        self.units, self.unfused = units(fused.groups, frozenset(self.graph.results()), replaced)
        self.groups = [unit.group for unit in self.units]
        self.lowered = [unit.lowered for unit in self.units]
        self.accesses = [None if lowered is None else Accesses(lowered.nest) for lowered in self.lowered]
        self.writer = {value: position for position, group in enumerate(self.groups) for value in group.outputs}
        self.buffers: list[PlannedBuffer] = []
        self.buffer_of: dict[Value, int] = {}
        self.constants: dict[int, np.ndarray] = {}
        self.first_copies: list[CopyStep] = []
        self.last_copies: list[CopyStep] = []
        self.faults: list[Fault] = []
        self.slots: list[Lifetime] = []
        self.slot_of: dict[int, int] = {}  # -1: in the arena, slot not chosen yet
        self.phase_of: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.readers: dict[int, list[int]] = {}
        self.overwrites: list[Overwrite] = []

    def build(self) -> Plan:
        self._place_leaves()
        self._place_changed()
        must_follow = self._place_updates()
        outputs = self._place_outputs()
        phases = self._schedule(must_follow)
        self._place_intermediates(phases)
        steps = [self.first_copies, *([self._step(step) for step in phase] for phase in phases), self.last_copies]
        offsets, arena = assign_offsets(self.slots)
        buffers = [
            replace(b, offset=offsets[self.slot_of[n]]) if n in self.slot_of else b
            for n, b in enumerate(self.buffers)
        ]
        return Plan(
            self.graph.name,
            tuple(buffers),
            tuple(tuple(phase) for phase in steps),
            outputs,
            self.constants,
            tuple(self.faults),
            arena,
            lower_bound(self.slots),
            Decisions(self.buffer_of, self.slot_of, self._places(phases), self.unfused, tuple(self.overwrites)),
        )

    def _places(self, phases: list[list[list[int]]]) -> dict[Group, Place]:
        """Where each group of the fused graph runs; the steps of the first phase are copies."""
        places: dict[Group, Place] = {}
        for number, step in enumerate((step for phase in phases for step in phase), start=len(self.first_copies)):
            for nest, unit in enumerate(self.units[position] for position in step):
                if unit.group.call is None:
                    places[unit.parts[0]] = Place(number, nest)
                    continue
                places[unit.parts[0]] = Place(number)
                for inside in unit.parts[1:]:
                    places[inside] = Place(number, inside=unit.parts[0].call.results[0])
        return places

    # -- places --------------------------------------------------------------------------------------------------------

    def _buffer(self, name: str, value: Value, place: str) -> int:
        self.buffers.append(PlannedBuffer(name, value.type, place, 0, 0, 0))
        return len(self.buffers) - 1

    def _place_leaves(self) -> None:
        for op in self.graph.ops:
            if op.definition.has_identity:
                self.buffer_of[op.result] = self._buffer(op.attributes["name"], op.result, op.name)
            elif is_in_memory(op):
                number = self._buffer(op.result.name, op.result, "constant")
                self.constants[number] = op.attributes["value"]
                self.buffer_of[op.result] = number

    def _place_changed(self) -> None:
        """Let a group that changes a computed value, which nothing else reads, write into its buffer."""
        for group in self.groups:
            if group.changed is not None and group.changed in self.writer:
                self.buffer_of[group.outputs[0]] = self._computed(group.changed)
                self.overwrites.append(Overwrite(group.outputs[0], group.changed, None))

    def _place_updates(self) -> dict[int, list[int]]:
        """Let updates be computed in the memory of what they replace where nothing reads the old value any more.

        Gives for each group the groups that it must follow because they read what it overwrites.
        """
        readers: dict[Value, list[int]] = {}
        for position, group in enumerate(self.groups):
            for value in group.inputs:
                readers.setdefault(value, []).append(position)
        must_follow: dict[int, list[int]] = {}
        for name, value in self.graph.updates.items():
            leaf = self.graph.leaf(name)
            if value is leaf:
                continue
            others = [reader for reader in readers.get(leaf, ()) if reader != self.writer.get(value)]
            refusal = self._update_hazard(leaf, value, others)
            self.overwrites.append(Overwrite(value, leaf, refusal, is_update=True))
            if refusal is None:
                self.buffer_of[value] = self.buffer_of[leaf]
                must_follow.setdefault(self.writer[value], []).extend(others)
            else:
                self._copy_at_end(value, self.buffer_of[leaf])
        self._expect_in_place()
        return must_follow

    def _expect_in_place(self) -> None:
        """Refuse an update of a slice whose operand stays as it was; the pass `legalize` makes it a choice instead."""
        for op in (group.ops[0] for group in self.groups if group.kind == "update"):
            if op.result not in self.buffer_of or self.buffer_of[op.result] != self.buffer_of.get(op.operands[0]):
                raise LoweringError(
                    f"{op.name} cannot write into its operand, which is read elsewhere", location=op.location
                )

    def _update_hazard(self, leaf: Value, value: Value, others: list[int]) -> Refusal | None:
        """Why ``value`` cannot be computed in the memory of ``leaf``, which the groups ``others`` read too."""
        if value not in self.writer:
            return Refusal("not-computed")
        if value in self.buffer_of:
            return Refusal("has-a-place", (self.buffers[self.buffer_of[value]].name,))
        group = self.writer[value]
        if leaf in self.groups[group].read_by_call:
            return Refusal("read-by-call", (self.groups[group].name,))
        # Following earlier groups alone can never close a circle.
        later = [reader for reader in others if reader > group]
        if later:
            return Refusal("read-later", (self.groups[later[0]].name,))
        lowered = self.lowered[group]
        if lowered is None:
            return None
        names = {argument: buffer.name for argument, buffer in zip(lowered.arguments, lowered.nest.parameters)}
        return self.accesses[group].hazard(names[leaf], names[value]) if leaf in names else None

    def _copy_at_end(self, value: Value, target: int) -> None:
        """Copy ``value`` to ``target`` when all else is done; a leaf by way of a copy made before all else."""
        if is_in_memory(value.op):
            saved = self._buffer(f"{value.name} before", value, "arena")
            self.slot_of[saved] = -1
            self.first_copies.append(CopyStep(self.buffer_of[value], saved))
            self.last_copies.append(CopyStep(saved, target))
        else:
            self.last_copies.append(CopyStep(self._computed(value), target))

    def _computed(self, value: Value) -> int:
        """The buffer of a computed value, in the arena unless it has another place."""
        if value not in self.buffer_of:
            self.buffer_of[value] = self._buffer(value.name, value, "arena")
            self.slot_of[self.buffer_of[value]] = -1
        return self.buffer_of[value]

    def _place_outputs(self) -> dict[str, int]:
        outputs = {}
        for name, value in self.graph.outputs.items():
            outputs[name] = self._buffer(name, value, "output")
            if is_in_memory(value.op):
                self.first_copies.append(CopyStep(self.buffer_of[value], outputs[name]))
            elif value in self.buffer_of:
                self.last_copies.append(CopyStep(self.buffer_of[value], outputs[name]))
            else:
                self.buffer_of[value] = outputs[name]
        return outputs

    # -- order ---------------------------------------------------------------------------------------------------------

    def _schedule(self, must_follow: dict[int, list[int]]) -> list[list[list[int]]]:
        # A value that is changed and what it becomes are one tensor: it lives from the first writer to the last reader.
        becomes = {group.outputs[0]: group.changed for group in self.groups if group.changed is not None}
        before = dependencies(
            [group.inputs for group in self.groups], [group.outputs for group in self.groups], must_follow
        )
        tasks = [
            Task(
                before=tuple(earlier),
                is_kernel=group.call is None,
                reads_computed=any(value in self.writer for value in group.inputs),
                reads=tuple(becomes.get(value, value) for value in group.inputs),
                writes=tuple(value for value in group.outputs if value not in becomes),
                overwrites=group.call is None or unit.running is not None,
            )
            for unit, group, earlier in zip(self.units, self.groups, before)
        ]
        free = {value for value in self.writer if self.slot_of.get(self.buffer_of.get(value, -1), -1) == -1}
        in_arena = {v: v.type.nbytes for v in free if v not in self.buffer_of or self.buffer_of[v] in self.slot_of}
        return schedule(tasks, in_arena)

    # -- memory --------------------------------------------------------------------------------------------------------

    def _place_intermediates(self, phases: list[list[list[int]]]) -> None:
        """Give each value that lies nowhere yet a slot in the arena for as long as it is read."""
        end = len(phases) + 1
        for number, phase in enumerate(phases, start=1):
            self.phase_of.update((group, number) for step in phase for group in step)
        for position, group in enumerate(self.groups):
            for value in group.outputs:
                self.last[self._computed(value)] = self.phase_of[position]
        for position, group in enumerate(self.groups):
            for value in group.inputs:
                number = self.buffer_of[value]
                self.readers.setdefault(number, []).append(position)
                self.last[number] = max(self.last.get(number, 0), self.phase_of[position])
        for step in self.last_copies:
            self.last[step.source] = end
        for step in self.first_copies:
            if self.slot_of.get(step.target) == -1:
                self._new_slot(step.target, 0, end)
        for phase in phases:
            for group in (group for step in phase for group in step):
                self._place_group(group)

    def _place_group(self, position: int) -> None:
        """Slots for what a group writes: that of an input that it reads last where the nest allows, or new ones."""
        taken: set[int] = set()
        for value in self.groups[position].outputs:
            number = self.buffer_of[value]
            if self.slot_of.get(number) != -1:
                continue
            now, last = self.phase_of[position], self.last[number]
            donor, refusal = self._donor(position, value, taken)
            self.overwrites.append(Overwrite(value, donor, refusal))
            if refusal is not None:
                self._new_slot(number, now, last)
                continue
            held_in = self.buffer_of[donor]
            taken.add(held_in)
            slot = self.slot_of[number] = self.slot_of[held_in]
            held = self.slots[slot]
            self.slots[slot] = Lifetime(held.nbytes, held.first, last)
            self._set_life(number, now, last)

    def _donor(self, position: int, value: Value, taken: set[int]) -> tuple[Value | None, Refusal | None]:
        """A value in the arena that this group alone reads last and that ``value`` may overwrite; or the value of its
        size that comes closest, if there is one, and what is in the way.
        """
        unit = self.units[position]
        if unit.running is not None:
            return unit.running, None
        if unit.lowered is None or value is unit.host:
            return None, Refusal("call-writes-new", (unit.group.name,))
        parameters = dict(zip(unit.lowered.arguments, unit.lowered.nest.parameters))
        closest: tuple[Value | None, Refusal] = None, Refusal("other-size")
        for source in unit.group.inputs:
            if (source.type.nbytes, source.dtype.itemsize) != (value.type.nbytes, value.dtype.itemsize):
                continue
            refusal = self._donor_hazard(position, source, taken)
            if refusal is None:
                refusal = self.accesses[position].hazard(parameters[source].name, parameters[value].name)
            if refusal is None:
                return source, None
            closest = source, refusal
        return closest

    def _donor_hazard(self, position: int, source: Value, taken: set[int]) -> Refusal | None:
        """Why the memory of ``source`` is not free for another value while its group ``position`` runs."""
        number, now = self.buffer_of[source], self.phase_of[position]
        if number not in self.slot_of:
            buffer = self.buffers[number]
            return Refusal("not-in-arena", (f"{buffer.place} {buffer.name}",))
        if source in self.units[position].group.read_by_call:
            return Refusal("read-by-call", (self.groups[position].name,))
        if number in taken:
            return Refusal("taken")
        if self.last[number] != now:
            readers = [reader for reader in self.readers[number] if self.phase_of[reader] > now]
            reader = self.groups[readers[0]].name if readers else "a copy at the end"
            return Refusal("read-later", (reader,))
        beside = [r for r in self.readers[number] if r != position and self.phase_of[r] == now]
        return Refusal("read-beside", (self.groups[beside[0]].name,)) if beside else None

    def _new_slot(self, number: int, first: int, last: int) -> None:
        self.slot_of[number] = len(self.slots)
        self.slots.append(Lifetime(self.buffers[number].type.nbytes, first, last))
        self._set_life(number, first, last)

    def _set_life(self, number: int, first: int, last: int) -> None:
        self.buffers[number] = replace(self.buffers[number], first=first, last=last)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _step(self, groups: list[int]) -> Step:
        first = self.units[groups[0]]
        if isinstance(first.group.call, AttentionCall):
            return self._attention(first.group)
        if first.group.call is not None:
            return self._matmul(first, groups)
        return self._kernel(groups)

    def _kernel(self, groups: list[int]) -> KernelStep:
        nests, arguments, faults, shared = [], [], [], []
        for unit in (self.units[position] for position in groups):
            numbers = tuple(
                self.buffer_of[unit.host if value is unit.product else value] for value in unit.lowered.arguments
            )
            nests.append(unit.lowered.nest)
            arguments.append(numbers)
            faults.append(len(self.faults))
            self.faults += [fault_of(op) for op in unit.lowered.faults]
            shared.append(self._shared(numbers))
        nested = [self.units[position].nested for position in groups]
        kernel, origins = Kernel(kernel_name(nested), tuple(nests)), tuple(map(origin_of, nested))
        return KernelStep(kernel, tuple(arguments), tuple(faults), tuple(shared), origins)

    def _shared(self, numbers: tuple[int, ...]) -> frozenset[int]:
        """Positions of arguments that lie in the same memory as another argument of the nest."""
        places = [("slot", self.slot_of[n]) if n in self.slot_of else ("buffer", n) for n in numbers]
        return frozenset(p for p, place in enumerate(places) if places.count(place) > 1)

    def _matmul(self, unit: Unit, groups: list[int]) -> MatmulStep:
        call = unit.group.call
        left, right = (self._operand(unit.group, view) for view in (call.left, call.right))
        result = self._view(call.result_view, unit.host if unit.host is not None else call.result_view.source)
        epilogue = self._kernel(groups) if unit.lowered is not None else None
        running = None if unit.running is None else self.buffer_of[unit.running]
        sizes = call.dtype, call.batch, call.rows, call.columns, call.inner
        return MatmulStep(*sizes, left, right, result, (origin_of(unit.group),), epilogue, running)

    def _attention(self, group: Group) -> AttentionStep:
        call = group.call
        operands, results = (
            tuple(self._view(view, view.source) for view in views) for views in (call.operands, call.result_views)
        )
        sizes = call.batch, call.group, call.queries, call.keys, call.width, call.value_width
        return AttentionStep(
            call.operator, call.dtype, call.causal, call.scale, *sizes, operands, results, (origin_of(group),)
        )

    def _operand(self, group: Group, view: MatrixView) -> PlannedView | MadeOperand:
        if view.source not in group.prologues:
            return self._view(view, view.source)
        lowered = lower(group.prologues[view.source], columns=view.leading)
        arguments = tuple(self.buffer_of[value] for value in lowered.arguments[:-1])
        return MadeOperand(lowered.nest, arguments, view.leading, view.transposed)

    def _view(self, view: MatrixView, value: Value) -> PlannedView:
        """``view`` in the buffer of ``value``."""
        number = self.buffer_of[value]
        return PlannedView(number, view.offset, view.batch_strides, view.leading, view.transposed)
