"""The part of cuBLASLt's C interface that is used here, of CUDA 12 and 13; numbers and sizes are those of cublasLt.h.

https://docs.nvidia.com/cuda/cublas/#using-the-cublaslt-api
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from enum import Enum, IntEnum, IntFlag

from euler_ir.errors import LoweringError


class DataType(IntEnum):
    """cudaDataType_t."""

    F32 = 0
    F64 = 1
    F16 = 2
    BF16 = 14


class ComputeType(IntEnum):
    """cublasComputeType_t: what products are multiplied and summed in."""

    F32 = 68
    F64 = 70
    TF32 = 77


class Operation(IntEnum):
    """cublasOperation_t."""

    NONE = 0
    TRANSPOSE = 1


class ReductionScheme(IntFlag):
    """cublasLtReductionScheme_t: how the parts of a sum that is cut into several come together."""

    IN_PLACE = 1
    COMPUTE_TYPE = 2
    OUTPUT_TYPE = 4


class Epilogue(IntEnum):
    """cublasLtEpilogue_t: what is done to a product before it is rounded and stored."""

    NONE = 1
    BIAS = 4
    GELU = 32
    GELU_BIAS = 36
    GELU_AUX = 160
    GELU_AUX_BIAS = 164
    DGELU = 192


class LayoutAttribute(Enum):
    """cublasLtMatrixLayoutAttribute_t, with the type of each."""

    BATCH_COUNT = 5, c_int32
    STRIDED_BATCH_OFFSET = 6, c_int64


class MatmulAttribute(Enum):
    """cublasLtMatmulDescAttributes_t, with the type of each."""

    TRANSA = 3, c_int32
    TRANSB = 4, c_int32
    EPILOGUE = 7, c_uint32
    BIAS_POINTER = 8, c_void_p
    EPILOGUE_AUX_POINTER = 11, c_void_p
    EPILOGUE_AUX_LD = 12, c_int64


class PreferenceAttribute(Enum):
    """cublasLtMatmulPreferenceAttributes_t, with the type of each."""

    MAX_WORKSPACE_BYTES = 1, c_uint64
    REDUCTION_SCHEME_MASK = 3, c_uint32
    MIN_ALIGNMENT_A_BYTES = 5, c_uint32
    MIN_ALIGNMENT_B_BYTES = 6, c_uint32
    MIN_ALIGNMENT_C_BYTES = 7, c_uint32
    MIN_ALIGNMENT_D_BYTES = 8, c_uint32


Attribute = LayoutAttribute | MatmulAttribute | PreferenceAttribute


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t: which of its kernels the library runs, and how."""

    _fields_ = [("data", c_uint64 * 8)]


class HeuristicResult(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algorithm", Algorithm),
        ("workspace_bytes", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    ]


_PARAMETERS = {
    "Create": [POINTER(c_void_p)],
    "MatmulDescCreate": [POINTER(c_void_p), c_int, c_int],
    "MatrixLayoutCreate": [POINTER(c_void_p), c_int, c_uint64, c_uint64, c_int64],
    "MatmulPreferenceCreate": [POINTER(c_void_p)],
    **{
        f"{kind}{verb}": types
        for kind in ("MatmulDesc", "MatrixLayout", "MatmulPreference")
        for verb, types in (
            ("Destroy", [c_void_p]),
            ("SetAttribute", [c_void_p, c_int, c_void_p, c_size_t]),
            ("GetAttribute", [c_void_p, c_int, c_void_p, c_size_t, POINTER(c_size_t)]),
        )
    },
    "MatmulAlgoGetHeuristic": [c_void_p] * 7 + [c_int, POINTER(HeuristicResult), POINTER(c_int)],
    "Matmul": [c_void_p] * 12 + [POINTER(Algorithm), c_void_p, c_size_t, c_void_p],
}
"""By name: the types of what each function takes. It returns a cublasStatus_t."""


class Api:
    """The functions of a ``library`` that has cuBLASLt's C interface. ``do(function, *arguments)`` calls one."""

    def __init__(self, library: ctypes.CDLL, do: Callable[..., int] = lambda f, *given: f(*given)) -> None:
        self._do = do
        self._functions = {name: getattr(library, f"cublasLt{name}") for name in _PARAMETERS}
        for name, function in self._functions.items():
            function.argtypes, function.restype = _PARAMETERS[name], c_int
        self._status_name = library.cublasLtGetStatusName
        self._status_name.argtypes, self._status_name.restype = [c_int], c_char_p
        library.cublasLtGetVersion.restype = c_size_t
        number = library.cublasLtGetVersion()
        #: Such as (12, 9, 3).
        self.version = (number // 10000, number // 100 % 100, number % 100)

    def call(self, name: str, *arguments) -> None:
        """Raises LoweringError with the library's status when that is not success."""
        status = self._do(self._functions[name], *arguments)
        if status:
            raise LoweringError(f"cuBLASLt: {name} gives {self.status_name(status)}")

    def status_name(self, status: int) -> str:
        """Such as CUBLAS_STATUS_NOT_SUPPORTED."""
        return self._status_name(status).decode()


class Handle:
    """Something of the library, a 'MatmulDesc', 'MatrixLayout' or 'MatmulPreference', destroyed with this object.

    ``arguments`` are those of its function Create, ``attributes`` are set one by one. Raises LoweringError when the
    library refuses one of these.
    """

    def __init__(self, api: Api, kind: str, *arguments: int, attributes: Mapping[Attribute, int] = {}) -> None:
        self._api, self._kind = api, kind
        self.value = c_void_p()
        api.call(f"{kind}Create", ctypes.byref(self.value), *arguments)
        weakref.finalize(self, api.call, f"{kind}Destroy", c_void_p(self.value.value))
        for attribute, number in attributes.items():
            value = attribute.value[1](number)
            api.call(f"{kind}SetAttribute", self.value, attribute.value[0], ctypes.byref(value), ctypes.sizeof(value))

    def get(self, attribute: Attribute) -> int:
        """What ``attribute`` is set to."""
        value, written = attribute.value[1](), c_size_t()
        space = ctypes.byref(value), ctypes.sizeof(value), ctypes.byref(written)
        self._api.call(f"{self._kind}GetAttribute", self.value, attribute.value[0], *space)
        return value.value
