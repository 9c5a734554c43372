"""What a case is, the operands that it is given, and how far its result may be off."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import torch

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


def attention_bound(result, query, key, value, visible_from=None):
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
