"""Fits the polynomials of the CPU backend's elementary functions and prints them as a Python module.

    python scripts/fit_polynomials.py > euler_ir/backends/cpu/polynomials.py

Each is the minimax polynomial of its degree, found by the exchange algorithm of Remez (1934) in 60 digits: it keeps the
largest weighted error smallest. The weight turns an error of the polynomial into a relative error of the function.
"""

from __future__ import annotations

import numpy as np
from mpmath import mp, mpf

mp.dps = 60


def remez(target, weight, low, high, degree, rounds=12, grid=601):
    """The polynomial p with the least max |weight (target - p)| on [low, high], and that error. Constant term first."""
    middle, half = (mpf(low) + high) / 2, (mpf(high) - low) / 2
    points = [middle - half * mp.cos(mp.pi * i / grid) for i in range(grid + 1)]
    values, weights = [target(x) for x in points], [weight(x) for x in points]
    chosen = [round(i * grid / (degree + 1)) for i in range(degree + 2)]
    for _ in range(rounds):
        system = mp.matrix(degree + 2, degree + 2)
        for row, at in enumerate(chosen):
            for power in range(degree + 1):
                system[row, power] = points[at] ** power
            system[row, degree + 1] = (-1) ** row / weights[at]
        solution = mp.lu_solve(system, mp.matrix([values[at] for at in chosen]))
        coefficients = list(solution)[: degree + 1]
        errors = [w * (v - mp.polyval(coefficients[::-1], x)) for x, v, w in zip(points, values, weights, strict=True)]
        extrema = alternating_extrema(errors)
        if len(extrema) < degree + 2 or extrema == chosen:
            break
        while len(extrema) > degree + 2:
            extrema.pop(0 if abs(errors[extrema[0]]) < abs(errors[extrema[-1]]) else -1)
        chosen = extrema
    return coefficients, max(abs(error) for error in errors)


def alternating_extrema(errors):
    """Where |error| is largest within each run of equal sign."""
    extrema = [0]
    for at, error in enumerate(errors):
        if mp.sign(error) != mp.sign(errors[extrema[-1]]):
            extrema.append(at)
        elif abs(error) > abs(errors[extrema[-1]]):
            extrema[-1] = at
    return extrema


def in_square(odd):
    """The function z -> odd(sqrt(z)) / sqrt(z)."""
    return lambda z: odd(mp.sqrt(z)) / mp.sqrt(z)


TINY = mpf(10) ** -9  # The quotients below are 0/0 at 0 itself.
TANH, ERF, SIN = in_square(mp.tanh), in_square(mp.erf), in_square(mp.sin)
ERFC_CENTRE = 3
ERFC_END = {"f32": mpf("10.1"), "f64": mpf("27.3")}
NORMAL_CENTRE = 4
NORMAL_END = {"f32": mpf("14.5"), "f64": mpf(39)}


def scaled_erfc(t):
    x = ERFC_CENTRE * (1 + t) / (1 - t)
    return (x + ERFC_CENTRE) * mp.exp(x * x) * mp.erfc(x)


def scaled_normal_tail(t):
    x = NORMAL_CENTRE * (1 + t) / (1 - t)
    return (x + NORMAL_CENTRE) * mp.exp(x * x / 2) * mp.erfc(x / mp.sqrt(2)) / 2


def turned_range(centre, ends):
    return lambda dtype: (-1, (ends[dtype] - centre) / (ends[dtype] + centre))


def ranges(high):
    return lambda dtype: (TINY, high)


HALF_LN2 = mp.log(2) / 2 * mpf("1.0001")
EIGHTH_TURN = (mp.pi / 4 * mpf("1.0001")) ** 2
LOG_END = (3 - 2 * mp.sqrt(2)) ** 2 * mpf("1.0001")

# name: (what it fits, target, weight, range by dtype, degree by dtype)
FITS = {
    "exp": (
        "exp(r) = 1 + r + r^2 p(r), |r| <= ln(2)/2",
        lambda r: (mp.exp(r) - 1 - r) / r**2,
        lambda r: r**2,
        lambda dtype: (-HALF_LN2, HALF_LN2),
        {"f32": 4, "f64": 9},
    ),
    "log": (
        "log((1+s)/(1-s)) = 2s + s z p(z), z = s^2, sqrt(1/2) <= (1+s)/(1-s) <= sqrt(2)",
        lambda z: (2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z,
        lambda z: z,
        ranges(LOG_END),
        {"f32": 2, "f64": 6},
    ),
    "tanh": (
        "tanh(x) = x + x z p(z), z = x^2, |x| <= 0.6",
        lambda z: (TANH(z) - 1) / z,
        lambda z: z / TANH(z),
        ranges(mpf("0.36")),
        {"f32": 4, "f64": 10},
    ),
    "erf": (
        "erf(x) = x + x p(z), z = x^2, |x| <= 1",
        lambda z: ERF(z) - 1,
        lambda z: 1 / ERF(z),
        ranges(mpf(1)),
        {"f32": 6, "f64": 11},
    ),
    "erfc": (
        "erfc(x) = exp(-x^2) p(t) / (x + 3), t = (x - 3) / (x + 3), 0 <= x until erfc(x) underflows",
        scaled_erfc,
        lambda t: 1 / scaled_erfc(t),
        turned_range(ERFC_CENTRE, ERFC_END),
        {"f32": 9, "f64": 23},
    ),
    "normal_cdf": (
        "1 - normal_cdf(x) = exp(-x^2/2) p(t) / (x + 4), t = (x - 4) / (x + 4), 0 <= x until it underflows",
        scaled_normal_tail,
        lambda t: 1 / scaled_normal_tail(t),
        turned_range(NORMAL_CENTRE, NORMAL_END),
        {"f32": 9, "f64": 23},
    ),
    "sin": (
        "sin(r) = r + r z p(z), z = r^2, |r| <= pi/4",
        lambda z: (SIN(z) - 1) / z,
        lambda z: z / SIN(z),
        ranges(EIGHTH_TURN),
        {"f32": 2, "f64": 5},
    ),
    "cos": (
        "cos(r) = 1 - z/2 + z^2 p(z), z = r^2, |r| <= pi/4",
        lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2,
        lambda z: z**2,
        ranges(EIGHTH_TURN),
        {"f32": 2, "f64": 5},
    ),
}


def main() -> None:
    print('"""Minimax polynomials of `vector_math`, constant term first. Printed by scripts/fit_polynomials.py."""\n')
    print("POLYNOMIALS: dict[tuple[str, str], tuple[float, ...]] = {")
    for name, (meaning, target, weight, domain, degrees) in FITS.items():
        print(f"    # {meaning}.")
        for dtype, degree in degrees.items():
            coefficients, error = remez(target, weight, *domain(dtype), degree)
            rounded = [float(np.float32(float(c))) if dtype == "f32" else float(c) for c in coefficients]
            print(f"    # Relative error before rounding: 2^{float(mp.log(error, 2)):.1f}.")
            print(f'    ("{name}", "{dtype}"): (')
            for coefficient in rounded:
                print(f"        {coefficient!r},")
            print("    ),")
    print("}")


if __name__ == "__main__":
    main()
