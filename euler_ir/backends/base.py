"""What every backend offers: turn a plan into something that runs on raw buffers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

from euler_ir.errors import ExecutionError
from euler_ir.plan.plan import Plan


class Program(ABC):
    """A plan made ready to run. Intermediates live in memory of its own; all else is handed in at each call."""

    @abstractmethod
    def run(self, arrays: Mapping[int, np.ndarray]) -> None:
        """Run the plan once on C-contiguous arrays, one for each buffer of place input, parameter, state or output.

        Outputs, and updated parameters and state, are written in place. Raises ExecutionError for an index that is
        out of range; what had been written by then stays written.
        """


def raise_fault(plan: Plan, fault: int) -> None:
    """Raise the ExecutionError for fault number ``fault`` of ``plan``."""
    what = plan.faults[fault]
    raise ExecutionError(
        f"{what.operator}: an index is outside of 0..{what.extent - 1}",
        location=what.location,
        hint="indices never wrap around and are never clamped",
    )
