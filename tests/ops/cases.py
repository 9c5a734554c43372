"""One table of samples for every operator and every function that users call: how to build it, on what, and what torch
(or numpy, or plain Python where torch follows another convention) says of it.

Shapes cover 0-d, empty, size one, broadcast and permuted operands; dtypes all that the function accepts; values NaN,
both infinities, both zeros, denormals and the ends of the range.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import torch
import torch.nn.functional as F

import euler_ir as ei
from euler_ir import tensor as T

FLOATS = ("f32", "f64", "f16", "bf16")
INTEGERS = ("i32", "i64", "i8", "u8")
NUMBERS = FLOATS + INTEGERS
ALL = NUMBERS + ("bool",)
GELU_INNER = 2 * math.sqrt(2 / math.pi)
TORCH = {
    "f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16,
    "i32": torch.int32, "i64": torch.int64, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool,
}  # fmt: skip

# -- operands ----------------------------------------------------------------------------------------------------------


def normal(random, shape, dtype):
    """Ordinary numbers: standard normal floats, small integers, fair bools."""
    if dtype.is_float:
        return random.standard_normal(shape).astype(dtype.numpy)
    low, high = (0, 2) if dtype.kind == "bool" else (0 if dtype.kind == "unsigned" else -9, 10)
    return random.integers(low, high, shape).astype(dtype.numpy)


def positive(random, shape, dtype):
    return (
        random.uniform(0.2, 3, shape).astype(dtype.numpy)
        if dtype.is_float
        else random.integers(1, 9, shape).astype(dtype.numpy)
    )


def tails(random, shape, dtype):
    """Floats far out, where a careless formula loses every digit."""
    return np.linspace(-9, 9, math.prod(shape)).reshape(shape).astype(dtype.numpy)


def special(random, shape, dtype):
    """NaN, infinities, both zeros, denormals and the ends of the range; for integers the ends and small ones."""
    if dtype.is_float:
        info = ml_dtypes.finfo(dtype.numpy)
        edges = [float(info.smallest_subnormal), 3 * float(info.smallest_subnormal), float(info.tiny), float(info.max)]
        values = [math.nan, 0.0, math.inf, 0.5, 1.0, 2.0, 3.7, *edges]
        values += [-value for value in values[1:]]
    elif dtype.kind == "bool":
        values = [False, True]
    else:
        info = np.iinfo(dtype.numpy)
        values = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, *([-1, -2, -7] if info.min else [])]
    return np.resize(np.array(values, dtype.numpy), shape)


def levels(random, shape, dtype):
    """Few distinct values, so that ties are common."""
    return random.integers(0, 3, shape).astype(dtype.numpy)


def indices(size):
    def make(random, shape, dtype):
        return random.integers(0, size, shape).astype(dtype.numpy)

    return make


def fixed(values):
    return lambda random, shape, dtype: np.array(values, dtype.numpy).reshape(shape)


@dataclass(frozen=True)
class Input:
    """An operand. A ``permuted`` one reaches the operator through a transpose."""

    shape: tuple[int, ...]
    dtype: str = "f32"
    make: Callable = normal
    permuted: bool = False


# -- how far a result may be off, in unit roundoffs of the accumulation type -------------------------------------------
# A bound takes the exact result and the operands in f64. The last rounding to the result's own type comes on top.


def exact(result, *operands):
    """One correctly rounded operation, or none: the bits are determined."""
    return 0


def elementary(result, *operands):
    """Functions of one variable: 4 ulp of the result, which numpy, libm and vector polynomials all keep."""
    return 8 * np.abs(result)


def gelu_bound(result, x):
    """An argument of relative error u is seen magnified by its size: 2|u| in the tanh form, x*x in the erfc form."""
    return np.abs(result) * (8 + 2 * x * x + 4 * np.abs(1.6 * x + 0.072 * x**3))


def summation(axes=None, divisor=1):
    """(n - 1) u sum|x|, which holds for every order of summation (Higham 2002, section 4.2)."""

    def bound(result, x):
        count = x.size // max(np.size(result), 1)
        return (count + 1) * np.sum(np.abs(x), axis=axes).reshape(np.shape(result)) / divisor

    return bound


def product_bound(result, x):
    return x.size * np.abs(result)


def running_bound(axis):
    return lambda result, x: x.shape[axis] * np.sum(np.abs(x), axis=axis, keepdims=True)


def contraction(result, left, right):
    inner = left.shape[-1] if left.ndim else 1
    return (inner + 1) * np.abs(left).max(initial=0) * np.abs(right).max(initial=0) * inner


def exponential_bound(result, x, *rest):
    """Sums of exponentials: the shift moves each exponent by u|x|, the sum has at most n roundings. Absolute."""
    finite = np.abs(x[np.isfinite(x)]).max(initial=0)
    return 16 + x.size + 4 * finite


def normalization_bound(result, x, weight, bias):
    """Centering costs u max|x|, and dividing by the deviation magnifies that."""
    if not x.size:
        return 0
    magnified = np.abs(x).max() / np.sqrt(x.var(-1) + 1e-5).min()
    return (x.shape[-1] + 16) * (1 + magnified) * (np.abs(weight).max() + np.abs(bias).max())


def attention_bound(result, query, key, value):
    reach = np.abs(query).max(initial=0) * np.abs(key).max(initial=0) * query.shape[-1] ** 0.5
    return (query.shape[-1] + key.shape[-2] + 16) * (1 + reach) * (1 + np.abs(value).max(initial=0))


@dataclass(frozen=True)
class Case:
    """``orders`` says how often the reference can be differentiated; ``dtype`` overrules torch's result type.

    ``signed_zeros`` is False where the sign of a zero is left open (which of two equal zeros is the maximum).
    """

    name: str
    family: str
    build: Callable
    reference: Callable
    inputs: tuple[Input, ...]
    bound: Callable = exact
    orders: int = 0
    dtype: str | None = None
    signed_zeros: bool = True

    @property
    def function(self) -> str:
        return self.name.split(" ")[0]


CASES: list[Case] = []


def case(family, name, build, reference, *inputs, **rest):
    label = " ".join(
        f"{spec.dtype}{list(spec.shape)}{'.T' if spec.permuted else ''}{_suffix(spec)}".replace(" ", "")
        for spec in inputs
    )
    CASES.append(Case(f"{name} {label}".strip(), family, build, reference, inputs, **rest))


def _suffix(spec):
    return f":{spec.make.__name__}" if spec.make in (special, tails, levels) else ""


def by_python(function, *, result=None):
    """A reference from a plain Python function of scalars; it gives the dtype of the last operand, or ``result``."""

    def reference(*tensors):
        target = result or tensors[-1].dtype
        shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
        flat = [tensor.broadcast_to(shape).reshape(-1).tolist() for tensor in tensors]
        return torch.tensor([function(*scalars) for scalars in zip(*flat)], dtype=target).reshape(shape)

    return reference


# -- elementwise -------------------------------------------------------------------------------------------------------

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

# -- where and cast ----------------------------------------------------------------------------------------------------

for _shapes in (((), (), ()), ((3,), (), (2, 3)), ((2, 1), (1, 3), ()), ((0,), (0,), (1,)), ((2, 3), (3,), (2, 1))):
    _condition, _chosen, _other = _shapes
    case(
        "where",
        "where",
        T.where,
        torch.where,
        Input(_condition, "bool"),
        Input(_chosen, "f64"),
        Input(_other, "f64"),
        orders=2,
    )
for _dtype in ALL:
    case(
        "where",
        "where",
        T.where,
        torch.where,
        Input((21,), "bool"),
        Input((21,), _dtype, special),
        Input((21,), _dtype),
    )
case("where", "where mixed", T.where, torch.where, Input((4,), "bool"), Input((4,), "f16"), Input((4,), "f32"))
case("where", "where scalars", lambda c: T.where(c, 1, 0), lambda c: torch.where(c, 1, 0), Input((4,), "bool"))
case(
    "where",
    "where scalar",
    lambda c, x: T.where(c, x, float("-inf")),
    lambda c, x: torch.where(c, x, float("-inf")),
    Input((4,), "bool"),
    Input((4,), "bf16"),
)
case(
    "where",
    "where arrays",
    lambda c: T.where(c, 2, np.array([0.5, 1.5, 2.5], np.float32)),
    lambda c: torch.where(c, 2, torch.tensor([0.5, 1.5, 2.5])),
    Input((3,), "bool"),
)
case(
    "where",
    "where condition",
    lambda c, x, y: T.where(c, x, y),
    lambda c, x, y: torch.where(c != 0, x, y),
    Input((6,), "i32", levels),
    Input((6,)),
    Input((6,)),
)
case(
    "where",
    "where same",
    lambda c, x: T.where(c, x, x),
    lambda c, x: x * 1,
    Input((4,), "bool"),
    Input((4,), "f64"),
    orders=2,
)


def saturate(target):
    """Truncation that stays at the ends of the range; NaN gives 0 (LLVM's fptosi.sat). Undefined in C and torch."""
    info = torch.iinfo(target)

    def of_scalar(value):
        if math.isnan(value):
            return 0
        return info.max if value >= info.max else info.min if value <= info.min else int(value)

    return by_python(of_scalar, result=target)


for _source in ALL:
    for _target in ALL:
        if _source in FLOATS and _target in INTEGERS:
            _reference = saturate(TORCH[_target])
        else:
            _reference = lambda x, target=TORCH[_target]: x.to(target)  # noqa: E731
        for _make in (normal, special):
            case(
                "cast",
                f"cast to {_target}",
                lambda x, target=_target: T.cast(x, target),
                _reference,
                Input((21,), _source, _make),
            )
ENDS = [end + offset for end in (0, 127, -128, 255, 2**31 - 1, -(2**31), 2.0**63) for offset in (-1, -0.5, 0, 0.5, 1)]
for _source in FLOATS:
    for _target in INTEGERS:
        case(
            "cast",
            f"cast at the ends of {_target}",
            lambda x, target=_target: T.cast(x, target),
            saturate(TORCH[_target]),
            Input((len(ENDS),), _source, fixed(ENDS)),
        )
case(
    "cast",
    "cast f32 to f16 and back",
    lambda x: T.cast(T.cast(x, "f16"), "f32"),
    lambda x: x.to(torch.float16).to(torch.float32),
    Input((21,)),
)

# -- reductions --------------------------------------------------------------------------------------------------------

AXES = (
    ((), None), ((1,), None), ((7,), 0), ((7,), -1), ((3, 4), None), ((3, 4), 0), ((3, 4), -1), ((3, 4), (0, -1)),
    ((2, 3, 4), (0, 2)), ((2, 3, 4), (-2,)), ((2, 3, 4), ()), ((1, 5), 0), ((0, 3), 1), ((33,), 0),
)  # fmt: skip
EMPTY = (((0,), None), ((3, 0), 1), ((3, 4, 0, 5), (0, 2)))


def all_axes(x, axes):
    return tuple(range(x.ndim)) if axes is None else axes


def fold_axes(function):
    """A torch reduction of one axis applied to several."""

    def reference(x, axes, keepdims=False):
        axes = (axes,) if isinstance(axes, int) else all_axes(x, axes)
        result = x
        for axis in sorted((axis % max(x.ndim, 1) for axis in axes), reverse=True):
            result = function(result, axis)
        shape = [1 if axis in [a % max(x.ndim, 1) for a in axes] else size for axis, size in enumerate(x.shape)]
        return result.reshape(shape) if keepdims else result

    return reference


def reduction(name, build, reference, dtypes, bound, empty, make=normal, orders=2, edges=True, **rest):
    for shape, axes in AXES + (EMPTY if empty else ()):
        for keepdims in (False, True):
            case(
                "reduction",
                f"{name} axes={axes}{' keepdims' if keepdims else ''}".replace(", ", ","),
                lambda x, axes=axes, keep=keepdims: build(x, axes, keep),
                lambda x, axes=axes, keep=keepdims: reference(x, axes, keep),
                Input(shape, "f64" if shape == (2, 3, 4) else dtypes[0], make),
                bound=bound(axes),
                orders=orders,
                **rest,
            )
    case(
        "reduction",
        f"{name} axes=0",
        lambda x: build(x, 0, False),
        lambda x: reference(x, 0, False),
        Input((3, 5), dtypes[0], make, permuted=True),
        bound=bound(0),
        **rest,
    )
    for dtype in dtypes[1:]:
        case(
            "reduction",
            f"{name} axes=-1",
            lambda x: build(x, -1, False),
            lambda x: reference(x, -1, False),
            Input((4, 9), dtype, make),
            bound=bound(-1),
            **rest,
        )
    for dtype in FLOATS if edges else ():
        # Rows of one NaN, one infinity or two of opposite signs among ordinary numbers.
        rows = [[1, math.nan, 2], [math.nan, 1, 2], [1, 2, math.nan], [math.inf, 1, 2], [-math.inf, 1, math.inf]]
        rows += [[-math.inf, -math.inf, -math.inf], [0.0, 0.0, 2.0], [math.inf, math.inf, 1], [1, 2, -math.inf]]
        case(
            "reduction",
            f"{name} edges",
            lambda x: build(x, -1, False),
            lambda x: reference(x, -1, False),
            Input((9, 3), dtype, fixed(rows)),
            bound=bound(-1),
            **rest,
        )


def mean_bound(axes):
    def bound(result, x):
        return summation(axes, max(x.size // max(np.size(result), 1), 1))(result, x)

    return bound


reduction(
    "sum",
    T.sum,
    lambda x, axes, keep: torch.sum(x, all_axes(x, axes), keep) if axes != () else x * 1,
    FLOATS,
    summation,
    True,
)
reduction(
    "mean",
    T.mean,
    lambda x, axes, keep: torch.mean(x, all_axes(x, axes), keep) if axes != () else x * 1,
    FLOATS,
    mean_bound,
    True,
)
reduction(
    "max",
    T.max,
    lambda x, axes, keep: torch.amax(x, all_axes(x, axes), keep) if axes != () else x * 1,
    ALL,
    lambda axes: exact,
    False,
    orders=1,
    signed_zeros=False,
)
reduction(
    "min",
    T.min,
    lambda x, axes, keep: torch.amin(x, all_axes(x, axes), keep) if axes != () else x * 1,
    ALL,
    lambda axes: exact,
    False,
    orders=1,
    signed_zeros=False,
)
reduction("prod", T.prod, fold_axes(torch.prod), FLOATS, lambda axes: product_bound, True)
reduction(
    "logsumexp",
    T.logsumexp,
    lambda x, axes, keep: torch.logsumexp(x, all_axes(x, axes), keep) if axes != () else x * 1,
    FLOATS,
    lambda axes: exponential_bound,
    True,
)
for _dtype in INTEGERS + ("bool",):
    for _name, _reference in (("sum", torch.sum), ("prod", torch.prod)):
        for _make in (normal, special):
            case(
                "reduction",
                _name,
                lambda x, f=getattr(T, _name): f(x, -1),
                lambda x, f=_reference: f(x, -1),
                Input((3, 7), _dtype, _make),
            )
    case(
        "reduction",
        "mean",
        lambda x: T.mean(x),
        lambda x: torch.mean(x.double()),
        Input((3, 7), _dtype),
        bound=mean_bound(None),
        dtype="f32",
    )
    case(
        "reduction",
        "logsumexp int",
        lambda x: T.logsumexp(x),
        lambda x: torch.logsumexp(x.double(), 0),
        Input((7,), _dtype),
        bound=exponential_bound,
        dtype="f32",
    )
case(
    "reduction",
    "sum same",
    lambda x: T.sum(x + x),
    lambda x: torch.sum(x + x),
    Input((4,), "f64"),
    bound=lambda y, x: 8 * np.abs(x).sum(),
    orders=2,
)
case(
    "reduction",
    "sum bf16 ones",
    lambda x: T.sum(x),
    lambda x: torch.sum(x),
    Input((1000,), "bf16", fixed(np.ones(1000))),
    bound=exact,
)
case(
    "reduction",
    "mean f16 no overflow",
    lambda x: T.mean(x),
    lambda x: torch.mean(x),
    Input((4096,), "f16", fixed(np.full(4096, 100))),
    bound=exact,
)
case(
    "reduction",
    "prod zeros",
    lambda x: T.prod(x, 1),
    lambda x: torch.prod(x, 1),
    Input((3, 3), "f64", fixed([[0, 2, 3], [0, 0, 3], [1, 2, 3]])),
    orders=1,
)

for _name, _reference in (("argmax", torch.argmax), ("argmin", torch.argmin)):
    for _shape, _axis in (
        ((), None),
        ((1,), 0),
        ((7,), None),
        ((3, 4), None),
        ((3, 4), 0),
        ((3, 4), -1),
        ((2, 3, 4), 1),
        ((0, 3), 1),
    ):
        for _keep in (False, True):
            case(
                "reduction",
                f"{_name} axis={_axis}{' keepdims' if _keep else ''}",
                lambda x, f=getattr(T, _name), axis=_axis, keep=_keep: f(x, axis, keep),
                lambda x, f=_reference, axis=_axis, keep=_keep: f(x, axis, keep),
                Input(_shape),
            )
    for _dtype in ALL:

        def _first_extremum(x, largest=_name == "argmax"):
            """The least index of the extremum or of the first NaN; torch leaves the choice among ties open."""
            return torch.from_numpy(np.asarray((np.argmax if largest else np.argmin)(x.float().numpy(), -1)))

        _ties = Input((5, 9), _dtype, levels)
        case("reduction", f"{_name} ties", lambda x, f=getattr(T, _name): f(x, -1), _first_extremum, _ties)
        if _dtype in FLOATS:
            _rows = fixed(
                [[1, math.nan, math.nan], [math.nan, 1, 2], [math.inf, 1, math.inf], [-math.inf, -math.inf, 1]]
            )
            _edges = Input((4, 3), _dtype, _rows)
            case("reduction", f"{_name} edges", lambda x, f=getattr(T, _name): f(x, -1), _first_extremum, _edges)

for _shape, _axis in (((7,), 0), ((7,), -1), ((3, 4), 0), ((3, 4), -1), ((2, 0, 3), 1), ((1, 3), 0), ((0,), 0)):
    for _reverse in (False, True):
        for _dtype in ("f32", "f64"):
            case(
                "reduction",
                f"cumsum axis={_axis}{' reverse' if _reverse else ''}",
                lambda x, axis=_axis, reverse=_reverse: T.cumsum(x, axis, reverse),
                lambda x, axis=_axis, reverse=_reverse: (
                    torch.cumsum(x.flip(axis), axis).flip(axis) if reverse else torch.cumsum(x, axis)
                ),
                Input(_shape, _dtype),
                bound=running_bound(_axis),
                orders=2,
            )
for _dtype in ALL[2:]:
    case(
        "reduction",
        "cumsum",
        lambda x: T.cumsum(x, 1),
        lambda x: torch.cumsum(x, 1),
        Input((3, 9), _dtype),
        bound=running_bound(1),
    )
case(
    "reduction",
    "cumsum bf16 ones",
    lambda x: T.cumsum(x, 0),
    lambda x: torch.cumsum(x, 0),
    Input((600,), "bf16", fixed(np.ones(600))),
)

# -- movement ----------------------------------------------------------------------------------------------------------


def movement(name, build, reference, shape, dtypes=("f64",), permuted=False, orders=2):
    for dtype in dtypes:
        case("movement", name, build, reference, Input(shape, dtype, normal, permuted), orders=orders)


MOVES = (
    ("broadcast_to (2,3)", lambda x: T.broadcast_to(x, (2, 3)), lambda x: x.expand(2, 3), (3,)),
    ("broadcast_to (4,2,3)", lambda x: T.broadcast_to(x, (4, 2, 3)), lambda x: x.expand(4, 2, 3), (2, 1)),
    ("broadcast_to (2,)", lambda x: T.broadcast_to(x, (2,)), lambda x: x.expand(2), ()),
    ("broadcast_to (0,3)", lambda x: T.broadcast_to(x, (0, 3)), lambda x: x.expand(0, 3), (1, 3)),
    ("reshape (3,-1)", lambda x: T.reshape(x, 3, -1), lambda x: x.reshape(3, -1), (2, 6)),
    ("reshape ()", lambda x: T.reshape(x, ()), lambda x: x.reshape(()), (1, 1)),
    ("reshape (0,5)", lambda x: T.reshape(x, (0, 5)), lambda x: x.reshape(0, 5), (3, 0)),
    ("reshape (-1,)", lambda x: T.reshape(x, (-1,)), lambda x: x.reshape(-1), ()),
    ("transpose", lambda x: T.transpose(x), lambda x: x.permute(2, 1, 0), (2, 3, 4)),
    ("transpose 1,-1,0", lambda x: T.transpose(x, 1, -1, 0), lambda x: x.permute(1, 2, 0), (2, 3, 4)),
    ("transpose 0-d", lambda x: T.transpose(x), lambda x: x * 1, ()),
    ("transpose T", lambda x: x.T @ x, lambda x: x.T @ x, (1, 1)),
    ("swap_axes", lambda x: T.swap_axes(x, 0, -1), lambda x: x.swapaxes(0, -1), (2, 0, 4)),
    ("expand_dims -1", lambda x: T.expand_dims(x, -1), lambda x: x.unsqueeze(-1), (2, 3)),
    ("expand_dims 0", lambda x: T.expand_dims(x, 0), lambda x: x.unsqueeze(0), ()),
    ("squeeze", lambda x: T.squeeze(x), lambda x: x.squeeze(), (1, 3, 1)),
    ("squeeze -1", lambda x: T.squeeze(x, -1), lambda x: x.squeeze(-1), (1, 3, 1)),
    ("flip", lambda x: T.flip(x), lambda x: x.flip(0, 1), (2, 3)),
    ("flip -1", lambda x: T.flip(x, -1), lambda x: x.flip(-1), (2, 3)),
    ("flip ()", lambda x: T.flip(x, ()), lambda x: x * 1, (2, 3)),
    ("flip 0", lambda x: T.flip(x, 0), lambda x: x.flip(0), (0, 3)),
    ("pad", lambda x: T.pad(x, ((1, 2), (0, 3)), 7), lambda x: F.pad(x, (0, 3, 1, 2), value=7), (2, 3)),
    ("pad empty", lambda x: T.pad(x, ((1, 2), (0, 3))), lambda x: F.pad(x, (0, 3, 1, 2)), (0, 3)),
    ("pad 0-d", lambda x: T.pad(x, ()), lambda x: x * 1, ()),
    ("getitem int", lambda x: x[1], lambda x: x[1], (3, 4)),
    ("getitem negative", lambda x: x[-1, -2], lambda x: x[-1, -2], (3, 4)),
    ("getitem slice", lambda x: x[1:, :-1], lambda x: x[1:, :-1], (3, 4)),
    ("getitem step", lambda x: x[::2, 1::2], lambda x: x[::2, 1::2], (5, 7)),
    ("getitem reverse", lambda x: x[::-1, 5:0:-2], lambda x: x.flip(0)[:, [5, 3, 1]], (3, 7)),
    ("getitem empty", lambda x: x[2:1], lambda x: x[2:1], (3, 4)),
    ("getitem empty reverse", lambda x: x[0:2:-1], lambda x: x[0:0], (3, 4)),
    ("getitem beyond", lambda x: x[1:100, -100:2], lambda x: x[1:100, -100:2], (3, 4)),
    ("getitem none", lambda x: x[None, ..., 0, None], lambda x: x[None, ..., 0, None], (3, 4)),
    ("getitem ellipsis", lambda x: x[...], lambda x: x * 1, ()),
    ("getitem of size 0", lambda x: x[::2], lambda x: x[::2], (0, 2)),
    ("concatenate same", lambda x: T.concatenate([x, x, x], -1), lambda x: torch.cat([x, x, x], -1), (2, 3)),
    ("concatenate one", lambda x: T.concatenate([x], 0), lambda x: torch.cat([x], 0), (2, 3)),
    ("stack", lambda x: T.stack([x, x * 2], -1), lambda x: torch.stack([x, x * 2], -1), (2, 3)),
    ("stack 0-d", lambda x: T.stack([x, x]), lambda x: torch.stack([x, x]), ()),
    ("split", lambda x: T.split(x, 3, -1)[1], lambda x: x.chunk(3, -1)[1], (2, 6)),
    ("split 0", lambda x: T.split(x, 2, 0)[1], lambda x: x.chunk(2, 0)[1], (4, 3)),
    ("iter", lambda x: sum(x), lambda x: x[0] + x[1], (2, 3)),
    ("later", lambda x: x.graph.emit("later", (x,)), lambda x: x * 1, (2, 3)),
)
for _name, _build, _reference, _shape in MOVES:
    movement(_name, _build, _reference, _shape)
    if len(_shape) == 2:
        movement(_name, _build, _reference, _shape, permuted=True)
for _index in (1, 4, 9, 17, 21, 26, 27, 28, 35):
    _name, _build, _reference, _shape = MOVES[_index]
    movement(_name, _build, _reference, _shape, tuple(dtype for dtype in ALL if dtype != "f64"), orders=0)
case(
    "movement",
    "concatenate",
    lambda a, b: T.concatenate([a, b], 0),
    lambda a, b: torch.cat([a, b], 0),
    Input((2, 3), "f64"),
    Input((0, 3), "f64"),
    orders=2,
)
case(
    "movement",
    "concatenate",
    lambda a, b: T.concatenate([a, b], -1),
    lambda a, b: torch.cat([a, b], -1),
    Input((2, 3), "f16"),
    Input((2, 2), "f32"),
)
case(
    "movement",
    "pad -inf",
    lambda x: T.pad(x, ((1, 1),), float("-inf")),
    lambda x: F.pad(x, (1, 1), value=float("-inf")),
    Input((3,), "bf16"),
)


def _dilate(x, low, high, interior, value):
    size = x.shape[0] + max(x.shape[0] - 1, 0) * interior
    inner = torch.full((size,), value, dtype=x.dtype)
    inner[:: interior + 1] = x
    return torch.cat([torch.full((low,), value, dtype=x.dtype), inner, torch.full((high,), value, dtype=x.dtype)])


for _size in (0, 1, 4):
    case(
        "movement",
        "pad interior",
        lambda x: T.pad_with_interior(x, (2,), (1,), (3,), 5),
        lambda x: _dilate(x, 2, 1, 3, 5),
        Input((_size,), "f64"),
        orders=2,
    )

# -- leaves ------------------------------------------------------------------------------------------------------------


def leaf(name, build, reference, **rest):
    case("leaf", name, build, lambda: torch.as_tensor(reference()), **rest)


leaf("constant float", lambda: ei.constant(2.5), lambda: 2.5)
leaf("constant int", lambda: ei.constant([1, 2, 3]), lambda: [1, 2, 3])
leaf("constant bool", lambda: ei.constant(True), lambda: True)
leaf(
    "constant array",
    lambda: ei.constant(np.array([[0.1, 1e-300]])),
    lambda: torch.tensor([[0.1, 1e-300]], dtype=torch.float64),
)
leaf("constant empty", lambda: ei.constant(np.zeros((0, 3), np.float32)), lambda: torch.zeros(0, 3), dtype="f32")
leaf("full", lambda: ei.full((2, 3), 7, "i32"), lambda: torch.full((2, 3), 7, dtype=torch.int32))
leaf("zeros", lambda: ei.zeros((0, 2)), lambda: torch.zeros(0, 2, dtype=torch.float32), dtype="f32")
leaf("ones", lambda: ei.ones((), "bf16"), lambda: torch.ones((), dtype=torch.bfloat16))
leaf("arange", lambda: ei.arange(5), lambda: torch.arange(5))
leaf("arange", lambda: ei.arange(2, 11, 3), lambda: torch.arange(2, 11, 3))
leaf("arange", lambda: ei.arange(5, 0, -2), lambda: torch.arange(5, 0, -2))
leaf("arange", lambda: ei.arange(3, 3), lambda: torch.arange(3, 3))
leaf("arange", lambda: ei.arange(0.0, 2.0, 0.5), lambda: torch.arange(0.0, 2.0, 0.5, dtype=torch.float32), dtype="f32")
leaf("arange", lambda: ei.arange(4, dtype="f16"), lambda: torch.arange(4, dtype=torch.float16))
leaf("iota", lambda: ei.iota((2, 3), 1), lambda: torch.arange(3).expand(2, 3))
leaf("iota", lambda: ei.iota((2, 3), 0, "i32"), lambda: torch.arange(2, dtype=torch.int32)[:, None].expand(2, 3))
leaf("iota", lambda: ei.iota((0, 3), 1), lambda: torch.arange(3).expand(0, 3))
leaf(
    "parameter",
    lambda: ei.parameter("p", (2, 3), ei.initializers.Zeros()),
    lambda: torch.zeros(2, 3, dtype=torch.float32),
    dtype="f32",
)
leaf("state", lambda: ei.state("s", (2,), dtype="i64"), lambda: torch.zeros(2, dtype=torch.int64))
case("leaf", "input", lambda x: x, lambda x: x, Input((2, 3), "f16"))

# -- indexing ----------------------------------------------------------------------------------------------------------


def take_reference(axis):
    return lambda x, i: torch.index_select(x, axis, i.reshape(-1).long()).reshape(
        x.shape[:axis] + i.shape + x.shape[axis + 1 :]
    )


for _shape, _picks, _axis in (
    ((5,), (), 0),
    ((5, 3), (4,), 0),
    ((5, 3), (2, 4), 1),
    ((5, 3), (0,), 0),
    ((4, 1, 2), (3, 2), 0),
    ((2, 3, 4), (6,), -2),
):
    for _dtype, _integer in (("f64", "i64"), ("f32", "i32")):
        case(
            "indexing",
            f"take axis={_axis}",
            lambda x, i, axis=_axis: T.take(x, i, axis),
            take_reference(_axis % len(_shape)),
            Input(_shape, _dtype),
            Input(_picks, _integer, indices(_shape[_axis])),
            orders=2,
        )
for _dtype in ALL:
    case(
        "indexing",
        "take",
        lambda x, i: T.take(x, i),
        take_reference(0),
        Input((21,), _dtype, special),
        Input((9,), "u8", indices(21)),
    )
case(
    "indexing",
    "take permuted",
    lambda x, i: T.take(x, i),
    take_reference(0),
    Input((4, 3), "f64", permuted=True),
    Input((5,), "i8", indices(4)),
    orders=2,
)
case(
    "indexing",
    "getitem tensor",
    lambda x, i: x[i],
    take_reference(0),
    Input((4, 3), "f64"),
    Input((2, 2), "i64", indices(4)),
    orders=2,
)


def scatter_reference(size, axis):
    def reference(i, x):
        shape = x.shape[:axis] + (size,) + x.shape[axis + i.ndim :]
        flat = x.reshape(x.shape[:axis] + (i.numel(),) + x.shape[axis + i.ndim :])
        return torch.zeros(shape, dtype=x.dtype).index_add(axis, i.reshape(-1).long(), flat)

    return reference


def scatter_bound(result, i, x):
    return (i.size + 1) * i.size * np.abs(x).max(initial=0)


for _picks, _shape, _axis, _size in (
    ((6,), (6, 3), 0, 4),
    ((2, 3), (2, 3, 2), 0, 5),
    ((4,), (2, 4), 1, 3),
    ((0,), (0, 3), 0, 4),
    ((), (3,), 0, 4),
    ((4,), (2, 4), -1, 3),
):
    case(
        "indexing",
        f"scatter_add axis={_axis}",
        lambda i, x, size=_size, axis=_axis: T.scatter_add(i, x, size, axis),
        scatter_reference(_size, _axis % (len(_shape) - len(_picks) + 1)),
        Input(_picks, "i64", indices(_size)),
        Input(_shape, "f64"),
        bound=scatter_bound,
        orders=2,
    )
for _dtype in NUMBERS:
    case(
        "indexing",
        "scatter_add",
        lambda i, x: T.scatter_add(i, x, 4),
        scatter_reference(4, 0),
        Input((30,), "i32", indices(4)),
        Input((30, 2), _dtype),
        bound=scatter_bound,
    )


def added_bound(result, y, i, x):
    return (i.size + 1) * (np.abs(y).max() + i.size * np.abs(x).max())


for _dtype in (each for each in NUMBERS if each not in ("f16", "bf16")):
    case(
        "indexing",
        "index_add",
        lambda y, i, x: y.graph.emit("index_add", (y, i, x), axis=0),
        lambda y, i, x: y + scatter_reference(4, 0)(i, x),
        Input((4, 2), _dtype),
        Input((30,), "i32", indices(4)),
        Input((30, 2), _dtype),
        bound=added_bound,
    )
case(
    "indexing",
    "index_add axis=1",
    lambda y, i, x: y.graph.emit("index_add", (y, i, x), axis=1),
    lambda y, i, x: y.index_add(1, i, x),
    Input((2, 5, 3), "f64"),
    Input((4,), "i64", indices(5)),
    Input((2, 4, 3), "f64"),
    bound=added_bound,
    orders=2,
)
case(
    "indexing",
    "scatter_add bf16 ones",
    lambda i, x: T.scatter_add(i, x, 2),
    lambda i, x: torch.tensor([0, 600]).to(x.dtype),
    Input((600,), "i32", fixed(np.ones(600))),
    Input((600,), "bf16", fixed(np.ones(600))),
)


def written(axis):
    def reference(x, update, start):
        result = x.clone()
        result.narrow(axis, int(start), update.shape[axis]).copy_(update)
        return result

    return reference


for _shape, _sizes, _axis, _start in (
    ((5,), (2,), 0, 3),
    ((4, 6), (4, 1), -1, 0),
    ((2, 3, 7, 4), (2, 3, 1, 4), 2, 6),
    ((3, 4, 5), (3, 2, 5), 1, 1),
    ((4, 3), (4, 3), 0, 0),
    ((4, 3), (0, 3), 0, 2),
    ((0, 3), (0, 2), 1, 1),
):
    for _integer in ("i64", "u8"):
        case(
            "indexing",
            f"dynamic_update_slice axis={_axis}",
            lambda x, update, start, axis=_axis: T.dynamic_update_slice(x, update, start, axis),
            written(_axis % len(_shape)),
            Input(_shape, "f64"),
            Input(_sizes, "f64"),
            Input((), _integer, fixed([_start])),
            orders=2,
        )
for _dtype in ALL:
    case(
        "indexing",
        "dynamic_update_slice",
        lambda x, update, start: T.dynamic_update_slice(x, update, start),
        written(0),
        Input((21,), _dtype, special),
        Input((9,), _dtype),
        Input((), "i8", fixed([7])),
    )
for _classes, _dtype in ((5, "i64"), (5, "i32"), (300, "u8"), (300, "i8")):
    case(
        "indexing",
        f"one_hot {_classes}",
        lambda i, n=_classes: T.one_hot(i, n),
        lambda i, n=_classes: (i[..., None].long() == torch.arange(n)).to(torch.float32),
        Input((12,), _dtype, special),
        dtype="f32",
    )
case(
    "indexing",
    "one_hot 0-d",
    lambda i: T.one_hot(i, 3, "f16"),
    lambda i: F.one_hot(i, 3).to(torch.float16),
    Input((), "i64", indices(3)),
)

# -- contraction -------------------------------------------------------------------------------------------------------

for _left, _right in (
    ((2, 3), (3, 4)), ((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (4, 3, 2)), ((3,), (5, 3, 4)), ((5, 2, 3), (3,)), ((1, 1), (1, 1)), ((2, 0), (0, 3)),
    ((0, 3), (3, 2)), ((2, 3), (3, 0)), ((5, 2, 0), (0, 3)), ((0, 2, 3), (3, 4)), ((2, 37), (37, 3)),
):  # fmt: skip
    for _dtype in ("f32", "f64"):
        case(
            "contraction",
            "matmul",
            T.matmul,
            torch.matmul,
            Input(_left, _dtype),
            Input(_right, _dtype),
            bound=contraction,
            orders=2,
        )
for _tl in (False, True):
    for _tr in (False, True):
        for _batch_left, _batch_right in (((), ()), ((2,), (2,)), ((2,), ()), ((), (2,)), ((2, 1), (3,))):
            _left = _batch_left + ((4, 3) if _tl else (3, 4))
            _right = _batch_right + ((5, 4) if _tr else (4, 5))
            case(
                "contraction",
                f"matmul{' left^T' if _tl else ''}{' right^T' if _tr else ''}",
                lambda a, b, tl=_tl, tr=_tr: T.matmul(a, b, tl, tr),
                lambda a, b, tl=_tl, tr=_tr: (a.mT if tl else a) @ (b.mT if tr else b),
                Input(_left, "f64"),
                Input(_right, "f64"),
                bound=lambda y, a, b: 5 * np.abs(a).max() * np.abs(b).max() * 4,
                orders=2,
            )
case(
    "contraction",
    "matmul permuted",
    T.matmul,
    torch.matmul,
    Input((3, 4), "f32", permuted=True),
    Input((4, 2), "f32", permuted=True),
    bound=contraction,
)
case(
    "contraction",
    "matmul same",
    lambda x: x @ x.T,
    lambda x: x @ x.T,
    Input((3, 4), "f64"),
    bound=lambda y, x: 20 * np.abs(x).max() ** 2,
    orders=2,
)
case("contraction", "matmul array", lambda x: np.eye(3, dtype=np.float32) @ x, lambda x: x * 1, Input((3, 2)))
for _dtype in ("f16", "bf16", "i32", "i64", "i8", "u8"):
    case(
        "contraction",
        "matmul",
        T.matmul,
        torch.matmul,
        Input((3, 40), _dtype),
        Input((40, 5), _dtype),
        bound=contraction,
    )
case(
    "contraction",
    "matmul mixed",
    T.matmul,
    lambda a, b: a.to(torch.float32) @ b.to(torch.float32) if b.dtype != torch.float64 else a @ b,
    Input((3, 4), "f16"),
    Input((4, 5), "f32"),
    bound=contraction,
    dtype="f32",
)

# -- networks ----------------------------------------------------------------------------------------------------------

for _name, _build, _reference in (
    ("softmax", T.softmax, torch.softmax),
    ("log_softmax", T.log_softmax, torch.log_softmax),
):
    for _shape, _axis in (
        ((7,), 0),
        ((7,), -1),
        ((3, 4), 0),
        ((3, 4), -1),
        ((2, 3, 4), 1),
        ((1,), 0),
        ((3, 0), 1),
        ((0, 3), 1),
        ((33,), 0),
    ):
        for _dtype in ("f32", "f64"):
            case(
                "network",
                f"{_name} axis={_axis}",
                lambda x, f=_build, axis=_axis: f(x, axis),
                lambda x, f=_reference, axis=_axis: f(x, axis),
                Input(_shape, _dtype),
                bound=exponential_bound,
                orders=2,
            )
    _rows = fixed([[1, 2, math.nan], [math.inf, 1, 2], [-math.inf, 1, 2], [-math.inf] * 3, [6e4, 0, -6e4], [0, 0, 0]])
    for _dtype in FLOATS:
        case(
            "network",
            f"{_name} rows",
            lambda x, f=_build: f(x),
            lambda x, f=_reference: f(x, -1),
            Input((4, 9), _dtype),
            bound=exponential_bound,
        )
        case(
            "network",
            f"{_name} edges",
            lambda x, f=_build: f(x),
            lambda x, f=_reference: f(x, -1),
            Input((6, 3), _dtype, _rows),
            bound=exponential_bound,
        )
    case(
        "network",
        f"{_name} int",
        lambda x, f=_build: f(x),
        lambda x, f=_reference: f(x.double(), -1),
        Input((4, 3), "i32"),
        bound=exponential_bound,
        dtype="f32",
    )
for _dtype in FLOATS:
    case(
        "reduction",
        "logsumexp rows that overflow",
        lambda x: T.logsumexp(x, -1),
        lambda x: torch.logsumexp(x, -1),
        Input((6, 3), _dtype, _rows),
        bound=exponential_bound,
    )


def layer_norm_reference(x, weight, bias):
    return F.layer_norm(x, x.shape[-1:], weight, bias)


for _shape in ((4,), (3, 5), (2, 3, 8), (2, 1), (0, 4)):
    for _dtype in FLOATS:
        _width = _shape[-1:]
        case(
            "network",
            "layer_norm",
            T.layer_norm,
            layer_norm_reference,
            Input(_shape, _dtype),
            Input(_width, _dtype),
            Input(_width, _dtype),
            bound=normalization_bound,
            orders=2 if _width != (1,) else 1,
        )
case(
    "network",
    "layer_norm offset rows",
    T.layer_norm,
    layer_norm_reference,
    Input((1, 64), "f32", fixed(1e4 + np.arange(64) * 1e-3)),
    Input((64,)),
    Input((64,)),
    bound=normalization_bound,
)
case(
    "network",
    "layer_norm constant rows",
    T.layer_norm,
    layer_norm_reference,
    Input((2, 9), "f32", fixed(np.full(18, 3.3))),
    Input((9,)),
    Input((9,)),
    bound=normalization_bound,
)
case(
    "network",
    "layer_norm mixed",
    T.layer_norm,
    lambda x, w, b: layer_norm_reference(x.to(w.dtype), w, b),
    Input((3, 4), "bf16"),
    Input((4,), "f32"),
    Input((4,), "f32"),
    bound=normalization_bound,
)


def cross_entropy_reference(logits, labels):
    """``nan`` for a label that is no class; the ignored ones are 0."""
    targets = labels.reshape(-1).long()
    flat = logits.reshape(len(targets), logits.shape[-1])
    known = (targets == -100) | ((targets >= 0) & (targets < logits.shape[-1]))
    if not flat.numel():
        loss = torch.full(targets.shape, math.nan, dtype=logits.dtype)
        loss = torch.where(targets == -100, torch.zeros_like(loss), loss)
    else:
        loss = F.cross_entropy(flat, torch.where(known, targets, -100), ignore_index=-100, reduction="none")
        loss = torch.where(known, loss, torch.full_like(loss, math.nan))
    return loss.reshape(labels.shape)


for _shape in ((5,), (3, 4), (2, 3, 7), (0, 4), (3, 1), (2, 0)):
    for _dtype in FLOATS:
        case(
            "network",
            "cross_entropy",
            T.cross_entropy,
            cross_entropy_reference,
            Input(_shape, _dtype),
            Input(_shape[:-1], "i64", indices(max(_shape[-1], 1))),
            bound=exponential_bound,
            orders=2,
            dtype="f64" if _dtype == "f64" else "f32",
        )
for _dtype in INTEGERS:
    _labels = [0, 3, 4, 127, 1] if _dtype == "u8" else [0, -100, 4, 127, -1]
    case(
        "network",
        "cross_entropy labels",
        T.cross_entropy,
        cross_entropy_reference,
        Input((5, 4)),
        Input((5,), _dtype, fixed(_labels)),
        bound=exponential_bound,
    )
    case(
        "network",
        "cross_entropy many classes",
        T.cross_entropy,
        cross_entropy_reference,
        Input((3, 300)),
        Input((3,), _dtype, fixed([0, 44, 127])),
        bound=exponential_bound,
    )
case(
    "network",
    "cross_entropy ignored",
    T.cross_entropy,
    cross_entropy_reference,
    Input((3, 4), "f64"),
    Input((3,), "i64", fixed([1, -100, 3])),
    bound=exponential_bound,
    orders=2,
)
case(
    "network",
    "cross_entropy large",
    T.cross_entropy,
    cross_entropy_reference,
    Input((2, 3), "f32", fixed([[1e4, 0, -1e4], [-math.inf, 0, 1]])),
    Input((2,), "i32", fixed([2, 1])),
    bound=exponential_bound,
)

# -- attention ---------------------------------------------------------------------------------------------------------


def attention_reference(query, key, value, causal, scale=None):
    """Aligned at the last query and the last key; a row without a key gives 0 and the logsumexp -inf."""
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    queries, keys = scores.shape[-2:]
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if causal:
        seen = torch.tril(seen, keys - queries)
    blind = ~seen.any(-1, keepdim=True)
    scores = scores.masked_fill(~seen & ~blind, -math.inf)
    weights = torch.softmax(scores, -1).masked_fill(blind, 0) if keys else scores
    return weights @ value, torch.logsumexp(scores, -1).masked_fill(blind[..., 0], -math.inf)


for _lead, _queries, _keys, _width, _value_width in (
    ((), 4, 4, 8, 8), ((2, 3), 5, 5, 4, 4), ((1,), 1, 6, 3, 3), ((2,), 3, 7, 4, 2), ((2,), 7, 3, 4, 4),
    ((2,), 4, 0, 4, 4), ((2,), 0, 4, 4, 4), ((0,), 3, 3, 4, 4), ((), 1, 1, 1, 1), ((), 9, 9, 63, 63),
):  # fmt: skip
    for _causal in (False, True):
        for _result in (0, 1):
            for _dtype in ("f32", "f64"):
                case(
                    "attention",
                    f"{'attention_with_logsumexp' if _result else 'attention'}{' causal' if _causal else ''}",
                    lambda q, k, v, causal=_causal, result=_result: T.attention_with_logsumexp(q, k, v, causal)[result],
                    lambda q, k, v, causal=_causal, result=_result: attention_reference(q, k, v, causal)[result],
                    Input(_lead + (_queries, _width), _dtype),
                    Input(_lead + (_keys, _width), _dtype),
                    Input(_lead + (_keys, _value_width), _dtype),
                    bound=attention_bound,
                    orders=2,
                )
for _dtype in ("f16", "bf16"):
    _same = Input((2, 6, 8), _dtype)
    case(
        "attention",
        "attention half",
        T.attention,
        lambda q, k, v: attention_reference(q, k, v, True)[0],
        _same,
        _same,
        _same,
        bound=attention_bound,
    )
    case(
        "attention",
        "attention_with_logsumexp half",
        lambda q, k, v: T.attention_with_logsumexp(q, k, v)[1],
        lambda q, k, v: attention_reference(q, k, v, True)[1],
        _same,
        _same,
        _same,
        bound=attention_bound,
        dtype="f32",
    )
case(
    "attention",
    "attention same",
    lambda x: T.attention(x, x, x),
    lambda x: attention_reference(x, x, x, True)[0],
    Input((2, 5, 4), "f64"),
    bound=lambda y, x: 200 * (1 + np.abs(x).max() ** 2),
    orders=2,
)
case(
    "attention",
    "attention scale",
    lambda q, k, v: T.attention(q, k, v, False, 0.3),
    lambda q, k, v: attention_reference(q, k, v, False, 0.3)[0],
    Input((2, 3, 4), "f64"),
    Input((2, 5, 4), "f64"),
    Input((2, 5, 4), "f64"),
    bound=attention_bound,
    orders=2,
)
case(
    "attention",
    "attention of width 0",
    T.attention,
    lambda q, k, v: attention_reference(q, k, v, True, 1.0)[0],
    Input((2, 0), "f64"),
    Input((2, 0), "f64"),
    Input((2, 3), "f64"),
    bound=attention_bound,
)



def attention_gradient_reference(query, key, value, logsumexp, d_output, delta, causal, scale):
    """The formulas of the gradient in which the logsumexp and delta are operands of their own."""
    scores = query @ key.mT * scale
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool)
    if causal:
        seen = torch.tril(seen, scores.shape[-1] - scores.shape[-2])
    weights = torch.where(seen, torch.exp(torch.where(seen, scores, 0) - logsumexp[..., None]), 0)
    by_scores = weights * (d_output @ value.mT - delta[..., None]) * scale
    return by_scores @ key, by_scores.mT @ query, weights.mT @ d_output


def attention_gradient_bound(result, query, key, value, logsumexp, d_output, delta):
    largest = (np.abs(x).max(initial=0) for x in (query, key, value, logsumexp, d_output, delta))
    q, k, v, sums, g, along = largest
    width = query.shape[-1] + value.shape[-1]
    weight = np.exp(q * k * width**0.5 + sums)
    count = width + key.shape[-2] + query.shape[-2] + 16
    return count * (1 + q * k + sums) * (1 + g * v + along) * (1 + q + k) * weight


for _lead, _queries, _keys, _width, _value_width in (((), 4, 4, 8, 8), ((2, 3), 5, 3, 4, 2), ((2,), 3, 0, 2, 2)):
    for _causal in (False, True):
        for _result in (0, 1, 2):
            for _dtype, _wide in (("f32", "f32"), ("f64", "f64"), ("f16", "f32")):
                case(
                    "attention",
                    f"attention_gradient{' causal' if _causal else ''} {_result}",
                    lambda *operands, causal=_causal, result=_result: operands[0].graph.emit(
                        "attention_gradient", operands, causal=causal, scale=0.5
                    )[result],
                    lambda *operands, causal=_causal, result=_result: attention_gradient_reference(
                        *operands, causal, 0.5
                    )[result],
                    Input(_lead + (_queries, _width), _dtype),
                    Input(_lead + (_keys, _width), _dtype),
                    Input(_lead + (_keys, _value_width), _dtype),
                    Input(_lead + (_queries,), _wide),
                    Input(_lead + (_queries, _value_width), _dtype),
                    Input(_lead + (_queries,), _wide),
                    bound=attention_gradient_bound,
                    dtype=_dtype,
                    orders=2 if _dtype == _wide else 0,
                )

# -- random ------------------------------------------------------------------------------------------------------------


def philox_word(index, seed, step, stream):
    """Philox4x32-10 on Python ints: words 0 and 1 of the block of one element."""
    low = 2**32 - 1
    counter = [index & low, index >> 32, step & low, stream]
    key = [seed & low, seed >> 32 & low]
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [second >> 32 ^ counter[1] ^ key[0], second & low, first >> 32 ^ counter[3] ^ key[1], first & low]
        key = [key[0] + 0x9E3779B9 & low, key[1] + 0xBB67AE85 & low]
    return counter[:2]


def uniform_numbers(count, seed, step, stream, double):
    numbers = []
    for index in range(count):
        first, second = philox_word(index, seed, step, stream)
        numbers.append((first >> 11 << 32 | second) * 2.0**-53 if double else (first >> 8) * 2.0**-24)
    return torch.tensor(numbers, dtype=torch.float64)


def uniform_reference(shape, stream, double):
    def reference(seed, step):
        return uniform_numbers(math.prod(shape), int(seed), int(step), stream, double).reshape(shape)

    return reference


def normal_reference(shape, stream, double):
    def reference(seed, step):
        radius, angle = (uniform_reference(shape, stream + word, double)(seed, step) for word in range(2))
        # The angle as the operator forms it: the product rounds in its own type, and the cosine sees that.
        turn = 2 * math.pi * angle if double else (torch.tensor(2 * math.pi).float() * angle.float()).double()
        return torch.sqrt(-2 * torch.log(1 - radius)) * torch.cos(turn)

    return reference


for _shape in ((), (5,), (3, 7), (0, 3)):
    for _dtype in ("f32", "f64"):
        for _seed, _step in ((0, 0), (2**63 - 1, 2**40 + 7), (-1, 3)):
            _words = (Input((), "i64", fixed([_seed])), Input((), "i64", fixed([_step])))
            for _operator, _reference, _bound in (
                ("random_uniform", uniform_reference, exact),
                ("random_normal", normal_reference, lambda y, *words: 40.0),
            ):
                _stream = 2 * len(CASES)  # no two random operators of a graph share one, and a normal one takes two
                case(
                    "random",
                    f"{_operator} {_dtype}{list(_shape)} seed={_seed}",
                    lambda seed, step, name=_operator, shape=_shape, dtype=_dtype, stream=_stream: seed.graph.emit(
                        name, (seed, step), shape=shape, dtype=getattr(ei, dtype), stream=stream
                    ),
                    _reference(_shape, _stream, _dtype == "f64"),
                    *_words,
                    bound=_bound,
                    dtype=_dtype,
                )
