"""The passes between the user's graph and fusion, in their order."""

from __future__ import annotations

from euler_ir.graph import Graph
from euler_ir.passes.attention_calls import OPERATORS as ATTENTION
from euler_ir.passes.cse import MergeEqual
from euler_ir.passes.dce import RemoveDead
from euler_ir.passes.decompose import Decompose
from euler_ir.passes.fold import Fold
from euler_ir.passes.legalize import Legalize
from euler_ir.passes.manager import OnPass, Pass, PassManager
from euler_ir.passes.share_transposes import ShareTransposes
from euler_ir.passes.simplify import Simplify
from euler_ir.passes.split_rows import SplitRows


WHOLE = frozenset(ATTENTION)
"""Composites that backends run as they are."""


def default_pipeline(keep: frozenset[str] = WHOLE) -> tuple[Pass, ...]:
    """The default passes, for a backend that wants the composites named in ``keep`` whole."""
    return (
        RemoveDead(),  # what nobody asked for is not worth decomposing
        Simplify(),  # some rules look for whole composites
        MergeEqual(),  # two equal composites are decomposed once
        Decompose(keep),
        Simplify(),
        Fold(),
        Simplify(),  # folding makes constants that rules look for
        MergeEqual(),
        RemoveDead(),
        SplitRows(),  # what is equal is one value by now, and sums are whole
        Legalize(),
        Simplify(),
        MergeEqual(),
        RemoveDead(),
        ShareTransposes(),
    )


PIPELINE = default_pipeline()
"""``default_pipeline`` for all backends. Each pass prints as its name and options."""


def optimize(
    graph: Graph, keep: frozenset[str] = WHOLE, verify_each: bool = False, on_pass: OnPass | None = None
) -> Graph:
    """``graph`` after ``default_pipeline(keep)``. Raises VerifyError as PassManager does."""
    return PassManager(default_pipeline(keep), verify_each, on_pass).run(graph)
