"""Functions of the DSL that work element by element, with numpy's broadcasting."""

from __future__ import annotations

from numbers import Integral

from euler_ir.dtypes import accumulation_dtype, bool_, f32
from euler_ir.errors import DTypeError
from euler_ir.tensor.lifting import (
    Tensor,
    as_value,
    broadcast_shapes_of,
    broadcast_to,
    cast,
    full_like,
    lift,
    refuse_bool,
)


def _unary(name: str, x, float_only: bool = False):
    if float_only and not x.dtype.is_float:
        x = cast(x, f32)
    return x.graph.emit(name, (x,))


def _binary(name: str, left, right):
    left, right = lift((left, right))
    return left.graph.emit(name, (left, right))


def add(left, right):
    """Sum, elementwise; bool operands are counted as in numpy's logical or."""
    return _binary("add", left, right)


def subtract(left, right):
    return _binary("subtract", left, right)


def multiply(left, right):
    return _binary("multiply", left, right)


def divide(left, right):
    """True division; integers are divided in f32."""
    left, right = lift((left, right))
    if not left.dtype.is_float:
        left, right = cast(left, f32), cast(right, f32)
    return left.graph.emit("divide", (left, right))


def floor_divide(left, right):
    """Quotient rounded down, as in Python. For integers a zero divisor gives 0, as in numpy."""
    return _binary("floor_divide", left, right)


def remainder(left, right):
    """Remainder with the sign of the divisor, as in Python. For integers a zero divisor gives 0, as in numpy."""
    return _binary("remainder", left, right)


def power(base, exponent):
    """``base ** exponent``. A Python int exponent of an integer tensor multiplies out; otherwise both are floats.

    Raises DTypeError for an integer tensor to a negative int.
    """
    if isinstance(exponent, Integral) and not isinstance(exponent, bool) and isinstance(base, Tensor):
        if exponent == 2:
            return multiply(base, base)
        if not base.dtype.is_float:
            return _integer_power(base, int(exponent))
    base, exponent = lift((base, exponent))
    if not base.dtype.is_float:
        base, exponent = cast(base, f32), cast(exponent, f32)
    return base.graph.emit("power", (base, exponent))


def _integer_power(base, exponent: int):
    if exponent < 0:
        error = DTypeError("an integer tensor cannot be raised to a negative power", hint="cast it to a float first")
        raise base.graph.explain(error, (base,))
    result, square = full_like(base, 1), base
    while exponent:
        if exponent & 1:
            result = multiply(result, square)
        exponent >>= 1
        if exponent:
            square = multiply(square, square)
    return result


def maximum(left, right):
    """The larger, elementwise; NaN if either is NaN."""
    return _binary("maximum", left, right)


def minimum(left, right):
    """The smaller, elementwise; NaN if either is NaN."""
    return _binary("minimum", left, right)


def equal(left, right):
    return _binary("equal", left, right)


def not_equal(left, right):
    return _binary("not_equal", left, right)


def less(left, right):
    return _binary("less", left, right)


def less_equal(left, right):
    return _binary("less_equal", left, right)


def greater(left, right):
    return _binary("less", right, left)


def greater_equal(left, right):
    return _binary("less_equal", right, left)


def logical_and(left, right):
    """Logic on truth values; numbers are true where they are not 0."""
    return _logical("logical_and", left, right)


def logical_or(left, right):
    return _logical("logical_or", left, right)


def logical_xor(left, right):
    return _logical("logical_xor", left, right)


def _logical(name: str, left, right):
    near = left if isinstance(left, Tensor) else right
    return _binary(name, *(cast(as_value(operand, near), bool_) for operand in (left, right)))


def logical_not(x):
    return _unary("logical_not", cast(x, bool_))


def where(condition, chosen, other):
    """``chosen`` where ``condition`` holds, else ``other``; the gradient reaches only the chosen side."""
    near = next((value for value in (condition, chosen, other) if isinstance(value, Tensor)), None)
    refuse_bool(condition, near)
    chosen, other = lift((chosen, other), near)
    condition = cast(as_value(condition, near), bool_)
    shape = broadcast_shapes_of((condition, chosen, other))
    return near.graph.emit("where", tuple(broadcast_to(value, shape) for value in (condition, chosen, other)))


def negative(x):
    return _unary("negative", x)


def absolute(x):
    """Magnitude; the gradient at 0 is 0."""
    return _unary("absolute", x)


def sign(x):
    """-1, 0 or 1; NaN stays NaN."""
    return _unary("sign", x)


def floor(x):
    """The largest whole number that is not above; integers are one already."""
    return _unary("floor", x) if x.dtype.is_float else x


def exp(x):
    return _unary("exp", x, float_only=True)


def log(x):
    """Natural logarithm. Where its cotangent is 0 the gradient is 0, also at 0."""
    return _unary("log", x, float_only=True)


def sqrt(x):
    """Square root. Where its cotangent is 0 the gradient is 0, also at 0."""
    return _unary("sqrt", x, float_only=True)


def rsqrt(x):
    """``1 / sqrt(x)``."""
    return _unary("rsqrt", x, float_only=True)


def sin(x):
    return _unary("sin", x, float_only=True)


def cos(x):
    return _unary("cos", x, float_only=True)


def tanh(x):
    return _unary("tanh", x, float_only=True)


def erf(x):
    """The error function."""
    return _unary("erf", x, float_only=True)


def erfc(x):
    """``1 - erf(x)``, exact in the tail."""
    return _unary("erfc", x, float_only=True)


def sigmoid(x):
    """``1 / (1 + exp(-x))``; exact in both tails."""
    return _unary("sigmoid", x, float_only=True)


def normal_cdf(x):
    """The chance that a number of the standard normal distribution is below ``x``; exact in the lower tail."""
    return _unary("normal_cdf", x, float_only=True)


def normal_pdf(x):
    """The density of the standard normal distribution, the derivative of ``normal_cdf``."""
    return _unary("normal_pdf", x, float_only=True)


def normal_cdf_tanh(x):
    """``0.5 + 0.5 tanh(sqrt(2/pi) (x + 0.044715 x^3))``, near ``normal_cdf`` (arXiv:1606.08415); exact in the tails."""
    return _unary("normal_cdf_tanh", x, float_only=True)


def gelu(x, approximate: str = "tanh"):
    """GELU (Hendrycks and Gimpel, arXiv:1606.08415): ``approximate`` is 'tanh' (GPT-2) or 'none'."""
    x = x if x.dtype.is_float else cast(x, f32)
    return x.graph.emit("gelu", (x,), approximate=approximate)


def silu(x):
    """``x * sigmoid(x)``, also called swish (Ramachandran et al., arXiv:1710.05941); rounded once for half types.

    It is NaN at -inf, as in torch.
    """
    x = x if x.dtype.is_float else cast(x, f32)
    wide = cast(x, accumulation_dtype(x.dtype))
    return cast(multiply(wide, sigmoid(wide)), x.dtype)


def relu(x):
    """``maximum(x, 0)``; the gradient at 0 is one half, as for any tie."""
    return maximum(x, 0)


def isnan(x):
    return not_equal(x, x)


def stop_gradient(x):
    """``x``, through which no gradient flows."""
    return x.graph.emit("stop_gradient", (x,))
