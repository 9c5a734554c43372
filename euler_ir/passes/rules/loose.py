"""Rules that change numbers: the default pipeline leaves them out, the preset ``fast`` takes them."""

from __future__ import annotations

import ml_dtypes

from euler_ir import tensor as T
from euler_ir.dtypes import DType
from euler_ir.graph import Value
from euler_ir.passes.by_example import rewrite_rule
from euler_ir.passes.patterns import Number

# -- guards: why a rule stays away, or None ----------------------------------------------------------------------------


def _not_held(dtype: DType, number: float) -> str | None:
    """Whether ``number`` is beyond the largest or below the least normal number of ``dtype``."""
    info = ml_dtypes.finfo(dtype.numpy)
    if float(info.tiny) <= abs(number) <= float(info.max):
        return None
    return f"{number:g} is too large or too small for {dtype}"


def _has_no_reciprocal(x: Value, c: float) -> str | None:
    return "the divisor is 0" if c == 0 else _not_held(x.dtype, 1 / c)


def _has_no_reciprocal_for_queries(q: Value, c: float) -> str | None:
    return _has_no_reciprocal(q, c)


def _has_no_product(x: Value, a: float, b: float) -> str | None:
    return _not_held(x.dtype, a * b)


# -- another order -----------------------------------------------------------------------------------------------------


@rewrite_rule("divide-constant", "reassociating", guard=_has_no_reciprocal)
def divide_constant(x: float, c: Number):
    """x / c = x * (1 / c)"""
    return x / c, x * (1 / c)


@rewrite_rule("divide-by-sqrt", "reassociating")
def divide_by_sqrt(x: float, y: float):
    """x / sqrt(y) = x * rsqrt(y)"""
    return x / T.sqrt(y), x * T.rsqrt(y)


@rewrite_rule("multiply-constants", "reassociating", guard=_has_no_product)
def multiply_constants(x: float, a: Number, b: Number):
    """x * a * b = x * (a * b)"""
    return x * a * b, x * (a * b)


@rewrite_rule("add-constants", "reassociating")
def add_constants(x: float, a: Number, b: Number):
    """x + a + b = x + (a + b)"""
    return x + a + b, x + (a + b)


@rewrite_rule("sum-of-multiple", "reassociating", used_once=True)
def sum_of_multiple(x: float, c: Number, *, axes=(0,)):
    """sum(x * c) = sum(x) * c"""
    return T.sum(x * c, axes), T.sum(x, axes) * c


# -- NaN, infinities and the sign of zero are given up -----------------------------------------------------------------


@rewrite_rule("multiply-zero-float", "nan-unsafe")
def multiply_zero(x: float):
    """x * 0 = 0, though NaN and infinities times 0 are NaN"""
    return x * 0, T.full_like(x, 0)


@rewrite_rule("zero-divided", "nan-unsafe")
def zero_divided(x: float):
    """0 / x = 0, though 0 / 0 is NaN"""
    return 0 / x, T.full_like(x, 0)


@rewrite_rule("add-zero-float", "nan-unsafe")
def add_zero(x: float):
    """x + 0.0 = x, though -0.0 + 0.0 is 0.0"""
    return x + 0, x


@rewrite_rule("subtract-same-float", "nan-unsafe")
def subtract_same(x: float):
    """x - x = 0, though NaN and infinities less themselves are NaN"""
    return x - x, T.full_like(x, 0)


@rewrite_rule("divide-same", "nan-unsafe")
def divide_same(x: float):
    """x / x = 1, though 0 / 0 is NaN"""
    return x / x, T.full_like(x, 1)


@rewrite_rule("power-half", "nan-unsafe")
def power_half(x: float):
    """x ** 0.5 = sqrt(x), though of -0.0 and of -inf they differ"""
    return T.power(x, 0.5), T.sqrt(x)


@rewrite_rule("attention-by-hand", "nan-unsafe", used_once=True)
def attention_by_hand(q: float, k: float, v: float, c: Number):
    """softmax(q @ k.T * c) @ v = attention(q, k, v), which gives 0 where a row of scores is -inf throughout"""
    return T.matmul(T.softmax(T.matmul(q, k, transpose_right=True) * c, -1), v), T.attention(q, k, v, False, c)


@rewrite_rule("attention-by-hand-divided", "nan-unsafe", guard=_has_no_reciprocal_for_queries, used_once=True)
def attention_by_hand_divided(q: float, k: float, v: float, c: Number):
    """softmax(q @ k.T / c) @ v = attention(q, k, v), which gives 0 where a row of scores is -inf throughout"""
    return T.matmul(T.softmax(T.matmul(q, k, transpose_right=True) / c, -1), v), T.attention(q, k, v, False, 1 / c)


# -- another function --------------------------------------------------------------------------------------------------


@rewrite_rule("gelu-as-tanh", "approximate")
def gelu_as_tanh(x: float):
    """gelu(x) = its approximation by tanh, which is off by 5e-4 at most"""
    return T.gelu(x, "none"), T.gelu(x, "tanh")


@rewrite_rule("product-of-exp", "approximate", used_once=True)
def product_of_exp(x: float, y: float):
    """exp(x) * exp(y) = exp(x + y), whose relative error grows with x and y"""
    return T.exp(x) * T.exp(y), T.exp(x + y)


LOOSE = (
    divide_constant,
    divide_by_sqrt,
    multiply_constants,
    add_constants,
    sum_of_multiple,
    multiply_zero,
    zero_divided,
    add_zero,
    subtract_same,
    divide_same,
    power_half,
    attention_by_hand,
    attention_by_hand_divided,
    gelu_as_tanh,
    product_of_exp,
)
