"""cuBLASLt on one device: products are prepared once, with an algorithm of its heuristics' choice, then only enqueued.

Nothing here needs a GPU but `load` and what it gives: the emulator has a library of its own with the same interface.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Hashable, Sequence
from ctypes import c_int, c_void_p
from dataclasses import dataclass

from euler_ir.backends.cuda.gemm.api import (
    Algorithm,
    Api,
    Handle,
    HeuristicResult,
    PreferenceAttribute,
    ReductionScheme,
)
from euler_ir.backends.cuda.toolkit import load_library
from euler_ir.errors import LoweringError

_PACKAGES = ("nvidia.cu13", "nvidia.cublas")
_CANDIDATES = 8
_ALIGNMENTS = (
    PreferenceAttribute.MIN_ALIGNMENT_A_BYTES,
    PreferenceAttribute.MIN_ALIGNMENT_B_BYTES,
    PreferenceAttribute.MIN_ALIGNMENT_C_BYTES,
    PreferenceAttribute.MIN_ALIGNMENT_D_BYTES,
)
Number = ctypes.c_float | ctypes.c_double
_MOST_ALIGNED = 256

# What the library asks for at most: https://docs.nvidia.com/cuda/cublas/#cublassetworkspace
_WORKSPACE_BYTES = {"sm_90": 32 << 20, "sm_100": 32 << 20, "sm_103": 32 << 20, "sm_120": 12 << 20}
_WORKSPACE_BYTES_ELSE = 4 << 20


@functools.cache
def load(major: int | None = None) -> ctypes.CDLL:
    """NVIDIA's library, of CUDA ``major``, else of 13 or 12. Raises LoweringError when there is none."""
    names = [f"libcublasLt.so.{number}" for number in ((13, 12) if major is None else (major,))]
    package = "nvidia-cublas" if major == 13 else "nvidia-cublas-cu12"
    return load_library(
        names, _PACKAGES, "cuBLASLt, which multiplies matrices on a GPU", hint=f"pip install {package}"
    )


def workspace_bytes(architecture: str) -> int:
    """Memory that products on ``architecture``, such as 'sm_90', have for what they keep meanwhile."""
    return _WORKSPACE_BYTES.get(architecture.rstrip("af"), _WORKSPACE_BYTES_ELSE)


def alignment(address: int) -> int:
    """The largest power of 2, up to 256, that divides ``address``."""
    return min(address & -address, _MOST_ALIGNED) if address else _MOST_ALIGNED


@dataclass(frozen=True)
class Prepared:
    """A product that can be enqueued on a stream, by its number, again and again; it keeps the ``handles`` it needs."""

    api: Api
    handles: tuple[Handle, ...]
    arguments: tuple

    def __call__(self, stream: int) -> None:
        self.api.call("Matmul", *self.arguments, stream)


class CublasLt:
    """The library of ``api``, NVIDIA's or the emulator's, on the device that is current when it calls its functions.

    ``workspace_bytes`` is the size of the memory that products are enqueued with. Algorithms are kept in memory alone:
    what they are made of belongs to one version of the library and one device.
    """

    def __init__(self, api: Api, workspace_bytes: int) -> None:
        self.api = api
        self.workspace_bytes = workspace_bytes
        self._handle = c_void_p()
        # Never destroyed: when the process ends, the device may be gone before this object.
        self.api.call("Create", ctypes.byref(self._handle))
        self._algorithms: dict[Hashable, Algorithm] = {}

    def prepare(
        self,
        problem: Hashable,
        operation: Handle,
        matrices: Sequence[tuple[int, Handle]],
        factors: tuple[Number, Number],
        workspace: int,
    ) -> Prepared:
        """What enqueues D = alpha A B + beta C on a stream. ``matrices`` A, B, C and D are addresses with layouts.

        ``factors`` are alpha and beta. ``problem`` says all but the addresses: the heuristics are asked once for each.
        ``workspace`` is the address of the memory. Raises LoweringError when the library has no algorithm for this.
        """
        addresses, layouts = zip(*matrices)
        alignments = tuple(map(alignment, addresses))
        algorithm = self._algorithms.get((problem, alignments))
        if algorithm is None:
            algorithm = self._algorithms[problem, alignments] = self._choose(operation, layouts, alignments)
        a, b, c, d = ((address, layout.value) for address, layout in matrices)
        alpha, beta = map(ctypes.byref, factors)
        arguments = (self._handle, operation.value, alpha, *a, *b, beta, *c, *d, algorithm, workspace)
        return Prepared(self.api, (operation, *layouts), (*arguments, self.workspace_bytes))

    def _choose(self, operation: Handle, layouts: Sequence[Handle], alignments: Sequence[int]) -> Algorithm:
        preference = Handle(
            self.api,
            "MatmulPreference",
            attributes={
                PreferenceAttribute.MAX_WORKSPACE_BYTES: self.workspace_bytes,
                # Parts of a sum meet in a fixed order, and are rounded once: never in the type of the result.
                PreferenceAttribute.REDUCTION_SCHEME_MASK: ReductionScheme.COMPUTE_TYPE,
                **dict(zip(_ALIGNMENTS, alignments)),
            },
        )
        results, count = (HeuristicResult * _CANDIDATES)(), c_int()
        handles = (each.value for each in (operation, *layouts, preference))
        returned = _CANDIDATES, results, ctypes.byref(count)
        self.api.call("MatmulAlgoGetHeuristic", self._handle, *handles, *returned)
        for result in results[: count.value]:
            if result.state == 0 and result.workspace_bytes <= self.workspace_bytes:
                return result.algorithm
        raise LoweringError("cuBLASLt has no algorithm for this product")
