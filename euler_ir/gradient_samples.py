"""A sample of every operator that has a gradient, on operands where its derivative exists: no ties, no kinks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from euler_ir import tensor as T
from euler_ir.graph import Value


@dataclass(frozen=True)
class Sample:
    """``build`` makes the value from the operands; it is differentiated for those that are f64."""

    name: str
    build: Callable[..., Value]
    operands: tuple[np.ndarray, ...]


def spaced(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> np.ndarray:
    """Evenly spaced numbers between ``low`` and ``high``, shuffled: each two differ by more than any step of the check.

    An even count of them around 0 does not meet 0.
    """
    numbers = np.linspace(low, high, int(np.prod(shape)))
    return np.random.default_rng(seed).permutation(numbers).reshape(shape)


_X, _Y = spaced(3, 4), spaced(3, 4, seed=1)
_POSITIVE = spaced(3, 4, low=0.5, high=2.5)
# Differences of 0.2 at least between the two, so that neither overtakes the other.
_NEAR_X = _X + np.where(spaced(3, 4, seed=2) > 0, 0.4, -0.4)
_MATRICES = spaced(2, 3, 4), spaced(4, 5, seed=1)
_QUERIES = spaced(2, 3, low=2.5, high=3.5), spaced(2, 3, 3, seed=3), spaced(2, 3, seed=4)
_HEADS = spaced(2, 3, 4), spaced(2, 5, 4, seed=1), spaced(2, 5, 3, seed=2)

SAMPLES: tuple[Sample, ...] = (
    Sample("negative", T.negative, (_X,)),
    Sample("absolute", T.absolute, (_X,)),
    Sample("exp", T.exp, (_X,)),
    Sample("log", T.log, (_POSITIVE,)),
    Sample("sqrt", T.sqrt, (_POSITIVE,)),
    Sample("rsqrt", T.rsqrt, (_POSITIVE,)),
    Sample("sin", T.sin, (_X,)),
    Sample("cos", T.cos, (_X,)),
    Sample("tanh", T.tanh, (_X,)),
    Sample("erf", T.erf, (_X,)),
    Sample("erfc", T.erfc, (_X,)),
    Sample("sigmoid", T.sigmoid, (_X,)),
    Sample("normal_cdf", T.normal_cdf, (_X,)),
    Sample("normal_pdf", T.normal_pdf, (_X,)),
    Sample("normal_cdf_tanh", T.normal_cdf_tanh, (_X,)),
    Sample("gelu, exact", lambda x: T.gelu(x, approximate="none"), (_X,)),
    Sample("gelu, tanh", lambda x: T.gelu(x, approximate="tanh"), (_X,)),
    Sample("silu", T.silu, (_X,)),
    Sample("cast", lambda x: T.cast(T.cast(x, "f32"), "f64"), (_X,)),
    Sample("add", T.add, (_X, _Y)),
    Sample("subtract", T.subtract, (_X, _Y)),
    Sample("multiply", T.multiply, (_X, _Y)),
    Sample("divide", T.divide, (_X, _POSITIVE)),
    Sample("remainder", T.remainder, (spaced(3, 4, low=2.2, high=2.8), spaced(3, 4, low=0.9, high=1.05))),
    Sample("power", T.power, (_POSITIVE, _Y)),
    Sample("maximum", T.maximum, (_X, _NEAR_X)),
    Sample("minimum", T.minimum, (_X, _NEAR_X)),
    Sample("where", T.where, (_Y > 0, _X, _Y)),
    Sample("sum", lambda x: T.sum(x, 1), (_X,)),
    Sample("prod", lambda x: T.prod(x, 1), (_X,)),
    Sample("max", lambda x: T.max(x, 1), (_X,)),
    Sample("min", lambda x: T.min(x, 0), (_X,)),
    Sample("logsumexp", lambda x: T.logsumexp(x, 1), (_X,)),
    Sample("cumsum", lambda x: T.cumsum(x, 1), (_X,)),
    Sample("broadcast", lambda x: T.broadcast_to(x, (2, 3, 4)), (spaced(3, 1),)),
    Sample("reshape", lambda x: T.reshape(x, (2, 6)), (_X,)),
    Sample("transpose", lambda x: T.transpose(x, 2, 0, 1), (spaced(2, 3, 2),)),
    Sample("flip", lambda x: T.flip(x, 1), (_X,)),
    Sample("later", lambda x: x.graph.emit("later", (x,)), (_X,)),
    Sample("slice", lambda x: x[1:, ::2], (_X,)),
    Sample(
        "pad",
        lambda x, value: x.graph.emit("pad", (x, value), low=(1, 0), high=(0, 2), interior=(1, 0)),
        (_X, _X[0, 0]),
    ),
    Sample("concatenate", lambda x, y: T.concatenate((x, y), 1), (_X, spaced(3, 2))),
    Sample("take", lambda x, rows: T.take(x, rows), (_X, np.array([2, 0, 2]))),
    Sample("scatter_add", lambda rows, x: T.scatter_add(rows, x, 4), (np.array([3, 1, 3]), _X)),
    Sample(
        "index_add",
        lambda x, rows, y: x.graph.emit("index_add", (x, rows, y), axis=0),
        (_X, np.array([1, 0, 1]), spaced(*(3, *_X.shape[1:]))),
    ),
    Sample(
        "dynamic_update_slice", lambda x, y, at: T.dynamic_update_slice(x, y, at, 1), (_X, spaced(3, 2), np.array(1))
    ),
    Sample(
        "dynamic_update_slice, starts by row",
        lambda x, y, at: T.dynamic_update_slice(x, y, at, 1),
        (_X, spaced(3, 2), np.array([1, 0, 2])),
    ),
    Sample("matmul", T.matmul, _MATRICES),
    Sample(
        "matmul, both transposed",
        lambda x, y: T.matmul(x, y, transpose_left=True, transpose_right=True),
        tuple(np.ascontiguousarray(np.swapaxes(matrix, -1, -2)) for matrix in _MATRICES),
    ),
    Sample("softmax", lambda x: T.softmax(x, 1), (_X,)),
    Sample("log_softmax", lambda x: T.log_softmax(x, 1), (_X,)),
    Sample("layer_norm", T.layer_norm, (_X, _X[0], _Y[0])),
    Sample("rms_norm", T.rms_norm, (_X, _Y[0])),
    Sample("cross_entropy, one ignored", T.cross_entropy, (_X, np.array([1, -100, 3]))),
    Sample("attention, causal", T.attention, _HEADS),
    Sample("attention, grouped", T.attention, (spaced(4, 3, 2), spaced(2, 3, 2), spaced(2, 3, 3))),
    Sample(
        "attention, visible_from", lambda *operands: T.attention(*operands[:3], visible_from=operands[3]),
        (*_HEADS, np.array([0, 1, 1])),
    ),
    Sample("attention, all keys", lambda q, k, v: T.attention(q, k, v, causal=False), _HEADS),
    Sample(
        "attention_gradient",
        lambda *operands: T.concatenate(
            [
                T.reshape(gradient, (-1,))
                for gradient in operands[0].graph.emit("attention_gradient", operands, causal=True, scale=0.5)
            ]
        ),
        (*_HEADS, *_QUERIES),
    ),
    Sample("attention, logsumexp", lambda q, k, v: T.attention_with_logsumexp(q, k, v)[1], _HEADS),
)
