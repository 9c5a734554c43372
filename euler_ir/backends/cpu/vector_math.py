"""Elementary functions on vectors, as LLVM IR text.

Every lane is computed by the same operations whatever the width, so a masked tail, a scalar remainder and a full
vector give the same bits. Special values are those of IEEE 754 and C99 Annex F: NaN gives NaN, results underflow
gradually, odd functions keep the sign of zero. Largest errors found, in units in the last place
(tests/backends/test_vector_math.py):

=========  ====  ====
function   f32   f64
=========  ====  ====
exp        1.0   1.0
log        0.9   0.8
tanh       1.4   1.2
erf        1.4   1.2
erfc       3.7   3.5
sin, cos   1.6   1.5
=========  ====  ====

sqrt and rsqrt are sqrt and 1/sqrt of the hardware. pow, and sin and cos beyond 65536, call the C library for each lane.

Methods: argument reduction in parts after W. J. Cody and W. Waite, "Software Manual for the Elementary Functions"
(1980); log after the form of P. T. P. Tang, "Table-driven implementation of the logarithm function" (1990), without a
table; erfc after M. M. Shepherd and J. G. Laframboise, "Chebyshev approximation of (1+2x)exp(x^2)erfc(x)" (1981), with
x + 3 for 1 + 2x so that one division serves twice. The polynomials: `polynomials`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from euler_ir.backends.cpu.polynomials import POLYNOMIALS

FUNCTIONS = ("exp", "log", "tanh", "erf", "erfc", "sin", "cos", "sqrt", "rsqrt", "pow")


def symbol(name: str, dtype: str, width: int) -> str:
    """The name of the function that `emit` defines: ``@eir_exp_v16f32``, or ``@eir_exp_f32`` for width 1."""
    return f"@eir_{name}_v{width}{dtype}" if width > 1 else f"@eir_{name}_{dtype}"


def emit(name: str, dtype: str, width: int) -> str:
    """The definition of one of FUNCTIONS on ``width`` lanes of ``dtype`` ('f32' or 'f64'), as LLVM IR text.

    It takes one argument (pow: two) of type ``<width x float>`` or ``<width x double>``, of the bare scalar type for
    width 1, and needs no other definition or declaration. Raises KeyError for an unknown name or dtype.
    """
    lanes = _Lanes(_FORMATS[dtype], width)
    if name == "pow":
        return _emit_pow(lanes, symbol(name, dtype, width))
    result = _BODIES[name](lanes, "%x")
    body = "\n".join(f"  {line}" for line in lanes.lines)
    definition = (
        f"define internal {lanes.type} {symbol(name, dtype, width)}({lanes.type} %x) alwaysinline nounwind {{\n"
        f"entry:\n{body}\n"
    )
    if name not in ("sin", "cos"):
        return f"{definition}  ret {lanes.type} {result}\n}}\n"
    return definition + _beyond_reduction(lanes, name, symbol(name, dtype, width), result)


@dataclass(frozen=True)
class _Format:
    """A floating-point format, and the constants of the functions that depend on it."""

    name: str
    llvm: str
    bits: int
    precision: int  # significant bits, the hidden one included
    exp_range: tuple[float, float]  # beyond these exp is 0 or infinite
    tanh_end: float  # from here on tanh is 1
    erfc_end: float  # from here on erfc is 0

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


_FORMATS = {
    "f32": _Format("f32", "float", 32, 24, (-104.0, 89.0), 10.0, 10.1),
    "f64": _Format("f64", "double", 64, 53, (-746.0, 710.0), 20.0, 27.3),
}

# To 2^-200, more than three parts of f64 hold.
_LN2 = Fraction(0xB17217F7D1CF79ABC9E3B39803F2F6AF40F343267298B62D8A0D1, 1 << 212)
_HALF_PI = Fraction(0x1921FB54442D18469898CC51701B839A252049C1114CF98E804178, 1 << 212)

_REDUCTION_END = 65536.0
_TANH_SPLIT = 0.6
_ERFC_CENTRE = 3.0


class _Lanes:
    """Writes straight-line code on vectors; every method appends one instruction and returns its value's name."""

    def __init__(self, format: _Format, width: int) -> None:
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
        coefficients = POLYNOMIALS[name, self.format.name]
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
        """x * 2^n in two steps, of which only the second can round: 2^n itself may be too large or too small."""
        first = self.integers("ashr", n, self.integer(1))
        second = self.integers("sub", n, first)
        return self.mul(self.mul(x, self.power_of_two(first)), self.power_of_two(second))


def _exp_parts(lanes: _Lanes, x: str, correction: str | None = None) -> tuple[str, str]:
    """m and n with exp(x + correction) = (1 + m) * 2^n, for a correction of a few units in the last place of x."""
    n, n_integer = lanes.nearest_integer(x, 1 / math.log(2))
    r = lanes.subtract_multiple(x, n, _LN2, 2)
    if correction is not None:
        r = lanes.add(r, correction)
    square = lanes.mul(r, r)
    return lanes.fma(square, lanes.polynomial("exp", r), r), n_integer


def _exp(lanes: _Lanes, x: str) -> str:
    low, high = lanes.format.exp_range
    excess, n = _exp_parts(lanes, lanes.at_least(lanes.at_most(x, high), low))
    return lanes.scale(lanes.add(lanes.number(1), excess), n)


def _log(lanes: _Lanes, x: str) -> str:
    # x = 2^e m with sqrt(1/2) <= m < sqrt(2), m = 1 + f, s = f / (2 + f):
    # log m = f - (f^2/2 - s (f^2/2 + z p(z))), which rounds only terms that are small beside f.
    form = lanes.format
    rescale = form.precision + 1
    subnormal = lanes.compare("olt", x, lanes.number(2.0 ** (1 - form.bias)))
    normal = lanes.select(subnormal, lanes.mul(x, lanes.number(2.0**rescale)), x)
    bits = lanes.bits(normal)
    above_root = lanes.integers("sub", bits, lanes.bits(lanes.number(math.sqrt(0.5))))
    exponent = lanes.integers("ashr", above_root, lanes.integer(form.mantissa_bits))
    shifted = lanes.integers("shl", exponent, lanes.integer(form.mantissa_bits))
    f = lanes.sub(lanes.from_bits(lanes.integers("sub", bits, shifted)), lanes.number(1))
    e = lanes.append(f"sitofp {lanes.int_type} {exponent} to {lanes.type}")
    e = lanes.sub(e, lanes.select(subnormal, lanes.number(rescale), lanes.number(0)))

    s = lanes.div(f, lanes.add(f, lanes.number(2)))
    z = lanes.mul(s, s)
    half_square = lanes.mul(lanes.mul(f, f), lanes.number(0.5))
    inner = lanes.fma(z, lanes.polynomial("log", z), half_square)
    # The first part of ln 2 has 12 bits to spare: e times it is exact.
    ln2_high, ln2_low = form.parts(_LN2, 2, form.precision - 12)
    small = lanes.fma(s, inner, lanes.mul(e, lanes.number(ln2_low)))
    log_m = lanes.sub(f, lanes.sub(half_square, small))
    result = lanes.fma(e, lanes.number(ln2_high), log_m)

    result = lanes.select(lanes.compare("oeq", x, lanes.number(math.inf)), x, result)
    result = lanes.select(lanes.compare("oeq", x, lanes.number(0)), lanes.number(-math.inf), result)
    return lanes.select(lanes.compare("ult", x, lanes.number(0)), lanes.number(math.nan), result)


def _tanh(lanes: _Lanes, x: str) -> str:
    size = lanes.intrinsic("fabs", x)
    square = lanes.mul(x, x)
    near = lanes.fma(lanes.mul(x, square), lanes.polynomial("tanh", square), x)
    clamped = lanes.at_most(size, lanes.format.tanh_end)
    excess, n = _exp_parts(lanes, lanes.add(clamped, clamped))
    power = lanes.power_of_two(n)
    grown = lanes.fma(excess, power, lanes.add(power, lanes.number(1)))
    far = lanes.sub(lanes.number(1), lanes.div(lanes.number(2), grown))
    is_near = lanes.compare("olt", size, lanes.number(_TANH_SPLIT))
    return lanes.intrinsic("copysign", lanes.select(is_near, near, far), x)


def _erfc_of_size(lanes: _Lanes, size: str) -> str:
    """erfc for arguments that are not negative."""
    size = lanes.at_most(size, lanes.format.erfc_end)
    inverse = lanes.div(lanes.number(1), lanes.add(size, lanes.number(_ERFC_CENTRE)))
    t = lanes.fma(inverse, lanes.number(-2 * _ERFC_CENTRE), lanes.number(1))
    # One step of correction: the residual is (size - centre) - t (size + centre).
    residual = lanes.fma(lanes.add(t, lanes.number(1)), lanes.number(-_ERFC_CENTRE), size)
    residual = lanes.fma(lanes.neg(t), size, residual)
    t = lanes.fma(residual, inverse, t)
    minus_square = lanes.neg(lanes.mul(size, size))
    correction = lanes.neg(lanes.fma(size, size, minus_square))
    excess, n = _exp_parts(lanes, minus_square, correction)
    tail = lanes.mul(lanes.polynomial("erfc", t), inverse)
    return lanes.scale(lanes.fma(tail, excess, tail), n)


def _erf_near_zero(lanes: _Lanes, x: str) -> str:
    return lanes.fma(x, lanes.polynomial("erf", lanes.mul(x, x)), x)


def _erf(lanes: _Lanes, x: str) -> str:
    size = lanes.intrinsic("fabs", x)
    near = _erf_near_zero(lanes, x)
    far = lanes.sub(lanes.number(1), _erfc_of_size(lanes, size))
    is_near = lanes.compare("olt", size, lanes.number(1))
    return lanes.intrinsic("copysign", lanes.select(is_near, near, far), x)


def _erfc(lanes: _Lanes, x: str) -> str:
    size = lanes.intrinsic("fabs", x)
    near = lanes.sub(lanes.number(1), _erf_near_zero(lanes, x))
    far = _erfc_of_size(lanes, size)
    negative = lanes.compare("olt", x, lanes.number(0))
    far = lanes.select(negative, lanes.sub(lanes.number(2), far), far)
    return lanes.select(lanes.compare("olt", size, lanes.number(0.75)), near, far)


def _turned(lanes: _Lanes, size: str, quarters: int) -> tuple[str, str]:
    """|sin(size + quarters * pi/2)| up to sign, and the sign as the sign bit of an integer."""
    n, n_integer = lanes.nearest_integer(size, 2 / math.pi)
    r = lanes.subtract_multiple(size, n, _HALF_PI, 3)
    z = lanes.mul(r, r)
    sine = lanes.fma(lanes.mul(r, z), lanes.polynomial("sin", z), r)
    cosine = lanes.fma(
        lanes.mul(z, z), lanes.polynomial("cos", z), lanes.fma(z, lanes.number(-0.5), lanes.number(1))
    )
    quadrant = lanes.integers("add", n_integer, lanes.integer(quarters))
    odd = lanes.append(f"trunc {lanes.int_type} {quadrant} to {lanes.bool_type}")
    halves = lanes.integers("and", quadrant, lanes.integer(2))
    sign = lanes.integers("shl", halves, lanes.integer(lanes.format.bits - 2))
    return lanes.select(odd, cosine, sine), sign


def _sin(lanes: _Lanes, x: str) -> str:
    size = lanes.intrinsic("fabs", x)
    value, sign = _turned(lanes, size, 0)
    flipped = lanes.integers("xor", lanes.bits(value), sign)
    sign_of_x = lanes.integers("xor", lanes.bits(x), lanes.bits(size))
    return lanes.from_bits(lanes.integers("xor", flipped, sign_of_x))


def _cos(lanes: _Lanes, x: str) -> str:
    value, sign = _turned(lanes, lanes.intrinsic("fabs", x), 1)
    return lanes.from_bits(lanes.integers("xor", lanes.bits(value), sign))


def _sqrt(lanes: _Lanes, x: str) -> str:
    return lanes.intrinsic("sqrt", x)


def _rsqrt(lanes: _Lanes, x: str) -> str:
    return lanes.div(lanes.number(1), lanes.intrinsic("sqrt", x))


_BODIES: dict[str, Callable[[_Lanes, str], str]] = {
    "exp": _exp,
    "log": _log,
    "tanh": _tanh,
    "erf": _erf,
    "erfc": _erfc,
    "sin": _sin,
    "cos": _cos,
    "sqrt": _sqrt,
    "rsqrt": _rsqrt,
}


def _beyond_reduction(lanes: _Lanes, name: str, function: str, result: str) -> str:
    """The end of sin and cos: where any lane is too large for the reduction, those lanes are the C library's."""
    slow = _Lanes(lanes.format, lanes.width)
    by_lane = slow.intrinsic(name, "%x")
    size = lanes.intrinsic("fabs", "%x")
    huge = lanes.compare("ogt", size, lanes.number(_REDUCTION_END))
    test = lanes.lines[-2:]
    any_huge = huge
    if lanes.width > 1:
        any_huge = "%any"
        test.append(f"%any = call i1 @llvm.vector.reduce.or.v{lanes.width}i1({lanes.bool_type} {huge})")
    test_text = "\n".join(f"  {line}" for line in test)
    kind = lanes.type
    return f"""{test_text}
  br i1 {any_huge}, label %beyond, label %done

beyond:
  %library = call {kind} {function}_library({kind} %x)
  %mixed = select {lanes.bool_type} {huge}, {kind} %library, {kind} {result}
  br label %done

done:
  %result = phi {kind} [ {result}, %entry ], [ %mixed, %beyond ]
  ret {kind} %result
}}

define internal {kind} {function}_library({kind} %x) noinline cold nounwind {{
  {slow.lines[0]}
  ret {kind} {by_lane}
}}
"""


def _emit_pow(lanes: _Lanes, function: str) -> str:
    result = lanes.intrinsic("pow", "%x", "%y")
    kind = lanes.type
    return f"""define internal {kind} {function}({kind} %x, {kind} %y) noinline nounwind {{
  {lanes.lines[0]}
  ret {kind} {result}
}}
"""
