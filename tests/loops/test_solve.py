"""Index expressions solved: against every point, one by one."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from euler_ir.index import Axis, Bound, Dynamic, Index, Multiple
from euler_ir.loops import solve as solver
from euler_ir.loops.bounds import holds
from euler_ir.loops.solve import solve

AXES = (Axis("i", 3), Axis("j", 8), Axis("k", 5), Dynamic("v", 4))


@st.composite
def indices(draw, depth=2):
    index = Index.of(draw(st.integers(-3, 3)))
    for axis in draw(st.lists(st.sampled_from(AXES), max_size=3)):
        index = index + Index.of(axis) * draw(st.integers(-9, 9))
    if depth and draw(st.booleans()):
        inner, divisor = draw(indices(depth - 1)), draw(st.integers(1, 7))
        index = index + (inner // divisor if draw(st.booleans()) else inner % divisor) * draw(st.integers(-4, 4))
    return index


@st.composite
def conditions(draw):
    found = []
    for _ in range(draw(st.integers(0, 2))):
        index = draw(indices(1))
        if draw(st.booleans()):
            found.append(Bound(index, low := draw(st.integers(-5, 9)), low + draw(st.integers(0, 12))))
        else:
            found.append(Multiple(index, draw(st.integers(1, 4))))
    return tuple(found)


@given(indices(), conditions(), st.integers(-12, 25))
def test_against_every_point(index, guards, value):
    solutions = solve(index, value, AXES, guards)
    expected = set()
    for point in itertools.product(*(range(axis.extent) for axis in AXES)):
        values = dict(zip(AXES, point))
        if index.evaluate(values) == value and np.all(holds(guards, values)):
            expected.add(point)
    points = [tuple(point.values()) for point in solutions.points()]
    assert set(points) == expected and len(points) == len(expected) == solutions.count and solutions.complete


def test_large_axes_take_few_boxes():
    i, j = Axis("i", 1 << 20), Axis("j", 1 << 20)
    solutions = solve(Index.of(i) * (1 << 20) + j, (3 << 20) + 1024, (i, j))
    assert list(solutions.points()) == [{i: 3, j: 1024}]
    solutions = solve((Index.of(i) * (1 << 20) + j) // (1 << 21), 7, (i, j))
    assert solutions.count == 1 << 21 and solutions.spans() == {i: (14, 15), j: (0, (1 << 20) - 1)}
    # An axis that says nothing is free.
    assert solve(Index.of(i), 5, (i, j)).count == 1 << 20


def test_one_and_no_points():
    assert solve(Index.of(3), 3, ()).count == 1 and solve(Index.of(3), 4, ()).count == 0
    assert list(solve(Index.of(3), 3, ()).points()) == [{}]
    assert solve(Index(), 0, (Axis("i", 0),)).count == 0


def test_what_is_too_much_is_said(monkeypatch):
    monkeypatch.setattr(solver, "MOST_BOXES", 16)
    i = Axis("i", 4096)
    solutions = solve(Index.of(i) % 4, 1, (i,))
    assert not solutions.complete and solutions.count < 1024


def test_points_are_spread_over_all():
    i, j = Axis("i", 3), Axis("j", 100)
    solutions = solve(Index.of(j) % 4, 1, (i, j))
    every = list(solutions.points())
    spread = solutions.spread(5)
    assert spread[0] == every[0] and spread[-1] == every[-1] and len(spread) == 5 and all(p in every for p in spread)
    assert solutions.spread(1000) == every and solutions.spread(1) == every[:1]


@pytest.mark.parametrize("most", [0, 1, 3])
def test_some_points(most):
    i = Axis("i", 4096)
    points = list(solve(Index.of(i) % 4, 1, (i,)).points(most))
    assert [point[i] for point in points] == [1, 5, 9][:most]
