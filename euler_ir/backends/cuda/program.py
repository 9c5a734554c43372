"""A plan compiled for a device: one CUDA graph a step over memory whose addresses never change."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from euler_ir.backends.base import Program, Run
from euler_ir.backends.cuda.binding import FAULT_BYTES, Binding
from euler_ir.backends.cuda.calls import Fill, FaultPointer
from euler_ir.backends.cuda.device import Device
from euler_ir.backends.cuda.layout import Layout, aligned
from euler_ir.backends.cuda.memory import raise_no_device_memory
from euler_ir.backends.cuda.runtime import Runtime
from euler_ir.backends.cuda.slot import Slot
from euler_ir.backends.cuda.step import planned_calls
from euler_ir.plan.plan import Plan
from euler_ir.residence import Kept

SLOTS = 2
"""Calls in flight: while one runs, the next one's inputs are brought."""


class CudaProgram(Program):
    """``plan`` compiled and loaded, with its memory but for parameters and state, which all programs of a device share.

    ``code`` has CUDA C++ in place of what is generated for kernels (see `planned_calls`). Raises LoweringError for what
    has no code, and when the device has not got the memory.
    """

    def __init__(self, plan: Plan, device: Device, code: Mapping[str, str] = MappingProxyType({})) -> None:
        self.plan, self.device = plan, device
        self.calls = planned_calls(plan, device.architecture, code)
        self.written = {buffer for step in plan.steps() for buffer in step.writes()}
        self.runtime = Runtime.of(device)
        places = {place: [n for n, buffer in enumerate(plan.buffers) if buffer.place == place] for place in PLACES}
        self._input_layout = Layout(plan, places["input"])
        self._result_layout = Layout(plan, places["output"], header=FAULT_BYTES * len(plan.faults))
        self._constant_layout = Layout(plan, places["constant"])
