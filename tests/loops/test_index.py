"""The algebra of index expressions against brute force over all values of their axes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from euler_ir.index import Axis, Bound, Dynamic, Index, Multiple, Quotient, Remainder, delinearize, linearize

AXES = (Axis("i", 6), Axis("j", 4), Axis("k", 1), Axis("l", 5))
ROW = Dynamic("row", 3)
VALUES = dict(
    zip((*AXES, ROW), np.meshgrid(*(np.arange(atom.extent) for atom in (*AXES, ROW)), indexing="ij", sparse=True))
)
i, j = Index.of(AXES[0]), Index.of(AXES[1])
factors = st.integers(-9, 9)
divisors = st.integers(1, 12)
shapes = st.lists(st.integers(1, 6), max_size=4).map(tuple)


def value(index):
    """All values, in one array of the full iteration space."""
    return np.broadcast_to(index.evaluate(VALUES), np.broadcast_shapes(*(v.shape for v in VALUES.values())))


@st.composite
def expressions(draw, depth=3):
    """An index with the array of its values, which is worked out beside it."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        atom = draw(st.sampled_from((*AXES, ROW)))
        constant = draw(factors)
        return Index.of(atom) + constant, value(Index()) + VALUES[atom] + constant
    index, expected = draw(expressions(depth - 1))
    match draw(st.sampled_from(("+", "-", "*", "//", "%"))):
        case "+":
            other, others = draw(expressions(depth - 1))
            return index + other, expected + others
        case "-":
            other, others = draw(expressions(depth - 1))
            return index - other, expected - others
        case "*":
            factor = draw(factors)
            return index * factor, expected * factor
        case "//":
            divisor = draw(divisors)
            return index // divisor, expected // divisor
        case "%":
            divisor = draw(divisors)
            return index % divisor, expected % divisor


def test_quotients_and_remainders_keep_what_carries():
    """``l`` is now below the unit 5 that ``j`` is counted in and now above it, by one."""
    values = {name: value(Index.of(axis)) for name, axis in zip("ijkl", AXES)}
    l = Index.of(AXES[3])
    for divisor, unit, constant in ((10, 5, 0), (10, 5, 1), (8, 4, 0), (12, 4, 3)):
        index, expected = j * unit + l + constant, values["j"] * unit + values["l"] + constant
        np.testing.assert_array_equal(value(index // divisor), expected // divisor)
        np.testing.assert_array_equal(value(index % divisor), expected % divisor)
        np.testing.assert_array_equal(value((i * 7 + j) // 3 // unit), (values["i"] * 7 + values["j"]) // 3 // unit)


@given(expressions())
def test_arithmetic_has_the_values_of_integers(case):
    index, expected = case
    np.testing.assert_array_equal(value(index), expected)


@given(expressions())
def test_bounds_contain_every_value(case):
    index, expected = case
    low, high = index.bounds
    assert low <= expected.min() and expected.max() <= high


@given(expressions())
def test_no_zero_factors_no_repeated_atoms_no_axes_of_extent_one(case):
    index, _ = case
    atoms = [atom for atom, _ in index.terms]
    assert len(set(atoms)) == len(atoms)
    assert all(factor for _, factor in index.terms)
    assert AXES[2] not in index.axes()


@given(expressions(), expressions())
def test_a_sum_does_not_know_the_order_of_its_terms(first, second):
    assert first[0] + second[0] == second[0] + first[0]


@given(expressions(), expressions(depth=1), expressions(depth=1))
def test_substitution_is_evaluation_at_the_replacement(case, first, second):
    index, _ = case
    replacement = {AXES[0]: first[0] % 6, AXES[1]: second[0] % 4}
    moved = VALUES | {AXES[0]: first[1] % 6, AXES[1]: second[1] % 4}
    np.testing.assert_array_equal(
        value(index.substitute(replacement)), np.broadcast_to(index.evaluate(moved), value(index).shape)
    )


@given(expressions())
def test_substituting_nothing_changes_nothing(case):
    index, expected = case
    np.testing.assert_array_equal(value(index.substitute({})), expected)


@given(expressions())
def test_a_coefficient_is_the_step_along_its_axis(case):
    index, expected = case
    for position, axis in enumerate(AXES):
        step = index.coefficient(axis)
        if step is not None and axis.extent > 1:
            assert np.all(np.diff(expected, axis=position) == step)


@given(expressions(), st.integers(-20, 20), st.integers(-20, 20))
def test_conditions_say_always_and_never_truly(case, low, high):
    index, expected = case
    bound = Bound(index, low, high)
    holds = (low <= expected) & (expected < high)
    assert not bound.always or holds.all()
    assert not bound.never or not holds.any()


@given(shapes)
def test_delinearize_undoes_linearize(shape):
    axes = tuple(Axis(f"a{n}", size) for n, size in enumerate(shape))
    indices = tuple(map(Index.of, axes))
    assert delinearize(linearize(indices, shape), shape) == indices


@given(shapes)
def test_linearize_undoes_delinearize(shape):
    flat = Index.of(Axis("flat", math.prod(shape)))
    assert linearize(delinearize(flat, shape), shape) == flat


@given(shapes)
def test_delinearize_visits_every_element_in_order(shape):
    flat = Axis("flat", math.prod(shape))
    indices = delinearize(Index.of(flat), shape)
    values = [np.broadcast_to(index.evaluate({flat: np.arange(flat.extent)}), flat.extent) for index in indices]
    for found, expected in zip(values, np.indices(shape).reshape(len(shape), flat.extent), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_quotient_and_remainder_of_a_flattened_pair_vanish():
    rows, columns = Axis("r", 2048), Axis("c", 128)
    flat = Index.of(rows) * 128 + columns
    assert flat // 128 == Index.of(rows)
    assert flat % 128 == Index.of(columns)
    assert (flat + 128) // 128 == Index.of(rows) + 1


def test_quotients_of_quotients_join():
    assert i // 2 // 2 == i // 4 == Index(((Quotient(i, 4), 1),))
    assert i % 4 % 2 == i % 2 == Index(((Remainder(i, 2), 1),))


@pytest.mark.parametrize("between", [(8, 3), (2, 4, 3), (3, 8), (24,), (4, 6)])
def test_reshaping_there_and_back_is_the_identity(between):
    flat = Index.of(Axis("i", 6)) * 4 + Axis("j", 4)
    assert linearize(delinearize(flat, between), between) == flat


def test_what_is_smaller_than_a_unit_has_no_say_in_the_quotient():
    m, k = Axis("m", 1024), Axis("k", 512)
    assert (Index.of(m) * 512 + k) // 65536 == Index.of(m) // 128
    assert (Index.of(m) * 512 + k) % 65536 == Index.of(m) % 128 * 512 + k


@pytest.mark.parametrize("extent, factor", [(8, 1), (9, 1), (4, -1)])
def test_what_reaches_another_unit_counts_in_the_quotient(extent, factor):
    m, k = Axis("m", 6), Axis("k", extent)
    index = Index.of(m) * 8 + Index.of(k) * factor
    values = {m: np.arange(6)[:, None], k: np.arange(extent)}
    number = 8 * values[m] + factor * values[k]
    assert np.all((index // 16).evaluate(values) == number // 16)
    assert np.all((index % 16).evaluate(values) == number % 16)


def test_axes_and_dynamics_are_found_inside_of_quotients():
    index = (i * 3 + ROW + j) // 2
    assert index.axes() == [AXES[0], AXES[1]]
    assert index.dynamics() == [ROW]


def test_text():
    assert str(i * 4 + j - 1) == "4 i + j - 1"
    assert str(Index.of(ROW) * 2 - i) == "-i + 2 %row"
    assert str((i + j) // 2 * 3) == "3 ((i + j) floordiv 2)"
    assert str(Index()) == "0"
    assert str(Bound(i - 1, 0, 4)) == "0 <= i - 1 < 4"
    assert str(Multiple(i, 2)) == "i mod 2 == 0"
