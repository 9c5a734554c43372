"""The emulator's own library with cuBLASLt's C interface, which computes on the CPU; see cublaslt.cpp."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from euler_ir.backends.cuda.emulator import toolchain

_SOURCES = [Path(__file__).with_name("cublaslt.cpp")]


@functools.cache
def load() -> ctypes.CDLL:
    """The library, compiled by g++ unless the cache has it. Raises LoweringError without g++."""
    return toolchain.load(toolchain.library("the emulator's cuBLASLt", _SOURCES, ("-O3",)))
