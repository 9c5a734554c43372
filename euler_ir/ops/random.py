"""Random numbers without state: Philox4x32-10 (Salmon et al., SC 2011, "Parallel Random Numbers: As Easy as 1, 2, 3").

Element ``i`` of a random operator is a function of (seed, step, stream, i) alone. The counter is
(i low, i high, step low, stream), the key (seed low, seed high), each 32 bits. f32 takes the high 24 bits of word 0;
f64 the high 21 bits of word 0 above all of word 1. ``stream`` numbers the random operators of a graph.
"""

from __future__ import annotations

import math

import numpy as np

from euler_ir import tensor as T
from euler_ir.dtypes import f32, f64, i64
from euler_ir.ops.definition import define, expect, expect_dtype
from euler_ir.shapes import TensorType

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def philox(counter, key):
    """Ten rounds of Philox4x32: ``counter`` four and ``key`` two arrays of uint64 below 2**32; gives four such."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (product1 >> _SHIFT) ^ c1 ^ k0,
            product1 & _LOW,
            (product0 >> _SHIFT) ^ c3 ^ k1,
            product0 & _LOW,
        )
        k0, k1 = (k0 + _KEY_STEPS[0]) & _LOW, (k1 + _KEY_STEPS[1]) & _LOW
    return c0, c1, c2, c3


def uniform_array(shape, dtype: np.dtype, stream: int, seed: int, step: int) -> np.ndarray:
    """The numbers of ``random_uniform``: f32 or f64 array of ``shape`` in [0, 1)."""
    index = np.arange(math.prod(shape), dtype=np.uint64)
    seed, step = np.uint64(seed & (2**64 - 1)), np.uint64(step & (2**64 - 1))
    constant = np.zeros_like(index)
    counter = (index & _LOW, index >> _SHIFT, constant + (step & _LOW), constant + np.uint64(stream))
    words = philox(counter, (constant + (seed & _LOW), constant + (seed >> _SHIFT)))
    if dtype == np.float64:
        bits = ((words[0] >> np.uint64(11)) << _SHIFT) | words[1]
        return (bits.astype(np.float64) * 2.0**-53).reshape(shape)
    return ((words[0] >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)).reshape(shape)


def _infer_random(name):
    def infer(types, attributes):
        dtype, stream = attributes["dtype"], attributes["stream"]
        for label, word in zip(("seed", "step"), types):
            expect(word.shape == (), f"{name}: the {label} has shape {word.shape}, not ()")
            expect_dtype(word.dtype == i64, f"{name}: the {label} is {word.dtype}, not i64")
        expect_dtype(dtype in (f32, f64), f"{name}: makes f32 or f64, not {dtype}", "cast the result")
        expect(0 <= stream < 2**32, f"{name}: stream {stream} is outside of 0..2**32-1")
        return (TensorType(dtype, attributes["shape"]),)

    return infer


def _evaluate_uniform(attributes, seed, step):
    dtype = attributes["dtype"].numpy
    return uniform_array(attributes["shape"], dtype, attributes["stream"], int(seed), int(step))


def _evaluate_normal(attributes, seed, step):
    shape, dtype, stream = attributes["shape"], attributes["dtype"].numpy, attributes["stream"]
    return box_muller(*(uniform_array(shape, dtype, stream + word, int(seed), int(step)) for word in range(2)))


def box_muller(radius: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Normal numbers made of two arrays of uniform ones, in their type."""
    return np.sqrt(-2 * np.log(1 - radius)) * np.cos(radius.dtype.type(2 * math.pi) * angle)


def _decompose_normal(op):
    """Box and Muller (1958): two uniform streams give a radius and an angle."""
    seed, step = op.operands
    shape, dtype, stream = (op.attributes[name] for name in ("shape", "dtype", "stream"))
    radius, angle = (
        seed.graph.emit("random_uniform", (seed, step), shape=shape, dtype=dtype, stream=stream + word)
        for word in range(2)
    )
    return (T.sqrt(-2 * T.log(1 - radius)) * T.cos(2 * math.pi * angle),)


_ATTRIBUTES = {"shape": "ints", "dtype": "dtype", "stream": "int"}
define(
    "random_uniform",
    "random",
    _infer_random("random_uniform"),
    evaluate=_evaluate_uniform,
    is_expensive=True,
    attributes=_ATTRIBUTES,
    operand_names=("seed", "step"),
    doc="numbers in [0, 1): a function of seed, step, stream and element",
)
define(
    "random_normal",
    "composite",
    _infer_random("random_normal"),
    evaluate=_evaluate_normal,
    decompose=_decompose_normal,
    attributes=_ATTRIBUTES,
    operand_names=("seed", "step"),
    doc="standard normal numbers: a function of seed, step, stream and element",
)
