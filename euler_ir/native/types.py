"""The types of native functions, and the operations of the machine that Python has no sign for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from euler_ir.errors import LoweringError


@dataclass(frozen=True)
class Integer:
    """An integer in memory; as a value it is one of 64 bits."""

    name: str
    bits: int
    signed: bool

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(f"{'int' if self.signed else 'uint'}{self.bits}")

    @property
    def value(self) -> Integer:
        """What reading it gives: i64, but for u64, which only u64 can hold."""
        return u64 if self == u64 else i64

    def __str__(self) -> str:
        return self.name


i8, i16, i32, i64 = (Integer(f"i{bits}", bits, True) for bits in (8, 16, 32, 64))
u8, u16, u32, u64 = (Integer(f"u{bits}", bits, False) for bits in (8, 16, 32, 64))

TRUTH = Integer("truth value", 1, False)


@dataclass(frozen=True)
class Pointer:
    """Integers that lie one after the other in memory."""

    element: Integer
    writable: bool

    def __post_init__(self) -> None:
        if not isinstance(self.element, Integer) or self.element.bits < 8:
            raise LoweringError(f"there is no memory of {self.element!r}", hint="a pointer is to i8, u8 ... i64 or u64")

    def __str__(self) -> str:
        return f"{'pointer' if self.writable else 'read_only'}({self.element})"


Type = Integer | Pointer


def llvm_type(kind: Type) -> str:
    if isinstance(kind, Pointer):
        return "ptr"
    return "i1" if kind == TRUTH else "i64"


def result_type(results: tuple[Type, ...]) -> str:
    """The LLVM type that a function of these results returns."""
    if len(results) > 1:
        return f"{{ {', '.join(map(llvm_type, results))} }}"
    return llvm_type(results[0]) if results else "void"


def pointer(element: Integer) -> Pointer:
    """Memory that may be read and written."""
    return Pointer(element, True)


def read_only(element: Integer) -> Pointer:
    """Memory that is only read."""
    return Pointer(element, False)


@dataclass(frozen=True)
class Operation:
    """An instruction that is written as a call."""

    name: str
    arguments: int
    meaning: str


trailing_zeros = Operation("trailing_zeros", 1, "how many of the low bits of a u64 are 0; 64 when all are")
multiply_wide = Operation("multiply_wide", 2, "(low, high) halves of the product of two u64")
prefetch = Operation("prefetch", 1, "says that memory at a pointer will soon be needed; any address may be given")
