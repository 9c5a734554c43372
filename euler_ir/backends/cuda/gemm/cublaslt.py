"""cuBLASLt on one device: products are prepared once, with an algorithm of its heuristics' choice, then only enqueued.

Nothing here needs a GPU but `load` and what it gives: the emulator has a library of its own with the same interface.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Hashable
from ctypes import c_int, c_void_p

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
_MOST_ALIGNED = 256

# What the library asks for at most: https://docs.nvidia.com/cuda/cublas/#cublassetworkspace
_WORKSPACE_BYTES = {"sm_90": 32 << 20}
_WORKSPACE_BYTES_ELSE = 4 << 20


@functools.cache
def load(major: int | None = None) -> ctypes.CDLL:
    """NVIDIA's library, of CUDA ``major``, else of 13 or 12. Raises LoweringError when there is none."""
    majors = (13, 12) if major is None else (major,)
    package = f"nvidia-cublas-cu{majors[-1]}" if majors[-1] == 12 else "nvidia-cublas"
    return load_library(
        [f"libcublasLt.so.{number}" for number in majors],
        _PACKAGES,
        "cuBLASLt, which multiplies matrices on a GPU",
        hint=f"pip install {package}",
    )


def workspace_bytes(architecture: str) -> int:
    """Memory that products on ``architecture``, such as 'sm_90', have for what they keep meanwhile."""
    return _WORKSPACE_BYTES.get(architecture.rstrip("af"), _WORKSPACE_BYTES_ELSE)


def alignment(address: int) -> int:
    """The largest power of 2, up to 256, that divides ``address``."""
    return min(address & -address, _MOST_ALIGNED) if address else _MOST_ALIGNED


class CublasLt:
    """``library``, NVIDIA's or the emulator's, on the device that is current.

    ``workspace_bytes`` is the size of the memory that products are enqueued with.
    """

    def __init__(self, library: ctypes.CDLL, workspace_bytes: int) -> None:
        self.api = Api(library)
        self.workspace_bytes = workspace_bytes
        self._handle = c_void_p()
        # Never destroyed: when the process ends, the device may be gone before this object.
        self.api.call("Create", ctypes.byref(self._handle))
        self._algorithms: dict[Hashable, Algorithm] = {}

    def prepare(
        self,
        key: Hashable,
        operation: Handle,
        matrices: tuple[tuple[int, Handle], tuple[int, Handle], tuple[int, Handle]],
        scale: type[ctypes.c_float | ctypes.c_double],
        beta: float,
        workspace: int,
    ) -> Callable[[int], None]:
        """What enqueues D = A B + beta D on a stream, for ``matrices`` A, B and D, each an address and a layout.

        ``key`` says all about the problem but its addresses: the heuristics are asked once for each. ``workspace`` is
        the address of the memory. Raises LoweringError when the library has no algorithm for this.
        """
        (a, a_layout), (b, b_layout), (d, d_layout) = matrices
        alignments = tuple(map(alignment, (a, b, d)))
        algorithm = self._algorithms.get((key, alignments))
        if algorithm is None:
            layouts = a_layout, b_layout, d_layout
            algorithm = self._algorithms[key, alignments] = self._choose(operation, layouts, alignments)
        one, kept = scale(1.0), scale(beta)

        def enqueue(stream: int) -> None:
            self.api.call(
                "Matmul",
                self._handle,
                operation.value,
                ctypes.byref(one),
                a,
                a_layout.value,
                b,
                b_layout.value,
                ctypes.byref(kept),
                *(d, d_layout.value) * 2,
                ctypes.byref(algorithm),
                workspace,
                self.workspace_bytes,
                stream,
            )

        return enqueue

    def _choose(self, operation: Handle, layouts: tuple[Handle, Handle, Handle], alignments: tuple) -> Algorithm:
        a, b, d = alignments
        preference = Handle(
            self.api,
            "MatmulPreference",
            attributes={
                PreferenceAttribute.MAX_WORKSPACE_BYTES: self.workspace_bytes,
                # Parts of a sum meet in a fixed order, and are rounded once: never in the type of the result.
                PreferenceAttribute.REDUCTION_SCHEME_MASK: ReductionScheme.COMPUTE_TYPE,
                PreferenceAttribute.MIN_ALIGNMENT_A_BYTES: a,
                PreferenceAttribute.MIN_ALIGNMENT_B_BYTES: b,
                PreferenceAttribute.MIN_ALIGNMENT_C_BYTES: d,
                PreferenceAttribute.MIN_ALIGNMENT_D_BYTES: d,
            },
        )
        results, count = (HeuristicResult * _CANDIDATES)(), c_int()
        a_layout, b_layout, d_layout = (layout.value for layout in layouts)
        arguments = operation.value, a_layout, b_layout, d_layout, d_layout, preference.value
        self.api.call("MatmulAlgoGetHeuristic", self._handle, *arguments, _CANDIDATES, results, ctypes.byref(count))
        for result in results[: count.value]:
            if result.state == 0 and result.workspace_bytes <= self.workspace_bytes:
                return result.algorithm
        raise LoweringError("cuBLASLt has no algorithm for this product")
