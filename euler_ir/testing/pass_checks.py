"""The checks of a test in an ``.eir`` file, by name, and those of what the test says itself.

Each check is a function of `PassRun`, which raises PassTestFailure with a message for people.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from euler_ir import interpreter
from euler_ir.compiler import lower
from euler_ir.errors import EulerError, Location, ParseError
from euler_ir.graph import Graph, Value
from euler_ir.inspect.numerics.observe import run_plan
from euler_ir.inspect.program_file import parse_program
from euler_ir.passes.manager import PassManager
from euler_ir.passes.meaning import difference
from euler_ir.passes.pipeline import parse_pipeline
from euler_ir.rounding import Results
from euler_ir.testing.filecheck import CheckFailure, match_checks
from euler_ir.testing.free_checks import (
    check_deterministic, check_idempotent, check_results, check_round_trip, check_verifies,
)  # fmt: skip
from euler_ir.testing.pass_run import PassRun, PassTestFailure, graph_of, shown, text_of, verify_program, window
from euler_ir.testing.pass_test import Binding, ExpectedError, PassTest
from euler_ir.text import parse_graph
from euler_ir.text.printer import value_names

_RULE = re.compile(r"([A-Z][0-9]{2}): ")
_STATEMENT = re.compile(r"\s*%")

Check = Callable[[PassRun], None]


def checks_of(test: PassTest) -> dict[str, Check]:
    """The checks of a test by name, in the order in which they are to run."""
    if test.errors:
        return {"errors": check_errors}
    checks = {"verifies": check_verifies, "round-trip": check_round_trip}
    if test.checks:
        checks["checks"] = check_lines
    if test.unchanged is not None:
        checks["unchanged"] = check_unchanged
    if test.pipeline is not None and test.level == "graph":
        checks |= {"deterministic": check_deterministic, "idempotent": check_idempotent, "same-results": check_results}
    if test.expected:
        checks["expected-values"] = check_expected
    return checks


def check_lines(run: PassRun) -> None:
    """The CHECK lines hold of the text after the passes."""
    text = text_of(run.after)
    try:
        match_checks(run.test.checks, text)
    except CheckFailure as failure:
        raise PassTestFailure(_explained(run.test, failure, text)) from None


def check_unchanged(run: PassRun) -> None:
    """The passes leave the graph as it is."""
    text = text_of(run.after)
    if text != text_of(run.before):
        why = run.test.unchanged
        raise PassTestFailure(f"{run.pipeline} must leave the graph as it is: {why}\nit becomes\n{shown(text)}")


def _explained(test: PassTest, failure: CheckFailure, text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    said = [f"{test.file}:{failure.check.line}: {failure.check}", f"  {failure.message}"]
    if failure.check.kind == "NOT":
        said.append(f"  at line {failure.nearest + 1} below")
    else:
        said.append(f"  the search began at line {failure.began + 1} below")
        if failure.nearest is not None:
            said.append(f"  most like it is line {failure.nearest + 1}: {lines[failure.nearest].strip()}")
    width = len(str(len(lines)))
    marks = {failure.began: ">", failure.nearest: "?" if failure.check.kind != "NOT" else "!"}
    listing = [f"{marks.get(row, ' ')} {row + 1:{width}}  {line}" for row, line in enumerate(lines)]
    return "\n".join([*said, f"The text after {test.pipeline or 'no passes'}:", *window(listing, failure.began)])


def check_errors(run: PassRun) -> None:
    """What is wrong with the text, or with running the passes, is just what the test says."""
    test = run.test
    found = list(_problems(run))
    unmet: list[ExpectedError] = []
    for expected in test.errors:
        met = next((problem for problem in found if problem.meets(expected)), None)
        if met is None:
            unmet.append(expected)
        else:
            found.remove(met)
    said = [f"{test.file}:{expected.line}: nothing is wrong here, expected {expected}" for expected in unmet]
    said += [f"{test.file}:{problem.line}: not expected: {problem.message}" for problem in found]
    if said:
        raise PassTestFailure("\n".join(said))


@dataclass(frozen=True)
class _Problem:
    line: int
    rule: str | None
    message: str

    def meets(self, expected: ExpectedError) -> bool:
        same_rule = expected.rule is None or expected.rule == self.rule
        return same_rule and self.line == expected.line and expected.text in self.message


def _problems(run: PassRun) -> Iterator[_Problem]:
    test = run.test
    try:
        program = parse_program(test.text, test.file)
        if isinstance(program, Graph):
            _locate(program, test)
        verify_program(program)
        if isinstance(program, Graph):
            PassManager(parse_pipeline(test.pipeline or "none")).run(program)
    except ParseError as error:
        for each in error.errors:
            yield _problem(test, each)
    except EulerError as error:
        yield _problem(test, error)


def _problem(test: PassTest, error: EulerError) -> _Problem:
    """Where an error is: the line that it names, else that of the operator, else that of RUN, else the title's."""
    place = re.match(re.escape(test.file) + r":(\d+):\d+: ", error.message)
    rule = _RULE.search(error.message)
    line = test.pipeline_line or test.line
    if place is not None:
        line = int(place[1])
    elif error.location is not None and error.location.file == test.file:
        line = error.location.line
    return _Problem(line, rule and rule[1], str(error))


def _locate(graph: Graph, test: PassTest) -> None:
    """Give each op that has no line of a program that of the text, for the errors about it."""
    lines = [number for number, line in enumerate(test.text.split("\n"), 1) if _STATEMENT.match(line)]
    for op, line in zip(graph.ops, lines):
        op.location = op.location or Location(test.file, line, graph.name)


def check_expected(run: PassRun) -> None:
    """With what INPUT gives, values are what EXPECT says: in the interpreter and, where they are outputs, after the
    passes and in machine code.
    """
    test, graph = run.test, run.before
    values = {name.lstrip("%").strip('"'): value for value, name in value_names(graph).items()}
    leaves = {leaf.op.attributes["name"]: leaf for leaf in (*graph.inputs, *graph.parameters, *graph.states)}
    given = {}
    for binding in test.inputs:
        value = values.get(binding.name)
        if value is None or not value.op.definition.has_identity:
            raise PassTestFailure(f"{test.file}:{binding.line}: {binding.name!r} is no input, parameter or state")
        given[value.op.attributes["name"]] = _array(test, binding, value)
    missing = [name for name in leaves if name not in given]
    if missing:
        raise PassTestFailure(f"{test.file}:{test.line}: no INPUT line for {', '.join(missing)}")
    after = graph_of(run.after)
    ways = {
        "the interpreter": lambda value: interpreter.evaluate(graph, given, [value])[value],
        f"the interpreter after {run.pipeline}": lambda value: _output(value, interpreter.run(after, given)),
        "compiled code": lambda value: _output(value, run_plan(lower(graph).plan, given)),
    }
    for binding in test.expected:
        value = values.get(binding.name)
        if value is None:
            raise PassTestFailure(f"{test.file}:{binding.line}: the graph has no value {binding.name!r}")
        wanted = _array(test, binding, value)
        for way, compute in ways.items():
            found = compute(value)
            if found is not None and not _is_as(found, wanted, binding.within):
                tolerance = f" within {binding.within}" if binding.within is not None else ""
                raise PassTestFailure(
                    f"{test.file}:{binding.line}: {binding.name} is {found.tolist()} by {way}, "
                    f"expected {wanted.tolist()}{tolerance}"
                )


def _output(value: Value, results: Results) -> np.ndarray | None:
    """Of the results of a graph, or of one made from it, the one that is ``value`` in the first; None for no output."""
    return next((results[0][name] for name, output in value.graph.outputs.items() if output is value), None)


def _is_as(found: np.ndarray, wanted: np.ndarray, within: float | None) -> bool:
    if within is None:
        return difference(wanted, found) is None
    return bool(np.allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=within, atol=0, equal_nan=True))


def _array(test: PassTest, binding: Binding, value: Value) -> np.ndarray:
    """The literal of ``binding`` as an array of the type of ``value``, read as constants of a graph are."""
    constant = f"%array = constant {{value = {binding.array}}} : {value.type}"
    text = f'eir 1\ngraph @array {{\n  {constant}\n  output "array" = %array\n}}\n'
    try:
        return parse_graph(text).outputs["array"].op.attributes["value"]
    except ParseError as error:
        said = str(error).split(": ", 1)[1]
        raise PassTestFailure(f"{test.file}:{binding.line}: {binding.name}: {said}") from None
