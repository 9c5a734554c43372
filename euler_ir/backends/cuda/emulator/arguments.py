"""A kernel's arguments: bytes of what C++ has, from Python's numbers, by the signature of the kernel."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from euler_ir.backends.cuda.emulator import memory
from euler_ir.errors import ExecutionError

_FLOATS = {4: "<f", 8: "<d"}


@dataclass(frozen=True)
class Parameter:
    """One of a kernel: its size in bytes and its kind, as in include/runtime.h, and what it points to."""

    size: int
    kind: str
    pointee: Parameter | None = None

    def __str__(self) -> str:
        kinds = {"p": "a pointer", "i": "an integer", "u": "an integer without sign", "f": "a floating-point number"}
        return f"{kinds.get(self.kind, 'a value')} of {self.size} bytes"


def check_arguments(kernel: str, parameters: Sequence[Parameter], arguments: Sequence[bytes]) -> None:
    """Raises ExecutionError for bytes that are not the ``parameters``, or that point to no allocation."""
    check_count(kernel, parameters, arguments)
    for number, (parameter, argument) in enumerate(zip(parameters, arguments, strict=True)):
        if len(argument) != parameter.size:
            raise ExecutionError(
                f"kernel {kernel}: argument {number} has {len(argument)} bytes; its type has {parameter.size}"
            )
        address = int.from_bytes(argument, "little") if parameter.kind == "p" else 0
        if address and not memory.is_allocated(address):
            details = (memory.describe(address),)
            raise ExecutionError(f"kernel {kernel}: argument {number} points to no allocation", details=details)


def check_count(kernel: str, parameters: Sequence[Parameter], arguments: Sequence[object]) -> None:
    if len(arguments) != len(parameters):
        raise ExecutionError(f"kernel {kernel} takes {len(parameters)} arguments and was given {len(arguments)}")


def packed(kernel: str, number: int, parameter: Parameter, value: object) -> bytes:
    """``value``, a number, None for a null pointer, or bytes, as argument ``number`` of ``kernel``.

    Raises ExecutionError for one that the parameter cannot hold as it is: a GPU would be given other numbers.
    """
    if isinstance(value, bytes):
        return value
    if parameter.kind == "p" and value is None:
        return bytes(parameter.size)
    if parameter.kind == "f" and isinstance(value, Real) and parameter.size in _FLOATS:
        return struct.pack(_FLOATS[parameter.size], value)
    if parameter.kind in "iu" and isinstance(value, (Integral, np.bool_)):
        try:
            return int(value).to_bytes(parameter.size, "little", signed=parameter.kind == "i")
        except OverflowError:
            pass
    raise ExecutionError(f"kernel {kernel}: argument {number} is {value!r}, and the kernel takes {parameter}")


def check_array(kernel: str, number: int, parameter: Parameter, array: np.ndarray) -> None:
    """Raises ExecutionError for an ``array`` whose bytes are other numbers to argument ``number`` of ``kernel``: f64,
    which numpy makes unless told otherwise, for a pointer to f32.
    """
    pointee = parameter.pointee
    kinds = {"f": "f", "i": "iu", "u": "iu"}.get(pointee.kind)
    if kinds and (array.dtype.kind not in kinds or array.dtype.itemsize != pointee.size):
        raise ExecutionError(
            f"kernel {kernel}: argument {number} is an array of {array.dtype}, and the kernel takes a pointer to "
            f"{pointee}",
            hint="array.view(dtype) gives the same bytes as another type",
        )


def copies_of(arguments: Sequence[bytes]) -> list[ctypes.Array]:
    """The bytes at addresses that suit any type."""
    return [ctypes.create_string_buffer(bytes(argument), max(len(argument), 16)) for argument in arguments]
