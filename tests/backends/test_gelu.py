"""GELU as users call it, value and gradient, from -12 to 12: where a careless formula has lost every digit."""

import mpmath
import numpy as np
import pytest

import euler_ir as ei

MAX_ULP = {"value": 4.0, "slope": 5.0}
"""Largest errors in units in the last place: of the value, and of the larger of the two terms of the slope."""


def exact(form, x):
    """GELU, its derivative, and the larger of the derivative's two terms, which cancel near -0.75."""
    if form == "tanh":
        slope, cubic = mpmath.sqrt(8 / mpmath.pi), mpmath.mpf(44715) / 10**6
        gate, other = (1 / (1 + mpmath.exp(-sign * slope * (x + cubic * x**3))) for sign in (1, -1))
        product = x * gate * other * slope * (1 + 3 * cubic * x**2)
    else:
        gate, product = mpmath.erfc(-x / mpmath.sqrt(2)) / 2, x * mpmath.npdf(x)
    return x * gate, gate + product, max(gate, abs(product))


def arguments():
    random = np.random.default_rng(0)
    small = 2.0 ** np.arange(-140, 3)
    return np.concatenate([
        np.linspace(-12, 12, 1201), random.uniform(-12, 12, 800), random.normal(-0.75, 0.1, 200), small, -small,
        [0.0, -0.0],
    ]).astype(np.float32)  # fmt: skip


@pytest.mark.parametrize("form", ["tanh", "none"])
def test_value_and_gradient(form):
    points = arguments()
    with ei.Graph() as graph:
        x = ei.input("x", points.shape)
        y = ei.gelu(x, approximate=form)
        (slope,) = ei.gradient(y.sum(), [x])
        ei.output(value=y, slope=slope)
    found = ei.compile(graph)(x=points)
    for at, value, slope in zip(points, found["value"], found["slope"], strict=True):
        with mpmath.workprec(200):
            wanted = exact(form, mpmath.mpf(float(at)))
            # Where the gate itself is subnormal its last unit is seen times x, and times x^3 in the gradient.
            subnormal = 2.0**-149 * (1 + abs(float(at)) ** 3)
            for name, got, true, size in (("value", value, wanted[0], abs(wanted[0])), ("slope", slope, *wanted[1:])):
                unit = float(np.spacing(np.float32(float(size))))
                error = float(abs(mpmath.mpf(float(got)) - true))
                assert error <= max(MAX_ULP[name] * unit, subnormal), f"{name} at {at!r}: {error / unit:.2f} ulp"


@pytest.mark.parametrize("form", ["tanh", "none"])
@pytest.mark.parametrize("size", range(1, 71))
def test_every_size_gives_the_bits_of_a_long_array(form, size):
    x = np.linspace(-9, 9, 1000).astype(np.float32)

    def gelu(array):
        with ei.Graph() as graph:
            ei.output(y=ei.gelu(ei.input("x", array.shape), approximate=form))
        return ei.compile(graph)(x=array)["y"]

    assert gelu(x[:size]).tobytes() == gelu(x)[:size].tobytes()
