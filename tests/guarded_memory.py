"""Arrays with memory beside them that may not be touched: a loop that leaves its array ends the process."""

import ctypes
import mmap

import numpy as np


def guarded_array(size, dtype, before=False):
    """Zeros, dtype[size], which end where the memory does, or with ``before`` begin where it does."""
    count, dtype = int(np.prod(size)), np.dtype(dtype)
    room = -(-max(count * dtype.itemsize, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, room + mmap.PAGESIZE), np.uint8)
    guard = memory.ctypes.data + (0 if before else room)
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    start = mmap.PAGESIZE if before else room - count * dtype.itemsize
    return memory[start : start + count * dtype.itemsize].view(dtype).reshape(size)


class GuardedNumpy:
    """numpy, for a module whose new arrays shall be guarded."""

    def __init__(self, before=False):
        self._before = before

    def __getattr__(self, name):
        return getattr(np, name)

    def zeros(self, size, dtype):
        return guarded_array(size, dtype, self._before)

    def empty(self, size, dtype):
        # Whatever may lie in memory that was not written.
        array = guarded_array(size, dtype, self._before)
        array.reshape(-1).view(np.uint8)[:] = 0xA5
        return array

    def full(self, size, value, dtype):
        array = guarded_array(size, dtype, self._before)
        array[:] = value
        return array

    def empty_like(self, array):
        return self.empty(array.shape, array.dtype)
