"""What the steps of a plan do, counted: bytes that must move and operations on floats.

A *task* is what is timed and counted as one: a nest of a kernel, or all of another step. Bytes are those of the
distinct elements that it reads and writes, each once: caches may make it less, a second pass over a buffer more. An
operation is one arithmetic operation on floats, whatever it takes: an exp counts as an addition, a multiply-add as two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

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


def work_of(plan: Plan, step: Step, nest: int = 0) -> Work:
    """The work of nest number ``nest`` of a kernel, or of all of another step."""
    return COUNTERS[type(step)](plan, step, nest)


# -- kernels -----------------------------------------------------------------------------------------------------------


def _nest_work(plan: Plan, step: KernelStep, number: int) -> Work:
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
    flops = nest.points * _flops(nest.body)
    return Work(step.origins[number].name, structural_key(nest), sum(read.values()), sum(written.values()), flops)


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
    """How many elements of each buffer a nest loads at most: the points of the axes that its indices depend on."""

    def __init__(self, nest: Nest) -> None:
        self.elements: dict[str, int] = {}
        self._axes: dict[str, frozenset[Axis]] = {}  # of each scalar: what it depends on
        self._seen: set[tuple[str, Index]] = set()
        self._body(nest.body)

    def _body(self, body: tuple[Statement, ...]) -> None:
        for statement in body:
            match statement:
                case Load(result, _, buffer, index):
                    axes = self._axes[result] = self._index(index)
                    if (buffer, index) not in self._seen:
                        self._seen.add((buffer, index))
                        points = math.prod(axis.extent for axis in axes)
                        self.elements[buffer] = self.elements.get(buffer, 0) + points
                case IndexValue(result, _, index):
                    self._axes[result] = self._index(index)
                case CheckIndex(result, value):
                    self._axes[result] = self._axes[value]
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
    size, batch = step.dtype.itemsize, math.prod(step.batch)
    left = _operand_bytes(plan, step.left, step.batch, step.rows * step.inner * size)
    right = _operand_bytes(plan, step.right, step.batch, step.inner * step.columns * size)
    result = step.rows * step.columns * batch
    layout = "".join("T" if view.transposed else "N" for view in (step.left, step.right))
    sizes = f"{step.rows} x {step.inner} x {step.columns} {layout}"
    name = f"matmul {' x '.join(map(str, step.batch))} of {sizes}" if step.batch else f"matmul {sizes}"
    name += " +=" if step.running is not None else ""
    flops = matmul_flops(step.rows, step.inner, step.columns, batch)
    read = left + right + (result * size if step.running is not None else 0)
    work = Work(name, f"{name} {step.dtype}", read, result * size, flops)
    if step.epilogue is None:
        return work
    after = _nest_work(plan, step.epilogue, 0)
    inside = plan.buffers[step.result.buffer].type.nbytes  # the result goes to the epilogue and back in the cache
    return Work(
        f"{name} + {after.name}",
        f"{work.structure} {after.structure}",
        work.read_bytes + after.read_bytes - inside,
        after.written_bytes,
        flops + after.flops,
    )


def _operand_bytes(plan: Plan, operand: PlannedView | MadeOperand, batch: tuple[int, ...], nbytes: int) -> int:
    """What is read of an operand whose matrices have ``nbytes`` each; if it is made, of what that takes."""
    if isinstance(operand, MadeOperand):
        return sum(plan.buffers[buffer].type.nbytes for buffer in operand.arguments)
    return nbytes * _items(operand, batch)


def _items(view: PlannedView, batch: tuple[int, ...]) -> int:
    """How many different matrices ``view`` shows."""
    return math.prod(extent for extent, stride in zip(batch, view.batch_strides) if stride)


def _attention_work(plan: Plan, step: AttentionStep, _: int) -> Work:
    read, written = (
        sum(rows * columns * _items(view, step.batch) for view, (rows, columns) in zip(views, extents))
        for views, extents in zip((step.operands, step.results), step.extents())
    )
    backward, items = step.operator == "attention_gradient", math.prod(step.batch)
    flops = attention_flops(items, step.queries, step.keys, step.width, step.value_width, step.causal, backward)
    causal = "causal " if step.causal else ""
    sizes = f"{step.queries} x {step.width} by {step.keys} x {step.value_width}"
    name = f"{causal}{step.operator} {' x '.join(map(str, step.batch)) or 1} of {sizes}"
    size = step.dtype.itemsize
    return Work(name, f"{name} {step.dtype}", read * size, written * size, flops)


def _copy_work(plan: Plan, step: CopyStep, _: int) -> Work:
    nbytes = plan.buffers[step.source].type.nbytes
    return Work("copy", f"copy {nbytes}", nbytes, nbytes, 0)


COUNTERS: dict[type, Callable[[Plan, Step, int], Work]] = {
    KernelStep: _nest_work,
    MatmulStep: _matmul_work,
    AttentionStep: _attention_work,
    CopyStep: _copy_work,
}
"""How the work of each kind of step is counted: a new kind adds itself here."""
