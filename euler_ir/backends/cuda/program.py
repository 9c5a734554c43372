"""A plan compiled for a device: one CUDA graph a step, over memory whose addresses never change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NoReturn

import numpy as np

from euler_ir.backends.base import Program, Run
from euler_ir.backends.cuda.binding import Binding
from euler_ir.backends.cuda.device import Device
from euler_ir.backends.cuda.gemm import ProductOptions
from euler_ir.backends.cuda.layout import Layout, aligned
from euler_ir.backends.cuda.runtime import Runtime
from euler_ir.backends.cuda.slot import Slot
from euler_ir.backends.cuda.step import FAULT_BYTES, planned_calls
from euler_ir.errors import LoweringError
from euler_ir.plan.footprint import LARGEST_OWNERS, Footprint, Owner, footprint, owner_lines, readable
from euler_ir.plan.plan import Plan
from euler_ir.residence import Kept

SLOTS = 2
"""Calls on their way at once: while one runs, the inputs of the next are brought."""


class CudaProgram(Program):
    """``plan`` compiled and loaded, with its memory but for parameters and state, which all programs of a device share.

    ``code`` has CUDA C++ in place of what is generated for kernels (see `planned_calls`); for ``products`` see
    `product_choice`. Raises LoweringError for what has no code, and when the device has not got the memory.
    """

    def __init__(
        self,
        plan: Plan,
        device: Device,
        code: Mapping[str, str] = MappingProxyType({}),
        products: ProductOptions = ProductOptions(),
    ) -> None:
        self.plan, self.device, self._products = plan, device, products
        self.calls = planned_calls(plan, device.architecture, code, products)
        self.written = {buffer for step in plan.steps() for buffer in step.writes()}
        self.runtime = Runtime.of(device)
        self.input_layout = Layout(plan, _numbers(plan, "input"))
        self.result_layout = Layout(plan, _numbers(plan, "output"), header=FAULT_BYTES * len(plan.faults))
        self._constant_layout = Layout(plan, _numbers(plan, "constant"))
        self._calls_begun = 0
        with self.runtime.turn():
            self._expect_room()
            self.runtime.load(self.calls.sources)
            try:
                self._allocate()
            except MemoryError as error:
                self._raise_no_room(self._needs.total, f"{device.name} says: {error}", *str(self._needs).splitlines())

    def _allocate(self) -> None:
        block = self.runtime.block
        self.arena, self.scratch = block(self.plan.arena_bytes), block(self.calls.scratch_bytes)
        self.workspace = block(self._workspace_bytes)
        self.inputs, self.results = block(self.input_layout.nbytes), block(self.result_layout.nbytes)
        self._slots = [Slot(self.runtime, self.plan, self.input_layout, self.result_layout) for _ in range(SLOTS)]
        self._constants = block(self._constant_layout.nbytes)
        self._upload_constants()
        self.addresses = {
            number: self.arena.address + buffer.offset
            for number, buffer in enumerate(self.plan.buffers)
            if buffer.place == "arena"
        }
        for layout, memory in (
            (self.input_layout, self.inputs),
            (self.result_layout, self.results),
            (self._constant_layout, self._constants),
        ):
            self.addresses |= {number: memory.address + offset for number, offset in layout.offsets.items()}

    def _upload_constants(self) -> None:
        staged = np.zeros(self._constant_layout.nbytes, np.uint8)
        for number, view in self._constant_layout.views(staged).items():
            view[...] = self.plan.constants[number]
        self.runtime.compute.upload(self._constants.address, staged)
        self.runtime.compute.synchronize()

    def bind(self, kept: Mapping[int, np.ndarray]) -> Run:
        """For who has arrays and no State: in each run they are brought to the device and back."""
        places = {number: buffer.place for number, buffer in enumerate(self.plan.buffers)}

        def run(arrays: Mapping[int, np.ndarray]) -> None:
            arrays = {**kept, **arrays}
            lent = {n: Kept(array) for n, array in arrays.items() if places[n] in ("parameter", "state")}
            outputs = self.bind_state(lent)(arrays)
            for name, number in self.plan.outputs.items():
                arrays[number][...] = outputs[name]
            for each in lent.values():
                each.at_home()

        return run

    def bind_state(self, kept: Mapping[int, Kept]) -> Binding:
        with self.runtime.turn():
            arriving = [number for number, each in kept.items() if not self.runtime.is_resident(each)]
            self._expect_room_for(arriving)
            return Binding(self, kept)

    def on_plan(self, plan: Plan, code: Mapping[str, str]) -> CudaProgram:
        return CudaProgram(plan, self.device, code, self._products)

    def intermediates(self) -> np.ndarray:
        arena = np.empty(self.plan.arena_bytes, np.uint8)
        with self.runtime.turn():
            if arena.size:
                self.runtime.compute.download(arena, self.arena.address)
            self.runtime.compute.synchronize()
        return arena

    def next_slot(self) -> Slot:
        """Where the next call goes, which waits for the last but one.

        Raises ExecutionError for an index out of range in any call that has finished.
        """
        slot = self._slots[self._calls_begun % SLOTS]
        self._calls_begun += 1
        slot.land()
        for other in self._slots:
            if other.is_in_flight and other.finished.is_done():
                other.land()
        return slot

    @property
    def _workspace_bytes(self) -> int:
        return self.device.cublaslt.workspace_bytes if any(self.calls.products()) else 0

    @property
    def scratch_bytes(self) -> int:
        """On the device: scratch memory of steps and products, and where inputs land. On the host: what these and the
        results pass through.
        """
        slot = 2 * self.input_layout.nbytes + self.result_layout.nbytes
        return self.calls.scratch_bytes + self._workspace_bytes + SLOTS * slot

    # -- memory --------------------------------------------------------------------------------------------------------

    @property
    def _needs(self) -> Footprint:
        return footprint(self.plan, self.scratch_bytes)

    def _expect_room(self) -> None:
        """Raise LoweringError when the program does not fit now, or could not ever with its parameters and state."""
        needs = self._needs
        own = needs.total - needs.parameters - needs.state
        if own > self.runtime.free_memory() or needs.total > self.device.memory()[1]:
            self._raise_no_room(needs.total, *str(needs).splitlines())

    def _expect_room_for(self, kept: Sequence[int]) -> None:
        """Raise LoweringError when the device lacks the memory for these parameters and states."""
        buffers = [self.plan.buffers[number] for number in kept]
        needed = sum(aligned(buffer.type.nbytes) for buffer in buffers)
        if needed > self.runtime.free_memory():
            owners = [Owner(f"{buffer.place} {buffer.name}: {buffer.type}", buffer.type.nbytes) for buffer in buffers]
            largest = sorted(owners, key=lambda owner: -owner.nbytes)[:LARGEST_OWNERS]
            self._raise_no_room(needed, "for parameters and state, the largest of which are", *owner_lines(largest))

    def _raise_no_room(self, needed: int, *details: str) -> NoReturn:
        free, total = self.device.memory()
        raise LoweringError(
            f"{self.plan.name!r} needs {readable(needed)} on {self.device.name}, which has {readable(free)} free of "
            f"{readable(total)}",
            details=details,
            hint="compile(graph, memory_budget=...) computes values again instead of keeping them",
        ) from None


def _numbers(plan: Plan, place: str) -> list[int]:
    return [number for number, buffer in enumerate(plan.buffers) if buffer.place == place]
