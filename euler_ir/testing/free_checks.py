"""What is checked of every test in an ``.eir`` file, because it is true of every graph and every pass."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from euler_ir import interpreter
from euler_ir.dtypes import as_dtype
from euler_ir.errors import EulerError, ParseError
from euler_ir.graph import Graph
from euler_ir.graph_equality import structurally_equal
from euler_ir.inspect.numerics.agreement import Agreement
from euler_ir.inspect.program_file import parse_program
from euler_ir.passes.meaning import first_difference
from euler_ir.passes.numerics import is_within
from euler_ir.rounding import Results
from euler_ir.testing.given import input_sets
from euler_ir.testing.labels import loose_fault
from euler_ir.testing.pass_run import PassRun, PassTestFailure, changes, graph_of, shown, text_of
from euler_ir.verify import random_streams
from euler_ir.widen import in_f64


def check_verifies(run: PassRun) -> None:
    """The text parses, it and what the passes make obey the rules, and the passes do not change what they are given."""
    text = text_of(run.before)
    run.after  # noqa: B018
    if text_of(run.before) != text:
        now = text_of(run.before)
        raise PassTestFailure(f"{run.pipeline} changes the graph that it is given:\n{changes(text, now)}")


def check_round_trip(run: PassRun) -> None:
    """Printed, and read again, a program is the same; and printed again, so is the text."""
    for when, program in (("before", run.before), ("after", run.after)):
        text = text_of(program)
        try:
            again = parse_program(text)
        except ParseError as error:
            raise PassTestFailure(f"the text {when} the passes does not parse: {error}") from None
        same = structurally_equal(again, program) if isinstance(program, Graph) else True
        if not same or text_of(again) != text:
            raise PassTestFailure(f"the text {when} the passes reads back as another:\n{changes(text, text_of(again))}")


def check_deterministic(run: PassRun) -> None:
    """From the same text the passes make the same text."""
    first, second = text_of(run.after), text_of(run.made(run.parsed()))
    if first != second:
        raise PassTestFailure(f"{run.pipeline} makes now this, now that:\n{changes(first, second)}")


def check_idempotent(run: PassRun) -> None:
    """The passes leave alone what they made, but for names; a test that says otherwise must be right."""
    after, again = run.after, run.made(graph_of(run.after))
    is_graph = isinstance(after, Graph)
    same = structurally_equal(again, after, names=False) if is_graph else text_of(again) == text_of(after)
    if run.test.not_idempotent is not None:
        if same:
            raise PassTestFailure(f"{run.pipeline} is idempotent here: remove the line NOT-IDEMPOTENT")
    elif not same:
        raise PassTestFailure(
            f"{run.pipeline}, run on what it made, changes it:\n{changes(text_of(after), text_of(again))}\n"
            "If that is as it should be, say why: // NOT-IDEMPOTENT: reason"
        )


def check_results(run: PassRun) -> None:
    """Before and after the passes the interpreter gives the same results: bit for bit where all that was done is
    labelled exact, else as near as rounding explains; where it is labelled better, also nearer to those in f64. Rules
    with a looser label, and passes that are nan-unsafe or approximate, are held to it on ordinary numbers.
    """
    before, after = run.before, graph_of(run.after)
    for what, leaves in input_sets(before):
        wanted, found = _outcome(before, leaves), _outcome(after, leaves)
        if isinstance(wanted, str) or isinstance(found, str):
            fault = None if wanted == found else f"before: {_said(wanted)}; after: {_said(found)}"
        elif run.numerics == "exact":
            fault = first_difference(wanted, found)
        else:
            fault = Agreement(before, leaves).fault(found)
            if fault and run.numerics == "better" and _is_nearer(before, after, leaves, wanted, found):
                fault = None
            held = run.rule_numerics if is_within(run.numerics, "reassociating") else run.numerics
            if fault and not is_within(held, "better"):
                fault = _loose_fault(held, before, leaves, what, wanted, found)
        if fault:
            given = "\n".join(f"  {name} = {np.array2string(array, threshold=40)}" for name, array in leaves.items())
            raise PassTestFailure(
                f"{run.pipeline} changes a result, on {what}: {fault}\nwhat changed the graph is labelled "
                f"{run.numerics}\ngiven\n{given}\nafter the passes:\n{shown(text_of(run.after))}"
            )


def _loose_fault(numerics: str, graph: Graph, leaves, what: str, wanted: Results, found: Results) -> str | None:
    for one, other in zip(wanted, found):
        for name in one:
            fault = loose_fault(numerics, graph, leaves, what, one[name], other[name])
            if fault:
                return f"{name!r}: {fault}"
    return None


def _is_nearer(before: Graph, after: Graph, leaves: Mapping[str, np.ndarray], wanted: Results, found: Results) -> bool:
    """Whether each element of ``found`` is at least as near as that of ``wanted`` to what the graph gives in f64; where
    even that is infinite, to what it gives after the passes.
    """
    if any(random_streams(op) for op in before.ops):
        return False  # other numbers are drawn in f64
    wide = {name: array.astype(np.float64) if _is_float(array) else array for name, array in leaves.items()}
    exact, again = (interpreter.run(in_f64(graph), wide) for graph in (before, after))
    return all(
        bool(np.all(_nearer(one[name], other[name], np.where(np.isinf(real[name]), more[name], real[name]))))
        for one, other, real, more in zip(wanted, found, exact, again)
        for name in one
    )


def _nearer(before: np.ndarray, after: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """By element, whether ``after`` is as near to ``exact`` as ``before``, up to a few roundings."""
    if not _is_float(before):
        return before == after
    with np.errstate(all="ignore"):
        rounded = exact.astype(before.dtype)
        unit = np.abs(np.spacing(rounded)).astype(np.float64)
        errors = [np.abs(array.astype(np.float64) - exact) for array in (before, after)]
        allowed = np.where(np.isfinite(errors[0]), np.maximum(errors[0], 2 * unit), 64 * unit)
        return (after == rounded) | (np.isnan(after) & np.isnan(rounded)) | (errors[1] <= allowed)


def _is_float(array: np.ndarray) -> bool:
    return as_dtype(array.dtype).is_float


def _outcome(graph: Graph, leaves: Mapping[str, np.ndarray]):
    """The results, or the error that running the graph raises."""
    try:
        return interpreter.run(graph, leaves)
    except EulerError as error:
        return error.message


def _said(outcome) -> str:
    return outcome if isinstance(outcome, str) else "no error"
