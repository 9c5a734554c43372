"""What every backend offers: turn a plan into something that runs on raw buffers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import NoReturn

import numpy as np

from euler_ir.errors import ExecutionError, LoweringError
from euler_ir.plan.footprint import footprint, readable, owner_lines
from euler_ir.plan.plan import Plan
from euler_ir.residence import Kept

Run = Callable[[Mapping[int, np.ndarray]], None]
Call = Callable[[dict[int, np.ndarray]], Mapping[str, np.ndarray]]


class Program(ABC):
    """``plan`` made ready to run. Intermediates live in memory of its own; all else is handed in."""

    plan: Plan

    @abstractmethod
    def bind(self, kept: Mapping[int, np.ndarray]) -> Run:
        """What runs the plan once on ``kept`` and the arrays that it is called with.

        Together these are a C-contiguous array for each buffer of place input, parameter, state or output, by number.
        Outputs, and updated parameters and state, are written in place. Raises ExecutionError for an index that is
        out of range; what had been written by then stays written.
        """

    def run(self, arrays: Mapping[int, np.ndarray]) -> None:
        """Run the plan once on all of its arrays; see `bind`."""
        self.bind({})(arrays)

    def bind_state(self, kept: Mapping[int, Kept]) -> Call:
        """What runs the plan once on ``kept``, the parameters and state by number, and on the inputs that it is called
        with, a dict for it to keep, and returns the outputs by name: new arrays, which a device may fetch when they are
        first read.

        Raises ExecutionError as runs of `bind` do, on a device at the latest when the outputs are read.
        """
        run = self.bind({number: each.array for number, each in kept.items()})
        residents = tuple(kept.values())
        places = [(name, number, self.plan.buffers[number].type) for name, number in self.plan.outputs.items()]
        places = [(name, number, type.shape, type.dtype.numpy) for name, number, type in places]

        def call(arrays: dict[int, np.ndarray]) -> dict[str, np.ndarray]:
            for each in residents:
                if each.away is not None:
                    each.at_home()
            outputs = {}
            for name, number, shape, dtype in places:
                outputs[name] = arrays[number] = np.empty(shape, dtype)
            run(arrays)
            return outputs

        return call

    @abstractmethod
    def on_plan(self, plan: Plan, code: Mapping[str, str]) -> Program:
        """A program of the same backend for ``plan``, with ``code`` in place of what it makes of kernels.

        Kernels are called by name or number. Raises LoweringError for code that does not fit there.
        """

    def intermediates(self) -> np.ndarray:
        """What the last run left in the arena, u8[arena_bytes]: for who looks into programs."""
        return self.arena

    @property
    def scratch_bytes(self) -> int:
        """Memory that the program has for itself beside the arena."""
        return 0


def raise_no_memory(plan: Plan, reason: object) -> NoReturn:
    """Raise the LoweringError for an arena that the system cannot give: how much it is, and whose most of it is."""
    needs = footprint(plan)
    raise LoweringError(
        f"{plan.name!r} needs {readable(needs.arena)} for intermediate tensors, which the system has not got",
        details=(f"the system says: {reason}", "largest at the peak:", *owner_lines(needs.owners)),
        hint="compile(graph, memory_budget=...) computes values again instead of keeping them",
    ) from None


def raise_fault(plan: Plan, fault: int) -> None:
    """Raise the ExecutionError for fault number ``fault`` of ``plan``."""
    what = plan.faults[fault]
    raise ExecutionError(
        f"{what.operator}: an index is outside of 0..{what.extent - 1}",
        location=what.location,
        hint="indices never wrap around and are never clamped",
    )
