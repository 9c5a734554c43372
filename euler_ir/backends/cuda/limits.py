"""What a multiprocessor has for blocks, by architecture, and how many blocks of a kernel it holds at once.

The numbers are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; the way in
which registers and shared memory are given out is that of NVIDIA's occupancy calculator.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from euler_ir.errors import LoweringError

ARCHITECTURE = "sm_90"
"""What is looked at where nothing else is said: H100 and H200."""
WARP = 32
THREADS_OF_BLOCK = 1024
REGISTERS_OF_THREAD = 255
REGISTERS = 65536
"""Of a multiprocessor, in equal parts for its schedulers."""
DEFAULT_SHARED = 48 << 10
"""Bytes of shared memory that a block may have without asking for more: all that is not dynamic must fit."""
MOST_BLOCKS = 2**31 - 1
"""Of a grid, along x: the only direction in which blocks are counted here."""

_SCHEDULERS = 4
_REGISTERS_AT_ONCE = 256
"""Registers are given to a warp in multiples of this, shared memory to a block in multiples of the next."""
_SHARED_AT_ONCE = 128


@dataclass(frozen=True)
class Limits:
    """Of a multiprocessor: resident ``warps`` and ``blocks``, bytes of ``shared`` memory, of which a block may have
    ``shared_of_block`` and the system takes ``reserved`` for each block.
    """

    warps: int
    blocks: int
    shared: int
    shared_of_block: int
    reserved: int


LIMITS = {
    "sm_75": Limits(32, 16, 64 << 10, 64 << 10, 0),
    "sm_80": Limits(64, 32, 164 << 10, 163 << 10, 1 << 10),
    "sm_86": Limits(48, 16, 100 << 10, 99 << 10, 1 << 10),
    "sm_87": Limits(48, 16, 164 << 10, 163 << 10, 1 << 10),
    "sm_89": Limits(48, 24, 100 << 10, 99 << 10, 1 << 10),
    "sm_90": Limits(64, 32, 228 << 10, 227 << 10, 1 << 10),
    "sm_100": Limits(64, 32, 228 << 10, 227 << 10, 1 << 10),
    "sm_103": Limits(64, 32, 228 << 10, 227 << 10, 1 << 10),
    "sm_120": Limits(48, 24, 100 << 10, 99 << 10, 1 << 10),
    "sm_121": Limits(48, 24, 100 << 10, 99 << 10, 1 << 10),
}


def limits_of(architecture: str) -> Limits:
    """Those of ``architecture``, such as 'sm_90' or 'sm_90a'; of one that is not in LIMITS those of the next lower one.

    Raises LoweringError for what is older than all of them, or no architecture.
    """
    match = re.fullmatch(r"sm_(\d+)[af]?", architecture)
    older = [known for known in LIMITS if match and _number(known) <= int(match[1])]
    if not older:
        raise LoweringError(f"the limits of {architecture!r} are not known", hint=f"known are {', '.join(LIMITS)}")
    return LIMITS[max(older, key=_number)]


def _number(architecture: str) -> int:
    return int(architecture.removeprefix("sm_"))


def resident_blocks(architecture: str, threads: int, registers: int, shared: int) -> int:
    """How many blocks of ``threads`` threads, of so many ``registers`` each, with ``shared`` bytes of static and
    dynamic memory, a multiprocessor holds at once; 0 when not even one can be launched.

    Raises LoweringError for an unknown architecture.
    """
    limits, warps = limits_of(architecture), -(-threads // WARP)
    if threads > THREADS_OF_BLOCK or registers > REGISTERS_OF_THREAD or shared > limits.shared_of_block:
        return 0
    of_warp = _up(max(registers, 1) * WARP, _REGISTERS_AT_ONCE)
    by_registers = REGISTERS // _SCHEDULERS // of_warp * _SCHEDULERS // warps
    of_block = _up(shared + limits.reserved, _SHARED_AT_ONCE)
    by_shared = limits.shared // of_block if of_block else limits.blocks
    return min(limits.blocks, limits.warps // warps, by_registers, by_shared)


def occupancy(architecture: str, threads: int, registers: int, shared: int) -> float:
    """The part, 0 to 1, of the warps of a multiprocessor that are resident at once; see `resident_blocks`."""
    blocks = resident_blocks(architecture, threads, registers, shared)
    return blocks * -(-threads // WARP) / limits_of(architecture).warps


def _up(number: int, step: int) -> int:
    return -(-number // step) * step
