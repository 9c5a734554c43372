"""Why an operator gives NaN or an infinity, in words."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from euler_ir.dtypes import DType
from euler_ir.graph import Op
from euler_ir.inspect.numerics.elements import Part, shown

_OPPOSITE = "infinities of opposite signs are added"


def cause(op: Op, parts: Sequence[Part], result: np.generic) -> str:
    """Why ``op`` gives ``result``, which is NaN or infinite, when it reads ``parts``."""
    with np.errstate(all="ignore"):
        if all(part.array.size == 1 for part in parts) and parts:
            numbers = [part.array.reshape(-1)[0] for part in parts]
            words = _of_numbers(op, numbers, result)
        else:
            words = _of_many(op, parts, result)
        return words or _general(op, parts, result)


def _of_numbers(op: Op, numbers: Sequence[np.generic], result: np.generic) -> str | None:
    x, y = numbers[0], numbers[1] if len(numbers) > 1 else None
    is_nan = np.isnan(result)
    match op.name:
        case "log":
            return f"log of the negative number {shown(x)}" if x < 0 else "log of 0" if x == 0 else None
        case "sqrt" | "rsqrt":
            if x < 0:
                return f"{op.name} of the negative number {shown(x)}"
            return "rsqrt of 0, which is 1 / 0" if op.name == "rsqrt" and x == 0 else None
        case "divide" if is_nan:
            return "0 / 0" if x == 0 and y == 0 else "an infinity by an infinity"
        case "divide" if y == 0:
            return f"{shown(x)} / 0"
        case "divide" if np.isfinite(x):
            return f"{shown(x)} / {shown(y)} is {_beyond(op.result.dtype)}"
        case "add" | "subtract" if is_nan:
            return _OPPOSITE if op.name == "add" else "an infinity minus the same infinity"
        case "multiply" if is_nan:
            return "0 times an infinity"
        case "add" | "subtract" | "multiply" if np.isfinite(x) and np.isfinite(y):
            sign = {"add": "+", "subtract": "-", "multiply": "*"}[op.name]
            return f"{shown(x)} {sign} {shown(y)} is {_beyond(op.result.dtype)}"
        case "exp":
            return f"exp({shown(x)}) is {_beyond(op.result.dtype)}"
        case "cast":
            return f"{shown(x)} is {_beyond(op.result.dtype)}" if np.isfinite(x) else None
        case "power" if is_nan:
            return f"{shown(x)} to the power {shown(y)}, a negative number to one that is no integer"
        case "power":
            if x == 0:
                return f"0 to the negative power {shown(y)}"
            return f"{shown(x)} ** {shown(y)} is {_beyond(op.result.dtype)}"
        case "sin" | "cos":
            return f"{op.name} of an infinity"
        case "remainder" | "floor_divide":
            return f"{op.name} by 0" if y == 0 else f"{op.name} of an infinity"
    return None


def _of_many(op: Op, parts: Sequence[Part], result: np.generic) -> str | None:
    arrays = [part.array for part in parts]
    if np.isnan(result):
        if op.name == "matmul":
            row, column = (array.reshape(-1).astype(np.float64) for array in arrays)
            terms = row * column
            if np.isnan(terms).any():
                return "0 times an infinity, among the products that are added"
            return _OPPOSITE if np.isinf(terms).any() else _overflow_within(op)
        if op.definition.family in ("reduction", "scan"):
            (x,) = arrays
            if np.isposinf(x).any() and np.isneginf(x).any():
                return _OPPOSITE
    if all(np.isfinite(_floats(array)).all() for array in arrays):
        return f"{_overflow_within(op)}: {_largest(parts)}"
    return None


def _general(op: Op, parts: Sequence[Part], result: np.generic) -> str:
    infinite = [part for part in parts if np.isinf(_floats(part.array)).any()]
    if infinite:
        where = " and ".join(f"%{op.operands[part.operand].name}" for part in infinite)
        return f"an infinity of {where} goes into {op.name}"
    return f"{_overflow_within(op)}: {_largest(parts)}" if parts else f"{op.name} gives it by itself"


def _overflow_within(op: Op) -> str:
    return f"what {op.name} adds up or makes on its way is {_beyond(op.result.dtype)}"


def _largest(parts: Sequence[Part]) -> str:
    sizes = [float(np.max(np.abs(_floats(part.array)), initial=0)) for part in parts]
    return f"the largest number it reads is {max(sizes):.4g}"


def _floats(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


def _beyond(dtype: DType) -> str:
    if not dtype.is_float:
        return f"no {dtype}"
    return f"above the largest {dtype}, {float(ml_dtypes.finfo(dtype.numpy).max):.6g}"
