"""Element types, and the one table that says how they combine."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from euler_ir.errors import DTypeError


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. ``kind`` is one of 'bool', 'unsigned', 'signed', 'float'; ``bits`` is its width."""

    name: str
    kind: str
    bits: int

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    @property
    def itemsize(self) -> int:
        """Bytes an element takes in memory."""
        return max(self.bits // 8, 1)

    @property
    def numpy(self) -> np.dtype:
        return _NUMPY[self.name]

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("signed", "unsigned")

    @property
    def is_half(self) -> bool:
        """Whether sums of this type are kept in f32 (f16 and bf16)."""
        return self.kind == "float" and self.bits == 16

    @property
    def lowest(self):
        """The identity of max: -inf for floats, False for bool, the least integer otherwise."""
        if self.is_float:
            return float("-inf")
        return False if self.kind == "bool" else int(np.iinfo(self.numpy).min)

    @property
    def highest(self):
        """The identity of min: +inf for floats, True for bool, the largest integer otherwise."""
        if self.is_float:
            return float("inf")
        return True if self.kind == "bool" else int(np.iinfo(self.numpy).max)


bool_ = DType("bool", "bool", 1)
u8 = DType("u8", "unsigned", 8)
i8 = DType("i8", "signed", 8)
i32 = DType("i32", "signed", 32)
i64 = DType("i64", "signed", 64)
f16 = DType("f16", "float", 16)
bf16 = DType("bf16", "float", 16)
f32 = DType("f32", "float", 32)
f64 = DType("f64", "float", 64)

DTYPES: dict[str, DType] = {dtype.name: dtype for dtype in (bool_, u8, i8, i32, i64, f16, bf16, f32, f64)}

_NUMPY = {
    "bool": np.dtype(np.bool_),
    "u8": np.dtype(np.uint8),
    "i8": np.dtype(np.int8),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
_FROM_NUMPY = {numpy_dtype: DTYPES[name] for name, numpy_dtype in _NUMPY.items()}


def as_dtype(value) -> DType:
    """The DType of a name ('f32' or numpy's 'float32'), a DType, or a numpy dtype. Raises DTypeError for all else."""
    if isinstance(value, DType):
        return value
    if isinstance(value, str) and value in DTYPES:
        return DTYPES[value]
    try:
        dtype = np.dtype(value)
        # numpy's type codes are not names here: its 'f8' is our f64.
        if not isinstance(value, str) or value == dtype.name:
            return _FROM_NUMPY[dtype]
    except (KeyError, TypeError):
        pass
    raise DTypeError(f"{value!r} is not an element type of euler_ir", hint=f"use one of {', '.join(DTYPES)}")


def convert(values, dtype: DType) -> np.ndarray:
    """``values`` (numbers, lists or an array) as a new C-contiguous array of ``dtype``; floats may be rounded.

    Raises DTypeError when that would change more than the last digits: a float among integers, an integer out of range,
    a finite number too large for a float type.
    """
    array = np.asarray(values)
    kind = "f" if array.dtype in _FROM_NUMPY and _FROM_NUMPY[array.dtype].is_float else array.dtype.kind
    if kind not in "biuf" or (array.size and kind not in _HELD_BY[dtype.kind]):
        raise DTypeError(f"{array.dtype} does not convert to {dtype}", hint="round or cast it first")
    if not dtype.is_float and array.size and not (dtype.lowest <= array.min() and array.max() <= dtype.highest):
        raise DTypeError(f"{array.min()} to {array.max()} is out of the range of {dtype}")
    with np.errstate(all="ignore"):
        converted = np.array(array, dtype.numpy, order="C")
        overflows = dtype.is_float and kind == "f" and np.any(np.isinf(converted) & np.isfinite(array))
    if overflows:
        raise DTypeError(f"a number is too large for {dtype}")
    return converted


_HELD_BY = {"bool": "biu", "unsigned": "biu", "signed": "biu", "float": "biuf"}


def accumulation_dtype(dtype: DType) -> DType:
    """The type in which sums and statistics of ``dtype`` are kept: f32 for half types, else the type itself."""
    return f32 if dtype.is_half else dtype


def promote(left: DType, right: DType) -> DType:
    """The type in which two tensors meet.

    Wider wins within a kind; a float wins over an integer, an integer over bool; f16 with bf16 gives f32 and u8 with
    i8 gives i32, the narrowest types here that hold both.
    """
    if left == right:
        return left
    if {left.name, right.name} == {"f16", "bf16"}:
        return f32
    if {left.name, right.name} == {"u8", "i8"}:
        return i32
    order = (bool_, u8, i8, i32, i64, f16, bf16, f32, f64)
    return max(left, right, key=order.index)


def promote_scalar(dtype: DType, scalar: bool | int | float) -> DType:
    """The type in which a tensor meets a Python number: the tensor's own, unless the number is of a higher kind.

    An int beside a bool tensor gives i64 and a float beside an integer or bool tensor gives f32: scalars never widen
    a type of their own kind.
    """
    if isinstance(scalar, bool) or dtype.is_float:
        return dtype
    if isinstance(scalar, int):
        return i64 if dtype.kind == "bool" else dtype
    return f32
