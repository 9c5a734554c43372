"""Functions of the DSL for neural networks: products, norms, losses, attention, dropout."""

from __future__ import annotations

import functools
import math

from euler_ir.dtypes import f32, i64, promote
from euler_ir.errors import DTypeError, ShapeError
from euler_ir.tensor.elementwise import greater_equal, multiply, where
from euler_ir.tensor.lifting import Tensor, as_value, broadcast_to, cast, explained
from euler_ir.tensor.shape import expand_dims, squeeze


def matmul(left, right, transpose_left: bool = False, transpose_right: bool = False):
    """numpy's matmul: the last two axes are multiplied, the others broadcast; 1-d operands are vectors.

    ``transpose_left`` and ``transpose_right`` read an operand's last two axes exchanged. Half types accumulate in f32.
    """
    near = left if isinstance(left, Tensor) else right
    left, right = as_value(left, near), as_value(right, near)
    dtype = promote(left.dtype, right.dtype)
    left, right = cast(left, dtype), cast(right, dtype)
    given = left, right
    left_vector, right_vector = len(left.shape) == 1, len(right.shape) == 1
    if left_vector:
        left, transpose_left = expand_dims(left, 0), False
    if right_vector:
        right, transpose_right = expand_dims(right, 1), False
    emit = functools.partial(near.graph.emit, transpose_left=transpose_left, transpose_right=transpose_right)
    result = explained(given, emit, "matmul", (left, right))
    if right_vector:
        result = squeeze(result, -1)
    if left_vector:
        result = squeeze(result, -1 if right_vector else -2)
    return result


def layer_norm(x, weight, bias, epsilon: float = 1e-5):
    """Layer normalisation over the last axis (Ba et al., arXiv:1607.06450), statistics in f32 for half types.

    ``x``: [..., C]; ``weight`` and ``bias``: [C].
    """
    dtype = promote(promote(x.dtype, weight.dtype), bias.dtype)
    operands = tuple(cast(value, dtype) for value in (x, weight, bias))
    return x.graph.emit("layer_norm", operands, epsilon=float(epsilon))


def rms_norm(x, weight, epsilon: float = 1e-5):
    """``x / sqrt(mean(x^2) + epsilon) * weight`` over the last axis (Zhang and Sennrich, arXiv:1910.07467).

    ``x``: [..., C]; ``weight``: [C]. Statistics are in f32 for half types.
    """
    dtype = promote(x.dtype, weight.dtype)
    return x.graph.emit("rms_norm", (cast(x, dtype), cast(weight, dtype)), epsilon=float(epsilon))


def cross_entropy(logits, labels, ignore_index: int = -100):
    """``-log softmax(logits)[label]`` for each position: logits [..., V], labels integer [...], result [...].

    Positions whose label is ``ignore_index`` give 0 with gradient 0. Any other label outside of 0..V-1 gives NaN.
    The result is f32 for half types.
    """
    logits = logits if logits.dtype.is_float else cast(logits, f32)
    return logits.graph.emit("cross_entropy", (logits, labels), ignore_index=int(ignore_index))


def attention(query, key, value, causal: bool = True, scale: float | None = None, visible_from=None):
    """Scaled dot-product attention (Vaswani et al., arXiv:1706.03762, 3.2.1).

    ``query`` [..., T, D], ``key`` [..., S, D], ``value`` [..., S, E]; result [..., T, E]. With ``causal`` the query at
    t sees keys up to t + S - T (aligned at the end). A row that sees no key gives 0. ``scale`` defaults to
    ``1 / sqrt(D)``. A NaN or infinity that a query does not see may or may not make its result NaN.

    ``key`` and ``value`` may have fewer heads [..., heads, S, D] than the query, if theirs divide its: of a query of 6
    heads and a key of 2, heads 0 to 2 read head 0, and 3 to 5 head 1 (grouped queries; Ainslie et al.,
    arXiv:2305.13245).

    ``visible_from``, integers that broadcast to [..., T], keeps texts apart that share a row: the query at t sees no
    key before ``visible_from[..., t]``, which may be negative (all keys are seen) or beyond the last key (none is).
    """
    return attention_with_logsumexp(query, key, value, causal, scale, visible_from)[0]


def attention_with_logsumexp(
    query, key, value, causal: bool = True, scale: float | None = None, visible_from=None
):
    """``attention`` and, for each query, the logsumexp of its scaled scores ([..., T], f32 for half types)."""
    dtype = promote(promote(query.dtype, key.dtype), value.dtype)
    operands = tuple(cast(operand, dtype) for operand in (query, key, value))
    if scale is None:
        scale = 1.0 / math.sqrt(query.shape[-1] or 1) if query.shape else 1.0
    if visible_from is not None:
        visible_from = as_value(visible_from, query)
        if not visible_from.dtype.is_integer:
            error = DTypeError(f"attention: visible_from is of {visible_from.dtype}, not of integers")
            raise query.graph.explain(error, (query, visible_from), ("query", "visible_from"))
        operands += (broadcast_to(cast(visible_from, i64), query.shape[:-1]),)
    return query.graph.emit("attention", operands, causal=bool(causal), scale=float(scale))


def dropout(x, rate: float, seed, step):
    """``x`` with each element 0 at probability ``rate`` and the rest scaled by ``1 / (1 - rate)``.

    The mask is a function of (seed, step, this operator, element), so the backward pass sees the same one.
    Raises ShapeError unless 0 <= rate < 1.
    """
    if not 0 <= rate < 1:
        raise x.graph.explain(ShapeError(f"dropout rate {rate} is outside of 0 <= rate < 1"), (x,))
    if rate == 0:
        return x
    keep = greater_equal(x.graph.random_uniform(x.shape, seed, step), rate)
    return where(keep, multiply(x, 1.0 / (1.0 - rate)), 0)
