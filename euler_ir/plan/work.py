"""What the steps of a plan do, counted: bytes that must move and operations on floats.

A *task* is what is timed and counted as one: a nest of a kernel, or all of another step. Bytes are those of the
distinct elements that it reads and writes, each once: caches may make it less, a second pass over a buffer more. An
operation is one arithmetic operation on floats, whatever it takes: an exp counts as an addition, a multiply-add as two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from euler_ir.index import Axis, Index
from euler_ir.loops.kernel import CheckIndex, Compute, IndexValue, Load, Loop, Nest, Statement, Store
from euler_ir.loops.printer import structural_key
from euler_ir.passes.cost import attention_flops, matmul_flops
from euler_ir.plan.plan import AttentionStep, CopyStep, KernelStep, MadeOperand, MatmulStep, Plan, PlannedView, Step

_NO_ARITHMETIC = ("cast", "where", "philox")


@dataclass(frozen=True)
class Work:
    """A task's ``name`` for readers, its ``structure``, equal for tasks that run the same code, and its work."""

    name: str
    structure: str
    read_bytes: int
    written_bytes: int
    flops: int

    @property
    def nbytes(self) -> int:
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True)
class Traffic:
    """Bytes that a task reads from each buffer and writes to it, by the buffer's number."""

    read: dict[int, int]
    written: dict[int, int]

    @property
    def moved(self) -> int:
        return sum(self.read.values()) + sum(self.written.values())


def tasks(plan: Plan) -> Iterator[tuple[Step, int]]:
    """Every task of ``plan`` in order: its step, and the number of its nest, 0 but for kernels."""
    for step in plan.steps():
        for nest in range(len(step.kernel.nests) if isinstance(step, KernelStep) else 1):
            yield step, nest


def work_of(plan: Plan, step: Step, nest: int = 0) -> Work:
    """The work of nest number ``nest`` of a kernel, or of all of another step."""
    return COUNTERS[type(step)](plan, step, nest)


def traffic_of(plan: Plan, step: Step, nest: int = 0) -> Traffic:
    """What nest number ``nest`` of a kernel, or all of another step, moves: in sum, the bytes of its Work.

    The result of a product with an epilogue stays in the cache between the two: it is neither read nor written.
    """
    return MOVERS[type(step)](plan, step, nest)


def passes_of(plan: Plan, step: Step, nest: int = 0) -> int:
    """The bytes that a task moves when nothing stays in a cache from one loop over it to the next: `traffic_of` counts
    an element once, this once for each loop of a nest that comes to it. For other steps the two are one.
    """
    if not isinstance(step, KernelStep):
        return traffic_of(plan, step, nest).moved
    loops, parameters = step.kernel.nests[nest], step.kernel.nests[nest].parameters
    elements = _Touched(loops, by_pass=True).elements
    written = sum(_nest_traffic(plan, step, nest).written.values())
    return written + sum(elements.get(buffer.name, 0) * buffer.dtype.itemsize for buffer in parameters)


# -- kernels -----------------------------------------------------------------------------------------------------------


def _nest_work(plan: Plan, step: KernelStep, number: int) -> Work:
    nest, traffic = step.kernel.nests[number], _nest_traffic(plan, step, number)
    return _work(step.origins[number].name, structural_key(nest), traffic, nest.points * _flops(nest.body))


def _work(name: str, structure: str, traffic: Traffic, flops: int) -> Work:
    return Work(name, structure, sum(traffic.read.values()), sum(traffic.written.values()), flops)


def _nest_traffic(plan: Plan, step: KernelStep, number: int) -> Traffic:
    nest, arguments = step.kernel.nests[number], step.arguments[number]
    touched = _Touched(nest)
    read: dict[int, int] = {}
    written: dict[int, int] = {}
    for parameter, buffer in zip(nest.parameters, arguments):
        nbytes = plan.buffers[buffer].type.nbytes
        if parameter.role == "inout":
            written[buffer] = nest.points * parameter.dtype.itemsize  # one store a point
        elif parameter.role == "output":
            written[buffer] = nbytes
        else:
            elements = touched.elements.get(parameter.name, 0) * parameter.dtype.itemsize
            read[buffer] = min(nbytes, read.get(buffer, 0) + elements)
    return Traffic(read, written)


def _flops(body: tuple[Statement, ...]) -> int:
    """The operations of one run of ``body``."""
    total = 0
    for statement in body:
        match statement:
            case Compute(_, dtype, operation):
                total += dtype.is_float and operation not in _NO_ARITHMETIC
            case Store():
                total += statement.accumulate
            case Loop(axes, inner):
                sums = sum(reduction.dtype.is_float for reduction in statement.reductions)
                total += math.prod(axis.extent for axis in axes) * (_flops(inner) + sums)
    return total


class _Touched:
    """How many elements of each buffer a nest loads at most: the points of the axes that its indices depend on.

    With ``by_pass`` those that several loops load count once for each loop.
    """

    def __init__(self, nest: Nest, by_pass: bool = False) -> None:
        self.elements: dict[str, int] = {}
        self._axes: dict[str, frozenset[Axis]] = {}  # of each scalar: what it depends on
        self._by_pass = by_pass
        self._seen: set[tuple[str, Index, int]] = set()
        self._body(nest.body)

    def _body(self, body: tuple[Statement, ...]) -> None:
        for statement in body:
            match statement:
                case Load(result, _, buffer, index):
                    axes = self._axes[result] = self._index(index)
                    seen = (buffer, index, id(body) if self._by_pass else 0)
                    if seen not in self._seen:
                        self._seen.add(seen)
                        points = math.prod(axis.extent for axis in axes)
                        self.elements[buffer] = self.elements.get(buffer, 0) + points
                case IndexValue(result, _, index):
                    self._axes[result] = self._index(index)
                case CheckIndex(result, value):
                    self._axes[result] = self._axes.get(value, frozenset())
                case Compute(result, _, _, operands):
                    self._axes[result] = frozenset().union(*(self._axes.get(name, ()) for name in operands))
                case Loop():
                    self._loop(statement)

    def _loop(self, loop: Loop) -> None:
        self._axes.update((carry.name, frozenset(loop.axes)) for carry in loop.carries)
        self._body(loop.body)
        for reduction in loop.reductions:
            self._axes[reduction.result] = self._axes.get(reduction.value, frozenset()) - {*loop.axes}

    def _index(self, index: Index) -> frozenset[Axis]:
        return frozenset(index.axes()).union(*(self._axes.get(dynamic.name, ()) for dynamic in index.dynamics()))


# -- other steps -------------------------------------------------------------------------------------------------------


def _matmul_work(plan: Plan, step: MatmulStep, _: int) -> Work:
    layout = "".join("T" if view.transposed else "N" for view in (step.left, step.right))
    sizes = f"{step.rows} x {step.inner} x {step.columns} {layout}"
    name = f"matmul {' x '.join(map(str, step.batch))} of {sizes}" if step.batch else f"matmul {sizes}"
    name += " +=" if step.running is not None else ""
    flops = matmul_flops(step.rows, step.inner, step.columns, math.prod(step.batch))
    work = _work(name, f"{name} {step.dtype}", _matmul_traffic(plan, step), flops)
    if step.epilogue is None:
        return work
    after = _nest_work(plan, step.epilogue, 0)
    return replace(
        work, name=f"{name} + {after.name}", structure=f"{work.structure} {after.structure}", flops=flops + after.flops
    )


def _matmul_traffic(plan: Plan, step: MatmulStep, _: int = 0) -> Traffic:
    read: dict[int, int] = {}
    for operand, matrix in ((step.left, step.rows * step.inner), (step.right, step.inner * step.columns)):
        for buffer, nbytes in _operand_bytes(plan, operand, step.batch, matrix * step.dtype.itemsize):
            read[buffer] = read.get(buffer, 0) + nbytes
    result = step.rows * step.columns * math.prod(step.batch) * step.dtype.itemsize
    if step.running is not None:
        read[step.running] = read.get(step.running, 0) + result
    if step.epilogue is None:
        return Traffic(read, {step.result.buffer: result})
    after = _nest_traffic(plan, step.epilogue, 0)
    for buffer, nbytes in after.read.items():
        if buffer != step.result.buffer:
            read[buffer] = read.get(buffer, 0) + nbytes
    return Traffic(read, after.written)


def _operand_bytes(
    plan: Plan, operand: PlannedView | MadeOperand, batch: tuple[int, ...], nbytes: int
) -> list[tuple[int, int]]:
    """Buffers with what is read of them for an operand whose matrices have ``nbytes`` each, or to make it."""
    if isinstance(operand, MadeOperand):
        return [(buffer, plan.buffers[buffer].type.nbytes) for buffer in operand.arguments]
    return [(operand.buffer, nbytes * _items(operand, batch))]


def _items(view: PlannedView, batch: tuple[int, ...]) -> int:
    """How many different matrices ``view`` shows."""
    return math.prod(extent for extent, stride in zip(batch, view.batch_strides) if stride)


def _attention_work(plan: Plan, step: AttentionStep, _: int) -> Work:
    backward, items = step.operator == "attention_gradient", math.prod(step.batch)
    flops = attention_flops(items, step.queries, step.keys, step.width, step.value_width, step.causal, backward)
    causal = "causal " if step.causal else ""
    sizes = f"{step.queries} x {step.width} by {step.keys} x {step.value_width}"
    texts = " with visible_from" if step.has_visible_from else ""
    name = f"{causal}{step.operator}{texts} {' x '.join(map(str, step.batch)) or 1} of {sizes}"
    return _work(name, f"{name} {step.dtype}", _attention_traffic(plan, step), flops)


def _attention_traffic(plan: Plan, step: AttentionStep, __: int = 0) -> Traffic:
    moved: tuple[dict[int, int], dict[int, int]] = {}, {}
    for into, views, extents in zip(moved, (step.operands, step.results), step.extents()):
        for view, (rows, columns) in zip(views, extents):
            nbytes = rows * columns * _items(view, step.batch) * plan.buffers[view.buffer].type.dtype.itemsize
            into[view.buffer] = into.get(view.buffer, 0) + nbytes
    return Traffic(*moved)


def _copy_work(plan: Plan, step: CopyStep, _: int) -> Work:
    nbytes = plan.buffers[step.source].type.nbytes
    return _work("copy", f"copy {nbytes}", _copy_traffic(plan, step), 0)


def _copy_traffic(plan: Plan, step: CopyStep, _: int = 0) -> Traffic:
    nbytes = plan.buffers[step.source].type.nbytes
    return Traffic({step.source: nbytes}, {step.target: nbytes})


COUNTERS: dict[type, Callable[[Plan, Step, int], Work]] = {
    KernelStep: _nest_work,
    MatmulStep: _matmul_work,
    AttentionStep: _attention_work,
    CopyStep: _copy_work,
}
"""How the work of each kind of step is counted: a new kind adds itself here."""
MOVERS: dict[type, Callable[[Plan, Step, int], Traffic]] = {
    KernelStep: _nest_traffic,
    MatmulStep: _matmul_traffic,
    AttentionStep: _attention_traffic,
    CopyStep: _copy_traffic,
}
"""And what it moves, buffer by buffer."""
