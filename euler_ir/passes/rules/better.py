"""Rules whose result is nearer to the real number, or as near."""

from __future__ import annotations

from random import Random

from euler_ir import tensor as T
from euler_ir.dtypes import bf16, f16, f32, f64
from euler_ir.graph import Graph, Value
from euler_ir.passes.patterns import Number, apply
from euler_ir.passes.rewriting import Match, Rule, register
from euler_ir.passes.rules.common import ONE, X, Y, reduces_something, the_value_x_reshaped


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


def _do_not_adjoin(match: Match) -> str | None:
    return "the padded tensors do not lie side by side" if _seam(match) is None else None


def _adjoining_pads(random: Random) -> Graph:
    graph, axis, sizes = Graph("instance"), random.randrange(2), (random.randint(0, 3), random.randint(1, 3))
    dtype, (before, behind) = random.choice((f16, bf16, f32, f64)), (random.randint(0, 2), random.randint(0, 2))
    parts = []
    for size, low, high in ((sizes[0], before, behind + sizes[1]), (sizes[1], before + sizes[0], behind)):
        part = graph.input(f"part{len(parts)}", (size, 4) if axis == 0 else (4, size), dtype)
        widths = [(1, 2), (1, 2)]
        widths[axis] = (low, high)
        parts.append(T.pad(part, widths))
    graph.set_outputs(result=T.add(*random.sample(parts, 2)))
    return graph


def _log_softmax(match: Match) -> Value:
    return T.log_softmax(match["x"], match.op.operands[0].op.attributes["axis"])


BETTER = register(
    Rule(
        "sum-ones",
        "better",
        "a sum over axes of size 1 is a reshape: -0.0 stays",
        apply("sum", X),
        the_value_x_reshaped,
        reduces_something,
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
        apply("add", ONE, apply("erf", X)),
        lambda m: T.erfc(T.negative(m["x"])),
    ),
    Rule(
        "one-minus-erf",
        "better",
        "1 - erf(x) = erfc(x)",
        apply("subtract", ONE, apply("erf", X)),
        lambda m: T.erfc(m["x"]),
    ),
    Rule(
        "one-minus-erfc",
        "better",
        "1 - erfc(x) = erf(x)",
        apply("subtract", ONE, apply("erfc", X)),
        lambda m: T.erf(m["x"]),
    ),
    Rule(
        "one-minus-sigmoid",
        "better",
        "1 - sigmoid(x) = sigmoid(-x)",
        apply("subtract", ONE, apply("sigmoid", X)),
        lambda m: T.sigmoid(T.negative(m["x"])),
    ),
    Rule(
        "one-over-sqrt",
        "better",
        "1 / sqrt(x) = rsqrt(x), rounded once",
        apply("divide", ONE, apply("sqrt", X)),
        lambda m: T.rsqrt(m["x"]),
    ),
    Rule(
        "add-pads",
        "better",
        "pad(x) + pad(y) with zeros, side by side = concatenate([x, y]): -0.0 stays",
        apply("add", apply("pad", X, Number(0.0)), apply("pad", Y, Number(0.0))),
        _concatenate,
        _do_not_adjoin,
        sample=_adjoining_pads,
    ),
    Rule("log-softmax", "better", "log(softmax(x)) = log_softmax(x)", apply("log", apply("softmax", X)), _log_softmax),
)
