"""What a product reads that no buffer of the plan holds: a nest makes it in scratch memory, just before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from euler_ir.backends.cuda.calls import Argument, BufferPointer, Launch, ScratchPointer, Table
from euler_ir.backends.cuda.codegen import kernel_calls
from euler_ir.loops.kernel import Kernel, Nest
from euler_ir.plan.plan import KernelStep, Origin

_ALIGNMENT = 256
_MADE = -1
"""Stands for the tensor that is made, among numbers of buffers."""


class Scratch:
    """Scratch memory of one step. ``launches`` fill it with what `make` was asked for."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self.nbytes = 0

    def make(self, nest: Nest, arguments: Sequence[int], origin: Origin) -> ScratchPointer:
        """Where ``nest`` writes its last parameter; the others are the buffers ``arguments``."""
        output = nest.parameters[-1]
        made = self._allot(output.size * output.dtype.itemsize)
        kernel = Kernel(origin.name, (nest,))
        step = KernelStep(kernel, ((*arguments, _MADE),), (0,), (frozenset(),), (origin,))
        calls = kernel_calls(step)
        own = self._allot(calls.scratch_bytes)

        def placed(argument: Argument) -> Argument:
            if isinstance(argument, Table):
                return Table(tuple(map(placed, argument.pointers)))
            if isinstance(argument, ScratchPointer):
                return ScratchPointer(own.offset + argument.offset)
            return made if argument == BufferPointer(_MADE) else argument

        for launch in calls.calls:
            self.launches.append(replace(launch, arguments=tuple(map(placed, launch.arguments))))
        return made

    def _allot(self, nbytes: int) -> ScratchPointer:
        pointer = ScratchPointer(self.nbytes)
        self.nbytes += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return pointer
