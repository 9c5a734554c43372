"""Lowering: a fused group becomes a loop nest.

The outputs are pulled: to make an element of a value at some indices, its operands are made at theirs, down to loads
from the group's inputs. What does not depend on a loop's axes is made outside of it, once. Reductions are computed in
phases, each a loop over the reduced axes: a value belongs to the first phase after all reductions that it depends on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from euler_ir.dtypes import DType, bool_, i64
from euler_ir.errors import LoweringError
from euler_ir.graph import Op, Value
from euler_ir.index import Axis, Bound, Condition, Dynamic, Index, Indices, linearize
from euler_ir.loops.kernel import (
    Buffer,
    Carry,
    CheckIndex,
    Compute,
    Constant,
    IndexValue,
    Load,
    Loop,
    Nest,
    Reduction,
    Statement,
    Store,
)
from euler_ir.loops.merge_axes import merge_axes
from euler_ir.ops.indexing import starts_of
from euler_ir.passes.groups import Group, frame_axes

MAX_LOCAL_BYTES = 32768
"""Largest row of intermediate values that a nest keeps for a later phase instead of computing it again."""


@dataclass(frozen=True)
class LoweredGroup:
    """A nest, the value that each of its parameters holds, and the operators behind fault numbers 1, 2, ..."""

    nest: Nest
    arguments: tuple[Value, ...]
    faults: tuple[Op, ...]


def lower(group: Group, columns: int | None = None) -> LoweredGroup:
    """The loop nest of ``group``, with its last ``columns`` points apart (see `merge_axes`).

    Raises LoweringError for an operator that has no scalar form.
    """
    lowering = _Lowering(group)
    match group.kind:
        case "pointwise":
            nest = lowering.pointwise()
        case "reduction":
            nest = lowering.reduction()
        case "scatter":
            nest = lowering.scatter()
        case "update":
            nest = lowering.update()
        case "scan":
            nest = lowering.scan()
        case _:
            raise LoweringError(f"a {group.kind} group is no loop nest")
    return LoweredGroup(merge_axes(nest, columns), (*lowering.inputs, *group.outputs), tuple(lowering.faults))


@dataclass(eq=False)
class _Scope:
    """Statements of one loop body, the scalars already made in it, and the names of its checked indices."""

    axes: frozenset[Axis]
    statements: list[Statement] = field(default_factory=list)
    made: dict = field(default_factory=dict)
    checked: set[str] = field(default_factory=set)


class _Lowering:
    def __init__(self, group: Group) -> None:
        self.group = group
        # What an update writes into is read and written as its output.
        self.inputs = tuple(value for value in group.inputs if value is not group.changed)
        self.buffers = {value: f"b{position}" for position, value in enumerate((*self.inputs, *group.outputs))}
        self.scopes = [_Scope(frozenset())]
        self.faults: list[Op] = []
        self.names = 0
        self.in_memory: set[Value] = set(self.inputs)
        self.locals: dict[Value, Buffer] = {}
        self.phases: dict[Value, int] = {}

    # -- nests ---------------------------------------------------------------------------------------------------------

    def pointwise(self) -> Nest:
        """Every output at every point of the frame."""
        for value in self.group.outputs:
            self._store(value, self.group.roots[value])
        axes = self._frame_axes()
        return self._nest(axes, vector=bool(axes))

    def reduction(self) -> Nest:
        """Rows of the frame in parallel, and inside of each a loop a phase over the reduced axes."""
        reduced = self.group.reduced
        axes = self._frame_axes()
        rows = tuple(axis for position, axis in enumerate(axes) if position not in reduced)
        columns = tuple(axis for position, axis in enumerate(axes) if position in reduced)
        in_rows = [axis in rows for axis in axes if axis.extent != 1][-1:] != [False]
        needed = self._needed()
        reductions = [op for op in needed if op.definition.family == "reduction"]
        full = [value for value in self.group.outputs if self._is_full(value, columns)]
        last = max((self.phases[value] for value in (*full, *(op.result for op in reductions))), default=0)
        self._plan_locals(needed, columns)
        for phase in range(last + 1):
            ready = [op for op in reductions if self.phases[op.result] == phase + 1]
            stored = [value for value in full if self.phases[value] == phase]
            if ready or stored:
                self._phase(columns, ready, stored, phase, vector=not in_rows)
        for value in self.group.outputs:
            if value not in full:
                self._store(value, self.group.roots[value])
        return self._nest(rows, vector=in_rows and bool(rows))

    def scatter(self) -> Nest:
        """The updates one after the other, for each element beside the scattered axis in parallel; zeros before them
        unless they are added to what is there.
        """
        (op,) = self.group.ops
        indices, updates = op.operands[-2:]
        axis = op.attributes["axis"]
        size = op.result.shape[axis]
        count = len(indices.shape)
        axes = frame_axes(updates.shape)
        before, after = axes[:axis], axes[axis + count :]
        picked = axes[axis : axis + count] or (Axis("once", 1),)
        if self.group.changed is None:
            target = Axis("target", size)
            self._enter((target,))
            zero = self._emit(Constant, op.result.dtype, False if op.result.dtype == bool_ else 0)
            at = self._indices((*before, target, *after))
            self._statement(Store(self.buffers[op.result], linearize(at, op.result.shape), zero))
            self._leave((target,))

        self._enter(picked)
        chosen = self._pull(indices, self._indices(axes[axis : axis + count]), ())
        place = self._check(op, chosen, indices.dtype, size, ())
        at = (*self._indices(before), Index.of(place), *self._indices(after))
        update = self._pull(updates, self._indices(axes), ())
        self._statement(Store(self.buffers[op.result], linearize(at, op.result.shape), update, accumulate=True))
        self._leave(picked)
        rows = (*before, *after)
        return self._nest(rows, vector=bool(rows))

    def update(self) -> Nest:
        """The elements of the update, in any order, each put into its place."""
        (op,) = self.group.ops
        _, update, start = op.operands
        axis = op.attributes["axis"]
        axes = self._frame_axes()
        at = self._indices(axes)
        first = self._check(op, self._pull(start, at[: len(start.shape)], ()), start.dtype, starts_of(op), ())
        value = self._pull(update, at, ())
        at = (*at[:axis], at[axis] + Index.of(first), *at[axis + 1 :])
        self._statement(Store(self.buffers[op.result], linearize(at, op.result.shape), value))
        return self._nest(axes, vector=bool(axes))

    def scan(self) -> Nest:
        """A loop along the scanned axis that carries the running sum; lanes lie across it unless it is the last one."""
        (op,) = self.group.ops
        axes = self._frame_axes()
        position = op.attributes["axis"]
        along = axes[position]
        place = Index.of(along)
        if op.attributes["reverse"]:
            place = place * -1 + (along.extent - 1)
        at = tuple(place if i == position else Index.of(axis) for i, axis in enumerate(axes))
        dtype = op.result.dtype
        self._enter((along,))
        running = self._name()
        element = self._pull(op.operands[0], at, ())
        total = self._emit(Compute, dtype, "add", (running, element))
        self._statement(Store(self.buffers[op.result], linearize(at, op.result.shape), total))
        self._leave((along,), carries=(Carry(running, dtype, 0, total),))
        rows = tuple(axis for axis in axes if axis is not along)
        is_last = [axis for axis in axes if axis.extent != 1][-1:] == [along]
        return self._nest(rows, vector=bool(rows) and not is_last)

    def _nest(self, axes: tuple[Axis, ...], vector: bool) -> Nest:
        (top,) = self.scopes
        written = "output" if self.group.changed is None else "inout"
        inputs = tuple(Buffer(self.buffers[v], v.dtype, v.size, "input") for v in self.inputs)
        outputs = tuple(Buffer(self.buffers[v], v.dtype, v.size, written) for v in self.group.outputs)
        return Nest((*inputs, *outputs), axes, tuple(top.statements), vector, tuple(self.locals.values()))

    def _frame_axes(self) -> tuple[Axis, ...]:
        return frame_axes(self.group.frame)

    # -- phases of a reduction -----------------------------------------------------------------------------------------

    def _needed(self) -> list[Op]:
        """The group's operators that its outputs need, in order, with ``phases`` filled in for all that they read."""
        needed: dict[Op, None] = {}
        pending = [(value, False) for value in reversed(self.group.outputs)]
        while pending:
            value, ready = pending.pop()
            if value in self.in_memory:
                self.phases[value] = 0
            elif ready:
                phase = max((self.phases[operand] for operand in value.op.operands), default=0)
                self.phases[value] = phase + (value.op.definition.family == "reduction")
                needed[value.op] = None
            elif value not in self.phases:
                pending.append((value, True))
                pending.extend((operand, False) for operand in reversed(value.op.operands))
        return list(needed)

    def _is_full(self, value: Value, columns: tuple[Axis, ...]) -> bool:
        """Whether ``value`` is made once for each point of the frame, not once a row."""
        return any(axis in columns for index in self.group.roots[value] for axis in index.axes())

    def _plan_locals(self, needed: list[Op], columns: tuple[Axis, ...]) -> None:
        """Give a row of scratch memory to expensive values that several phases read."""
        phases_reading: dict[Value, set[int]] = {}
        for op in reversed(needed):
            value = op.result
            if op.definition.family == "reduction":
                phases_reading[value] = {self.phases[value] - 1}
            elif value in self.group.outputs:
                phases_reading[value] = {self.phases[value]}
            at = phases_reading.setdefault(value, set())
            for operand in op.operands:
                phases_reading.setdefault(operand, set()).update(at)
        length = 1
        for axis in columns:
            length *= axis.extent
        for op in needed:
            value = op.result
            keeps = op.definition.is_expensive and value in self.group.roots and self._is_full(value, columns)
            if keeps and len(phases_reading[value]) > 1 and value not in self.group.outputs:
                if length * value.dtype.itemsize <= MAX_LOCAL_BYTES:
                    self.locals[value] = Buffer(f"row{len(self.locals)}", value.dtype, length, "local")

    def _phase(self, columns, ready: list[Op], stored: list[Value], phase: int, vector: bool) -> None:
        """One loop over the reduced axes: the reductions ``ready``, and the outputs ``stored``."""
        self._enter(columns)
        reductions = []
        for op in ready:
            operand = op.operands[0]
            contribution = self._pull(operand, self._operand_root(op), ())
            reductions.append((op, Reduction(self._name(), operand.dtype, op.name, contribution)))
        for value in stored:
            self._store(value, self.group.roots[value])
        for value, local in self.locals.items():
            if value not in self.in_memory and (value, self.group.roots[value], ()) in self.scopes[-1].made:
                name = self.scopes[-1].made[value, self.group.roots[value], ()]
                self._statement(Store(local.name, self._row_position(columns), name))
                self.in_memory.add(value)
        self._leave(columns, vector=vector, reductions=tuple(reduction for _, reduction in reductions))
        self.in_memory.update(stored)
        for op, reduction in reductions:
            self.scopes[0].made[op.result, self.group.roots[op.result], ()] = reduction.result

    def _operand_root(self, op: Op) -> Indices:
        """The indices at which a reduction reads its operand: the frame's, in the operand's own shape."""
        axes = iter([axis for axis in self._frame_axes() if axis.extent != 1])
        return tuple(Index() if size == 1 else Index.of(next(axes)) for size in op.operands[0].shape)

    def _row_position(self, columns: tuple[Axis, ...]) -> Index:
        return linearize(self._indices(columns), tuple(axis.extent for axis in columns))

    # -- pulling values ------------------------------------------------------------------------------------------------

    def _pull(self, value: Value, indices: Indices, conditions: tuple[Condition, ...]) -> str:
        """The scalar that holds the element of ``value`` at ``indices``, made in the outermost scope that can.

        Depth is bounded: ``fuse`` puts at most ``max_ops`` in a group, ``max_inline_size`` more before one.
        """
        if value.op.definition.family == "reduction" and value not in self.in_memory:
            conditions = ()  # it has been made for the whole row already
        scope = self._scope_of(indices, conditions)
        for outer in self.scopes:
            if (value, indices, conditions) in outer.made:
                return outer.made[value, indices, conditions]
            if outer is scope:
                break
        depth = self.scopes.index(scope)
        inner, self.scopes = self.scopes[depth + 1 :], self.scopes[: depth + 1]
        name = self._make(value, indices, conditions)
        self.scopes = self.scopes + inner
        scope.made[value, indices, conditions] = name
        return name

    def _make(self, value: Value, indices: Indices, conditions: tuple[Condition, ...]) -> str:
        op = value.op
        if value in self.in_memory:
            return self._load(value, indices, conditions)
        match op.definition.family:
            case "elementwise":
                operands = tuple(self._pull(operand, indices, conditions) for operand in op.operands)
                if op.name == "stop_gradient":
                    return operands[0]
                return self._emit(Compute, value.dtype, op.name, operands)
            case "movement":
                return self._select(op, indices, conditions)
            case "random":
                words = tuple(self._pull(operand, (), conditions) for operand in op.operands)
                element = self._emit(IndexValue, i64, linearize(indices, value.shape))
                return self._emit(Compute, value.dtype, "philox", (*words, element), stream=op.attributes["stream"])
        match op.name:
            case "constant" if value.size == 1:
                return self._emit(Constant, value.dtype, op.attributes["value"].item())
            case "iota":
                return self._emit(IndexValue, value.dtype, indices[op.attributes["axis"]])
            case "take":
                return self._take(op, indices, conditions)
        raise LoweringError(f"{op.name} has no scalar form", location=op.location)

    def _load(self, value: Value, indices: Indices, conditions: tuple[Condition, ...]) -> str:
        if value in self.locals:
            columns = tuple(a for p, a in enumerate(self._frame_axes()) if p in self.group.reduced)
            return self._emit(Load, value.dtype, self.locals[value].name, self._row_position(columns))
        return self._emit(Load, value.dtype, self.buffers[value], linearize(indices, value.shape), conditions)

    def _select(self, op: Op, indices: Indices, conditions: tuple[Condition, ...]) -> str:
        """The first source of a movement whose conditions hold."""
        *guarded, last = op.definition.index_map(op, indices)
        result = self._pull(op.operands[last.operand], last.indices, conditions + last.conditions)
        for source in reversed(guarded):
            chosen = self._pull(op.operands[source.operand], source.indices, conditions + source.conditions)
            holds = self._holds(source.conditions)
            result = self._emit(Compute, op.result.dtype, "where", (holds, chosen, result)) if holds else chosen
        return result

    def _take(self, op: Op, indices: Indices, conditions: tuple[Condition, ...]) -> str:
        source, picks = op.operands
        axis, count = op.attributes["axis"], len(picks.shape)
        chosen = self._pull(picks, indices[axis : axis + count], conditions)
        place = self._check(op, chosen, picks.dtype, source.shape[axis], conditions)
        return self._pull(source, (*indices[:axis], Index.of(place), *indices[axis + count :]), conditions)

    def _check(self, op: Op, chosen: str, dtype: DType, extent: int, conditions: tuple[Condition, ...]) -> Dynamic:
        """A checked index out of the integer scalar ``chosen``."""
        if dtype != i64:
            chosen = self._emit(Compute, i64, "cast", (chosen,))
        if op not in self.faults:
            self.faults.append(op)
        result = self._name()
        self._statement(CheckIndex(result, chosen, extent, 1 + self.faults.index(op), conditions))
        self.scopes[-1].checked.add(result)
        return Dynamic(result, extent)

    def _holds(self, conditions: tuple[Condition, ...]) -> str | None:
        """A bool scalar that is true when all ``conditions`` hold; None when there are none."""
        result = None
        for condition in conditions:
            for part in self._tests(condition):
                result = part if result is None else self._emit(Compute, bool_, "logical_and", (result, part))
        return result

    def _tests(self, condition: Condition) -> list[str]:
        if isinstance(condition, Bound):
            place = self._emit(IndexValue, i64, condition.index)
            low, high = (self._emit(Constant, i64, bound) for bound in (condition.low, condition.high))
            return [
                self._emit(Compute, bool_, "less_equal", (low, place)),
                self._emit(Compute, bool_, "less", (place, high)),
            ]
        place = self._emit(IndexValue, i64, condition.index % condition.divisor)
        return [self._emit(Compute, bool_, "equal", (place, self._emit(Constant, i64, 0)))]

    # -- scopes and statements -----------------------------------------------------------------------------------------

    def _scope_of(self, indices: Indices, conditions: tuple[Condition, ...]) -> _Scope:
        """The outermost scope in which all that ``indices`` and ``conditions`` mention is known."""
        mentioned = [*indices, *(condition.index for condition in conditions)]
        axes = {axis for index in mentioned for axis in index.axes()}
        dynamics = {dynamic.name for index in mentioned for dynamic in index.dynamics()}
        for depth in range(len(self.scopes) - 1, 0, -1):
            scope = self.scopes[depth]
            if axes & scope.axes or dynamics & scope.checked:
                return scope
        return self.scopes[0]

    def _enter(self, axes: tuple[Axis, ...]) -> None:
        self.scopes.append(_Scope(frozenset(axes)))

    def _leave(self, axes, vector: bool = False, reductions=(), carries=()) -> None:
        scope = self.scopes.pop()
        self._statement(Loop(tuple(axes), tuple(scope.statements), vector and bool(axes), reductions, carries))

    def _store(self, value: Value, indices: Indices) -> None:
        name = self._pull(value, indices, ())
        self._statement(Store(self.buffers[value], linearize(indices, value.shape), name))

    def _emit(self, kind, dtype: DType, *rest, **more) -> str:
        name = self._name()
        self._statement(kind(name, dtype, *rest, **more))
        return name

    def _statement(self, statement: Statement) -> None:
        self.scopes[-1].statements.append(statement)

    def _name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    @staticmethod
    def _indices(axes: tuple[Axis, ...]) -> Indices:
        return tuple(Index.of(axis) for axis in axes)
