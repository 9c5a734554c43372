"""One call of cuBLASLt: matrices of a plan, which are row-major, as the library sees them, column by column.

What lies row by row is, read column by column, its transpose. So the library is asked for the transpose of the result,
right^T left^T, of the same bytes: its A is our right operand, its B our left one, its rows are our columns.
"""

from __future__ import annotations

import ctypes
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from euler_ir.backends.cuda.calls import Pointer
from euler_ir.backends.cuda.gemm.api import (
    Attribute,
    ComputeType,
    DataType,
    Epilogue,
    Handle,
    LayoutAttribute,
    MatmulAttribute,
    Operation,
)
from euler_ir.backends.cuda.gemm.cublaslt import CublasLt, Prepared, alignment
from euler_ir.backends.cuda.gemm.reasons import Declined
from euler_ir.dtypes import DType
from euler_ir.errors import LoweringError
from euler_ir.plan.memory import ALIGNMENT
from euler_ir.plan.plan import Origin

_SOMEWHERE = 4096 + ALIGNMENT
"""An address as the plan's buffers may have; heuristics look at nothing but how it is aligned."""
_DATA = {"f16": DataType.F16, "bf16": DataType.BF16, "f32": DataType.F32, "f64": DataType.F64}


@dataclass(frozen=True)
class Matrices:
    """As many matrices as the product has items, ``batch_stride`` elements apart from ``pointer`` on.

    Element (r, c) of one is at ``r leading + c``, or with ``transposed`` at ``c leading + r``, counted in elements.
    """

    pointer: Pointer
    leading: int
    batch_stride: int
    transposed: bool


@dataclass(frozen=True)
class LibraryEpilogue:
    """What the library does to the product. ``bias`` has an element for each column.

    ``auxiliary`` is what GELU is taken of, stored or read, with ``leading`` elements from row to row.
    """

    kind: Epilogue = Epilogue.NONE
    bias: Pointer | None = None
    auxiliary: Pointer | None = None
    leading: int = 0


@dataclass(frozen=True)
class Product:
    """``result = epilogue(alpha left @ right + beta addend)`` for each of ``items``; the addend may be the result.

    Half types are summed in f32 and rounded once; f32 with ``tf32`` is multiplied in 10 bits of mantissa. ``declined``
    says why a kernel does what follows, if anything does.
    """

    dtype: DType
    items: int
    rows: int
    columns: int
    inner: int
    left: Matrices
    right: Matrices
    result: Matrices
    addend: Matrices
    alpha: float
    beta: float
    tf32: bool
    epilogue: LibraryEpilogue
    declined: Declined | None
    origins: tuple[Origin, ...]

    @property
    def pointers(self) -> tuple[Pointer, ...]:
        """What `prepare` needs the addresses of: left, right, result, addend, then what the epilogue has."""
        operands = (self.left, self.right, self.result, self.addend)
        others = (self.epilogue.bias, self.epilogue.auxiliary)
        return (*(each.pointer for each in operands), *(pointer for pointer in others if pointer is not None))

    def prepare(self, library: CublasLt, addresses: Sequence[int], workspace: int) -> Prepared:
        """What enqueues this on a stream: nothing else happens then, so that it can be captured.

        ``addresses`` are those of `pointers`; ``workspace`` is that of ``library.workspace_bytes`` bytes, which no
        call on another stream may use meanwhile. Raises LoweringError when the library cannot do this.
        """
        left, right, result, addend, *others = addresses
        compute, scale = self._compute_type(), DataType.F64 if self.dtype.name == "f64" else DataType.F32
        operation = Handle(library.api, "MatmulDesc", compute, scale, attributes=self._attributes(others))
        matrices = (
            (right, self._layout(library, self.right, self.inner, self.columns)),
            (left, self._layout(library, self.left, self.rows, self.inner)),
            (addend, self._layout(library, self.addend, self.rows, self.columns)),
            (result, self._layout(library, self.result, self.rows, self.columns)),
        )
        number = ctypes.c_double if scale == DataType.F64 else ctypes.c_float
        factors = number(self.alpha), number(self.beta)
        try:
            return library.prepare(self._problem(others), operation, matrices, factors, workspace)
        except LoweringError as error:
            places = [place for origin in self.origins for place in origin.locations]
            raise LoweringError(
                f"cuBLASLt does not do {self}", details=(error.message,), location=places[-1] if places else None
            ) from None

    def is_supported(self, library: CublasLt) -> bool:
        """Whether ``library`` has an algorithm for this, wherever the plan's buffers are."""
        try:
            self.prepare(library, [_SOMEWHERE + pointer.offset for pointer in self.pointers], _SOMEWHERE)
        except LoweringError:
            return False
        return True

    def __str__(self) -> str:
        """Such as ``bf16 2 of 8 x 4 x 16 with BIAS``: rows, inner extent and columns."""
        items = f"{self.items} of " if self.items > 1 else ""
        epilogue = "" if self.epilogue.kind == Epilogue.NONE else f" with {self.epilogue.kind.name}"
        return f"{self.dtype} {items}{self.rows} x {self.inner} x {self.columns}{epilogue}"

    def _problem(self, others: Sequence[int]) -> Hashable:
        """All about the product but where its matrices are; ``others`` are the addresses that the epilogue has."""
        matrices = (self.left, self.right, self.addend, self.result)
        layouts = tuple((each.leading, each.batch_stride, each.transposed) for each in matrices)
        sizes = (self.items, self.rows, self.columns, self.inner)
        epilogue = (self.epilogue.kind, self.epilogue.leading, *map(alignment, others))
        return self.dtype, self.tf32, sizes, layouts, self.beta != 0, epilogue

    def _compute_type(self) -> ComputeType:
        if self.dtype.name == "f64":
            return ComputeType.F64
        return ComputeType.TF32 if self.tf32 and self.dtype.name == "f32" else ComputeType.F32

    def _attributes(self, others: Sequence[int]) -> dict[Attribute, int]:
        attributes: dict[Attribute, int] = {
            MatmulAttribute.TRANSA: Operation.TRANSPOSE if self.right.transposed else Operation.NONE,
            MatmulAttribute.TRANSB: Operation.TRANSPOSE if self.left.transposed else Operation.NONE,
            MatmulAttribute.EPILOGUE: self.epilogue.kind,
        }
        remaining = iter(others)
        if self.epilogue.bias is not None:
            attributes[MatmulAttribute.BIAS_POINTER] = next(remaining)
        if self.epilogue.auxiliary is not None:
            attributes[MatmulAttribute.EPILOGUE_AUX_POINTER] = next(remaining)
            attributes[MatmulAttribute.EPILOGUE_AUX_LD] = self.epilogue.leading
        return attributes

    def _layout(self, library: CublasLt, view: Matrices, rows: int, columns: int) -> Handle:
        """``rows`` x ``columns`` row by row are ``columns`` x ``rows`` column by column, unless transposed already."""
        stored = (rows, columns) if view.transposed else (columns, rows)
        attributes: dict[Attribute, int] = {}
        if self.items > 1:
            attributes[LayoutAttribute.BATCH_COUNT] = self.items
            attributes[LayoutAttribute.STRIDED_BATCH_OFFSET] = view.batch_stride
        data = _DATA[self.dtype.name]
        return Handle(library.api, "MatrixLayout", data, *stored, view.leading, attributes=attributes)
