"""Straight-line code on vectors of one float format, as LLVM IR text: what `vector_math` is written with."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from euler_ir.backends.cpu.jit import vector_bytes
from euler_ir.backends.cpu.polynomials import POLYNOMIALS


@dataclass(frozen=True)
class Format:
    """A floating-point format, and the constants of the functions that depend on it."""

    name: str
    llvm: str
    bits: int
    precision: int  # significant bits, the hidden one included
    exp_range: tuple[float, float]  # beyond these exp is 0 or infinite
    tanh_end: float  # from here on tanh is 1
    erfc_end: float  # from here on erfc is 0
    normal_end: float  # from here on the density of the normal distribution is 0
    cubic_end: float  # and from here on 1 - normal_cdf_tanh

    @property
    def mantissa_bits(self) -> int:
        return self.precision - 1

    @property
    def bias(self) -> int:
        return (1 << (self.bits - self.precision - 1)) - 1

    def round(self, value: Fraction, bits: int | None = None) -> Fraction:
        """``value`` with ``bits`` (by default all) significant bits."""
        exponent = math.frexp(float(value))[1] - (bits or self.precision)
        return round(value / Fraction(2) ** exponent) * Fraction(2) ** exponent

    def parts(self, value: Fraction, count: int, bits: int | None = None) -> list[float]:
        """Numbers of this format that add up to ``value``, each of ``bits`` significant bits but the last."""
        result = []
        for _ in range(count - 1):
            result.append(self.round(value, bits))
            value -= result[-1]
        return [float(part) for part in [*result, self.round(value)]]


FORMATS = {
    "f32": Format("f32", "float", 32, 24, (-104.0, 89.0), 10.0, 10.1, 14.5, 10.7),
    "f64": Format("f64", "double", 64, 53, (-746.0, 710.0), 20.0, 27.3, 39.0, 21.6),
}


class Lanes:
    """Writes straight-line code on vectors; every method appends one instruction and returns its value's name."""

    def __init__(self, format: Format, width: int) -> None:
        self.format = format
        self.width = width
        self.type = self._vector(format.llvm)
        self.int_type = self._vector(f"i{format.bits}")
        self.bool_type = self._vector("i1")
        self.lines: list[str] = []

    def _vector(self, scalar: str) -> str:
        return f"<{self.width} x {scalar}>" if self.width > 1 else scalar

    def append(self, instruction: str) -> str:
        value = f"%v{len(self.lines)}"
        self.lines.append(f"{value} = {instruction}")
        return value

    def _splat(self, scalar: str, value: str) -> str:
        return f"splat ({scalar} {value})" if self.width > 1 else value

    def number(self, value: float) -> str:
        if self.format.name == "f32":
            value = struct.unpack("f", struct.pack("f", value))[0]
        bits = struct.unpack("<Q", struct.pack("<d", value))[0]
        return self._splat(self.format.llvm, f"0x{bits:016X}")

    def integer(self, value: int) -> str:
        return self._splat(f"i{self.format.bits}", str(value))

    def binary(self, operation: str, left: str, right: str) -> str:
        return self.append(f"{operation} {self.type} {left}, {right}")

    def add(self, left: str, right: str) -> str:
        return self.binary("fadd", left, right)

    def sub(self, left: str, right: str) -> str:
        return self.binary("fsub", left, right)

    def mul(self, left: str, right: str) -> str:
        return self.binary("fmul", left, right)

    def div(self, left: str, right: str) -> str:
        return self.binary("fdiv", left, right)

    def neg(self, value: str) -> str:
        return self.append(f"fneg {self.type} {value}")

    def integers(self, operation: str, left: str, right: str) -> str:
        return self.append(f"{operation} {self.int_type} {left}, {right}")

    def intrinsic(self, name: str, *operands: str) -> str:
        suffix = f"v{self.width}{self.format.name}" if self.width > 1 else self.format.name
        return self.append(f"call {self.type} @llvm.{name}.{suffix}({', '.join(f'{self.type} {x}' for x in operands)})")

    def fma(self, left: str, right: str, addend: str) -> str:
        return self.intrinsic("fma", left, right, addend)

    def polynomial(self, name: str, x: str) -> str:
        return self._horner(POLYNOMIALS[name, self.format.name], x)

    def polynomial_in_parts(self, name: str, x: str) -> tuple[str, str]:
        """The polynomial, and what its last step lost in rounding if its constant term is not far from its value."""
        constant, *others = POLYNOMIALS[name, self.format.name]
        slope = self._horner(others, x)
        result = self.fma(slope, x, self.number(constant))
        return result, self.fma(slope, x, self.sub(self.number(constant), result))

    def _horner(self, coefficients: Sequence[float], x: str) -> str:
        result = self.number(coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            result = self.fma(result, x, self.number(coefficient))
        return result

    def compare(self, predicate: str, left: str, right: str) -> str:
        return self.append(f"fcmp {predicate} {self.type} {left}, {right}")

    def select(self, condition: str, yes: str, no: str) -> str:
        return self.append(f"select {self.bool_type} {condition}, {self.type} {yes}, {self.type} {no}")

    def at_most(self, x: str, limit: float) -> str:
        """min(x, limit), and NaN where x is."""
        return self.select(self.compare("ogt", x, self.number(limit)), self.number(limit), x)

    def at_least(self, x: str, limit: float) -> str:
        return self.select(self.compare("olt", x, self.number(limit)), self.number(limit), x)

    def both(self, left: str, right: str) -> str:
        return self.append(f"and {self.bool_type} {left}, {right}")

    def either(self, left: str, right: str) -> str:
        return self.append(f"or {self.bool_type} {left}, {right}")

    def widened(self) -> Lanes:
        """The same lanes in f64, which write to the same code."""
        wide = Lanes(FORMATS["f64"], self.width)
        wide.lines = self.lines
        return wide

    def to(self, other: Lanes, value: str) -> str:
        """``value`` in the format of ``other``, rounded if that is narrower."""
        operation = "fpext" if other.format.bits > self.format.bits else "fptrunc"
        return self.append(f"{operation} {self.type} {value} to {other.type}")

    def bits(self, value: str) -> str:
        return self.append(f"bitcast {self.type} {value} to {self.int_type}")

    def from_bits(self, value: str) -> str:
        return self.append(f"bitcast {self.int_type} {value} to {self.type}")

    def nearest_integer(self, x: str, factor: float) -> tuple[str, str]:
        """The integer nearest to x * factor as float and as integer, for |x * factor| < 2^(precision - 2).

        Adding 1.5 * 2^(precision - 1) leaves it in the low bits. Unlike fptosi that is defined for NaN also.
        """
        magic = 1.5 * 2.0**self.format.mantissa_bits
        shifted = self.fma(x, self.number(factor), self.number(magic))
        return (
            self.sub(shifted, self.number(magic)),
            self.integers("sub", self.bits(shifted), self.bits(self.number(magic))),
        )

    def subtract_multiple(self, x: str, n: str, constant: Fraction, parts: int) -> str:
        """x - n * constant; the constant in parts, so that cancellation leaves no error of the first."""
        for part in self.format.parts(constant, parts):
            x = self.fma(n, self.number(-part), x)
        return x

    def power_of_two(self, n: str) -> str:
        biased = self.integers("add", n, self.integer(self.format.bias))
        return self.from_bits(self.integers("shl", biased, self.integer(self.format.mantissa_bits)))

    def scale(self, x: str, n: str) -> str:
        """x * 2^n, rounded once."""
        if vector_bytes() == 64:  # AVX-512 has an instruction for it
            kind = f"v{self.width}" if self.width > 1 else ""
            suffix = f"{kind}{self.format.name}.{kind}i{self.format.bits}"
            return self.append(f"call {self.type} @llvm.ldexp.{suffix}({self.type} {x}, {self.int_type} {n})")
        # In two steps, of which only the second can round: 2^n itself may be too large or too small.
        first = self.integers("ashr", n, self.integer(1))
        second = self.integers("sub", n, first)
        return self.mul(self.mul(x, self.power_of_two(first)), self.power_of_two(second))
