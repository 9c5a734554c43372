"""A product of a plan as calls of cuBLASLt, and of generated kernels for what the library cannot do."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from euler_ir.backends.cuda.calls import BufferPointer, Calls, Fill
from euler_ir.backends.cuda.codegen import kernel_calls
from euler_ir.backends.cuda.gemm.api import Epilogue
from euler_ir.backends.cuda.gemm.made import Scratch
from euler_ir.backends.cuda.gemm.product import LibraryEpilogue, Matrices, Product
from euler_ir.plan.plan import MadeOperand, MatmulStep, Plan, PlannedView


def product_calls(step: MatmulStep, plan: Plan, tf32: bool = False) -> Calls:
    """What does ``step``. With ``tf32`` products of f32 are multiplied in 10 bits of mantissa, on tensor cores."""
    if not (step.rows and step.columns and math.prod(step.batch)):
        return Calls(())
    scratch = Scratch()
    calls = tuple(_products(step, LibraryEpilogue(Epilogue.NONE), scratch, tf32) if step.inner else _zeros(step))
    if step.epilogue is None:
        return Calls((*scratch.launches, *calls), scratch.nbytes)
    after = kernel_calls(step.epilogue)
    return Calls((*scratch.launches, *calls, *after.calls), max(scratch.nbytes, after.scratch_bytes))


def _products(step: MatmulStep, epilogue: LibraryEpilogue, scratch: Scratch, tf32: bool) -> Iterator[Product]:
    """The library steps over one batch axis, the longest: a call for each point of the other one."""
    along = max(range(len(step.batch)), key=step.batch.__getitem__, default=None)
    others = [axis for axis in range(len(step.batch)) if axis != along]
    left, right = (_stored(operand, step, scratch) for operand in (step.left, step.right))
    for point in itertools.product(*(range(step.batch[axis]) for axis in others)):

        def matrices(operand: PlannedView | Matrices) -> Matrices:
            if isinstance(operand, Matrices):
                return operand
            first = operand.offset + sum(n * operand.batch_strides[axis] for n, axis in zip(point, others))
            stride = 0 if along is None else operand.batch_strides[along]
            pointer = BufferPointer(operand.buffer, first * step.dtype.itemsize)
            return Matrices(pointer, operand.leading, stride, operand.transposed)

        yield Product(
            step.dtype,
            1 if along is None else step.batch[along],
            step.rows,
            step.columns,
            step.inner,
            matrices(left),
            matrices(right),
            matrices(step.result),
            step.running is not None,
            tf32,
            epilogue,
            step.origins,
        )


def _stored(operand: PlannedView | MadeOperand, step: MatmulStep, scratch: Scratch) -> PlannedView | Matrices:
    """``operand`` in memory; one that is made has no batch."""
    if isinstance(operand, PlannedView):
        return operand
    (origin,) = step.origins
    return Matrices(scratch.make(operand.nest, operand.arguments, origin), operand.leading, 0, operand.transposed)


def _zeros(step: MatmulStep) -> Iterator[Fill]:
    """What a sum of nothing leaves: zeros, or what the result is added to."""
    if step.running is not None:
        return
    view, size = step.result, step.dtype.itemsize
    runs, length = (1, step.rows * step.columns) if view.leading == step.columns else (step.rows, step.columns)
    for point in itertools.product(*map(range, step.batch), range(runs)):
        steps = (*view.batch_strides, view.leading)
        first = view.offset + sum(n * stride for n, stride in zip(point, steps))
        yield Fill(BufferPointer(view.buffer, first * size), length * size, 0)
