"""GELU spelled out by hand becomes the operator, which keeps its digits for negative numbers.

By the time that a product with the gate is looked at, other rules have rewritten 1 + erf(u) to erfc(-u), and taken the
minus into a constant factor where nothing else uses that. What is used elsewhere too, as by a gradient, stays: it would
be computed twice.
"""

from __future__ import annotations

import math

from euler_ir import tensor as T
from euler_ir.passes.by_example import rewrite_rule

_ROUNDED_ONCE = 2e-7
"""What a constant may be off, relative to the real number, when it was computed in f32."""


def _products(x, gate):
    """The ways to write 0.5 * x * gate."""
    return 0.5 * x * gate, 0.5 * (x * gate), x * (0.5 * gate)


@rewrite_rule("gelu-by-hand", "better", tolerance=_ROUNDED_ONCE, used_once=True)
def gelu_by_hand(x: float):
    """0.5 * x * (1 + erf(x / sqrt(2))) = gelu(x), in any order of the factors"""
    root = math.sqrt(2)
    gates = [T.erfc(x * (-1 / root)), T.erfc(T.negative(x * (1 / root)))]
    gates += [T.erfc(x / -root), T.erfc(T.negative(x / root))]
    return [form for gate in gates for form in _products(x, gate)], T.gelu(x, "none")


@rewrite_rule("gelu-tanh-by-hand", "better", tolerance=_ROUNDED_ONCE, used_once=True)
def gelu_tanh_by_hand(x: float):
    """0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))) = gelu(x), in any order of the factors"""
    cubes = [T.power(x, 3.0), x * x * x, x * (x * x)]
    inner = [x + 0.044715 * cube for cube in cubes] + [x + 0.044715 * x * x * x, x * (1 + 0.044715 * (x * x))]
    gates = [1 + T.tanh(math.sqrt(2 / math.pi) * each) for each in inner]
    return [form for gate in gates for form in _products(x, gate)], T.gelu(x, "tanh")


GELU = (gelu_by_hand, gelu_tanh_by_hand)
