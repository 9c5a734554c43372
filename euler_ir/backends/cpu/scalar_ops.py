"""The operations of ``Compute``, as LLVM instructions on scalars or vectors.

Half types are f32 values here, rounded to the half type after each operation that can leave it.
"""

from __future__ import annotations

from collections.abc import Callable

from euler_ir.backends.cpu.philox import emit_philox
from euler_ir.backends.cpu.writer import Code, Register, constant, mangled, register_element
from euler_ir.dtypes import DType
from euler_ir.errors import LoweringError
from euler_ir.loops.kernel import Compute

MATH_OPERATIONS = {
    "exp": "exp",
    "log": "log",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "sin": "sin",
    "cos": "cos",
    "tanh": "tanh",
    "erf": "erf",
    "erfc": "erfc",
    "normal_cdf": "normal_cdf",
    "normal_pdf": "normal_pdf",
    "normal_cdf_tanh": "normal_cdf_tanh",
    "sigmoid": "sigmoid",
    "power": "pow",
}

# Results that a half type holds whenever it holds the operands.
_EXACT = ("negative", "absolute", "sign", "floor", "maximum", "minimum", "where", "stop_gradient")

_COMPARISONS = {
    "equal": ("oeq", "eq", "eq"),
    "not_equal": ("une", "ne", "ne"),
    "less": ("olt", "slt", "ult"),
    "less_equal": ("ole", "sle", "ule"),
}
_LOGIC = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}
_BOOL_ARITHMETIC = {"add": "or", "maximum": "or", "multiply": "and", "minimum": "and"}


def emit_compute(code: Code, statement: Compute, operands: list[Register], dtypes: list[DType]) -> Register:
    """The result of ``statement``, of operands that have the given dtypes."""
    operation, dtype = statement.operation, statement.dtype
    if operation == "philox":
        return emit_philox(code, statement.stream, dtype, *operands)
    if operation == "cast":
        return cast(code, operands[0], dtypes[0], dtype)
    result = _emit(code, operation, dtypes[-1], operands)
    return round_half(code, result, dtype) if dtype.is_half and operation not in _EXACT else result


def combine(code: Code, operation: str, dtype: DType, left: Register, right: Register) -> Register:
    """'add', 'multiply', 'maximum' or 'minimum' of two values of ``dtype``."""
    return _emit(code, operation, dtype, [left, right])


def _emit(code: Code, operation: str, dtype: DType, operands: list[Register]) -> Register:
    if operation in MATH_OPERATIONS:
        return code.math(MATH_OPERATIONS[operation], *operands)
    if operation in _COMPARISONS:
        of_float, of_signed, of_unsigned = _COMPARISONS[operation]
        if dtype.is_float:
            return code.compare(f"fcmp {of_float}", *operands)
        return code.compare(f"icmp {of_signed if dtype.kind == 'signed' else of_unsigned}", *operands)
    if operation in _LOGIC:
        return code.binary(_LOGIC[operation], *operands)
    if dtype.kind == "bool" and operation in _BOOL_ARITHMETIC:
        return code.binary(_BOOL_ARITHMETIC[operation], *operands)
    if operation in _OTHERS:
        return _OTHERS[operation](code, dtype, *operands)
    raise LoweringError(f"the CPU backend has no operation '{operation}' of {dtype}")


# -- arithmetic --------------------------------------------------------------------------------------------------------


def _arithmetic(of_float: str, of_integer: str) -> Callable[..., Register]:
    def emit(code: Code, dtype: DType, left: Register, right: Register) -> Register:
        return code.binary(of_float if dtype.is_float else of_integer, left, right)

    return emit


def _negative(code: Code, dtype: DType, x: Register) -> Register:
    if dtype.is_float:
        return code.emit(f"fneg {x.typed}", x.element, x.lanes)
    return code.binary("sub", constant(0, x.element), x)


def _absolute(code: Code, dtype: DType, x: Register) -> Register:
    if dtype.is_float:
        return code.intrinsic("fabs", x)
    return x if dtype.kind == "unsigned" else code.intrinsic("abs", x, extra=", i1 false")


def _sign(code: Code, dtype: DType, x: Register) -> Register:
    zero, one = constant(0, x.element), constant(1, x.element)
    if not dtype.is_float:
        positive = code.convert("zext", code.compare("icmp ne", x, zero), x.element)
        if dtype.kind == "unsigned":
            return positive
        return code.select(code.compare("icmp slt", x, zero), constant(-1, x.element), positive)
    signed_one = code.intrinsic("copysign", code.splat(one, x.lanes), x)
    unless_zero = code.select(code.compare("fcmp oeq", x, zero), zero, signed_one)
    return code.select(code.compare("fcmp uno", x, x), x, unless_zero)


def _extremum(of_float: str, of_integer: str) -> Callable[..., Register]:
    def emit(code: Code, dtype: DType, left: Register, right: Register) -> Register:
        if not dtype.is_float:
            return code.intrinsic(f"{'s' if dtype.kind == 'signed' else 'u'}{of_integer}", left, right)
        # The first select is one x86 instruction, which gives NaN for a NaN on the right; the second sees to the left.
        # With its NaN as a sum LLVM does not merge the two into one that takes longer.
        winner = code.select(code.compare(f"fcmp {of_float}", left, right), left, right)
        return code.select(code.compare("fcmp uno", left, left), code.binary("fadd", left, left), winner)

    return emit


def _where(code: Code, dtype: DType, condition: Register, chosen: Register, other: Register) -> Register:
    return code.select(condition, chosen, other)


# -- division that rounds down -----------------------------------------------------------------------------------------


def _floor_divide(code: Code, dtype: DType, left: Register, right: Register) -> Register:
    if dtype.is_float:
        return _float_divmod(code, left, right)[0]
    quotient, _ = _integer_divmod(code, dtype, left, right)
    return quotient


def _remainder(code: Code, dtype: DType, left: Register, right: Register) -> Register:
    if dtype.is_float:
        return _float_divmod(code, left, right)[1]
    _, remainder = _integer_divmod(code, dtype, left, right)
    return remainder


def _integer_divmod(code: Code, dtype: DType, left: Register, right: Register) -> tuple[Register, Register]:
    """Quotient and remainder; both are 0 for a zero divisor, and the least integer by -1 wraps."""
    zero, one = constant(0, left.element), constant(1, left.element)
    by_zero = code.compare("icmp eq", right, zero)
    if dtype.kind == "unsigned":
        divisor = code.select(by_zero, one, right)
        quotient = code.select(by_zero, zero, code.binary("udiv", left, divisor))
        return quotient, code.binary("urem", left, divisor)
    by_minus_one = code.compare("icmp eq", right, constant(-1, left.element))
    divisor = code.select(code.binary("or", by_zero, by_minus_one), one, right)
    quotient = code.binary("sdiv", left, divisor)
    remainder = code.binary("sub", left, code.binary("mul", quotient, divisor))
    signs_differ = code.compare("icmp slt", code.binary("xor", remainder, divisor), zero)
    too_high = code.binary("and", signs_differ, code.compare("icmp ne", remainder, zero))
    quotient = code.binary("sub", quotient, code.convert("zext", too_high, left.element))
    quotient = code.select(by_minus_one, code.binary("sub", zero, left), quotient)
    remainder = code.binary("add", remainder, code.select(too_high, divisor, zero))
    return code.select(by_zero, zero, quotient), remainder


def _float_divmod(code: Code, left: Register, right: Register) -> tuple[Register, Register]:
    """Quotient and remainder by the steps of numpy's divmod, so that they agree in every special case."""
    zero, one = constant(0, left.element), constant(1, left.element)
    left, right = code.aligned(left, right)
    ratio = code.binary("fdiv", left, right)
    by_zero = code.compare("fcmp oeq", right, zero)
    rest = code.math("fmod", left, right)
    quotient = code.binary("fdiv", code.binary("fsub", left, rest), right)
    is_exact = code.compare("fcmp oeq", rest, zero)
    signs_differ = code.binary("xor", code.compare("fcmp olt", right, zero), code.compare("fcmp olt", rest, zero))
    moves = code.select(is_exact, constant(0, "i1"), signs_differ)
    quotient = code.select(moves, code.binary("fsub", quotient, one), quotient)
    remainder = code.select(moves, code.binary("fadd", rest, right), rest)
    signed_zero = code.splat(zero, left.lanes)
    remainder = code.select(is_exact, code.intrinsic("copysign", signed_zero, right), remainder)
    floor = code.intrinsic("floor", quotient)
    above = code.compare("fcmp ogt", code.binary("fsub", quotient, floor), constant(0.5, left.element))
    floor = code.select(above, code.binary("fadd", floor, one), floor)
    is_zero = code.compare("fcmp oeq", quotient, zero)
    floor = code.select(is_zero, code.intrinsic("copysign", signed_zero, ratio), floor)
    return code.select(by_zero, ratio, floor), code.select(by_zero, rest, remainder)


# -- conversion --------------------------------------------------------------------------------------------------------


def cast(code: Code, x: Register, source: DType, target: DType) -> Register:
    """``x`` as a ``target``: integers wrap, floats saturate towards integers (NaN gives 0) and round to nearest."""
    element = register_element(target)
    if source == target:
        return x
    if target.kind == "bool":
        return code.compare("fcmp une" if source.is_float else "icmp ne", x, constant(0, x.element))
    if target.is_float:
        return round_half(code, _to_float(code, x, source, target, element), target)
    if source.is_float:
        name = "fptosi" if target.kind == "signed" else "fptoui"
        result = Register("", element, x.lanes)
        call = f"call {result.type} @llvm.{name}.sat.{mangled(result)}.{mangled(x)}({x.typed})"
        return code.emit(call, element, x.lanes)
    if target.bits <= source.bits:
        return x if target.bits == source.bits else code.convert("trunc", x, element)
    return code.convert("sext" if source.kind == "signed" else "zext", x, element)


def _to_float(code: Code, x: Register, source: DType, target: DType, element: str) -> Register:
    if not source.is_float:
        return code.convert("sitofp" if source.kind == "signed" else "uitofp", x, element)
    if x.element == element:
        return x
    if element == "double":
        return code.convert("fpext", x, element)
    return _round_to_odd(code, x) if target.name == "f16" else code.convert("fptrunc", x, element)


def _round_to_odd(code: Code, x: Register) -> Register:
    """f64 to f32, inexact results with an odd last bit: rounding those once more, to f16, rounds as if in one step."""
    nearest = code.convert("fptrunc", x, "float")
    back = code.convert("fpext", nearest, "double")
    bits = code.convert("bitcast", nearest, "i32")
    too_big = code.compare("fcmp ogt", code.intrinsic("fabs", back), code.intrinsic("fabs", x))
    inexact = code.compare("fcmp one", back, x)
    bits = code.binary("sub", bits, code.convert("zext", too_big, "i32"))
    bits = code.binary("or", bits, code.convert("zext", inexact, "i32"))
    return code.convert("bitcast", bits, "float")


def round_half(code: Code, x: Register, dtype: DType) -> Register:
    """An f32 value rounded to nearest even in ``dtype``, if that is a half type."""
    if dtype.name == "f16":
        return code.convert("fpext", code.convert("fptrunc", x, "half"), "float")
    if dtype.name != "bf16":
        return x
    bits = code.convert("bitcast", x, "i32")
    last = code.binary("and", code.binary("lshr", bits, constant(16, "i32")), constant(1, "i32"))
    rounded = code.binary("add", code.binary("add", bits, constant(0x7FFF, "i32")), last)
    # Rounding could carry a NaN over to infinity or to zero.
    quiet = code.binary("or", bits, constant(0x400000, "i32"))
    rounded = code.select(code.compare("fcmp uno", x, x), quiet, rounded)
    return code.convert("bitcast", code.binary("and", rounded, constant(-0x10000, "i32")), "float")


_OTHERS: dict[str, Callable[..., Register]] = {
    "add": _arithmetic("fadd", "add"),
    "subtract": _arithmetic("fsub", "sub"),
    "multiply": _arithmetic("fmul", "mul"),
    "divide": lambda code, dtype, left, right: code.binary("fdiv", left, right),
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "maximum": _extremum("ogt", "max"),
    "minimum": _extremum("olt", "min"),
    "negative": _negative,
    "absolute": _absolute,
    "sign": _sign,
    "floor": lambda code, dtype, x: code.intrinsic("floor", x),
    "logical_not": lambda code, dtype, x: code.binary("xor", x, constant(1, "i1")),
    "stop_gradient": lambda code, dtype, x: x,
    "where": _where,
}
