"""A plan compiled for this CPU: one call a step, no Python and no allocation between its first and last kernel."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import starmap
from types import MappingProxyType

import numpy as np

from euler_ir.backends.base import Program, Run, raise_fault, raise_no_memory
from euler_ir.backends.cpu.jit import CALLS, COMPUTE, LoadedCode, assembly, compile_object, optimized_ir
from euler_ir.backends.cpu.kernel_code import module_in_place
from euler_ir.backends.cpu.product_choice import is_for_openblas
from euler_ir.backends.cpu.step import HEADER, STEP_SYMBOL, StepWriter
from euler_ir.backends.cpu.worker_pool import get_pool
from euler_ir.errors import LoweringError
from euler_ir.loops.kernel import Kernel
from euler_ir.pages import allocate_pages
from euler_ir.plan.kernels import find_kernel
from euler_ir.plan.plan import AttentionStep, KernelStep, MatmulStep, Plan, Step


class CpuProgram(Program):
    """``plan`` compiled and linked, with its ``arena``. Runs of several Python threads take turns.

    ``threads`` is the number of worker threads (by default all cores); it never changes a bit of the result. In a
    ``timed`` program they read the clock: after a run ``times``, i64[threads, 1 + len(marks)], holds in nanoseconds
    when each began and when it came to each of ``marks``. ``by_openblas`` says that OpenBLAS does all products, or
    none; else see `product_choice`. ``code`` has LLVM IR in place of what is generated for nests, by symbol (see
    `kernel_code`). Raises LoweringError when the system has not got the memory of the arena, and for products and
    attention of half types, which the passes for this backend widen.
    """

    def __init__(
        self,
        plan: Plan,
        threads: int | None = None,
        timed: bool = False,
        by_openblas: bool | None = None,
        code: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        _refuse_halves(plan)
        self.plan = plan
        self.pool = get_pool(threads)
        try:
            self.arena = allocate_pages(plan.arena_bytes)
        except MemoryError as error:
            raise_no_memory(plan, error)
        self._writer = StepWriter(plan, self.pool.threads, self._chooser(by_openblas), timed)
        self._modules = {self._writer.step_module(): CALLS}
        nests = {symbol: code.get(symbol, text) for symbol, text in self._writer.nests.texts.items()}
        self._modules |= dict.fromkeys(nests.values(), COMPUTE)
        self._modules |= dict.fromkeys(self._writer.products.texts.values(), COMPUTE)
        self._modules |= dict.fromkeys(self._writer.attentions.texts.values(), COMPUTE)
        self.marks = tuple(self._writer.marks)
        self._clock = np.zeros((self.pool.threads, 1 + len(self.marks), 2), np.int64)
        self._code = LoadedCode(starmap(compile_object, self._modules.items()), [STEP_SYMBOL])
        self._address = self._code.address(STEP_SYMBOL)
        self._scratch = allocate_pages(self.scratch_bytes)
        self._arrays = {number: np.ascontiguousarray(array) for number, array in plan.constants.items()}
        self._constants = {self._writer.slots[number]: array.ctypes.data for number, array in self._arrays.items()}

    def bind(self, kept: Mapping[int, np.ndarray]) -> Run:
        slots = self._writer.slots
        # Asking an array for its address takes about as long as a small kernel.
        bound = (ctypes.c_void_p * (HEADER + len(slots)))()
        own = (self.arena, self._clock, self._scratch)
        bound[0], bound[2], bound[3] = (array.ctypes.data for array in own)
        for slot, address in self._constants.items():
            bound[slot] = address
        for number, array in kept.items():
            bound[slots[number]] = array.ctypes.data

        return functools.partial(self._run, bound, kept)

    def on_plan(self, plan: Plan, code: Mapping[str, str]) -> CpuProgram:
        modules: dict[str, str] = {}
        for name, text in code.items():
            modules |= module_in_place(find_kernel(plan, name).launches, text)
        return CpuProgram(plan, self.pool.threads, code=modules)

    def _run(self, bound: ctypes.Array, kept: Mapping[int, np.ndarray], arrays: Mapping[int, np.ndarray]) -> None:
        """Run on the pointers ``bound``, those of ``kept`` among them, and on ``arrays``."""
        # Pointers and faults are the call's own: a signal handler may run this very program in the middle of it.
        pointers = type(bound).from_buffer_copy(bound)
        faults = (ctypes.c_int32 * (len(self.plan.faults) + 1))()
        pointers[1] = ctypes.addressof(faults)
        for number, array in arrays.items():
            pointers[self._writer.slots[number]] = array.ctypes.data
        self.pool.run(self._address, ctypes.addressof(pointers))
        for first, local in enumerate(faults) if any(faults) else ():
            if local:
                raise_fault(self.plan, first + local - 1)

    def _chooser(self, by_openblas: bool | None) -> Callable[[MatmulStep], bool]:
        if by_openblas is not None:
            return lambda step: by_openblas
        return functools.partial(is_for_openblas, seconds=functools.partial(_seconds, self.pool.threads))

    @property
    def scratch_bytes(self) -> int:
        return self._writer.scratch_bytes * self.pool.threads

    @property
    def times(self) -> np.ndarray:
        return self._clock @ np.array([10**9, 1])

    def modules_of(self, step: Step, nest: int = 0) -> dict[str, str]:
        """The LLVM IR, before the passes, of what nest number ``nest`` of a kernel or all of another step runs, by the
        symbols that the modules define. A copy has none, nor has what OpenBLAS does.
        """
        if isinstance(step, KernelStep):
            parts = (step.arguments, step.faults, step.shared, step.origins)
            kernel = Kernel(step.kernel.name, (step.kernel.nests[nest],))
            step = KernelStep(kernel, *((part[nest],) for part in parts))
        alone = StepWriter(replace(self.plan, phases=((step,),)), self.pool.threads, self._writer.for_openblas)
        alone.step_module()
        return alone.nests.texts | alone.products.texts | alone.attentions.texts

    def llvm_ir(self) -> str:
        """The LLVM IR of the step and of its loop nests, after the passes."""
        return "".join(starmap(optimized_ir, self._modules.items()))

    def assembly(self) -> str:
        """The assembly of the step and of its loop nests."""
        return "".join(starmap(assembly, self._modules.items()))


def _seconds(threads: int, plan: Plan, by_openblas: bool) -> float:
    """The best time of a few runs of ``plan``, after one that warms up."""
    program = CpuProgram(plan, threads, by_openblas=by_openblas)
    arrays = {n: np.ones(buffer.type.shape, buffer.type.dtype.numpy) for n, buffer in enumerate(plan.buffers)}
    taken = []
    for _ in range(4):
        start = time.perf_counter()
        program.run(arrays)
        taken.append(time.perf_counter() - start)
    return min(taken[1:])


def _refuse_halves(plan: Plan) -> None:
    """Raise LoweringError for a call of a half type: code for this CPU sums in f32 what was cast to it."""
    for step in plan.steps():
        if isinstance(step, (AttentionStep, MatmulStep)) and step.dtype.is_half:
            (origin,) = step.origins
            what = "products" if isinstance(step, MatmulStep) else "attention"
            raise LoweringError(
                f"the backend cpu has no {what} of {step.dtype}",
                location=origin.locations[0] if origin.locations else None,
                hint="the passes 'cuda' leave such calls whole: compile with passes='default'",
            )
