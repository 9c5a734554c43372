"""Inputs made for a graph that came without any."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.inspect.random_inputs import SCALAR, random_inputs

DTYPES = (ei.f16, ei.bf16, ei.f32, ei.f64, ei.i8, ei.u8, ei.i32, ei.i64, ei.bool_)


def inputs_of(build, seed=0):
    with ei.Graph("made") as graph:
        build()
    return random_inputs(graph, seed)


def test_types_are_the_declared_ones():
    def build():
        for dtype in DTYPES:
            ei.output(**{f"out_{dtype}": ei.input(f"in_{dtype}", (40, 3), dtype)})
        ei.output(rate=ei.input("rate", ()))

    arrays = inputs_of(build)
    rate = arrays.pop("rate")
    assert rate.shape == () and rate == np.float32(SCALAR)
    for dtype, array in zip(DTYPES, arrays.values(), strict=True):
        assert array.shape == (40, 3) and array.dtype == dtype.numpy
        assert len(np.unique(array.astype(np.float64))) >= 2


@pytest.mark.parametrize(
    ("limit", "build"),
    [
        (9, lambda x: ei.take(ei.input("t", (9, 2)), x)),
        (4, lambda x: ei.take(ei.input("t", (9, 4)), x, axis=1)),
        (9, lambda x: ei.take(ei.input("t", (9, 2)), x.cast(ei.i64).reshape(-1))),
        (7, lambda x: ei.scatter_add(x, ei.input("u", (1000, 2)), 7)),
        (11, lambda x: ei.cross_entropy(ei.input("l", (1000, 11)), x)),
        (5, lambda x: ei.take(ei.input("t", (9,)), x) + ei.take(ei.input("s", (5,)), x)),
        (5, lambda x: ei.take(ei.input("t", (5,)), x) + ei.take(ei.input("s", (9,)), x)),
        (2, lambda x: x + 1),
    ],
)
def test_integers_reach_all_that_they_index_and_no_more(limit, build):
    def graph():
        ei.output(y=build(ei.input("x", (1000,), ei.i32)))

    assert set(np.unique(inputs_of(graph)["x"])) == set(range(limit))


def test_the_seed_decides():
    def build():
        ei.output(y=ei.input("x", (20,)))

    first, same, other = (inputs_of(build, seed)["x"] for seed in (0, 0, 1))
    assert np.array_equal(first, same) and not np.array_equal(first, other)
