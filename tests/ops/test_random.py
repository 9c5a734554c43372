"""Philox against its published vectors, and what the random operators promise: bits, moments, independence, masks."""

import numpy as np
import pytest
from harness import BACKENDS, run

import euler_ir as ei
from euler_ir import tensor as T
from euler_ir.ops.random import philox

# kat_vectors of Random123 1.14 (Salmon et al., SC 2011): counter, key, result.
KNOWN_ANSWERS = (
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
)


def words(text):
    return tuple(np.array([int(word, 16)], np.uint64) for word in text.split())


@pytest.mark.parametrize("counter,key,result", KNOWN_ANSWERS)
def test_philox_known_answers(counter, key, result):
    assert philox(words(counter), words(key)) == words(result)


def draw(backend, shape, build=None, seed=0, step=0, dtype="f32", streams=1):
    """The numbers of the last of ``streams`` random operators of a graph."""
    graph = ei.Graph("random")
    with graph:
        words = graph.input("seed", (), "i64"), graph.input("step", (), "i64")
        for _ in range(streams):
            value = (build or ei.random_uniform)(shape, *words, dtype)
        graph.set_outputs(value=value)
    return run(graph, {"seed": np.array(seed), "step": np.array(step)}, backend)["value"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [ei.f32, ei.f64])
def test_the_first_known_answer_reaches_the_user(dtype, backend):
    """Element 0 of stream 0 at seed 0 and step 0 has counter and key all zeros; f32 keeps 24 bits and f64 53."""
    graph = ei.Graph("stream")
    with graph:
        words = graph.constant(0), graph.constant(0)
        graph.set_outputs(value=graph.emit("random_uniform", words, shape=(1,), dtype=dtype, stream=0))
    (number,) = run(graph, {}, backend)["value"]
    assert number == {"f32": 0x6627E8 / 2**24, "f64": (0x6627E8D5 >> 11 << 32 | 0xE169C58D) / 2**53}[dtype.name]


COUNT = 40_000


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_uniform_moments(dtype, backend):
    numbers = draw(backend, (COUNT,), dtype=dtype, seed=3)
    assert numbers.dtype == ei.dtypes.as_dtype(dtype).numpy
    wide = numbers.astype(np.float64)
    assert 0 <= wide.min() and wide.max() < 1
    # Half types round down to their grid, which moves the mean by half a step of it.
    grid = {"f16": 2**-11, "bf16": 2**-8}.get(dtype, 0)
    sigma = 12**-0.5
    assert abs(wide.mean() + grid / 2 - 0.5) < 5 * sigma / COUNT**0.5
    assert abs(wide.var() - 1 / 12) < 5 * 180**-0.5 / COUNT**0.5 + grid**2
    counts = np.histogram(wide, 16, (0, 1))[0]
    assert np.sum((counts - COUNT / 16) ** 2 / (COUNT / 16)) < 44.3  # chi-squared, 15 degrees, p = 1e-4


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_normal_moments(dtype, backend):
    wide = draw(backend, (COUNT,), ei.random_normal, dtype=dtype, seed=4).astype(np.float64)
    assert np.isfinite(wide).all()
    assert abs(wide.mean()) < 5 / COUNT**0.5
    assert abs(wide.var() - 1) < 5 * 2**0.5 / COUNT**0.5
    assert abs(np.mean(wide**3)) < 5 * 15**0.5 / COUNT**0.5
    assert abs(np.mean(wide**4) - 3) < 5 * 96**0.5 / COUNT**0.5


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("build", [ei.random_uniform, ei.random_normal])
def test_streams_steps_and_seeds_are_independent(build, backend):
    base = {"seed": 7, "step": 11}
    others = [
        base | {"streams": 2},
        base | {"streams": 3},
        base | {"step": 12},
        base | {"step": 11 + 2**32 - 1},
        base | {"seed": 8},
        base | {"seed": 7 + 2**32},
        base | {"seed": -7},
    ]
    draws = [draw(backend, (COUNT,), build, **choice).astype(np.float64) for choice in [base, *others]]
    correlations = np.corrcoef(draws) - np.eye(len(draws))
    assert np.abs(correlations).max() < 5 / COUNT**0.5
    assert abs(np.corrcoef(draws[0][:-1], draws[0][1:])[0, 1]) < 5 / COUNT**0.5


@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_depend_on_the_element_alone(backend):
    """A longer draw begins with the shorter one, whatever the shape."""
    np.testing.assert_array_equal(draw(backend, (100,)), draw(backend, (20, 50)).reshape(-1)[:100])
    assert draw(backend, ()) == draw(backend, (5,))[0]
    assert draw(backend, (0, 3)).shape == (0, 3)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_keeps_its_rate_and_its_mask(rate, backend):
    """The gradient is the mask itself, and the mean is kept."""
    graph = ei.Graph("dropout")
    with graph:
        x = graph.input("x", (COUNT,), "f32")
        value = ei.dropout(x, rate, graph.input("seed", (), "i64"), graph.input("step", (), "i64"))
        (gradient,) = ei.gradient(T.sum(value), [x])
        graph.set_outputs(value=value, gradient=gradient)
    results = [
        run(graph, {"x": np.ones(COUNT, np.float32), "seed": np.array(1), "step": np.array(step)}, backend)
        for step in (0, 1, 0)
    ]
    kept = results[0]["value"] != 0
    np.testing.assert_array_equal(results[0]["value"], results[0]["gradient"])
    np.testing.assert_array_equal(results[0]["value"][kept], np.float32(1) * np.float32(1 / (1 - rate)))
    assert abs(kept.mean() - (1 - rate)) < 5 * (rate * (1 - rate) / COUNT) ** 0.5
    assert (results[0]["value"] != results[1]["value"]).any()
    np.testing.assert_array_equal(results[0]["value"], results[2]["value"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_dropouts_have_two_masks_and_rate_0_none(backend):
    graph = ei.Graph("dropouts")
    with graph:
        x = graph.input("x", (1000,), "bf16")
        first, second = (ei.dropout(x, 0.5, 0, 0) for _ in range(2))
        assert ei.dropout(x, 0.0, 0, 0) is x
        graph.set_outputs(first=first, second=second)
    results = run(graph, {"x": np.ones(1000, ei.bf16.numpy)}, backend)
    assert results["first"].dtype == ei.bf16.numpy
    assert 0.3 < np.mean((results["first"] != 0) == (results["second"] != 0)) < 0.7


@pytest.mark.parametrize("backend", BACKENDS)
def test_dropout_drops_nan_and_infinity(backend):
    graph = ei.Graph("dropout")
    with graph:
        x = graph.input("x", (1000,), "f32")
        graph.set_outputs(value=ei.dropout(x, 0.5, 0, 0))
    value = run(graph, {"x": np.full(1000, np.inf, np.float32)}, backend)["value"]
    assert set(np.unique(value)) == {0, np.inf}
