"""Arrays by name in safetensors files: of every element type, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors
from safetensors.numpy import save

from euler_ir.dtypes import DTYPES
from euler_ir.errors import ExecutionError
from euler_ir.files import write_file

_NAMES = {
    "F16": "f16", "BF16": "bf16", "F32": "f32", "F64": "f64",
    "I8": "i8", "U8": "u8", "I32": "i32", "I64": "i64", "BOOL": "bool",
}  # fmt: skip


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file. Raises ExecutionError for what is no safetensors file or has a type that we lack, OSError.
    """
    try:
        parts = safetensors.deserialize(path.read_bytes())
    except safetensors.SafetensorError as error:
        raise ExecutionError(f"{str(path)!r} is no safetensors file, or is damaged: {error}") from None
    arrays = {}
    for name, part in parts:
        if part["dtype"] not in _NAMES:
            known = f"use {', '.join(DTYPES)}"
            raise ExecutionError(f"{str(path)!r}: {name!r} has elements of {part['dtype']}", hint=known)
        dtype = DTYPES[_NAMES[part["dtype"]]]
        arrays[name] = np.frombuffer(part["data"], dtype.numpy).reshape(part["shape"])
    return arrays


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write ``arrays`` under their names. Raises OSError."""
    contiguous = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()}
    write_file(path, save(contiguous))
