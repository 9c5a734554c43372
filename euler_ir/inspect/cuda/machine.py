"""Who does what on a GPU: blocks, warps and threads of generated kernels, and calls of libraries."""

from __future__ import annotations

from euler_ir.backends.cuda.calls import Launch
from euler_ir.backends.cuda.codegen import kernel_calls, place_of
from euler_ir.backends.cuda.gemm.calls import choose_epilogue
from euler_ir.backends.cuda.gemm.epilogues import Matched
from euler_ir.backends.cuda.limits import ARCHITECTURE, WARP
from euler_ir.index import Axis
from euler_ir.inspect.touches import Steps, items_of, said
from euler_ir.plan.plan import AttentionStep, CopyStep, KernelStep, MatmulStep, Plan

PRODUCTS, COPIES = "cuBLASLt", "a copy of the device"
"""What is done by others than our kernels."""


class CudaMachine:
    """A `Machine`: a GPU, which has no worker threads."""

    threads = 0

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def in_kernel(self, step: KernelStep, nest: int) -> Steps:
        launches = kernel_calls(step).calls

        def steps(point: dict) -> tuple[set[int], dict]:
            place = place_of(step, nest, point)
            if place is None:
                return set(), {"library": "the kernel, on a thread that depends on the indices"}
            warp, lane = divmod(place.thread, WARP)
            details = {"kernel": launches[place.launch].kernel, "block": place.block, "warp": warp, "lane": lane}
            return set(), details | {"thread": place.thread, "element": place.element}

        return steps

    def in_product(self, step: MatmulStep, side: str) -> Steps:
        return lambda point: (set(), {"library": PRODUCTS})

    def in_epilogue(self, step: MatmulStep) -> Steps:
        if isinstance(choose_epilogue(step, self.plan), Matched):
            return self.in_product(step, "result")
        return self.in_kernel(step.epilogue, 0)

    def in_attention(self, step: AttentionStep, rows: Axis, is_key: bool) -> Steps:
        from euler_ir.backends.cuda.attention import attention_calls

        calls = attention_calls(step, ARCHITECTURE).calls
        kernels = " and ".join(call.kernel for call in calls if isinstance(call, Launch))

        def steps(point: dict) -> tuple[set[int], dict]:
            (head,) = items_of(step.batch, {said(axis): position for axis, position in point.items()})
            return set(), {"library": f"blocks of {kernels} that have head {head}"}

        return steps

    def in_copy(self, step: CopyStep, byte: int) -> Steps:
        return lambda point: (set(), {"library": COPIES})
