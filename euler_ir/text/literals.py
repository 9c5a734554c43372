"""Attributes as text and back, kind by kind: each ``_format_`` stands beside its ``_read_``."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from euler_ir.absent import AbsentArray, content_hash
from euler_ir.dtypes import DTYPES, DType, as_dtype, f64
from euler_ir.errors import GraphError
from euler_ir.initializers import INITIALIZERS, Initializer
from euler_ir.shapes import Shape, TensorType

FROM_TYPE = ("shape", "dtype")
"""Attributes that the printed result type says already: they are not printed, the parser fills them in."""

INLINE_ELEMENTS = 16
"""Larger arrays are written as ``splat(x)``, or by the hash of their content."""

_LONGEST_INTEGER = 20
"""Characters of the longest integer of 64 bits."""
_INTEGER = re.compile(r"-?\d+\Z")
_HASH = re.compile(r"[0-9a-f]{64}\Z")
_NAN = re.compile(r"nan\((0x[0-9a-f]+)\)\Z")


@dataclass(slots=True)
class Literal:
    """A literal as parsed. ``form`` is 'number', 'string', 'word', 'call' (``text(items)``) or 'list'."""

    form: str
    text: str
    offset: int
    items: list[Literal] = field(default_factory=list)


class LiteralError(Exception):
    """A literal that is not of the kind that is wanted; ``words`` are those that would be."""

    def __init__(self, message: str, literal: Literal, words: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.literal = literal
        self.words = words


def format_attribute(kind: str, value) -> str:
    """``value`` as text. Raises GraphError for an initializer that is not in INITIALIZERS."""
    return _FORMAT[kind](value)


def read_attribute(kind: str, literal: Literal, type: TensorType):
    """The attribute that ``literal`` says, for an op whose first result is of ``type``. Raises LiteralError."""
    return _READ[kind](literal, type)


# -- numbers -----------------------------------------------------------------------------------------------------------


def _bits_dtype(dtype: DType) -> np.dtype:
    return np.dtype(f"<u{dtype.itemsize}")


def _is_nan(array: np.ndarray) -> bool:
    with np.errstate(invalid="ignore"):
        return bool(np.isnan(array))


def _is_usual_nan(scalar: np.generic, dtype: DType) -> bool:
    return scalar.tobytes() == np.array(math.nan, dtype.numpy).tobytes()


def _format_element(scalar: np.generic, dtype: DType) -> str:
    """A numpy scalar as the shortest text that reads back to the same bits."""
    if dtype.kind == "bool":
        return "true" if scalar else "false"
    if dtype.is_integer:
        return str(int(scalar))
    number = float(scalar)
    if math.isnan(number):
        bits = int.from_bytes(scalar.tobytes(), "little")
        return "nan" if _is_usual_nan(scalar, dtype) else f"nan({bits:#x})"
    if dtype != f64:
        with np.errstate(over="ignore"):
            for digits in range(1, 10):
                short = float(f"{number:.{digits}g}")
                if np.array(short, dtype.numpy).tobytes() == scalar.tobytes():
                    return repr(short)
    return repr(number)


def _read_element(literal: Literal, dtype: DType) -> bytes:
    """The little-endian bytes of one element."""
    text = literal.text
    if dtype.kind == "bool":
        return bytes([_read_bool(literal)])
    if dtype.is_integer:
        number = _read_int(literal)
        limits = np.iinfo(dtype.numpy)
        if not limits.min <= number <= limits.max:
            raise LiteralError(f"{number} does not fit {dtype}", literal)
        return np.array(number, dtype.numpy).tobytes()
    if literal.form != "number":
        raise LiteralError(f"expected a number of {dtype}", literal)
    payload = _NAN.match(text)
    if payload is None:
        with np.errstate(over="ignore"):
            element = np.array(float(text), dtype.numpy)
        if np.isinf(element) and text.lstrip("-") != "inf":
            raise LiteralError(f"{text} is beyond the largest {dtype}", literal)
        return element.tobytes()
    bits = int(payload[1], 16)
    if bits >= 1 << dtype.bits or not _is_nan(np.array(bits, _bits_dtype(dtype)).view(dtype.numpy)):
        raise LiteralError(f"{payload[1]} is not the bits of a NaN of {dtype}", literal)
    return bits.to_bytes(dtype.itemsize, "little")


def format_number(value: bool | int | float, dtype: DType) -> str:
    """A number that ``dtype`` holds exactly, as the shortest text that `read_number` reads back to the same bits."""
    if dtype.is_float and math.isnan(value):
        return _format_element(_narrowed_nan(value, dtype), dtype)
    with np.errstate(over="ignore"):
        return _format_element(np.array(value, dtype.numpy)[()], dtype)


def _narrowed_nan(value: float, dtype: DType) -> np.generic:
    """The NaN ``value`` in ``dtype``, with the sign and as much of the payload as it holds: casts may lose them."""
    (wide,) = struct.unpack("<Q", struct.pack("<d", value))
    rest = dtype.bits - 1  # exponent and mantissa: all ones in the exponent, so that the last bits of both are kept
    bits = (wide >> 52 - ml_dtypes.finfo(dtype.numpy).nmant) & ((1 << rest) - 1) | (wide >> 63) << rest
    return np.array(bits, _bits_dtype(dtype)).view(dtype.numpy)[()]


def read_number(literal: Literal, dtype: DType) -> bool | int | float:
    """The number of ``dtype`` that ``literal`` says, rounded to it. Raises LiteralError."""
    return np.frombuffer(_read_element(literal, dtype), dtype.numpy)[0].item()


def _format_float(value: float) -> str:
    return _format_element(np.float64(value), f64)


def _read_float(literal: Literal, type=None) -> float:
    return struct.unpack("<d", _read_element(literal, f64))[0]


def _read_int(literal: Literal, type=None) -> int:
    if literal.form != "number" or not _INTEGER.match(literal.text):
        raise LiteralError("expected an integer", literal)
    if len(literal.text) > _LONGEST_INTEGER:
        raise LiteralError("expected an integer of at most 64 bits", literal)
    return int(literal.text)


def _format_bool(value: bool) -> str:
    return "true" if value else "false"


def _read_bool(literal: Literal, type=None) -> bool:
    if literal.form != "word" or literal.text not in ("true", "false"):
        raise LiteralError("expected true or false", literal, ("true", "false"))
    return literal.text == "true"


# -- words, strings and lists ------------------------------------------------------------------------------------------


def _read_str(literal: Literal, type=None) -> str:
    if literal.form != "string":
        raise LiteralError("expected a string in double quotes", literal)
    return literal.text


def _format_ints(value: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, value))}]"


def _read_ints(literal: Literal, type=None) -> tuple[int, ...]:
    if literal.form != "list":
        raise LiteralError("expected a list of integers such as [0, 1]", literal)
    return tuple(_read_int(item) for item in literal.items)


def _read_dtype(literal: Literal, type=None) -> DType:
    if literal.form != "word" or literal.text not in DTYPES:
        raise LiteralError("expected an element type", literal, tuple(DTYPES))
    return DTYPES[literal.text]


# -- initializers ------------------------------------------------------------------------------------------------------


def _format_initializer(value: Initializer) -> str:
    name = next((name for name, known in INITIALIZERS.items() if known is type(value)), None)
    if name is None:
        raise GraphError(f"{value!r} has no name in the text form", hint="add its class to INITIALIZERS")
    numbers = [getattr(value, item.name) for item in dataclasses.fields(value)]
    arguments = (_format_float(number) if isinstance(number, float) else str(number) for number in numbers)
    return f"{name}({', '.join(arguments)})"


def _read_initializer(literal: Literal, type=None) -> Initializer:
    if literal.form != "call" or literal.text not in INITIALIZERS:
        raise LiteralError("expected an initializer such as normal(0.02)", literal, tuple(INITIALIZERS))
    known = INITIALIZERS[literal.text]
    fields = dataclasses.fields(known)
    if len(fields) != len(literal.items):
        raise LiteralError(f"{literal.text} takes {len(fields)} numbers, not {len(literal.items)}", literal)
    return known(*(_read_int(item) if _INTEGER.match(item.text) else _read_float(item) for item in literal.items))


# -- arrays ------------------------------------------------------------------------------------------------------------


def is_resource(value: np.ndarray | AbsentArray) -> bool:
    """Whether an array is written as the hash of its data: many elements, and not all of them the same."""
    return isinstance(value, AbsentArray) or not (value.size <= INLINE_ELEMENTS or _is_repeated(value))


def _is_repeated(value: np.ndarray) -> bool:
    """Whether all elements have the same bits."""
    if not any(value.strides):
        return True
    bits = value.view(f"u{value.itemsize}") if value.flags.c_contiguous else np.array(value).view(f"u{value.itemsize}")
    return bool((bits == bits.flat[0]).all())


def _format_array(value: np.ndarray | AbsentArray) -> str:
    if is_resource(value):
        return f'sha256("{content_hash(value)}")'
    dtype = as_dtype(value.dtype)
    if value.size > INLINE_ELEMENTS:
        return f"splat({_format_element(value.flat[0], dtype)})"
    if not value.size:
        return "[]"
    texts = [_format_element(element, dtype) for element in value.reshape(-1)]
    for size in reversed(value.shape):
        texts = [f"[{', '.join(texts[start : start + size])}]" for start in range(0, len(texts), size)]
    return texts[0]


def _read_array(literal: Literal, type: TensorType) -> np.ndarray | AbsentArray:
    if literal.form == "call":
        return _read_large(literal, type)
    data = b"".join(_read_element(item, type.dtype) for item in _elements(literal, type))
    return _sized(np.frombuffer(data, type.dtype.numpy).reshape, type, literal)


def _read_large(literal: Literal, type: TensorType) -> np.ndarray | AbsentArray:
    """``splat(x)``, every element of which is x, or ``sha256("...")``, whose data are found when all is read."""
    if literal.text not in ("splat", "sha256") or len(literal.items) != 1:
        raise LiteralError("expected a number, a list, splat or sha256", literal, ("splat", "sha256"))
    (item,) = literal.items
    if literal.text == "sha256":
        if not _HASH.match(_read_str(item)):
            raise LiteralError("expected the 64 hexadecimal digits of a SHA-256", item)
        return AbsentArray(type.dtype.numpy, type.shape, item.text)
    element = np.frombuffer(_read_element(item, type.dtype), type.dtype.numpy)[0]
    return _sized(lambda shape: np.broadcast_to(element, shape), type, literal)


def _sized(make: Callable[[Shape], np.ndarray], type: TensorType, literal: Literal) -> np.ndarray:
    """What ``make`` gives for the shape of ``type``; numpy has arrays of fewer bytes than a type can say."""
    try:
        return make(type.shape)
    except ValueError:
        raise LiteralError(f"{type} is larger than any memory", literal) from None


def _elements(literal: Literal, type: TensorType) -> list[Literal]:
    """The elements of nested lists in row-major order, the nesting checked against the shape."""
    if not type.size:
        if literal.form != "list" or literal.items:
            raise LiteralError(f"expected [] for {type}", literal)
        return []
    level = [literal]
    for axis, size in enumerate(type.shape):
        for item in level:
            if item.form != "list" or len(item.items) != size:
                raise LiteralError(f"expected a list of {size} along axis {axis} of {type}", item)
        level = [inner for item in level for inner in item.items]
    return level


_FORMAT = {
    "bool": _format_bool,
    "int": str,
    "float": _format_float,
    "str": json.dumps,
    "ints": _format_ints,
    "dtype": str,
    "array": _format_array,
    "initializer": _format_initializer,
}
_READ = {
    "bool": _read_bool,
    "int": _read_int,
    "float": _read_float,
    "str": _read_str,
    "ints": _read_ints,
    "dtype": _read_dtype,
    "array": _read_array,
    "initializer": _read_initializer,
}
