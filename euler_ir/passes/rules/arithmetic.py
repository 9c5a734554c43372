"""Arithmetic and logic that IEEE allows: NaN, infinities and the sign of zero stay.

x * 0, x - x, x + 0 and x / x are left alone for floats.
"""

from __future__ import annotations

import math

import numpy as np

from euler_ir import tensor as T
from euler_ir.graph import Value
from euler_ir.passes.patterns import Anything, Number, apply, number_of
from euler_ir.passes.rewriting import Match, Rule, register
from euler_ir.passes.rules.common import (
    C,
    MINUS_X,
    MINUS_Y,
    NOT_X,
    ONE,
    X,
    Y,
    is_float,
    is_no_float,
    reduces_something,
    the_number,
    the_value_x,
    the_value_x_reshaped,
)


def _has_no_exact_reciprocal(match: Match) -> str | None:
    """Whether the divisor is no power of two whose reciprocal the type holds."""
    divisor = number_of(match["c"])
    if divisor == 0 or not math.isfinite(divisor) or abs(math.frexp(divisor)[0]) != 0.5:
        return f"the divisor {divisor:g} is not a power of two"
    reciprocal = 1 / divisor
    with np.errstate(over="ignore", under="ignore"):
        held = float(np.array(reciprocal, match.op.result.dtype.numpy))
    if math.isfinite(reciprocal) and held == reciprocal:
        return None
    return f"{match.op.result.dtype} does not hold 1 / {divisor:g}"


def _negate_divisor(match: Match) -> Value:
    return T.divide(match["x"], -number_of(match["c"]))


def _multiply_by_reciprocal(match: Match) -> Value:
    return T.multiply(match["x"], 1 / number_of(match["c"]))


def _negate_factor(match: Match) -> Value:
    return T.multiply(match["x"], -number_of(match["c"]))


ARITHMETIC = register(
    Rule("multiply-one", "exact", "x * 1 = x", apply("multiply", X, ONE), the_value_x),
    Rule("divide-one", "exact", "x / 1 = x", apply("divide", X, ONE), the_value_x),
    Rule(
        "multiply-zero",
        "exact",
        "x * 0 = 0 for integers",
        apply("multiply", X, Number(0)),
        the_number(0),
        is_float,
    ),
    Rule("multiply-minus-one", "exact", "x * -1 = -x", apply("multiply", X, Number(-1)), lambda m: T.negative(m["x"])),
    Rule("add-zero", "exact", "x + 0 = x for integers", apply("add", X, Number(0)), the_value_x, is_float),
    Rule("add-minus-zero", "exact", "x + -0.0 = x", apply("add", X, Number(-0.0)), the_value_x, is_no_float),
    Rule("subtract-same", "exact", "x - x = 0 for integers", apply("subtract", X, X), the_number(0), is_float),
    Rule("subtract-zero", "exact", "x - 0 = x", apply("subtract", X, Number(0)), the_value_x),
    Rule("negative-negative", "exact", "-(-x) = x", apply("negative", apply("negative", X)), the_value_x),
    Rule("add-negative", "exact", "x + -y = x - y", apply("add", X, MINUS_Y), lambda m: T.subtract(m["x"], m["y"])),
    Rule(
        "subtract-negative",
        "exact",
        "x - -y = x + y",
        apply("subtract", X, MINUS_Y),
        lambda m: T.add(m["x"], m["y"]),
    ),
    Rule(
        "negative-factor",
        "exact",
        "-(x * c) = x * -c",
        apply("negative", apply("multiply", X, C, once=True)),
        _negate_factor,
        is_no_float,
    ),
    Rule(
        "negative-divisor",
        "exact",
        "-(x / c) = x / -c",
        apply("negative", apply("divide", X, C, once=True)),
        _negate_divisor,
        is_no_float,
    ),
    Rule(
        "factor-of-negative",
        "exact",
        "-x * c = x * -c",
        apply("multiply", MINUS_X, C),
        _negate_factor,
        is_no_float,
    ),
    Rule(
        "divisor-of-negative",
        "exact",
        "-x / c = x / -c",
        apply("divide", MINUS_X, C),
        _negate_divisor,
        is_no_float,
    ),
    Rule(
        "divide-power-of-two",
        "exact",
        "x / 2**k = x * 2**-k",
        apply("divide", X, C),
        _multiply_by_reciprocal,
        _has_no_exact_reciprocal,
    ),
    Rule("power-zero", "exact", "x ** 0 = 1, for NaN too", apply("power", X, Number(0)), the_number(1)),
    Rule("power-one", "exact", "x ** 1 = x", apply("power", X, ONE), the_value_x),
    Rule("extremum-same", "exact", "max(x, x) = min(x, x) = x", apply("maximum minimum", X, X), the_value_x),
    Rule(
        "reduce-ones",
        "exact",
        "a reduction of axes of size 1 is a reshape",
        apply("prod max min", X),
        the_value_x_reshaped,
        reduces_something,
    ),
    Rule(
        "sum-ones-integer",
        "exact",
        "an integer sum over axes of size 1 is a reshape",
        apply("sum", X),
        the_value_x_reshaped,
        lambda match: is_float(match) or reduces_something(match),
    ),
)

LOGIC = register(
    Rule("not-not", "exact", "not not x = x", apply("logical_not", NOT_X), the_value_x),
    Rule("and-same", "exact", "x and x = x or x = x", apply("logical_and logical_or", X, X), the_value_x),
    Rule("and-true", "exact", "x and true = x", apply("logical_and", X, Number(True)), the_value_x),
    Rule("and-false", "exact", "x and false = false", apply("logical_and", X, Number(False)), the_number(False)),
    Rule(
        "or-false",
        "exact",
        "x or false = x xor false = x",
        apply("logical_or logical_xor", X, Number(False)),
        the_value_x,
    ),
    Rule("or-true", "exact", "x or true = true", apply("logical_or", X, Number(True)), the_number(True)),
    Rule("where-true", "exact", "where(true, x, y) = x", apply("where", Number(True), X, Y), the_value_x),
    Rule("where-false", "exact", "where(false, y, x) = x", apply("where", Number(False), Y, X), the_value_x),
    Rule("where-same", "exact", "where(y, x, x) = x", apply("where", Y, X, X), the_value_x),
    Rule(
        "where-not",
        "exact",
        "where(not x, y, z) = where(x, z, y)",
        apply("where", NOT_X, Y, Anything("z")),
        lambda m: T.where(m["x"], m["z"], m["y"]),
    ),
)
