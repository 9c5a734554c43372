"""A call on its way, and what its caller gets: outputs that are fetched when they are read."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from euler_ir.backends.base import raise_fault
from euler_ir.backends.cuda.layout import Layout
from euler_ir.backends.cuda.runtime import Runtime
from euler_ir.errors import ExecutionError
from euler_ir.plan.plan import Plan

if TYPE_CHECKING:
    from euler_ir.backends.cuda.binding import Binding


class Slot:
    """Memory through which one call at a time of a program goes: its inputs on the host and where they land on the
    device, and its results, faults and outputs, on the host. ``arrived`` says that the inputs have landed, ``finished``
    that the results are here.
    """

    def __init__(self, runtime: Runtime, plan: Plan, inputs: Layout, results: Layout) -> None:
        self._runtime, self._plan = runtime, plan
        self.landing = runtime.block(inputs.nbytes)
        self.staged_inputs = runtime.device.staging(inputs.nbytes)
        self.inputs = inputs.views(self.staged_inputs)
        self.staged_results = runtime.device.staging(results.nbytes)
        self._faults = np.ndarray(len(plan.faults), np.int32, self.staged_results)
        self._results = results.views(self.staged_results)
        self.arrived, self.finished = runtime.device.event(), runtime.device.event()
        self._outputs = lambda: None

    @property
    def is_in_flight(self) -> bool:
        return self in self._runtime.in_flight

    def take_off(self, binding: Binding) -> Outputs:
        """The outputs of the call of ``binding`` whose end `finished` marks."""
        outputs = Outputs(self._runtime, self._plan, self)
        self._outputs = weakref.ref(outputs)
        self._runtime.in_flight[self] = binding
        return outputs

    def land(self) -> None:
        """Wait for the end of the call and hand its results over, unless nobody wants them any more.

        Raises ExecutionError for an index out of range, and when the device failed.
        """
        if not self.is_in_flight:
            return
        try:
            self.finished.synchronize()
            if (fault := self.fault()) is not None:
                raise_fault(self._plan, fault)
        except ExecutionError as error:
            self._hand_over({}, error)
            raise
        self._hand_over({name: self._results[number] for name, number in self._plan.outputs.items()})

    def _hand_over(self, results: Mapping[str, np.ndarray], error: ExecutionError | None = None) -> None:
        outputs = self._outputs()
        if outputs is not None:
            outputs.arrays = {name: array.copy() for name, array in results.items()}
            outputs.slot, outputs.error = None, error
        del self._runtime.in_flight[self]

    def fault(self) -> int | None:
        """The first fault of a call that has finished."""
        (found,) = np.nonzero(self._faults)
        return int(found[0] + self._faults[found[0]] - 1) if found.size else None


class Outputs(Mapping):
    """The outputs of a call by name, which are waited for when one is first read. They are the reader's to keep.

    Reading raises ExecutionError when an index was out of range in the call, or the device failed.
    """

    def __init__(self, runtime: Runtime, plan: Plan, slot: Slot) -> None:
        self._runtime, self._plan = runtime, plan
        self.slot: Slot | None = slot
        self.error: ExecutionError | None = None
        self.arrays: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if (slot := self.slot) is not None:
            with contextlib.suppress(ExecutionError):  # which landing raises
                slot.finished.synchronize()  # while other threads have their turns
            with self._runtime.turn():
                if self.slot is not None:
                    slot.land()
        if self.error is not None:
            raise self.error.with_traceback(None)
        return self.arrays[name]

    def __contains__(self, name: object) -> bool:
        return name in self._plan.outputs

    def __iter__(self) -> Iterator[str]:
        return iter(self._plan.outputs)

    def __len__(self) -> int:
        return len(self._plan.outputs)

    def __repr__(self) -> str:
        return repr(dict(self))
