"""Types and numbers of the Loop IR in CUDA C++."""

from __future__ import annotations

import math

import numpy as np

from euler_ir.dtypes import DType, f32

_IN_MEMORY = {
    "bool": "bool",
    "u8": "unsigned char",
    "i8": "signed char",
    "i32": "int",
    "i64": "long long",
    "f16": "eir::f16",
    "bf16": "eir::bf16",
    "f32": "float",
    "f64": "double",
}


def memory_type(dtype: DType) -> str:
    """The type of an element in memory."""
    return _IN_MEMORY[dtype.name]


def register_type(dtype: DType) -> str:
    """The type of a scalar: of a half one it is float."""
    return "float" if dtype.is_half else _IN_MEMORY[dtype.name]


def from_memory(dtype: DType, element: str) -> str:
    """The scalar that ``element`` holds."""
    return f"eir::to_float({element})" if dtype.is_half else element


def to_memory(dtype: DType, scalar: str) -> str:
    """The element that holds ``scalar``."""
    return f"eir::from_float<{memory_type(dtype)}>({scalar})" if dtype.is_half else scalar


def literal(dtype: DType, value: bool | int | float) -> str:
    """``value``, which ``dtype`` holds exactly, as an expression that binds tighter than any operator."""
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.is_float:
        text = _float_literal(float(value), is_single=register_type(dtype) == register_type(f32))
    elif value == -(2**63) or value == -(2**31):
        text = f"{value + 1} - 1" if dtype.bits == 32 else f"{value + 1}LL - 1"  # C++ has no negative literals
    else:
        text = f"{int(value)}LL" if dtype.bits == 64 else str(int(value))
    if dtype.is_integer and dtype.bits == 8:
        return f"{'(signed char)' if dtype.kind == 'signed' else '(unsigned char)'}({text})"
    return f"({text})" if text.startswith("-") else text


def _float_literal(value: float, is_single: bool) -> str:
    if math.isnan(value):
        return "__int_as_float(0x7fc00000)" if is_single else "double(__int_as_float(0x7fc00000))"
    if math.isinf(value):
        bits = "0xff800000" if value < 0 else "0x7f800000"
        return f"__int_as_float({bits})" if is_single else f"double(__int_as_float({bits}))"
    return f"{np.float32(value)!s}f" if is_single else repr(value)
