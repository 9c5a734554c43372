"""The chain of ways to run a graph, all of which must agree; `check_chain` names the first link that breaks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

import ml_dtypes
import numpy as np

from euler_ir import interpreter
from euler_ir.compiler import Executable, compile
from euler_ir.dtypes import as_dtype
from euler_ir.graph import Graph
from euler_ir.graph_equality import structurally_equal
from euler_ir.inspect.numerics.agreement import Agreement
from euler_ir.loops.parser import parse_kernel
from euler_ir.loops.printer import print_kernel
from euler_ir.loops.verify import verify_kernel
from euler_ir.passes import (
    PIPELINE,
    Decompose,
    Fold,
    Legalize,
    MergeEqual,
    PadProducts,
    Pass,
    Rematerialize,
    RemoveDead,
    ShareTransposes,
    Simplify,
    SplitRows,
)
from euler_ir.passes.fused_equality import fused_equal
from euler_ir.passes.fused_parser import parse_fused
from euler_ir.passes.fused_printer import print_fused
from euler_ir.passes.meaning import first_difference
from euler_ir.passes.verify_fused import verify_fused
from euler_ir.plan.memory import check_memory
from euler_ir.rounding import Results
from euler_ir.state import State
from euler_ir.text import parse_graph, print_graph
from euler_ir.verify import random_streams, verify
from euler_ir.widen import in_f64

ALONE: tuple[Pass, ...] = (
    RemoveDead(), Simplify("exact"), Simplify(), MergeEqual(), Fold(), Decompose(), SplitRows(), Legalize(),
    PadProducts(smallest=1), ShareTransposes(), Rematerialize(), Rematerialize(products=True, long_pieces=True),
)  # fmt: skip
"""Each pass by itself, on a graph that no other pass has seen."""


class BrokenLink(AssertionError):
    """The first ``link`` of the chain that gave something else, or failed."""

    def __init__(self, link: str, what: str) -> None:
        super().__init__(f"{link}: {what}")
        self.link = link


def check_chain(graph: Graph, leaves: Mapping[str, np.ndarray], passes: Sequence[Pass] = PIPELINE) -> None:
    """Run ``graph`` on ``leaves`` in every way there is and raise BrokenLink for the first that does not agree.

    The links in order: the rules of graphs and the text of the graph, read back; the graph in f64; each pass by itself
    and then ``passes`` one after the other, all run by the interpreter; the fused graph and the kernels, by their rules
    and read back from text; the memory of the plan; the plan run by the reference backend; one with everything
    rematerialized that can be; machine code on one thread, and on two.

    A pass that says that it is exact keeps every bit, NaN for NaN, and so do two threads beside one; what rounds in
    another way is as near to the interpreter as rounding explains (see `inspect.numerics.agreement`). Raises
    ExecutionError when the interpreter itself refuses the graph or its leaves.
    """
    agreement = Agreement(graph, leaves)
    with _link("rules and text"):
        original = _check_text(graph)
    with _link("interpreter in f64"):
        _check_in_f64(graph, leaves)
    for each in ALONE:
        with _link(f"pass {each} alone"):
            _check_pass(each, graph, leaves, agreement)
            _expect(None if structurally_equal(graph, original) else "it changed the graph that it was given")
    reached = graph
    for number, each in enumerate(passes):
        with _link(f"pass {each}, number {number + 1} of {len(passes)}"):
            before, reached = reached, _check_pass(each, reached, leaves, agreement)
            if reached is not before:
                _check_text(reached)
    _check_backends(graph, leaves, passes, agreement)


@contextlib.contextmanager
def _link(name: str):
    """What goes wrong inside breaks the link ``name``."""
    try:
        yield
    except BrokenLink:
        raise
    except AssertionError as error:
        raise BrokenLink(name, str(error)) from None
    except Exception as error:
        raise BrokenLink(name, f"{type(error).__name__}: {error}") from error


def _expect(fault: str | None) -> None:
    if fault:
        raise AssertionError(fault)


def _check_text(graph: Graph) -> Graph:
    """The graph, read back from its text."""
    verify(graph)
    again = parse_graph(print_graph(graph, locations=True))
    _expect(None if structurally_equal(graph, again, locations=True) else f"reads back as another graph:\n{again}")
    return again


def _check_in_f64(graph: Graph, leaves: Mapping[str, np.ndarray]) -> None:
    """Compare with the same graph in f64, unless it draws random numbers, of which f64 has others, or some value of it
    leaves the range of its type, so that 0 or an infinity stands for what f64 tells apart.
    """
    if any(random_streams(op) for op in graph.ops):
        return
    wide = in_f64(graph)
    wide_leaves = {name: a.astype(np.float64) if as_dtype(a.dtype).is_float else a for name, a in leaves.items()}
    values, wide_values = ([value for op in each.ops for value in op.results] for each in (graph, wide))
    arrays, wide_arrays = (
        interpreter.evaluate(*each) for each in ((graph, leaves, values), (wide, wide_leaves, wide_values))
    )
    for value, wide_value in zip(values, wide_values, strict=True):
        if value.dtype.is_float and not _in_range(arrays[value], wide_arrays[wide_value]):
            return
    found = interpreter.run(wide, wide_leaves)
    agreement = Agreement(graph, leaves, everywhere=True)
    with np.errstate(all="ignore"):
        narrowed = tuple(
            {name: array.astype(wanted[name].dtype) for name, array in part.items()}
            for part, wanted in zip(found, agreement.wanted)
        )
    _expect(agreement.fault(narrowed))


def _in_range(narrow: np.ndarray, wide: np.ndarray) -> bool:
    """Whether the type of ``narrow`` holds all of ``wide`` as normal numbers or 0."""
    info = ml_dtypes.finfo(narrow.dtype)
    size = np.abs(wide)
    held = (size == 0) | ((size >= float(info.tiny)) & (size <= float(info.max)))
    return bool(np.all(held & np.isfinite(narrow.astype(np.float64))))


def _check_pass(each: Pass, graph: Graph, leaves: Mapping[str, np.ndarray], agreement: Agreement) -> Graph:
    """The graph after the pass, which must be a good one, the same each time, and mean what it meant before."""
    after = each.run(graph)
    if after is graph:
        return graph
    verify(after)
    _expect(None if structurally_equal(each.run(graph), after) else "a second run gives another graph")
    found = interpreter.run(after, leaves)
    if each.numerics == "exact":
        _expect(first_difference(interpreter.run(graph, leaves), found))
    _expect(agreement.fault(found))
    return after


def _check_backends(
    graph: Graph, leaves: Mapping[str, np.ndarray], passes: Sequence[Pass], agreement: Agreement
) -> None:
    def check(link: str, build: Callable[[], Executable]) -> Results:
        with _link(link):
            executable = build()
            check_memory(executable.plan)
            _check_levels(executable)
            found = _run(executable, leaves)
            _expect(_neither_true_nor_false(found))
            _expect(agreement.fault(found))
        return found

    again = Rematerialize(products=True, long_pieces=True)
    check("reference backend", lambda: compile(graph, "reference", passes=passes))
    check("reference backend, values made again", lambda: compile(graph, "reference", passes=(*passes, again)))
    one = check("cpu, 1 thread", lambda: compile(graph, threads=1, passes=passes))
    two = check("cpu, 2 threads", lambda: compile(graph, threads=2, passes=passes))
    with _link("cpu, 2 threads beside 1"):
        _expect(first_difference(one, two))


def _check_levels(executable: Executable) -> None:
    """The fused graph and the kernels, by their rules and read back from their text."""
    fused = executable.stages.fused
    verify_fused(fused)
    again = parse_fused(print_fused(fused, locations=True))
    _expect(None if fused_equal(fused, again, locations=True) else f"the fused graph reads back as another:\n{again}")
    for step in executable.plan.kernels():
        verify_kernel(step.kernel)
        text = print_kernel(step.kernel)
        _expect(None if print_kernel(parse_kernel(text)) == text else f"this kernel reads back as another:\n{text}")


def _run(executable: Executable, leaves: Mapping[str, np.ndarray]) -> Results:
    """Outputs and updates of one call."""
    graph, state = executable.graph, State()
    for leaf in (*graph.parameters, *graph.states):
        state[leaf.op.attributes["name"]] = np.array(leaves[leaf.op.attributes["name"]])
    names = [leaf.op.attributes["name"] for leaf in graph.inputs]
    outputs = executable(state, **{name: leaves[name] for name in names})
    return outputs, {name: state[name] for name in graph.updates}


def _neither_true_nor_false(found: Results) -> str | None:
    """The first bool array that holds another byte than 0 and 1: numpy takes it for true, and C code does not."""
    arrays = [item for part in found for item in part.items() if item[1].dtype == bool]
    return next((f"{name!r} holds bytes above 1" for name, a in arrays if (a.view(np.uint8) > 1).any()), None)
