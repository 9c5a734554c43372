"""Elementary functions on vectors, as LLVM IR text.

Every lane is computed by the same operations whatever the width, so a masked tail, a scalar remainder and a full
vector give the same bits. Special values are those of IEEE 754 and C99 Annex F: NaN gives NaN, results underflow
gradually, odd functions keep the sign of zero. Largest errors found, in units in the last place
(tests/backends/test_vector_math.py):

===============  ====  ====
function         f32   f64
===============  ====  ====
exp              1.1   1.0
log              0.9   0.8
tanh             1.3   1.2
sigmoid          2.0   1.5
erf              1.0   1.0
erfc             1.9   2.1
normal_cdf       3.3   3.0
normal_pdf       1.3   1.2
normal_cdf_tanh  2.1   1.8
sin, cos         1.6   1.5
===============  ====  ====

sqrt and rsqrt are sqrt and 1/sqrt of the hardware. pow of f32 is within 0.6 and fmod exact. The C library is called for
each lane of pow and fmod in f64, for lanes of theirs in f32 that are special, and for sin and cos beyond 65536.

Methods: argument reduction in parts after W. J. Cody and W. Waite, "Software Manual for the Elementary Functions"
(1980); log after the form of P. T. P. Tang, "Table-driven implementation of the logarithm function" (1990), without a
table; erfc after M. M. Shepherd and J. G. Laframboise, "Chebyshev approximation of (1+2x)exp(x^2)erfc(x)" (1981), with
x + 3 for 1 + 2x so that one division serves twice, and normal_cdf likewise. The polynomials: `polynomials`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from euler_ir.backends.cpu.lanes import FORMATS, Lanes

FUNCTIONS = (
    "exp", "log", "tanh", "sigmoid", "erf", "erfc", "normal_cdf", "normal_pdf", "normal_cdf_tanh", "sin", "cos", "sqrt",
    "rsqrt", "pow", "fmod",
)  # fmt: skip
BINARY = ("pow", "fmod")


def symbol(name: str, dtype: str, width: int) -> str:
    """The name of the function that `emit` defines: ``@eir_exp_v16f32``, or ``@eir_exp_f32`` for width 1."""
    return f"@eir_{name}_v{width}{dtype}" if width > 1 else f"@eir_{name}_{dtype}"


def emit(name: str, dtype: str, width: int) -> str:
    """The definition of one of FUNCTIONS on ``width`` lanes of ``dtype`` ('f32' or 'f64'), as LLVM IR text.

    It takes one argument (those in BINARY: two) of type ``<width x float>`` or ``<width x double>``, of the bare scalar
    type for width 1, and needs no other definition or declaration. Raises KeyError for an unknown name or dtype.
    """
    lanes, function = Lanes(FORMATS[dtype], width), symbol(name, dtype, width)
    arguments = ("%x", "%y") if name in BINARY else ("%x",)
    if name in BINARY and dtype == "f64":
        return _library(name, lanes, function, arguments, "noinline")
    result = _BODIES[name](lanes, *arguments)
    unusual = _UNUSUAL[name](lanes, *arguments) if name in _UNUSUAL else None
    body = "\n".join(f"  {line}" for line in lanes.lines)
    inlining = "noinline" if name == "pow" else "alwaysinline"  # pow is long
    definition = f"define internal {_signature(lanes, function, arguments)} {inlining} nounwind {{\nentry:\n{body}\n"
    if unusual is None:
        return f"{definition}  ret {lanes.type} {result}\n}}\n"
    end = _end_with_library(lanes, function, arguments, result, unusual)
    return definition + end + _library(name, lanes, f"{function}_library", arguments, "noinline cold")


def _signature(lanes: Lanes, function: str, arguments: tuple[str, ...]) -> str:
    return f"{lanes.type} {function}({', '.join(f'{lanes.type} {argument}' for argument in arguments)})"


def _library(name: str, lanes: Lanes, function: str, arguments: tuple[str, ...], attributes: str) -> str:
    """A function that calls the C library for each lane."""
    body = Lanes(lanes.format, lanes.width)
    result = body.binary("frem", *arguments) if name == "fmod" else body.intrinsic(name, *arguments)
    return f"""
define internal {_signature(lanes, function, arguments)} {attributes} nounwind {{
  {body.lines[0]}
  ret {lanes.type} {result}
}}
"""


def _end_with_library(lanes: Lanes, function: str, arguments: tuple[str, ...], result: str, unusual: str) -> str:
    """The end of a function that leaves its ``unusual`` lanes, if there are any, to the library."""
    kind, any_unusual, test = lanes.type, unusual, ""
    if lanes.width > 1:
        any_unusual = "%any"
        test = f"  %any = call i1 @llvm.vector.reduce.or.v{lanes.width}i1({lanes.bool_type} {unusual})\n"
    return f"""{test}  br i1 {any_unusual}, label %beyond, label %done

beyond:
  %library = call {_signature(lanes, f"{function}_library", arguments)}
  %mixed = select {lanes.bool_type} {unusual}, {kind} %library, {kind} {result}
  br label %done

done:
  %result = phi {kind} [ {result}, %entry ], [ %mixed, %beyond ]
  ret {kind} %result
}}
"""


# To 2^-200, more than three parts of f64 hold.
_LN2 = Fraction(0xB17217F7D1CF79ABC9E3B39803F2F6AF40F343267298B62D8A0D1, 1 << 212)
_HALF_PI = Fraction(0x1921FB54442D18469898CC51701B839A252049C1114CF98E804178, 1 << 212)

_REDUCTION_END = 65536.0
_TANH_SPLIT = 0.6
_ERFC_CENTRE = 3.0
_NORMAL_CENTRE = 4.0


def _root(value: Fraction) -> Fraction:
    return Fraction(math.isqrt(int(value * (1 << 400))), 1 << 200)


def _exp_parts(lanes: Lanes, x: str, correction: str | None = None) -> tuple[str, str]:
    """m and n with exp(x + correction) = (1 + m) * 2^n, for a correction of a few units in the last place of x."""
    n, n_integer = lanes.nearest_integer(x, 1 / math.log(2))
    r = lanes.subtract_multiple(x, n, _LN2, 2)
    if correction is not None:
        r = lanes.add(r, correction)
    square = lanes.mul(r, r)
    return lanes.fma(square, lanes.polynomial("exp", r), r), n_integer


def _exp(lanes: Lanes, x: str) -> str:
    low, high = lanes.format.exp_range
    excess, n = _exp_parts(lanes, lanes.at_least(lanes.at_most(x, high), low))
    return lanes.scale(lanes.add(lanes.number(1), excess), n)


def _log(lanes: Lanes, x: str) -> str:
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


def _tanh(lanes: Lanes, x: str) -> str:
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


def _erfc_of_size(lanes: Lanes, size: str) -> str:
    """erfc for arguments that are not negative."""
    one, centre = lanes.number(1), lanes.number(_ERFC_CENTRE)
    size = lanes.at_most(size, lanes.format.erfc_end)
    minus_square = lanes.neg(lanes.mul(size, size))
    correction = lanes.neg(lanes.fma(size, size, minus_square))
    excess, n = _exp_parts(lanes, minus_square, correction)
    # What is lost in rounding the sum, its inverse, the polynomial's last step and its product comes back at the end.
    divisor = lanes.add(size, centre)
    inverse = lanes.div(one, divisor)
    minus_inverse = lanes.neg(inverse)
    divisor_low = lanes.sub(size, lanes.sub(divisor, centre))
    short = lanes.fma(minus_inverse, divisor_low, lanes.fma(minus_inverse, divisor, one))
    t = lanes.fma(lanes.add(size, size), inverse, lanes.number(-1))
    t = lanes.fma(lanes.add(t, one), short, t)
    factor, lost = lanes.polynomial_in_parts("erfc", t)
    tail = lanes.mul(factor, inverse)
    lost = lanes.fma(lost, inverse, lanes.fma(factor, inverse, lanes.neg(tail)))
    lost = lanes.fma(tail, short, lost)
    return lanes.scale(lanes.add(tail, lanes.fma(tail, excess, lanes.fma(lost, excess, lost))), n)


def _erf_near_zero(lanes: Lanes, x: str) -> str:
    return lanes.fma(x, lanes.polynomial("erf", lanes.mul(x, x)), x)


def _erf(lanes: Lanes, x: str) -> str:
    size = lanes.intrinsic("fabs", x)
    near = _erf_near_zero(lanes, x)
    far = lanes.sub(lanes.number(1), _erfc_of_size(lanes, size))
    is_near = lanes.compare("olt", size, lanes.number(1))
    return lanes.intrinsic("copysign", lanes.select(is_near, near, far), x)


def _erfc(lanes: Lanes, x: str) -> str:
    size = lanes.intrinsic("fabs", x)
    near = lanes.sub(lanes.number(1), _erf_near_zero(lanes, x))
    far = _erfc_of_size(lanes, size)
    negative = lanes.compare("olt", x, lanes.number(0))
    far = lanes.select(negative, lanes.sub(lanes.number(2), far), far)
    return lanes.select(lanes.compare("olt", size, lanes.number(0.75)), near, far)


def _exp_of_minus_half_square(lanes: Lanes, size: str) -> tuple[str, str]:
    """m and n with exp(-size^2 / 2) = (1 + m) * 2^n."""
    half = lanes.mul(size, lanes.number(-0.5))
    power = lanes.mul(half, size)
    return _exp_parts(lanes, power, lanes.fma(half, size, lanes.neg(power)))


def _normal_cdf(lanes: Lanes, x: str) -> str:
    one, centre = lanes.number(1), lanes.number(_NORMAL_CENTRE)
    size = lanes.at_most(lanes.intrinsic("fabs", x), lanes.format.normal_end)
    excess, n = _exp_of_minus_half_square(lanes, size)
    divisor = lanes.add(size, centre)
    inverse = lanes.div(one, divisor)
    divisor_low = lanes.sub(size, lanes.sub(divisor, centre))
    inverse = lanes.fma(lanes.neg(lanes.mul(divisor_low, inverse)), inverse, inverse)
    t = lanes.fma(lanes.add(size, size), inverse, lanes.number(-1))
    factor = lanes.mul(lanes.polynomial("normal_cdf", t), inverse)
    tail = lanes.scale(lanes.fma(factor, excess, factor), n)
    return lanes.select(lanes.compare("olt", x, lanes.number(0)), tail, lanes.sub(one, tail))


def _normal_pdf(lanes: Lanes, x: str) -> str:
    size = lanes.at_most(lanes.intrinsic("fabs", x), lanes.format.normal_end)
    excess, n = _exp_of_minus_half_square(lanes, size)
    high, low = lanes.format.parts(_root(1 / (4 * _HALF_PI)), 2)
    grown = lanes.add(lanes.fma(excess, lanes.number(high), lanes.number(low)), lanes.number(high))
    return lanes.scale(grown, n)


def _normal_cdf_tanh(lanes: Lanes, x: str) -> str:
    # 1 / (1 + exp(-u)), u = x (linear + cubic x^2), for |x|; u to twice the precision: exp magnifies its error by u.
    size = lanes.at_most(lanes.intrinsic("fabs", x), lanes.format.cubic_end)
    linear = _root(4 / _HALF_PI)
    cubic_high, cubic_low = lanes.format.parts(linear * Fraction(44715, 10**6), 2)
    # With bits to spare in the first part the difference below is exact.
    linear_high, linear_low = lanes.format.parts(linear, 2, lanes.format.precision // 2)
    square = lanes.mul(size, size)
    square_low = lanes.fma(size, size, lanes.neg(square))
    slope = lanes.fma(square, lanes.number(cubic_high), lanes.number(linear_high))
    slope_low = lanes.fma(square, lanes.number(cubic_high), lanes.sub(lanes.number(linear_high), slope))
    slope_low = lanes.fma(square, lanes.number(cubic_low), lanes.add(slope_low, lanes.number(linear_low)))
    slope_low = lanes.fma(square_low, lanes.number(cubic_high), slope_low)
    minus = lanes.neg(size)
    power = lanes.mul(minus, slope)
    power_low = lanes.fma(minus, slope_low, lanes.fma(minus, slope, lanes.neg(power)))
    return _logistic(lanes, x, *_exp_parts(lanes, power, power_low))


def _sigmoid(lanes: Lanes, x: str) -> str:
    low, _ = lanes.format.exp_range
    return _logistic(lanes, x, *_exp_parts(lanes, lanes.at_least(lanes.neg(lanes.intrinsic("fabs", x)), low)))


def _logistic(lanes: Lanes, x: str, excess: str, n: str) -> str:
    """1 / (1 + s) where x is not negative and s / (1 + s) where it is, of s = (1 + excess) * 2^n <= 1."""
    one, zero = lanes.number(1), lanes.number(0)
    grown = lanes.add(one, excess)
    small = lanes.scale(grown, n)
    both = lanes.add(one, small)
    large = lanes.div(one, both)
    negative = lanes.compare("olt", x, zero)
    share = lanes.select(negative, lanes.mul(small, large), large)
    # What the two sums lost in rounding, as parts of the share.
    lost = lanes.select(negative, lanes.sub(excess, lanes.sub(grown, one)), zero)
    lost = lanes.sub(lost, lanes.add(lanes.sub(one, both), small))
    return lanes.fma(share, lost, share)


def _turned(lanes: Lanes, size: str, quarters: int) -> tuple[str, str]:
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


def _sin(lanes: Lanes, x: str) -> str:
    size = lanes.intrinsic("fabs", x)
    value, sign = _turned(lanes, size, 0)
    flipped = lanes.integers("xor", lanes.bits(value), sign)
    sign_of_x = lanes.integers("xor", lanes.bits(x), lanes.bits(size))
    return lanes.from_bits(lanes.integers("xor", flipped, sign_of_x))


def _cos(lanes: Lanes, x: str) -> str:
    value, sign = _turned(lanes, lanes.intrinsic("fabs", x), 1)
    return lanes.from_bits(lanes.integers("xor", lanes.bits(value), sign))


def _sqrt(lanes: Lanes, x: str) -> str:
    return lanes.intrinsic("sqrt", x)


def _rsqrt(lanes: Lanes, x: str) -> str:
    return lanes.div(lanes.number(1), lanes.intrinsic("sqrt", x))


def _beyond_reduction(lanes: Lanes, x: str) -> str:
    return lanes.compare("ogt", lanes.intrinsic("fabs", x), lanes.number(_REDUCTION_END))


def _pow(lanes: Lanes, x: str, y: str) -> str:
    """exp(y log |x|) in f64, which rounds to the f32 next to the exact value but for rare ties; then the sign."""
    wide = lanes.widened()
    power = wide.mul(_log(wide, lanes.to(wide, lanes.intrinsic("fabs", x))), lanes.to(wide, y))
    size = wide.to(lanes, _exp(wide, power))
    whole = lanes.compare("oeq", lanes.intrinsic("floor", y), y)
    half = lanes.mul(y, lanes.number(0.5))
    odd = lanes.both(whole, lanes.compare("one", lanes.intrinsic("floor", half), half))
    signed = lanes.select(odd, lanes.intrinsic("copysign", size, x), size)
    real = lanes.either(whole, lanes.compare("oge", x, lanes.number(0)))
    return lanes.select(real, signed, lanes.number(math.nan))


def _special_power(lanes: Lanes, x: str, y: str) -> str:
    """Where an operand is infinite or NaN, and powers of zero that are not above 0."""
    infinity, zero = lanes.number(math.inf), lanes.number(0)
    of_zero = lanes.both(lanes.compare("oeq", x, zero), lanes.compare("ole", y, zero))
    special = (lanes.compare("uge", lanes.intrinsic("fabs", operand), infinity) for operand in (x, y))
    return lanes.either(lanes.either(*special), of_zero)


def _fmod(lanes: Lanes, x: str, y: str) -> str:
    # In f64 a quotient below 2^28 of f32 numbers rounds to the right side of every integer, and its product is exact.
    wide = lanes.widened()
    dividend, divisor = lanes.to(wide, x), lanes.to(wide, y)
    quotient = wide.intrinsic("trunc", wide.div(dividend, divisor))
    rest = wide.to(lanes, wide.fma(wide.neg(quotient), divisor, dividend))
    return lanes.intrinsic("copysign", rest, x)


def _large_quotient(lanes: Lanes, x: str, y: str) -> str:
    """Where the quotient is large or an operand infinite or NaN."""
    quotient = lanes.compare("uge", lanes.intrinsic("fabs", lanes.div(x, y)), lanes.number(2.0**27))
    return lanes.either(quotient, lanes.compare("uge", lanes.intrinsic("fabs", y), lanes.number(math.inf)))


_BODIES: dict[str, Callable[..., str]] = {
    "exp": _exp,
    "log": _log,
    "tanh": _tanh,
    "erf": _erf,
    "erfc": _erfc,
    "normal_cdf": _normal_cdf,
    "normal_pdf": _normal_pdf,
    "normal_cdf_tanh": _normal_cdf_tanh,
    "sigmoid": _sigmoid,
    "sin": _sin,
    "cos": _cos,
    "sqrt": _sqrt,
    "rsqrt": _rsqrt,
    "pow": _pow,
    "fmod": _fmod,
}

# Which lanes are the C library's.
_UNUSUAL: dict[str, Callable[..., str]] = {
    "sin": _beyond_reduction,
    "cos": _beyond_reduction,
    "pow": _special_power,
    "fmod": _large_quotient,
}
