"""Random graphs as a hypothesis strategy."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from euler_ir.testing.case import Case
from euler_ir.testing.drawing import Drawing
from euler_ir.testing.random_graphs import steps


@st.composite
def graphs(draw, most_ops: int = 14) -> Case:
    """Graphs of at most ``most_ops`` functions of the DSL, with arrays for their leaves::

        @given(graphs())
        def test_my_pass(case):
            check_chain(case.graph, case.leaves, passes=(MyPass(), *PIPELINE))

    All operators and dtypes are drawn, broadcasting, sizes 0 and 1, shared subexpressions, outputs that are leaves or
    each other, updates, gradients of first and second order, optimiser steps, layers of a transformer, and numbers that
    are NaN, infinite, signed zeros, subnormal or the largest. A graph that fails is made smaller step by step.
    """
    drawing = Drawing(lambda low, high: draw(st.integers(low, high)))
    for step in steps(drawing, most_ops):
        draw(_part(drawing, step))
    return drawing.case()


@st.composite
def _part(draw, drawing: Drawing, step: Callable[[Drawing], None]) -> None:
    """``step`` as a part of its own, which hypothesis can make simpler, or nothing, as a whole."""
    drawing.number = lambda low, high: draw(st.integers(low, high))
    step(drawing)
