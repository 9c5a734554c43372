"""Device memory of the emulator: an access outside of an allocation, or to one that was freed, is found.

Each allocation ends at a page that cannot be touched. The bytes between its end and that page, and those before its
start, must not change: each launch checks them. New memory is full of bytes that make NaN.
"""

from __future__ import annotations

import ctypes

import numpy as np

from euler_ir.backends.cuda.emulator.toolchain import runtime
from euler_ir.errors import ExecutionError


def allocate(nbytes: int, name: str = "", alignment: int = 16, poison: bool = True) -> int:
    """The address of ``nbytes`` new bytes, a multiple of ``alignment``; ``name`` is for messages.

    The less the alignment, the nearer is the end to the page that cannot be touched; 16 is enough for vectors.
    Without ``poison`` the memory is zeros that take no room before they are touched, for buffers larger than the
    machine. Raises MemoryError.
    """
    if nbytes < 0:
        raise ExecutionError(f"an allocation of {nbytes} bytes")
    address = runtime().cuda_emulator_allocate(nbytes, alignment, poison, name.encode())
    if address is None:
        raise MemoryError(f"the emulator cannot allocate {nbytes} bytes")
    return address


def free(address: int) -> None:
    """Give memory back; who touches it later is told so. Raises ExecutionError for what `allocate` did not give."""
    if not runtime().cuda_emulator_free(address):
        raise ExecutionError(f"there is no allocation to free at {address:#x}", details=(describe(address),))


def describe(address: int) -> str:
    """What is at ``address``, such as "byte 8 of allocation #3 'weights' of 4096 bytes"."""
    text = ctypes.create_string_buffer(512)
    runtime().cuda_emulator_describe(address, text, len(text))
    return text.value.decode() or "it lies in no allocation"


def is_allocated(address: int) -> bool:
    """Whether ``address`` points into an allocation that is not freed, or to its end."""
    return runtime().cuda_emulator_bytes_at(address) >= 0


def check_range(address: int, nbytes: int) -> None:
    """Raises ExecutionError unless ``nbytes`` bytes at ``address`` lie in one allocation."""
    available = runtime().cuda_emulator_bytes_at(address)
    if nbytes > available:
        raise ExecutionError(f"there are no {nbytes} bytes at {address:#x}", details=(describe(address),))


def upload(address: int, array: np.ndarray) -> None:
    """Copy ``array`` to ``address``. Raises ExecutionError when there is no room for it."""
    check_range(address, array.nbytes)
    contiguous = np.ascontiguousarray(array)
    ctypes.memmove(address, contiguous.ctypes.data, contiguous.nbytes)


def download(address: int, array: np.ndarray) -> None:
    """Copy from ``address`` into ``array``, which is contiguous. Raises ExecutionError when there is less."""
    check_range(address, array.nbytes)
    if not array.flags.c_contiguous:
        raise ExecutionError("an array to download into must be contiguous")
    ctypes.memmove(array.ctypes.data, address, array.nbytes)


def from_array(array: np.ndarray, name: str = "") -> int:
    """The address of a new copy of ``array``."""
    address = allocate(array.nbytes, name)
    upload(address, array)
    return address


def to_array(address: int, shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
    """A new array of what is at ``address``."""
    array = np.empty(shape, dtype)
    download(address, array)
    return array
