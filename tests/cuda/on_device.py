"""Graphs compiled for an emulated device of one's own, which `compile` would share."""

from euler_ir.backends.cuda.emulator.device import EmulatedDevice
from euler_ir.backends.cuda.program import CudaProgram
from euler_ir.compiler import Executable, lower, pipeline_of


def on_device(graph, device=None, **options):
    """``graph`` for ``device``, or a new one with ``options``."""
    stages = lower(graph, pipeline_of("cuda-emulator"))
    return Executable(graph, stages, CudaProgram(stages.plan, device or EmulatedDevice(**options)))
