"""How products are best done on a device: what its library can do, and what was measured once and is kept."""

from __future__ import annotations

import functools
from dataclasses import replace

from euler_ir.backends.cuda.device import Device
from euler_ir.backends.cuda.gemm import Product, ProductOptions
from euler_ir.backends.cuda.gemm.gelu_choice import is_gelu_fused
from euler_ir.backends.cuda.program import CudaProgram
from euler_ir.plan.plan import MatmulStep, Plan

_WARM, _TIMED, _RUNS = 2, 3, 20
"""Runs before those that are timed, since the first enqueues and the second captures; times; and runs in each."""


def product_options(device: Device, tf32: bool = False) -> ProductOptions:
    """What is best for products on ``device``, as far as it was measured there; the emulator's times say nothing."""

    def supports(product: Product) -> bool:
        return product.is_supported(device.cublaslt)

    if device.is_emulated:
        return ProductOptions(tf32, supports)

    def fuses_gelu(step: MatmulStep, plan: Plan) -> bool:
        version = ".".join(map(str, device.cublaslt.api.version))
        described = (device.model, device.architecture, version)
        return is_gelu_fused(step, plan, described, functools.partial(_seconds, device))

    return ProductOptions(tf32, supports, fuses_gelu)


def _seconds(device: Device, plan: Plan, by_library: bool) -> float:
    """The time of a run of ``plan``, which has no inputs, with GELU by the library if it can, or not.

    It is that of many runs in a row, in which the device waits for the host less than it works.
    """
    options = replace(product_options(device), fuses_gelu=lambda step, plan: by_library)
    program = CudaProgram(plan, device, products=options)
    run, compute = program.bind_state({}), program.runtime.compute
    for _ in range(_WARM):
        run({})
    times = []
    for _ in range(_TIMED):
        begin, end = device.event(), device.event()
        compute.record(begin)
        for _ in range(_RUNS):
            run({})
        compute.record(end)
        end.synchronize()
        times.append(end.seconds_since(begin) / _RUNS)
    return min(times)
