"""A product of a plan as calls of cuBLASLt, and of generated kernels for what the library cannot do."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from euler_ir.backends.cuda.calls import BufferPointer, Calls, Fill, Pointer
from euler_ir.backends.cuda.codegen import kernel_calls
from euler_ir.backends.cuda.gemm.epilogues import GELU, Matched, match_epilogue
from euler_ir.backends.cuda.gemm.made import Scratch
from euler_ir.backends.cuda.gemm.product import LibraryEpilogue, Matrices, Product
from euler_ir.backends.cuda.gemm.reasons import Declined
from euler_ir.dtypes import DType
from euler_ir.index import Axis, Index
from euler_ir.loops.kernel import Buffer, Compute, Load, Nest, Store
from euler_ir.plan.plan import MadeOperand, MatmulStep, Plan, PlannedView


@dataclass(frozen=True)
class ProductOptions:
    """With ``tf32`` products of f32 are multiplied in 10 bits of mantissa, on tensor cores.

    ``supports(product)`` says whether the library does a product with its epilogue, and ``fuses_gelu(step, plan)``
    whether its GELU is worth it after ``step``: it can be slower than a kernel of its own.
    """

    tf32: bool = False
    supports: Callable[[Product], bool] = lambda product: True
    fuses_gelu: Callable[[MatmulStep, Plan], bool] = lambda step, plan: False


def product_calls(step: MatmulStep, plan: Plan, options: ProductOptions = ProductOptions()) -> Calls:
    """What does ``step`` of ``plan``."""
    if not (step.rows and step.columns and math.prod(step.batch)):
        return Calls(())
    if not step.inner:
        return _followed(step, Calls(tuple(_zeros(step))))
    plain = Matched(step.result.buffer)
    epilogue = choose_epilogue(step, plan, options)
    if isinstance(epilogue, Declined):
        return _followed(step, _by_library(step, plan, plain, options, epilogue))
    calls = _by_library(step, plan, epilogue, options)
    if epilogue == plain or all(options.supports(call) for call in calls.calls if isinstance(call, Product)):
        return calls
    declined = Declined("epilogue-unsupported", (epilogue.kind.name,))
    return _followed(step, _by_library(step, plan, plain, options, declined))


def _by_library(
    step: MatmulStep, plan: Plan, epilogue: Matched, options: ProductOptions, declined: Declined | None = None
) -> Calls:
    scratch = Scratch()
    products = tuple(_products(step, plan, epilogue, declined, scratch, options.tf32))
    return Calls((*scratch.launches, *products), scratch.nbytes)


def _followed(step: MatmulStep, calls: Calls) -> Calls:
    """``calls``, and a kernel for what follows the product."""
    if step.epilogue is None:
        return calls
    after = kernel_calls(step.epilogue)
    return Calls(calls.calls + after.calls, max(calls.scratch_bytes, after.scratch_bytes))


def choose_epilogue(step: MatmulStep, plan: Plan, options: ProductOptions = ProductOptions()) -> Matched | Declined:
    """What the library does of ``step``, with all that follows the product; or why not that."""
    matched = match_epilogue(step, plan)
    if isinstance(matched, Matched) and matched.kind in GELU and not options.fuses_gelu(step, plan):
        return Declined("epilogue-gelu-slower")
    return matched


def _products(
    step: MatmulStep, plan: Plan, epilogue: Matched, declined: Declined | None, scratch: Scratch, tf32: bool
) -> Iterator[Product]:
    """The library steps over one batch axis, the longest: a call for each point of the other one."""
    along = max(range(len(step.batch)), key=step.batch.__getitem__, default=None)
    others = [axis for axis in range(len(step.batch)) if axis != along]
    left, right = (_stored(operand, step, scratch) for operand in (step.left, step.right))
    result = replace(step.result, buffer=epilogue.result)
    addend = result if epilogue.addend is None else replace(result, buffer=epilogue.addend)
    beta = 1.0 if step.running is not None else epilogue.beta
    done = _library_epilogue(step, plan, epilogue, scratch)
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
            *map(matrices, (left, right, result, addend)),
            epilogue.alpha,
            beta,
            tf32,
            done,
            declined,
            step.origins,
        )


def _library_epilogue(step: MatmulStep, plan: Plan, epilogue: Matched, scratch: Scratch) -> LibraryEpilogue:
    bias: Pointer | None = None
    if epilogue.bias is not None:
        buffer = plan.buffers[epilogue.bias]
        bias = BufferPointer(epilogue.bias)
        if buffer.type.dtype != step.dtype:
            nest = _cast(buffer.type.dtype, step.dtype, step.columns)
            bias = scratch.make(nest, (epilogue.bias,), step.epilogue.origins[0])
    auxiliary = None if epilogue.auxiliary is None else BufferPointer(epilogue.auxiliary)
    return LibraryEpilogue(epilogue.kind, bias, auxiliary, 0 if auxiliary is None else step.columns)


def _cast(source: DType, target: DType, length: int) -> Nest:
    """A nest that casts a vector."""
    axis = Axis("j", length)
    parameters = (Buffer("vector", source, length, "input"), Buffer("cast", target, length, "output"))
    load = Load("element", source, "vector", Index.of(axis))
    cast = Compute("rounded", target, "cast", ("element",))
    return Nest(parameters, (axis,), (load, cast, Store("cast", Index.of(axis), "rounded")), vector=True)


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
