"""Algebra that IEEE arithmetic allows, as a table of rules.

Floats keep NaN, infinities and the sign of zero: x * 0, x - x, x + 0 and x / x stay as they are, and a cast that
narrows is never dropped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args, get_type_hints

import numpy as np

from euler_ir import tensor as T
from euler_ir.dtypes import DType
from euler_ir.errors import PassError
from euler_ir.graph import Graph, Value
from euler_ir.passes.manager import Pass
from euler_ir.passes.numerics import is_within
from euler_ir.passes.rewriting import Anything, Match, Number, Rule, apply, number_of, rewrite

X, Y = Anything("x"), Anything("y")


# -- guards ------------------------------------------------------------------------------------------------------------


def _keeps_type(match: Match) -> bool:
    return match["x"].type == match.op.result.type


def _is_float(match: Match) -> bool:
    return match["x"].dtype.is_float


def _is_not_float(match: Match) -> bool:
    return not match["x"].dtype.is_float


def _keeps_axes(match: Match) -> bool:
    """Whether a transpose leaves the axes that are longer than 1 in their order."""
    shape = match["x"].shape
    moved = [axis for axis in match.op.attributes["permutation"] if shape[axis] != 1]
    return moved == sorted(moved)


def _flips_nothing(match: Match) -> bool:
    return all(match["x"].shape[axis] <= 1 for axis in match.op.attributes["axes"])


def _flips_back(match: Match) -> bool:
    return sorted(match.op.attributes["axes"]) == sorted(match.op.operands[0].op.attributes["axes"])


def _reduces_nothing(match: Match) -> bool:
    return all(match["x"].shape[axis] == 1 for axis in match.op.attributes["axes"])


def _drops_inner_cast(match: Match) -> bool:
    """Whether going through the inner type loses nothing, and the outer conversion is of one kind with the short one.

    From integers through a float to another float stays: numpy rounds int to half twice. So does the way to an integer
    that does not hold them all: floats saturate where integers wrap around.
    """
    source, middle, last = match["x"].dtype, match.op.operands[0].dtype, match.op.result.dtype
    if source.is_integer and middle.is_float and last.kind != "bool":
        return last.is_integer and is_lossless(source, middle) and is_lossless(source, last)
    return is_lossless(source, middle)


def _swaps_last(operand: int):
    def guard(match: Match) -> bool:
        permutation = match.op.operands[operand].op.attributes["permutation"]
        rank = len(permutation)
        return rank >= 2 and permutation == (*range(rank - 2), rank - 1, rank - 2)

    return guard


def _has_exact_reciprocal(match: Match) -> bool:
    """Whether the divisor is a power of two whose reciprocal the type holds."""
    divisor = number_of(match["y"])
    if divisor is None or divisor == 0 or not math.isfinite(divisor) or abs(math.frexp(divisor)[0]) != 0.5:
        return False
    reciprocal = 1 / divisor
    with np.errstate(over="ignore", under="ignore"):
        held = float(np.array(reciprocal, match.op.result.dtype.numpy))
    return math.isfinite(reciprocal) and held == reciprocal


def is_lossless(source: DType, target: DType) -> bool:
    """Whether every value of ``source`` is one of ``target``."""
    if source == target or source.kind == "bool":
        return True
    if source.is_float:
        return target.is_float and target.bits > source.bits
    if target.is_float:
        significand = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}[target.name]
        return source.bits <= significand
    if target.kind == "bool":
        return False
    return target.bits > source.bits and target.kind == "signed"


# -- replacements ------------------------------------------------------------------------------------------------------


def _x(match: Match) -> Value:
    return match["x"]


def _number(number):
    return lambda match: T.full_like(match.op.result, number)


def _reshape(match: Match) -> Value:
    return T.reshape(match["x"], match.op.result.shape)


def _broadcast(match: Match) -> Value:
    return T.broadcast_to(match["x"], match.op.result.shape)


def _merge_transposes(match: Match) -> Value:
    inner, outer = match.op.operands[0].op.attributes["permutation"], match.op.attributes["permutation"]
    return T.transpose(match["x"], tuple(inner[axis] for axis in outer))


def _merge_slices(match: Match) -> Value:
    inner, outer = match.op.operands[0].op.attributes, match.op.attributes
    starts = tuple(a + b * step for a, b, step in zip(inner["starts"], outer["starts"], inner["steps"]))
    steps = tuple(a * b for a, b in zip(inner["steps"], outer["steps"]))
    starts = tuple(start if size else 0 for start, size in zip(starts, outer["sizes"]))
    return match["x"].graph.emit("slice", (match["x"],), starts=starts, sizes=outer["sizes"], steps=steps)


def _seam(match: Match) -> tuple[int, bool] | None:
    """The axis along which two padded tensors adjoin, and whether the right operand is first; None if they do not."""
    left, right = (operand.op.attributes for operand in match.op.operands)
    ends = list(zip(left["low"], left["high"], right["low"], right["high"]))
    differing = [axis for axis, (low, high, *other) in enumerate(ends) if [low, high] != other]
    if len(differing) != 1 or any((*left["interior"], *right["interior"])):
        return None
    (axis,) = differing
    sizes = [operand.op.operands[0].shape[axis] for operand in match.op.operands]
    if left["low"][axis] + sizes[0] == right["low"][axis]:
        return axis, False
    return (axis, True) if right["low"][axis] + sizes[1] == left["low"][axis] else None


def _concatenate(match: Match) -> Value:
    axis, swapped = _seam(match)
    first, second = match.op.operands[::-1] if swapped else match.op.operands
    whole = T.concatenate((first.op.operands[0], second.op.operands[0]), axis)
    low, high = first.op.attributes["low"], second.op.attributes["high"]
    return T.pad_with_interior(whole, low, high, (0,) * len(low), 0) if any((*low, *high)) else whole


def _read_transposed(side: str):
    def build(match: Match) -> Value:
        flags = dict(match.op.attributes)
        flags[side] = not flags[side]
        return T.matmul(match["x"], match["y"], **flags)

    return build


def _multiply_by_reciprocal(match: Match) -> Value:
    return T.multiply(match["x"], 1 / number_of(match["y"]))


def _negate_factor(match: Match) -> Value:
    return T.multiply(match["x"], -number_of(match["y"]))


def _log_softmax(match: Match) -> Value:
    return T.log_softmax(match["x"], match.op.operands[0].op.attributes["axis"])


def _is_constant(match: Match) -> bool:
    return _is_float(match) and number_of(match["y"]) is not None


# -- the table ---------------------------------------------------------------------------------------------------------

_NOT_X, _MINUS_Y = apply("logical_not", X), apply("negative", Y)
_ONE = Number(1)

MOVEMENT = (
    Rule(
        "no-change",
        "exact",
        "a move or cast to the same type = x",
        apply("broadcast reshape cast slice", X),
        _x,
        _keeps_type,
    ),
    Rule("pad-nothing", "exact", "pad by no width = x", apply("pad", X, Y), _x, _keeps_type),
    Rule("flip-nothing", "exact", "flip of axes of size 1 = x", apply("flip", X), _x, _flips_nothing),
    Rule("flip-back", "exact", "flip(flip(x)) = x", apply("flip", apply("flip", X)), _x, _flips_back),
    Rule("concatenate-one", "exact", "concatenate([x]) = x", apply("concatenate", X), _x),
    Rule("reshape-reshape", "exact", "two reshapes are one", apply("reshape", apply("reshape", X)), _reshape),
    Rule(
        "transpose-transpose",
        "exact",
        "two transposes are one",
        apply("transpose", apply("transpose", X)),
        _merge_transposes,
    ),
    Rule(
        "transpose-ones",
        "exact",
        "a transpose that moves only axes of size 1 is a reshape",
        apply("transpose", X),
        _reshape,
        _keeps_axes,
    ),
    Rule("slice-slice", "exact", "two slices are one", apply("slice", apply("slice", X)), _merge_slices),
    Rule(
        "broadcast-broadcast",
        "exact",
        "two broadcasts are one",
        apply("broadcast", apply("broadcast", X)),
        _broadcast,
    ),
    Rule(
        "broadcast-ones",
        "exact",
        "a broadcast that repeats nothing is a reshape",
        apply("broadcast", X),
        _reshape,
        lambda match: match["x"].size == match.op.result.size,
    ),
    Rule(
        "broadcast-scalar",
        "exact",
        "broadcast(reshape(x)) = broadcast(x) for a 0-d x",
        apply("broadcast", apply("reshape", X)),
        _broadcast,
        lambda match: match["x"].shape == (),
    ),
    Rule(
        "cast-cast",
        "exact",
        "cast(cast(x)) = cast(x) when the inner one loses nothing",
        apply("cast", apply("cast", X)),
        lambda match: T.cast(match["x"], match.op.result.dtype),
        _drops_inner_cast,
    ),
    Rule("stop-gradient", "exact", "stop_gradient(x) = x once differentiated", apply("stop_gradient", X), _x),
    Rule(
        "matmul-left-transpose",
        "exact",
        "matmul(transpose(x), y) reads x transposed",
        apply("matmul", apply("transpose", X), Y),
        _read_transposed("transpose_left"),
        _swaps_last(0),
    ),
    Rule(
        "matmul-right-transpose",
        "exact",
        "matmul(x, transpose(y)) reads y transposed",
        apply("matmul", X, apply("transpose", Y)),
        _read_transposed("transpose_right"),
        _swaps_last(1),
    ),
)

ARITHMETIC = (
    Rule("multiply-one", "exact", "x * 1 = x", apply("multiply", X, _ONE), _x),
    Rule("divide-one", "exact", "x / 1 = x", apply("divide", X, _ONE), _x),
    Rule(
        "multiply-zero",
        "exact",
        "x * 0 = 0 for integers",
        apply("multiply", X, Number(0)),
        _number(0),
        _is_not_float,
    ),
    Rule("multiply-minus-one", "exact", "x * -1 = -x", apply("multiply", X, Number(-1)), lambda m: T.negative(m["x"])),
    Rule("add-zero", "exact", "x + 0 = x for integers", apply("add", X, Number(0)), _x, _is_not_float),
    Rule("add-minus-zero", "exact", "x + -0.0 = x", apply("add", X, Number(-0.0)), _x, _is_float),
    Rule("subtract-zero", "exact", "x - 0 = x", apply("subtract", X, Number(0)), _x),
    Rule("negative-negative", "exact", "-(-x) = x", apply("negative", apply("negative", X)), _x),
    Rule("add-negative", "exact", "x + -y = x - y", apply("add", X, _MINUS_Y), lambda m: T.subtract(m["x"], m["y"])),
    Rule(
        "subtract-negative",
        "exact",
        "x - -y = x + y",
        apply("subtract", X, _MINUS_Y),
        lambda m: T.add(m["x"], m["y"]),
    ),
    Rule(
        "negative-factor",
        "exact",
        "-(x * c) = x * -c",
        apply("negative", apply("multiply", X, Y, once=True)),
        _negate_factor,
        _is_constant,
    ),
    Rule(
        "divide-power-of-two",
        "exact",
        "x / 2**k = x * 2**-k",
        apply("divide", X, Y),
        _multiply_by_reciprocal,
        _has_exact_reciprocal,
    ),
    Rule("power-zero", "exact", "x ** 0 = 1, for NaN too", apply("power", X, Number(0)), _number(1)),
    Rule("power-one", "exact", "x ** 1 = x", apply("power", X, _ONE), _x),
    Rule("extremum-same", "exact", "max(x, x) = min(x, x) = x", apply("maximum minimum", X, X), _x),
    Rule(
        "reduce-ones",
        "exact",
        "a reduction of axes of size 1 is a reshape",
        apply("prod max min", X),
        _reshape,
        _reduces_nothing,
    ),
    Rule(
        "sum-ones-integer",
        "exact",
        "an integer sum over axes of size 1 is a reshape",
        apply("sum", X),
        _reshape,
        lambda match: _reduces_nothing(match) and _is_not_float(match),
    ),
)

LOGIC = (
    Rule("not-not", "exact", "not not x = x", apply("logical_not", _NOT_X), _x),
    Rule("and-same", "exact", "x and x = x or x = x", apply("logical_and logical_or", X, X), _x),
    Rule("and-true", "exact", "x and true = x", apply("logical_and", X, Number(True)), _x),
    Rule("and-false", "exact", "x and false = false", apply("logical_and", X, Number(False)), _number(False)),
    Rule("or-false", "exact", "x or false = x xor false = x", apply("logical_or logical_xor", X, Number(False)), _x),
    Rule("or-true", "exact", "x or true = true", apply("logical_or", X, Number(True)), _number(True)),
    Rule("where-true", "exact", "where(true, x, y) = x", apply("where", Number(True), X, Y), _x),
    Rule("where-false", "exact", "where(false, y, x) = x", apply("where", Number(False), Y, X), _x),
    Rule("where-same", "exact", "where(y, x, x) = x", apply("where", Y, X, X), _x),
    Rule(
        "where-not",
        "exact",
        "where(not x, y, z) = where(x, z, y)",
        apply("where", _NOT_X, Y, Anything("z")),
        lambda m: T.where(m["x"], m["z"], m["y"]),
    ),
)

BETTER = (
    Rule(
        "sum-ones",
        "better",
        "a sum over axes of size 1 is a reshape: -0.0 stays",
        apply("sum", X),
        _reshape,
        _reduces_nothing,
    ),
    Rule(
        "power-two",
        "better",
        "x ** 2 = x * x, rounded once",
        apply("power", X, Number(2)),
        lambda m: T.multiply(m["x"], m["x"]),
    ),
    Rule(
        "power-minus-one",
        "better",
        "x ** -1 = 1 / x, rounded once",
        apply("power", X, Number(-1)),
        lambda m: T.divide(1, m["x"]),
    ),
    Rule(
        "one-plus-erf",
        "better",
        "1 + erf(x) = erfc(-x), which keeps its digits for x < 0 (the GELU that was spelled out)",
        apply("add", _ONE, apply("erf", X)),
        lambda m: T.erfc(T.negative(m["x"])),
    ),
    Rule(
        "one-minus-erf",
        "better",
        "1 - erf(x) = erfc(x)",
        apply("subtract", _ONE, apply("erf", X)),
        lambda m: T.erfc(m["x"]),
    ),
    Rule(
        "one-minus-erfc",
        "better",
        "1 - erfc(x) = erf(x)",
        apply("subtract", _ONE, apply("erfc", X)),
        lambda m: T.erf(m["x"]),
    ),
    Rule(
        "one-minus-sigmoid",
        "better",
        "1 - sigmoid(x) = sigmoid(-x)",
        apply("subtract", _ONE, apply("sigmoid", X)),
        lambda m: T.sigmoid(T.negative(m["x"])),
    ),
    Rule(
        "one-over-sqrt",
        "better",
        "1 / sqrt(x) = rsqrt(x), rounded once",
        apply("divide", _ONE, apply("sqrt", X)),
        lambda m: T.rsqrt(m["x"]),
    ),
    Rule(
        "add-pads",
        "better",
        "pad(x) + pad(y) with zeros, side by side = concatenate([x, y]): -0.0 stays",
        apply("add", apply("pad", X, Number(0.0)), apply("pad", Y, Number(0.0))),
        _concatenate,
        lambda match: _seam(match) is not None,
    ),
    Rule("log-softmax", "better", "log(softmax(x)) = log_softmax(x)", apply("log", apply("softmax", X)), _log_softmax),
)

RULES = (*MOVEMENT, *ARITHMETIC, *LOGIC, *BETTER)


@dataclass(frozen=True)
class Simplify(Pass):
    """Apply the algebraic rules of ``RULES``.

    ``numerics`` is the loosest label of the rules that it takes: 'exact' those that keep every bit, 'better', the
    default, also those that round less. Raises PassError for another word.
    """

    name = "simplify"
    numerics: Literal["exact", "better"] = "better"

    def __post_init__(self) -> None:
        labels = get_args(get_type_hints(type(self))["numerics"])
        if self.numerics not in labels:
            raise PassError(f"simplify: numerics is {self.numerics!r}", hint=f"use {' or '.join(labels)}")

    def run(self, graph: Graph) -> Graph:
        return rewrite(graph, [rule for rule in RULES if is_within(rule.numerics, self.numerics)])
