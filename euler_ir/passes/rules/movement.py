"""Moves and casts that undo each other, do nothing, or go into the product that reads them."""

from __future__ import annotations

from collections.abc import Callable

from euler_ir import tensor as T
from euler_ir.dtypes import DType
from euler_ir.graph import Value
from euler_ir.passes.patterns import apply
from euler_ir.passes.rewriting import Match, Rule, register
from euler_ir.passes.rules.common import X, Y, the_value_x, the_value_x_reshaped

# -- guards: why a rule stays away -------------------------------------------------------------------------------------


def _changes_type(match: Match) -> str | None:
    before, after = match["x"].type, match.op.result.type
    return None if before == after else f"it turns {before} into {after}"


def _moves_axes(match: Match) -> str | None:
    """Whether a transpose leaves the axes that are longer than 1 in their order."""
    shape = match["x"].shape
    moved = [axis for axis in match.op.attributes["permutation"] if shape[axis] != 1]
    return None if moved == sorted(moved) else f"it moves axes longer than 1: {list(moved)} of {shape}"


def _flips_something(match: Match) -> str | None:
    shape = match["x"].shape
    longer = [axis for axis in match.op.attributes["axes"] if shape[axis] > 1]
    return f"axis {longer[0]} has {shape[longer[0]]} elements" if longer else None


def _flips_otherwise(match: Match) -> str | None:
    outer, inner = sorted(match.op.attributes["axes"]), sorted(match.op.operands[0].op.attributes["axes"])
    return None if outer == inner else f"one flips axes {outer}, the other {inner}"


def _repeats_something(match: Match) -> str | None:
    times = match.op.result.size, match["x"].size
    return None if times[0] == times[1] else f"it makes {times[0]} elements of {times[1]}"


def _has_axes(match: Match) -> str | None:
    return None if match["x"].shape == () else f"x has shape {match['x'].shape}"


def _loses_inner_cast(match: Match) -> str | None:
    """Whether going through the inner type loses something, or the outer conversion is of another kind than the short
    one.

    From integers through a float to another float stays: numpy rounds int to half twice. So does the way to an integer
    that does not hold them all: floats saturate where integers wrap around.
    """
    source, middle, last = match["x"].dtype, match.op.operands[0].dtype, match.op.result.dtype
    if not is_lossless(source, middle):
        return f"{middle} does not hold every {source}"
    if source.is_integer and middle.is_float and last.kind != "bool":
        if not last.is_integer:
            return f"from {source} through {middle} to {last} is rounded twice"
        if not is_lossless(source, last):
            return f"{middle} to {last} saturates where {source} to {last} wraps around"
    return None


def _moves_more_than_two(operand: int) -> Callable[[Match], str | None]:
    def guard(match: Match) -> str | None:
        permutation = match.op.operands[operand].op.attributes["permutation"]
        rank = len(permutation)
        if rank >= 2 and permutation == (*range(rank - 2), rank - 1, rank - 2):
            return None
        return f"the transpose {list(permutation)} does more than to swap the last two axes"

    return guard


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


def _read_transposed(side: str):
    def build(match: Match) -> Value:
        flags = dict(match.op.attributes)
        flags[side] = not flags[side]
        return T.matmul(match["x"], match["y"], **flags)

    return build


# -- the table ---------------------------------------------------------------------------------------------------------

MOVEMENT = register(
    Rule(
        "no-change",
        "exact",
        "a move or cast to the same type = x",
        apply("broadcast reshape cast slice", X),
        the_value_x,
        _changes_type,
    ),
    Rule("pad-nothing", "exact", "pad by no width = x", apply("pad", X, Y), the_value_x, _changes_type),
    Rule("flip-nothing", "exact", "flip of axes of size 1 = x", apply("flip", X), the_value_x, _flips_something),
    Rule("flip-back", "exact", "flip(flip(x)) = x", apply("flip", apply("flip", X)), the_value_x, _flips_otherwise),
    Rule("concatenate-one", "exact", "concatenate([x]) = x", apply("concatenate", X), the_value_x),
    Rule(
        "reshape-reshape", "exact", "two reshapes are one", apply("reshape", apply("reshape", X)), the_value_x_reshaped
    ),
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
        the_value_x_reshaped,
        _moves_axes,
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
        the_value_x_reshaped,
        _repeats_something,
    ),
    Rule(
        "broadcast-scalar",
        "exact",
        "broadcast(reshape(x)) = broadcast(x) for a 0-d x",
        apply("broadcast", apply("reshape", X)),
        _broadcast,
        _has_axes,
    ),
    Rule(
        "cast-cast",
        "exact",
        "cast(cast(x)) = cast(x) when the inner one loses nothing",
        apply("cast", apply("cast", X)),
        lambda match: T.cast(match["x"], match.op.result.dtype),
        _loses_inner_cast,
    ),
    Rule("stop-gradient", "exact", "stop_gradient(x) = x once differentiated", apply("stop_gradient", X), the_value_x),
    Rule(
        "matmul-left-transpose",
        "exact",
        "matmul(transpose(x), y) reads x transposed",
        apply("matmul", apply("transpose", X), Y),
        _read_transposed("transpose_left"),
        _moves_more_than_two(0),
    ),
    Rule(
        "matmul-right-transpose",
        "exact",
        "matmul(x, transpose(y)) reads y transposed",
        apply("matmul", X, apply("transpose", Y)),
        _read_transposed("transpose_right"),
        _moves_more_than_two(1),
    ),
)
