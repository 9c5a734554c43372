"""A product of a plan as calls of cuBLASLt, and of generated kernels for what the library cannot do."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from euler_ir.backends.cuda.calls import BufferPointer, Calls, Fill
from euler_ir.backends.cuda.gemm.api import Epilogue
from euler_ir.backends.cuda.gemm.product import LibraryEpilogue, Matrices, Product
from euler_ir.plan.plan import MatmulStep, Plan, PlannedView


def product_calls(step: MatmulStep, plan: Plan, tf32: bool = False) -> Calls:
    """What does ``step``. With ``tf32`` products of f32 are multiplied in 10 bits of mantissa, on tensor cores."""
    if not (step.rows and step.columns and math.prod(step.batch)):
        return Calls(())
    if not step.inner:
        return Calls(tuple(_zeros(step)))
    return Calls(tuple(_products(step, LibraryEpilogue(Epilogue.NONE), tf32)))


def _products(step: MatmulStep, epilogue: LibraryEpilogue, tf32: bool) -> Iterator[Product]:
    """The library steps over one batch axis, the longest: a call for each point of the other one."""
    along = max(range(len(step.batch)), key=step.batch.__getitem__, default=None)
    others = [axis for axis in range(len(step.batch)) if axis != along]
    for point in itertools.product(*(range(step.batch[axis]) for axis in others)):

        def matrices(view: PlannedView) -> Matrices:
            first = view.offset + sum(n * view.batch_strides[axis] for n, axis in zip(point, others))
            stride = 0 if along is None else view.batch_strides[along]
            pointer = BufferPointer(view.buffer, first * step.dtype.itemsize)
            return Matrices(pointer, view.leading, stride, view.transposed)

        yield Product(
            step.dtype,
            1 if along is None else step.batch[along],
            step.rows,
            step.columns,
            step.inner,
            matrices(step.left),
            matrices(step.right),
            matrices(step.result),
            step.running is not None,
            tf32,
            epilogue,
            step.origins,
        )


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
