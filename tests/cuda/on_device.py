"""Graphs compiled for a device of one's own, which `compile` would share; the same on a GPU where there is one."""

import pytest

from euler_ir.backends.cuda.emulator.device import EmulatedDevice
from euler_ir.backends.cuda.open_device import open_device
from euler_ir.backends.cuda.program import CudaProgram
from euler_ir.compiler import Executable, lower, pipeline_of

GPU = pytest.param(None, marks=pytest.mark.gpu)


def new_device(seed=0):
    """An emulated device whose streams are worked off in an order drawn from `seed`, or with None the first GPU."""
    return open_device("cuda") if seed is None else EmulatedDevice(seed=seed)


def on_device(graph, device=None, **options):
    """``graph`` for ``device``, or a new emulated one with ``options``."""
    stages = lower(graph, pipeline_of("cuda"))
    return Executable(graph, stages, CudaProgram(stages.plan, device or EmulatedDevice(**options)))
