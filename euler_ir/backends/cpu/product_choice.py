"""Generated code or OpenBLAS: each large product gets what was faster when both were tried here; the cache keeps it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from euler_ir import cache
from euler_ir.backends.cpu import openblas
from euler_ir.backends.cpu.jit import host_description
from euler_ir.dtypes import DType
from euler_ir.plan.plan import MatmulStep, Plan, PlannedBuffer, PlannedView
from euler_ir.plan.work import matmul_flops
from euler_ir.shapes import TensorType

_WORTH_TRYING = 50_000_000
"""Floating-point operations below which a product is not worth the time to try both."""
_MARGIN = 0.9
"""How much of the time of generated code OpenBLAS may take at most: a tie, or noise, must not change the bits."""


def is_for_openblas(step: MatmulStep, seconds: Callable[[Plan, bool], float]) -> bool:
    """Whether ``step`` is left to OpenBLAS.

    ``seconds(plan, by_openblas)`` times a plan that holds one product. What is chosen decides the last bits of a
    result: so it is tried once, whatever the number of threads, and not at all without a cache to keep the answer.
    """
    if step.epilogue is not None or step.running is not None or not openblas.takes(step):
        return False
    if min(step.rows, step.columns) == 1:
        return True  # of a matrix and a vector nothing is used twice, so packing does not pay
    flops = matmul_flops(step.rows, step.inner, step.columns, math.prod(step.batch))
    if flops < _WORTH_TRYING or not cache.is_usable():
        return False
    key = ("product", host_description(), openblas.description(), _signature(step))
    found = cache.load_fact(*key)
    if found is None:
        plan = _alone(step)
        found = cache.store_fact({"generated": seconds(plan, False), "openblas": seconds(plan, True)}, *key)
    return found is not None and found["openblas"] < _MARGIN * found["generated"]


def known_choice(step: MatmulStep) -> bool | None:
    """What `is_for_openblas` says without trying anything; None when it would."""

    def untried(plan: Plan, by_openblas: bool) -> float:
        raise LookupError

    try:
        return is_for_openblas(step, untried)
    except LookupError:
        return None


def _signature(step: MatmulStep) -> str:
    views = " ".join(f"{view.leading}{'T' * view.transposed}" for view in (step.left, step.right, step.result))
    return f"{step.dtype} {step.batch} {step.rows} {step.inner} {step.columns} {views}"


def _alone(step: MatmulStep) -> Plan:
    """A plan of nothing but this product."""
    sizes = [(step.rows, step.inner), (step.inner, step.columns), (step.rows, step.columns)]
    views = [
        replace(view, buffer=number, offset=0) for number, view in enumerate((step.left, step.right, step.result))
    ]
    places = ("input", "input", "output")
    buffers = tuple(
        PlannedBuffer(place, _span(view, step.batch, *size, step.dtype), place)
        for place, view, size in zip(places, views, sizes)
    )
    product = replace(step, left=views[0], right=views[1], result=views[2])
    return Plan("product", buffers, ((product,),), {"result": 2}, {}, (), 0, 0)


def _span(view: PlannedView, batch: tuple[int, ...], rows: int, columns: int, dtype: DType) -> TensorType:
    """The type of a flat buffer that ``view`` fits in."""
    row, column = (1, view.leading) if view.transposed else (view.leading, 1)
    steps = zip((*batch, rows, columns), (*view.batch_strides, row, column))
    return TensorType(dtype, (1 + sum((extent - 1) * step for extent, step in steps),))
