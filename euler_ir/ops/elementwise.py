"""Elementwise operators: operands of one shape, one result of that shape.

Each is also an operation of the Loop IR under the same name, so its scalar lowering is its name.
"""

from __future__ import annotations

import math

import numpy as np

from euler_ir import tensor as T
from euler_ir.dtypes import accumulation_dtype, bool_
from euler_ir.ops.definition import define, expect, expect_dtype
from euler_ir.shapes import TensorType

# -- type rules --------------------------------------------------------------------------------------------------------


def same_shapes(name, types):
    for other in types[1:]:
        expect(
            other.shape == types[0].shape,
            f"{name}: shapes {types[0].shape} and {other.shape} differ",
            "broadcast first",
        )


def _same_types(name, types):
    same_shapes(name, types)
    for other in types[1:]:
        expect_dtype(other.dtype == types[0].dtype, f"{name}: dtypes {types[0].dtype} and {other.dtype} differ", "cast")


def _infer_same(name, accepts=lambda dtype: True, wanted=""):
    def infer(types, attributes):
        _same_types(name, types)
        expect_dtype(accepts(types[0].dtype), f"{name}: needs {wanted}, not {types[0].dtype}")
        return (types[0],)

    return infer


def infer_float(name):
    return _infer_same(name, lambda dtype: dtype.is_float, "a float tensor")


def _infer_number(name):
    return _infer_same(name, lambda dtype: dtype.kind != "bool", "numbers")


def _infer_comparison(name):
    def infer(types, attributes):
        _same_types(name, types)
        return (TensorType(bool_, types[0].shape),)

    return infer


def _infer_where(types, attributes):
    condition, chosen, other = types
    same_shapes("where", types)
    expect_dtype(condition.dtype == bool_, f"where: the condition is {condition.dtype}, not bool")
    expect_dtype(chosen.dtype == other.dtype, f"where: sides of {chosen.dtype} and {other.dtype}")
    return (chosen,)


# -- numpy meanings ----------------------------------------------------------------------------------------------------


def in_float(function):
    """``function`` in f32 for half types, rounded once, else in the operands' own type."""

    def evaluate(attributes, *arrays):
        dtype = arrays[0].dtype
        if dtype.itemsize == 2 and dtype.kind not in "iu":
            return np.asarray(function(*(array.astype(np.float32) for array in arrays))).astype(dtype)
        return np.asarray(function(*arrays), dtype)

    return evaluate


def _libm(function):
    """An exact scalar function of the C library, applied to each element in f64 and rounded to the operand's type."""
    vectorized = np.vectorize(function, otypes=[np.float64])

    def evaluate(attributes, x):
        return (vectorized(x.astype(np.float64)) if x.size else x).astype(x.dtype)

    return evaluate


def sigmoid_array(x):
    """The logistic function of a float array, exact in both tails."""
    small = np.exp(-np.abs(x))
    return np.where(np.isnan(x), x, np.where(x >= 0, 1, small) / (1 + small))


def _evaluate_cast(attributes, x):
    target = attributes["dtype"]
    if target.is_integer and x.dtype.kind not in "iub":
        return _float_to_integer(x, target)
    return x.astype(target.numpy)


def _float_to_integer(x, target):
    """Truncation, saturating at the ends; NaN gives 0 (LLVM's fptosi.sat), so that every backend agrees."""
    wide = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
    low, high = np.iinfo(target.numpy).min, np.iinfo(target.numpy).max
    inside = np.where((wide > low) & (wide < high), wide, 0).astype(target.numpy)
    return np.where(wide >= high, high, np.where(wide <= low, low, inside)).astype(target.numpy)


# -- gradients ---------------------------------------------------------------------------------------------------------


def unless_zero(factor, gradient):
    """``gradient``, but 0 where it is NaN and ``factor`` of it is 0: what no output depends on is not 0 * inf = NaN.

    Elsewhere the product stands, so that it can be differentiated by that factor as well.
    """
    return T.where(T.logical_and(T.equal(factor, 0), T.isnan(gradient)), 0, gradient)


def _vjp_divide(op, dy):
    left, right = op.operands
    return unless_zero(dy, dy / right), unless_zero(dy, -dy * op.result / right)


def _vjp_power(op, dy):
    base, exponent = op.operands
    by_base = unless_zero(exponent, dy * exponent * base ** (exponent - 1))
    at_zero = T.logical_and(T.equal(base, 0), exponent >= 0)
    by_exponent = T.where(at_zero, 0, dy * op.result * T.log(base))
    return unless_zero(dy, by_base), unless_zero(dy, by_exponent)


def _vjp_extremum(op, dy):
    left, right = op.operands
    half = T.where(T.equal(left, right), dy * 0.5, 0)
    wins = left > right if op.name == "maximum" else left < right
    loses = left < right if op.name == "maximum" else left > right
    return T.where(wins, dy, half), T.where(loses, dy, half)


def _vjp_cast(op, dy):
    source = op.operands[0].dtype
    return (T.cast(dy, source) if source.is_float and op.result.dtype.is_float else None,)


def _vjp_remainder(op, dy):
    left, right = op.operands
    return (dy, unless_zero(dy, -dy * T.floor_divide(left, right))) if left.dtype.is_float else (None, None)


def _vjp_normal_cdf_tanh(op, dy):
    x = op.operands[0]
    slope = 2 * _INNER + 6 * _INNER * _CUBIC * (x * x)
    # p (-x) is 1 - p (x) without cancellation.
    return (dy * (op.result * T.normal_cdf_tanh(-x) * slope),)


def _gelu_gradient(op, dy):
    """Derivative of x p(x), p being the gate, in the accumulation type."""
    wide = accumulation_dtype(op.operands[0].dtype)
    x, dy_wide = T.cast(op.operands[0], wide), T.cast(dy, wide)
    gate = _gelu_gate(op, x)
    (slope,) = gate.op.definition.vjp(gate.op, T.full_like(x, 1))
    return (T.cast(dy_wide * (gate + x * slope), op.operands[0].dtype),)


# -- GELU --------------------------------------------------------------------------------------------------------------
# x times the chance that a normal number is below x; arXiv:1606.08415, section 2, which also gives the tanh form. That
# is a sigmoid, equal to 0.5 (1 + tanh u) without the cancellation by which the latter loses every digit of the tail.

_INNER = math.sqrt(2 / math.pi)
_CUBIC = 0.044715


def _in_wide(function):
    """``function`` of numpy with more digits than the operand has (where the machine has such a type), rounded once."""

    def evaluate(attributes, x):
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            return function(x.astype(np.longdouble if x.dtype == np.float64 else np.float64)).astype(x.dtype)

    return evaluate


def _normal_cdf_array(x):
    """By erfc of the C library at the nearest f64 to -x / sqrt(2), and its slope for what is left of that."""
    wanted = x * -np.sqrt(x.dtype.type(0.5))
    at = wanted.astype(np.float64)
    left = np.where(np.isfinite(at), wanted - at, 0)
    return 0.5 * (np.vectorize(math.erfc, otypes=[np.float64])(at) - 2 / math.sqrt(math.pi) * np.exp(-at * at) * left)


def _normal_pdf_array(x):
    return np.exp(-0.5 * (x * x)) / np.sqrt(2 * x.dtype.type(_PI))


def _normal_cdf_tanh_array(x):
    return sigmoid_array(np.sqrt(8 / x.dtype.type(_PI)) * (x + x.dtype.type("0.044715") * x * x * x))


_PI = np.longdouble("3.14159265358979323846264338327950288")


def _gelu_gate(op, x):
    return T.normal_cdf_tanh(x) if op.attributes["approximate"] == "tanh" else T.normal_cdf(x)


def _infer_gelu(types, attributes):
    expect_dtype(
        attributes["approximate"] in ("tanh", "none"),
        f"gelu: approximate is {attributes['approximate']!r}",
        "use 'tanh' or 'none'",
    )
    return infer_float("gelu")(types, attributes)


def _evaluate_gelu(attributes, x):
    gate = _normal_cdf_tanh_array if attributes["approximate"] == "tanh" else _normal_cdf_array
    return _in_wide(lambda wide: wide * gate(wide))({}, x)


def _decompose_gelu(op):
    x = T.cast(op.operands[0], accumulation_dtype(op.operands[0].dtype))
    return (T.cast(x * _gelu_gate(op, x), op.operands[0].dtype),)


# -- the table ---------------------------------------------------------------------------------------------------------


def _unary(name, infer, function, vjp=None, evaluate=None, is_expensive=False, *, doc):
    define(
        name,
        "elementwise",
        infer(name),
        evaluate=evaluate or in_float(function),
        vjp=vjp,
        operand_names=("operand",),
        is_expensive=is_expensive,
        doc=doc,
    )


def _binary(name, infer, evaluate, vjp=None, commutative=False, is_expensive=False, *, doc):
    define(
        name,
        "elementwise",
        infer(name),
        evaluate=evaluate,
        vjp=vjp,
        operand_names=("left", "right"),
        commutative=commutative,
        is_expensive=is_expensive,
        doc=doc,
    )


def _operand(op):
    return op.operands[0]


_unary("negative", _infer_number, np.negative, lambda op, dy: (-dy,), doc="-x")
_unary("absolute", _infer_number, np.absolute, lambda op, dy: (dy * T.sign(_operand(op)),), doc="|x|")
_unary("sign", _infer_number, np.sign, doc="-1, 0 or 1; NaN stays")
_unary("floor", infer_float, np.floor, doc="the largest integer up to x")
_unary(
    "exp",
    infer_float,
    np.exp,
    lambda op, dy: (unless_zero(dy, dy * op.result),),
    is_expensive=True,
    doc="e to the power x",
)
_unary(
    "log",
    infer_float,
    np.log,
    lambda op, dy: (unless_zero(dy, dy / _operand(op)),),
    is_expensive=True,
    doc="the natural logarithm",
)
_unary(
    "sqrt",
    infer_float,
    np.sqrt,
    lambda op, dy: (unless_zero(dy, dy * 0.5 / op.result),),
    doc="the square root; NaN below 0",
)
_unary(
    "rsqrt",
    infer_float,
    lambda x: 1 / np.sqrt(x),
    lambda op, dy: (unless_zero(dy, dy * -0.5 * op.result / _operand(op)),),
    doc="1 / sqrt(x)",
)
_unary(
    "sin",
    infer_float,
    np.sin,
    lambda op, dy: (dy * T.cos(_operand(op)),),
    is_expensive=True,
    doc="the sine of x radians",
)
_unary(
    "cos",
    infer_float,
    np.cos,
    lambda op, dy: (-dy * T.sin(_operand(op)),),
    is_expensive=True,
    doc="the cosine of x radians",
)
_unary(
    "tanh",
    infer_float,
    np.tanh,
    lambda op, dy: (dy * (1 - op.result * op.result),),
    is_expensive=True,
    doc="the hyperbolic tangent",
)
_unary(
    "erf",
    infer_float,
    None,
    lambda op, dy: (dy * (2 / math.sqrt(math.pi)) * T.exp(-_operand(op) * _operand(op)),),
    evaluate=_libm(math.erf),
    is_expensive=True,
    doc="the error function",
)
_unary(
    "erfc",
    infer_float,
    None,
    lambda op, dy: (dy * (-2 / math.sqrt(math.pi)) * T.exp(-_operand(op) * _operand(op)),),
    evaluate=_libm(math.erfc),
    is_expensive=True,
    doc="1 - erf(x), exact in the upper tail",
)
_unary(
    "sigmoid",
    infer_float,
    sigmoid_array,
    lambda op, dy: (dy * op.result * (1 - op.result),),
    is_expensive=True,
    doc="1 / (1 + exp(-x)), exact in both tails",
)
_unary(
    "normal_cdf",
    infer_float,
    None,
    lambda op, dy: (dy * T.normal_pdf(_operand(op)),),
    evaluate=_in_wide(_normal_cdf_array),
    is_expensive=True,
    doc="the chance that a standard normal number is below x",
)
_unary(
    "normal_pdf",
    infer_float,
    None,
    lambda op, dy: (dy * (-_operand(op) * op.result),),
    evaluate=_in_wide(_normal_pdf_array),
    is_expensive=True,
    doc="the density of a standard normal number at x",
)
_unary(
    "normal_cdf_tanh",
    infer_float,
    None,
    _vjp_normal_cdf_tanh,
    evaluate=_in_wide(_normal_cdf_tanh_array),
    is_expensive=True,
    doc="the tanh approximation of normal_cdf, by which GELU is made",
)
_unary(
    "logical_not",
    lambda name: _infer_same(name, lambda dtype: dtype == bool_, "bool"),
    None,
    evaluate=lambda attributes, x: np.logical_not(x),
    doc="not x",
)
_unary("stop_gradient", _infer_same, None, evaluate=lambda attributes, x: x, doc="x, through which no gradient goes")

_binary("add", _infer_same, in_float(np.add), lambda op, dy: (dy, dy), commutative=True, doc="x + y; or of bools")
_binary("subtract", _infer_number, in_float(np.subtract), lambda op, dy: (dy, -dy), doc="x - y")
_binary(
    "multiply",
    _infer_same,
    in_float(np.multiply),
    lambda op, dy: (dy * op.operands[1], dy * op.operands[0]),
    commutative=True,
    doc="x * y; and of bools",
)
_binary("divide", infer_float, in_float(np.divide), _vjp_divide, doc="x / y")
_binary("floor_divide", _infer_number, in_float(np.floor_divide), doc="x / y rounded down; an integer by 0 gives 0")
_binary(
    "remainder",
    _infer_number,
    in_float(np.remainder),
    _vjp_remainder,
    doc="x - y * floor(x / y); of an integer by 0 it is 0",
)
# numpy's power takes a square root where one exponent 0.5 serves all elements, and of -inf that is NaN.
_binary("power", infer_float, in_float(np.float_power), _vjp_power, is_expensive=True, doc="x to the power y")
_binary(
    "maximum", _infer_same, in_float(np.maximum), _vjp_extremum, commutative=True, doc="the larger; NaN if either is"
)
_binary(
    "minimum", _infer_same, in_float(np.minimum), _vjp_extremum, commutative=True, doc="the smaller; NaN if either is"
)
for _name, _commutes, _sign in (
    ("equal", True, "=="),
    ("not_equal", True, "!="),
    ("less", False, "<"),
    ("less_equal", False, "<="),
):
    _binary(
        _name,
        _infer_comparison,
        lambda attributes, left, right, function=getattr(np, _name): function(left, right),
        commutative=_commutes,
        doc=f"whether x {_sign} y, as a bool",
    )
for _name, _meaning in (("and", "x and y"), ("or", "x or y"), ("xor", "either x or y")):
    _binary(
        f"logical_{_name}",
        lambda name: _infer_same(name, lambda dtype: dtype == bool_, "bool"),
        lambda attributes, left, right, function=getattr(np, f"logical_{_name}"): function(left, right),
        commutative=True,
        doc=_meaning,
    )

define(
    "where",
    "elementwise",
    _infer_where,
    evaluate=lambda attributes, condition, chosen, other: np.where(condition, chosen, other),
    vjp=lambda op, dy: (None, T.where(op.operands[0], dy, 0), T.where(op.operands[0], 0, dy)),
    operand_names=("condition", "chosen", "other"),
    doc="chosen where the condition holds, else other",
)
define(
    "cast",
    "elementwise",
    lambda types, attributes: (TensorType(attributes["dtype"], types[0].shape),),
    evaluate=_evaluate_cast,
    vjp=_vjp_cast,
    attributes={"dtype": "dtype"},
    operand_names=("operand",),
    doc="the same number as another dtype: rounded, or cut off and kept in range for integers",
)
define(
    "gelu",
    "composite",
    _infer_gelu,
    evaluate=_evaluate_gelu,
    vjp=_gelu_gradient,
    decompose=_decompose_gelu,
    attributes={"approximate": "str"},
    operand_names=("operand",),
    doc="x times the chance that a normal number is below x; approximate is 'none' or 'tanh'",
)
