"""What touches an element in a step: the accesses of the plan's loop nests and calls, solved for the element.

Threads and lanes are asked of the machine that the work is cut for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from euler_ir.compiler import Stages
from euler_ir.errors import Location
from euler_ir.graph import Graph, Op
from euler_ir.index import Axis, Bound, Condition, Dynamic, Index
from euler_ir.inspect.element import Element
from euler_ir.inspect.find import location_record
from euler_ir.loops.kernel import Load, Loop, Nest, Statement, Store
from euler_ir.loops.solve import Solutions, Variable, solve
from euler_ir.ops import OPS
from euler_ir.passes.groups import Group
from euler_ir.plan.plan import AttentionStep, CopyStep, KernelStep, MadeOperand, MatmulStep, PlannedView, Step
from euler_ir.plan.work import work_of

SAMPLE = 4
"""Points of an access that are listed."""
LOOKED_AT = 256
"""Points of an access whose threads are looked at; all, where there are no more."""

Steps = Callable[[dict], tuple[set[int], dict]]
"""Of a point: the worker threads that come to it, and what else there is to say about it."""


class Machine(Protocol):
    """What the work of a plan is cut for, by ``threads`` workers: says of each part of a step who does which point."""

    threads: int

    def in_kernel(self, step: KernelStep, nest: int) -> Steps:
        """Of points of nest number ``nest`` and of loops in it."""

    def in_product(self, step: MatmulStep, side: str) -> Steps:
        """Of elements of the 'left' or 'right' operand or of the 'result': points of row, column, inner and b0, b1."""

    def in_epilogue(self, step: MatmulStep) -> Steps:
        """Of points of the nest after a product."""

    def in_attention(self, step: AttentionStep, rows: Axis, is_key: bool) -> Steps:
        """Of elements of a matrix whose ``rows`` are keys or queries."""

    def in_copy(self, step: CopyStep, byte: int) -> Steps:
        """Of the element that has ``byte``."""


@dataclass(frozen=True)
class Touch:
    """Loads or stores of the element by one statement of a nest, or by one call.

    ``half`` is 'forward', 'backward', both or 'update', or 'copy'. ``access`` says what is done ('read', 'written' or
    'added to'), ``role`` by what part of the step, and ``code`` is the access as it stands in the loops. It happens at
    ``count`` points of ``axes`` (at least as many unless ``complete``), all within ``spans``; ``points`` are some of
    them, each with the details of the machine. ``threads`` are all that come to the points looked at. ``by_data`` names
    indices that are read from memory: the element is touched where they have the value that a point says.
    """

    phase: int
    step: int
    half: str
    kind: str
    name: str
    role: str
    access: str
    code: str
    scope: str
    locations: tuple[Location, ...]
    axes: tuple[tuple[str, int], ...]
    count: int
    complete: bool
    spans: dict[str, tuple[int, int]]
    points: tuple[dict, ...]
    threads: tuple[int, ...]
    by_data: tuple[str, ...] = ()

    def record(self) -> dict:
        return {
            "phase": self.phase,
            "step": self.step,
            "half": self.half,
            "kind": self.kind,
            "name": self.name,
            "role": self.role,
            "access": self.access,
            "code": self.code,
            "scope": self.scope,
            "locations": [location_record(location) for location in self.locations],
            "axes": {name: extent for name, extent in self.axes},
            "points": self.count,
            "complete": self.complete,
            "spans": {name: list(span) for name, span in self.spans.items()},
            "sample": list(self.points),
            "threads": list(self.threads),
            "by_data": list(self.by_data),
        }


class Trace:
    """Finds the touches of ``element`` in the plan of ``stages``, whose work is cut for ``machine``."""

    def __init__(self, stages: Stages, element: Element, machine: Machine) -> None:
        self.plan, self.element, self.machine = stages.plan, element, machine
        self.kept = {n for n, buffer in enumerate(self.plan.buffers) if buffer.place in ("parameter", "state")}
        self.groups: dict[tuple[int, int | None], list[Group]] = {}
        for group, place in self.plan.decisions.places.items():
            self.groups.setdefault((place.step, place.nest), []).append(group)
        self.backward = _backward(stages.optimized)

    def touches(self) -> Iterator[Touch]:
        position = 0
        for phase, steps in enumerate(self.plan.phases):
            for step in steps:
                if self.element.buffer in (*step.reads(), *step.writes()):
                    yield from self._step(phase, position, step)
                position += 1

    def _step(self, phase: int, position: int, step: Step) -> Iterator[Touch]:
        if isinstance(step, KernelStep):
            for number, (nest, arguments) in enumerate(zip(step.kernel.nests, step.arguments)):
                role = f"nest {number} of " if len(step.kernel.nests) > 1 else ""
                role += f"kernel @{step.kernel.name}"
                common = self._common(phase, position, step, self.groups[position, number], number)
                yield from self._nest(common, role, nest, arguments, self.machine.in_kernel(step, number))
        elif isinstance(step, MatmulStep):
            groups = self.groups[position, None]
            call = self._common(phase, position, step, [group for group in groups if group.call is not None])
            yield from self._product(call, step)
            after = self._common(phase, position, step, [group for group in groups if group.call is None])
            yield from self._result(call, after, step)
        elif isinstance(step, AttentionStep):
            yield from self._attention(self._common(phase, position, step, self.groups[position, None]), step)
        else:
            yield from self._copy(phase, position, step)

    def _common(self, phase: int, position: int, step: Step, groups: list[Group], nest: int = 0) -> dict:
        """What is said of every access of ``groups``, which run as a nest of a kernel or as a part of another step."""
        ops = [op for group in groups for op in group.ops]
        locations = dict.fromkeys(op.location for op in ops if op.location is not None)
        return {
            "phase": phase,
            "step": position,
            "half": self._half(groups, ops),
            "name": work_of(self.plan, step, nest).name,
            "scope": ops[-1].scope if ops else "",
            "locations": tuple(locations),
        }

    def _half(self, groups: list[Group], ops: list[Op]) -> str:
        buffers = self.plan.decisions.buffers
        if any(buffers.get(value) in self.kept for group in groups for value in group.outputs):
            return "update"
        halves = dict.fromkeys("backward" if op in self.backward else "forward" for op in ops)
        return " and ".join(sorted(halves, reverse=True))

    # -- loop nests ----------------------------------------------------------------------------------------------------

    def _nest(
        self, common: dict, role: str, nest: Nest, arguments, steps: Steps, guards: tuple[Condition, ...] = ()
    ) -> Iterator[Touch]:
        for parameter, number in zip(nest.parameters, arguments):
            if number != self.element.buffer:
                continue
            for statement, axes in accesses(nest, parameter.name):
                conditions = (*guards, *(statement.conditions if isinstance(statement, Load) else ()))
                mentioned = [statement.index, *(condition.index for condition in conditions)]
                read = tuple(dict.fromkeys(dynamic for index in mentioned for dynamic in index.dynamics()))
                solutions = solve(statement.index, self.element.flat, (*axes, *read), conditions)
                if isinstance(statement, Load):
                    access, code = "read", f"load %{parameter.name}[{statement.index}]"
                else:
                    access = "added to" if statement.accumulate else "written"
                    code = f"{'add to' if statement.accumulate else 'store'} %{parameter.name}[{statement.index}]"
                data = tuple(f"%{dynamic.name}" for dynamic in read)
                yield from self._touch(common, "loops", role, access, code, solutions, steps, data)

    def _touch(
        self, common: dict, kind: str, role: str, access: str, code: str, solutions: Solutions, steps: Steps, data=()
    ) -> Iterator[Touch]:
        if not solutions.count:
            return
        threads: set[int] = set()
        points = []
        looked_at = solutions.spread(LOOKED_AT)
        listed = {number * (len(looked_at) - 1) // max(SAMPLE - 1, 1) for number in range(SAMPLE)}
        for number, point in enumerate(looked_at):
            own, details = steps(point)
            threads |= own
            if number in listed:
                at = {said(axis): position for axis, position in point.items()}
                points.append({"at": at, "threads": sorted(own), **details})
        yield Touch(
            **common,
            kind=kind,
            role=role,
            access=access,
            code=code,
            axes=tuple((said(axis), axis.extent) for axis in solutions.axes),
            count=solutions.count,
            complete=solutions.complete,
            spans={said(axis): span for axis, span in solutions.spans().items()},
            points=tuple(points),
            threads=tuple(sorted(threads)),
            by_data=data,
        )

    # -- products ------------------------------------------------------------------------------------------------------

    def _product(self, common: dict, step: MatmulStep) -> Iterator[Touch]:
        rows, columns, inner = Axis("row", step.rows), Axis("column", step.columns), Axis("inner", step.inner)
        for side, operand, matrix in (("left", step.left, (rows, inner)), ("right", step.right, (inner, columns))):
            if isinstance(operand, MadeOperand):
                yield from self._made(common, step, side, operand, matrix)
                continue
            rest = step.columns if side == "left" else step.rows
            more = f"for all {rest} {'columns' if side == 'left' else 'rows'}"
            steps = self.machine.in_product(step, side)
            role = f"{side} operand, {more}"
            yield from self._view(common, "matmul", role, "read", operand, step.batch, matrix, steps)

    def _result(self, call: dict, after: dict, step: MatmulStep) -> Iterator[Touch]:
        """What the product writes, or instead of it the epilogue, which reads more too."""
        if step.epilogue is None:
            matrix, access = (Axis("row", step.rows), Axis("column", step.columns)), "written"
            if step.running is not None:
                access = "added to"
            steps = self.machine.in_product(step, "result")
            yield from self._view(call, "matmul", "result", access, step.result, step.batch, matrix, steps)
            return
        (nest,), (arguments,) = step.epilogue.kernel.nests, step.epilogue.arguments
        role = f"epilogue @{step.epilogue.kernel.name}"
        yield from self._nest(after, role, nest, arguments, self.machine.in_epilogue(step))

    def _made(self, common: dict, step: MatmulStep, side: str, operand: MadeOperand, matrix) -> Iterator[Touch]:
        """What the prologue of an operand reads: for the rows and columns that the product takes of it."""
        (store,) = (statement for statement in operand.nest.body if isinstance(statement, Store))
        lines, across = (matrix[1], matrix[0]) if operand.transposed else matrix
        guards = (
            Bound(store.index // operand.leading, 0, lines.extent),
            Bound(store.index % operand.leading, 0, across.extent),
        )
        in_product = self.machine.in_product(step, side)

        def steps(point: dict) -> tuple[set[int], dict]:
            position = int(store.index.evaluate(point))
            return in_product({lines: position // operand.leading, across: position % operand.leading})

        role = f"prologue of the {side} operand"
        yield from self._nest(common, role, operand.nest, operand.arguments, steps, guards)

    def _view(self, common, kind, role, access, view: PlannedView, batch, matrix, steps: Steps) -> Iterator[Touch]:
        """The points of a matrix, for each of a batch, at which it shows the element."""
        if view.buffer != self.element.buffer:
            return
        axes = (*(Axis(f"b{number}", extent) for number, extent in enumerate(batch)), *matrix)
        line, across = reversed(matrix) if view.transposed else matrix
        index = Index.of(view.offset) + Index.of(line) * view.leading + Index.of(across)
        for axis, stride in zip(axes, view.batch_strides):
            index = index + Index.of(axis) * stride
        solutions = solve(index, self.element.flat, axes)
        yield from self._touch(common, kind, role, access, f"[{index}]", solutions, steps)

    # -- attention and copies ------------------------------------------------------------------------------------------

    def _attention(self, common: dict, step: AttentionStep) -> Iterator[Touch]:
        backward = step.operator == "attention_gradient"
        operands = OPS[step.operator].operand_names
        results = ("d_query", "d_key", "d_value") if backward else ("output", "logsumexp")
        given, made = step.extents()
        sides = (operands, step.operands, given, "read"), (results, step.results, made, "written")
        for names, views, extents, access in sides:
            for name, view, (rows, columns) in zip(names, views, extents):
                is_key = name.removeprefix("d_") in ("key", "value")
                matrix = (Axis("key" if is_key else "query", rows), Axis("column", columns))
                steps = self.machine.in_attention(step, matrix[0], is_key)
                yield from self._view(common, "attention", name, access, view, step.batch, matrix, steps)

    def _copy(self, phase: int, position: int, step: CopyStep) -> Iterator[Touch]:
        names = [self.plan.buffers[number].name for number in (step.source, step.target)]
        common = {"phase": phase, "step": position, "half": "copy", "scope": "", "locations": ()}
        at = Axis("element", math.prod(self.plan.buffers[step.source].type.shape))
        index = Index.of(at)
        for buffer, access in ((step.source, "read"), (step.target, "written")):
            if buffer == self.element.buffer:
                solutions = solve(index, self.element.flat, (at,))
                named = common | {"name": f"copy {names[0]} to {names[1]}"}
                steps = self.machine.in_copy(step, self.element.byte)
                yield from self._touch(named, "copy", "copy", access, f"[{index}]", solutions, steps)


def accesses(nest: Nest, buffer: str) -> Iterator[tuple[Load | Store, tuple[Axis, ...]]]:
    """The loads and stores of a parameter of ``nest``, with the axes in scope: those of the nest and of loops."""

    def of(body: tuple[Statement, ...], axes: tuple[Axis, ...]):
        for statement in body:
            if isinstance(statement, Loop):
                yield from of(statement.body, (*axes, *statement.axes))
            elif isinstance(statement, (Load, Store)) and statement.buffer == buffer:
                yield statement, axes

    yield from of(nest.body, nest.axes)


def _backward(graph: Graph) -> set[Op]:
    """The operators that the gradient made, and what is computed of them."""
    found: set[Op] = set()
    for op in graph.ops:
        if "gradient" in op.via or any(operand.op in found for operand in op.operands):
            found.add(op)
    return found


def items_of(batch: tuple[int, ...], at: dict[str, int]) -> list[int]:
    """The item of the batch that a point is of, counted row-major."""
    item = 0
    for number, extent in enumerate(batch):
        item = item * extent + at[f"b{number}"]
    return [item]


def said(axis: Variable) -> str:
    """The name of an axis, or of an index that is read, as it is printed."""
    return f"%{axis.name}" if isinstance(axis, Dynamic) else axis.name
