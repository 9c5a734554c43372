"""Attention of half types that stays whole: the numpy backend counts it in f32, the one for this CPU refuses it."""

import ml_dtypes
import numpy as np
import pytest

import euler_ir as ei
from euler_ir import interpreter
from euler_ir.dtypes import DTYPES
from euler_ir.errors import LoweringError

SHAPES = {"query": (2, 4, 70, 40), "key": (2, 2, 90, 40), "value": (2, 2, 90, 33)}


def graph_of(dtype):
    with ei.Graph() as graph:
        query, key, value = (ei.input(name, shape, dtype) for name, shape in SHAPES.items())
        output = ei.attention(query, key, value, causal=True)
        gradients = ei.gradient(ei.sum(output.cast(ei.f32) * output.cast(ei.f32)), [query, key, value])
        ei.output(output=output, **dict(zip(("d_query", "d_key", "d_value"), gradients)))
    return graph


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_the_reference_counts_in_f32(dtype):
    """As the interpreter does: at most one rounding, of the same sums in another order, sets them apart."""
    random = np.random.default_rng(0)
    arrays = {name: random.standard_normal(shape).astype(DTYPES[dtype].numpy) for name, shape in SHAPES.items()}
    got = ei.compile(graph_of(dtype), "reference", passes="cuda")(**arrays)
    want, _ = interpreter.run(graph_of(dtype), arrays)
    for name, array in want.items():
        assert got[name].dtype == array.dtype == DTYPES[dtype].numpy
        found, exact = (each.astype(np.float32) for each in (got[name], array))
        step = np.maximum(np.abs(exact), 1e-2) * 2.0 * float(ml_dtypes.finfo(array.dtype).eps)
        assert np.isfinite(found).all() and (np.abs(found - exact) <= step).all()


def test_the_cpu_refuses_it_with_what_to_do_instead():
    with pytest.raises(LoweringError, match="the backend cpu has no attention of bf16") as raised:
        ei.compile(graph_of("bf16"), "cpu", passes="cuda")
    assert raised.value.location is not None and "passes='default'" in raised.value.hint
    with ei.Graph() as products:
        ei.output(c=ei.input("a", (64, 32), "f16") @ ei.input("b", (32, 64), "f16"))
    with pytest.raises(LoweringError, match="the backend cpu has no products of f16"):
        ei.compile(products, "cpu", passes="cuda")
