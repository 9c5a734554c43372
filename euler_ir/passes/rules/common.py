"""What the tables of rules have in common: parts of patterns, guards and replacements."""

from __future__ import annotations

from collections.abc import Callable

from euler_ir import tensor as T
from euler_ir.graph import Value
from euler_ir.passes.patterns import Anything, Number, apply
from euler_ir.passes.rewriting import Match

X, Y = Anything("x"), Anything("y")
NOT_X, MINUS_X, MINUS_Y = apply("logical_not", X), apply("negative", X), apply("negative", Y)
ONE, C = Number(1), Number(name="c")


# -- guards: why a rule stays away, or None ----------------------------------------------------------------------------


def is_float(match: Match) -> str | None:
    return f"x is {match['x'].type}, and floats have NaN and -0.0" if match["x"].dtype.is_float else None


def is_no_float(match: Match) -> str | None:
    return None if match["x"].dtype.is_float else f"x is {match['x'].type}, no tensor of floats"


def reduces_something(match: Match) -> str | None:
    shape = match["x"].shape
    other = [axis for axis in match.op.attributes["axes"] if shape[axis] != 1]
    return f"axis {other[0]} has {shape[other[0]]} elements" if other else None


# -- replacements ------------------------------------------------------------------------------------------------------


def the_value_x(match: Match) -> Value:
    return match["x"]


def the_value_x_reshaped(match: Match) -> Value:
    return T.reshape(match["x"], match.op.result.shape)


def the_number(number: bool | int | float) -> Callable[[Match], Value]:
    return lambda match: T.full_like(match.op.result, number)
