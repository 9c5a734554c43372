"""Operators of one element at a time."""

import math

import numpy as np
import torch
from cases.table import (
    ALL, FLOATS, GELU_INNER, INTEGERS, NUMBERS, Input, by_python, case, elementary, exact, fixed, gelu_bound,
    levels, normal, positive, special, tails,
)  # fmt: skip

from euler_ir import tensor as T

SHAPES = ((), (0,), (1,), (7,), (2, 3), (3, 1, 4), (2, 0, 3))


def unary(name, build, reference, dtypes, make=normal, shapes=SHAPES, **rest):
    for shape in shapes:
        case("unary", name, build, reference, Input(shape, dtypes[0], make), **rest)
    case("unary", name, build, reference, Input((3, 5), dtypes[0], make, permuted=True), **rest)
    for dtype in dtypes[1:]:
        case("unary", name, build, reference, Input((3, 5), dtype, make), **rest)
    for dtype in dtypes:
        case("unary", name, build, reference, Input((21,), dtype, special), **(rest | {"orders": 0}))


def wrap(value, dtype):
    """A Python int reduced to the range of a torch integer type."""
    info = torch.iinfo(dtype)
    return (value - info.min) % (info.max - info.min + 1) + info.min


def wrapping(function):
    """A reference on exact Python ints, wrapped around."""

    def reference(*tensors):
        return by_python(lambda *scalars: wrap(function(*scalars), tensors[0].dtype))(*tensors)

    return lambda *tensors: function(*tensors) if tensors[0].is_floating_point() else reference(*tensors)


unary("negative", T.negative, wrapping(lambda x: -x), NUMBERS, orders=2)
unary("absolute", T.absolute, wrapping(abs), NUMBERS, orders=1)
unary("sign", T.sign, lambda x: torch.where(x == x, torch.sign(x), x), NUMBERS, signed_zeros=False)
unary("floor", T.floor, torch.floor, NUMBERS)
unary("exp", T.exp, torch.exp, ALL, bound=elementary, orders=2)
unary("log", T.log, torch.log, ALL, positive, bound=elementary, orders=2)
unary("sqrt", T.sqrt, torch.sqrt, ALL, positive, orders=2)
unary("rsqrt", T.rsqrt, torch.rsqrt, ALL, positive, bound=elementary, orders=2)
unary("tanh", T.tanh, torch.tanh, ALL, bound=elementary, orders=2)
unary("erf", T.erf, torch.erf, ALL, bound=elementary, orders=2)
unary("erfc", T.erfc, torch.erfc, ALL, bound=elementary, orders=2)
unary("sigmoid", T.sigmoid, torch.sigmoid, ALL, bound=elementary, orders=2)
unary("silu", T.silu, torch.nn.functional.silu, FLOATS, bound=gelu_bound, orders=2)
unary("relu", T.relu, torch.relu, NUMBERS, signed_zeros=False, orders=1)
unary("isnan", T.isnan, torch.isnan, ALL)
unary("logical_not", T.logical_not, torch.logical_not, ALL)
unary("stop_gradient", T.stop_gradient, lambda x: x.detach(), ALL)
for _name, _build, _reference in (
    ("normal_cdf", T.normal_cdf, lambda x: 0.5 * torch.erfc(x * -math.sqrt(0.5))),
    ("normal_pdf", T.normal_pdf, lambda x: torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)),
    ("normal_cdf_tanh", T.normal_cdf_tanh, lambda x: torch.sigmoid(GELU_INNER * (x + 0.044715 * x * x * x))),
):
    unary(_name, _build, _reference, FLOATS, bound=gelu_bound, orders=2)
for _form in ("tanh", "none"):
    unary(
        "gelu",
        lambda x, form=_form: T.gelu(x, form),
        lambda x, form=_form: gelu_reference(x, form),
        FLOATS,
        bound=gelu_bound,
        orders=2,
    )
for _name, _function in (("sin", torch.sin), ("cos", torch.cos)):
    for _shape in SHAPES:
        case("unary", _name, getattr(T, _name), _function, Input(_shape), bound=elementary)
    for _dtype in ALL:
        case("unary", _name, getattr(T, _name), _function, Input((3, 5), _dtype), bound=elementary, orders=2)
        # Beyond a few hundred turns only the absolute error is bounded: the sine of max is a question of the reduction.
        case("unary", _name, getattr(T, _name), _function, Input((19,), _dtype, tails), bound=lambda y, x: 8.0)
        if _dtype in FLOATS:
            _edges = Input((6,), _dtype, fixed([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-7]))
            case("unary", f"{_name} edges", getattr(T, _name), _function, _edges, bound=elementary)


def gelu_reference(x, form):
    """GELU without torch's cancellation in the negative tail (pytorch#187806)."""
    if form == "none":
        return 0.5 * x * torch.erfc(-x * math.sqrt(0.5))
    return x * torch.sigmoid(GELU_INNER * (x + 0.044715 * x * x * x))


for _dtype in FLOATS:
    for _name, _build, _reference in (
        ("tanh", T.tanh, torch.tanh),
        ("erf", T.erf, torch.erf),
        ("erfc", T.erfc, torch.erfc),
        ("sigmoid", T.sigmoid, torch.sigmoid),
        ("exp", T.exp, torch.exp),
    ):
        case("unary", _name, _build, _reference, Input((37,), _dtype, tails), bound=elementary)
    for _form in ("tanh", "none"):
        case(
            "unary",
            f"gelu {_form}",
            lambda x, form=_form: T.gelu(x, form),
            lambda x, form=_form: gelu_reference(x, form),
            Input((37,), _dtype, tails),
            bound=gelu_bound,
            orders=1,
        )

PAIRS = (
    ((), ()),
    ((3,), ()),
    ((2, 3), (3,)),
    ((2, 1), (1, 3)),
    ((1,), (4, 1)),
    ((0,), (1,)),
    ((2, 0, 3), (3,)),
    ((3, 1, 2), (4, 1)),
)
MIXED = (
    ("f32", "f64"), ("f16", "bf16"), ("f16", "f32"), ("i32", "f32"), ("i64", "f16"), ("i32", "i64"),
    ("u8", "i32"), ("bool", "i32"), ("bool", "f32"),
)  # fmt: skip


def binary(name, build, reference, dtypes, make=normal, mixed=MIXED, edges=special, **rest):
    first = dtypes[0]
    for left, right in PAIRS:
        case("binary", name, build, reference, Input(left, first, normal), Input(right, first, make), **rest)
    case("binary", name, build, reference, Input((3, 4), first, normal, True), Input((4,), first, make), **rest)
    case("binary", name, build, reference, Input((3, 4), first, normal), Input((3, 4), first, make, True), **rest)
    for dtype in dtypes[1:]:
        case("binary", name, build, reference, Input((3, 4), dtype, normal), Input((3, 4), dtype, make), **rest)
    for left, right in mixed:
        case("binary", name, build, reference, Input((5,), left, normal), Input((5,), right, make), **rest)
    for dtype in dtypes if edges else ():
        extra = rest | {"orders": 0}
        case("binary", name, build, reference, Input((21, 1), dtype, edges), Input((1, 21), dtype, edges), **extra)
    if first == "f32":
        case("binary", name, build, reference, Input((2, 3), "f64"), Input((3,), "f64", make), **rest)


def promoted(function):
    """A reference on operands of one dtype: torch's promotion, but numpy's rules once they have met."""

    def reference(left, right):
        common = torch.promote_types(left.dtype, right.dtype)
        return function(left.to(common), right.to(common))

    return reference


def python_division(quotient):
    """Python's ``//`` or ``%``: exact ints that wrap around, 0 for an integer zero divisor, IEEE for floats."""

    def of_floats(left, right):
        if right == 0:
            return left / np.float64(right) if quotient else math.nan
        if math.isinf(left) or math.isnan(left) or math.isnan(right):
            return math.nan
        return left // right if quotient else left % right

    def reference(left, right):
        if left.is_floating_point():
            with np.errstate(all="ignore"):
                return by_python(lambda a, b: of_floats(np.float64(a), b) if b == 0 else of_floats(a, b))(left, right)
        exact_ints = by_python(lambda a, b: 0 if b == 0 else wrap(a // b if quotient else a % b, left.dtype))
        return exact_ints(left, right)

    return promoted(reference)


WITHOUT_BOOL = tuple(pair for pair in MIXED if "bool" not in pair)
binary("add", T.add, torch.add, ALL, orders=2)
binary("subtract", T.subtract, promoted(torch.sub), NUMBERS, orders=2)
binary("multiply", T.multiply, torch.mul, ALL, orders=2)
binary("divide", T.divide, lambda a, b: torch.true_divide(a, b), ALL, positive, orders=2)
binary("floor_divide", T.floor_divide, python_division(True), NUMBERS, positive, WITHOUT_BOOL, edges=None)
binary("remainder", T.remainder, python_division(False), NUMBERS, positive, WITHOUT_BOOL, edges=None)
binary("maximum", T.maximum, torch.maximum, ALL, signed_zeros=False, orders=1)
binary("minimum", T.minimum, torch.minimum, ALL, signed_zeros=False, orders=1)
binary("equal", T.equal, promoted(torch.eq), ALL, levels)
binary("not_equal", T.not_equal, promoted(torch.ne), ALL, levels)
binary("less", T.less, promoted(torch.lt), ALL, levels)
binary("less_equal", T.less_equal, promoted(torch.le), ALL, levels)
binary("greater", T.greater, promoted(torch.gt), ALL, levels)
binary("greater_equal", T.greater_equal, promoted(torch.ge), ALL, levels)
binary("logical_and", T.logical_and, torch.logical_and, ALL, levels)
binary("logical_or", T.logical_or, torch.logical_or, ALL, levels)
binary("logical_xor", T.logical_xor, torch.logical_xor, ALL, levels)

for _dtype in INTEGERS:
    for _quotient, _name in ((True, "floor_divide"), (False, "remainder")):
        _ends = (Input((21, 1), _dtype, special), Input((1, 21), _dtype, special))
        case("binary", _name, getattr(T, _name), python_division(_quotient), *_ends)
for _dtype in FLOATS:
    _left = Input((9, 1), _dtype, fixed([-7.0, -1.0, -0.0, 0.0, 1.0, 7.5, math.inf, -math.inf, math.nan]))
    _right = Input((1, 8), _dtype, fixed([-2.5, -0.0, 0.0, 0.1, 3.0, math.inf, -math.inf, math.nan]))
    for _quotient, _name in ((True, "floor_divide"), (False, "remainder")):
        case("binary", f"{_name} edges", getattr(T, _name), python_division(_quotient), _left, _right)


def power_case(name, base, exponent, **rest):
    case("binary", name, T.power, torch.pow, base, exponent, bound=elementary, **rest)


for _left, _right in PAIRS:
    power_case("power", Input(_left, make=positive), Input(_right))
for _dtype in FLOATS:
    power_case("power", Input((3, 4), _dtype, positive), Input((3, 4), _dtype), orders=2)
    _bases = fixed([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, math.inf, -math.inf, math.nan])
    _exponents = fixed([0.0, 1.0, -1.0, 2.0, 3.0, -3.0, 0.5, 0.3, math.inf, -math.inf, math.nan])
    power_case("power edges", Input((10, 1), _dtype, _bases), Input((1, 11), _dtype, _exponents))
    # One exponent for all: numpy's own power would take a square root.
    power_case("power by a half", Input((10,), _dtype, _bases), Input((), _dtype, fixed([0.5])))
for _exponent in (0, 1, 2, 3, 5, -1, 0.5, 2.0, -1.5):
    for _dtype in ("f32", "f64"):
        case(
            "binary",
            f"power **{_exponent}",
            lambda x, e=_exponent: x**e,
            lambda x, e=_exponent: x**e,
            Input((2, 5), _dtype, positive),
            bound=elementary,
            orders=2,
        )
for _exponent in (0, 1, 2, 3, 5):
    for _dtype in INTEGERS:
        case(
            "binary",
            f"power **{_exponent}",
            lambda x, e=_exponent: x**e,
            by_python(lambda x: x) if _exponent == 1 else wrapping(lambda x, e=_exponent: x**e),
            Input((21,), _dtype, special),
        )

SCALARS = (
    ("add", lambda x, number: x + number, 3),
    ("add", lambda x, number: number + x, 0.5),
    ("subtract", lambda x, number: number - x, 2),
    ("multiply", lambda x, number: number * x, 0.5),
    ("divide", lambda x, number: number / x, 2),
    ("divide", lambda x, number: x / number, 4),
    ("power", lambda x, number: number**x, 2),
    ("less", lambda x, number: x < number, 1),
    ("greater_equal", lambda x, number: number >= x, 0.5),
)
for _name, _function, _number in SCALARS:
    for _dtype in ("f32", "f64", "bf16", "i32", "i64"):
        if _name == "power" and _dtype.startswith("i"):
            continue
        case(
            "binary",
            f"{_name} scalar",
            lambda x, f=_function, n=_number: f(x, n),
            lambda x, f=_function, n=_number: f(x, n),
            Input((6,), _dtype, positive),
            bound=elementary if _name == "power" else exact,
        )
case("binary", "add scalar", lambda x: x + 3, lambda x: x + 3, Input((4,), "bool"))
case("binary", "add scalar", lambda x: x + True, lambda x: x + True, Input((4,), "i32"))
case("binary", "multiply scalar", lambda x: x * 2.5, lambda x: x * 2.5, Input((4,), "bool"))
case("binary", "floor_divide scalar", lambda x: 17 // x, lambda x: 17 // x, Input((6,), "i32", positive))
case("binary", "remainder scalar", lambda x: x % 4, lambda x: x % 4, Input((6,), "i32"))
case("binary", "logical_and scalar", lambda x: T.logical_and(x, 2), lambda x: x != 0, Input((6,), "i32"))
case(
    "binary",
    "multiply array",
    lambda x: x * np.array([1.5, 2.5, -0.5], np.float32),
    lambda x: x * torch.tensor([1.5, 2.5, -0.5]),
    Input((3,), "i32"),
)
case("binary", "add list", lambda x: x + [1, 2, 3], lambda x: x + torch.tensor([1, 2, 3]), Input((3,), "i32"))
case("binary", "multiply same", lambda x: x * x, lambda x: x * x, Input((5,), "f64"), orders=2)
case("binary", "subtract same", lambda x: x - x, lambda x: x - x, Input((21,), "f32", special), dtype="f32")
case("binary", "divide same", lambda x: x / x, lambda x: x / x, Input((21,), "f32", special))
case("binary", "multiply zero", lambda x: x * 0, lambda x: x * 0, Input((21,), "f32", special))
case("binary", "add zero", lambda x: x + 0.0, lambda x: x + 0.0, Input((21,), "f32", special))
case("binary", "equal same", lambda x: T.equal(x, x), lambda x: x == x, Input((21,), "f32", special))
for _operator, _name in (
    (lambda a, b: a & b, "logical_and"),
    (lambda a, b: a | b, "logical_or"),
    (lambda a, b: a ^ b, "logical_xor"),
):
    case("binary", f"{_name} operator", _operator, _operator, Input((8,), "bool"), Input((8,), "bool"))
case("binary", "logical_not operator", lambda a: ~a, lambda a: ~a, Input((8,), "bool"))
