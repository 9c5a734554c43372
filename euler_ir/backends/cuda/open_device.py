"""Devices by the names of their backends, each opened once in a process."""

from __future__ import annotations

import functools
import os

from euler_ir.backends.cuda.device import Device


def open_device(backend: str) -> Device:
    """The device of ``backend``: 'cuda' (the first GPU), 'cuda:1' (the second), or 'cuda-emulator'.

    All who ask for one share it. Raises LoweringError that says what is missing.
    """
    kind, _, number = backend.partition(":")
    # A forked child must not use what its parent has opened; it gets its own, which on a GPU says so.
    return _opened(kind, int(number or 0), os.getpid())


@functools.cache
def _opened(kind: str, number: int, process: int) -> Device:
    if kind == "cuda-emulator":
        from euler_ir.backends.cuda.emulator.device import EmulatedDevice

        return EmulatedDevice()
    from euler_ir.backends.cuda.cupy_device import CupyDevice

    return CupyDevice(number)
