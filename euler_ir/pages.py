"""Memory straight from the system: zeros that cost nothing before they are used, in huge pages where there are any."""

from __future__ import annotations

import mmap

import numpy as np


def allocate_pages(nbytes: int) -> np.ndarray:
    """``nbytes`` zeros, u8, on a page boundary; huge pages are several times faster to touch first, and to walk over.

    Raises MemoryError when the system has not got as much: it would promise more than it has, and kill who takes it.
    """
    if not nbytes:
        return np.zeros(0, np.uint8)
    available = available_memory()
    if available is not None and nbytes > available:
        raise MemoryError(f"{available >> 20} MiB are free")
    try:
        # Python's default is memory shared with forks, for which the system has no huge pages.
        pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError, OverflowError) as error:
        raise MemoryError(str(error)) from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)


def available_memory() -> int | None:
    """Bytes that the system can give without swapping out what is in use; None where it does not tell."""
    try:
        with open("/proc/meminfo") as file:
            kibibytes = {line.split(":")[0]: int(line.split()[1]) for line in file}
        return (kibibytes["MemAvailable"] + kibibytes["SwapFree"]) << 10
    except (OSError, KeyError):
        return None
