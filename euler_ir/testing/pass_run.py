"""A test of an ``.eir`` file at work: its graph, what its passes make of that, and how both are shown."""

from __future__ import annotations

import difflib
import functools

from euler_ir.errors import EulerError, ParseError
from euler_ir.graph import Graph
from euler_ir.inspect.program_file import Program, parse_program
from euler_ir.loops.printer import print_kernels
from euler_ir.loops.verify import verify_kernel
from euler_ir.passes.groups import FusedGraph
from euler_ir.passes.instruments import Instrument, Verify
from euler_ir.passes.manager import PassManager
from euler_ir.passes.numerics import loosest
from euler_ir.passes.pipeline import Pipeline, parse_pipeline
from euler_ir.passes.verify_fused import verify_fused
from euler_ir.testing.pass_test import PassTest
from euler_ir.verify import verify

MOST_LINES = 200
"""A failure shows no more lines of the output than these."""


class PassTestFailure(Exception):
    """What does not hold, for people."""


class _Labels(Instrument):
    """Collects the numerics labels of what changes a graph: of the rules where a pass has rules, else of the pass."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.of_rules: list[str] = []
        self.ruled = False

    def before_pass(self, pass_, graph):
        self.ruled = False

    def on_rule(self, rule, op, value):
        self.ruled = True
        self.labels.append(rule.numerics)
        self.of_rules.append(rule.numerics)

    def after_pass(self, pass_, before, after, seconds):
        if not self.ruled and after is not before:
            self.labels.append(pass_.numerics)


class PassRun:
    """A test with what its passes make of it, computed once. Its properties raise PassTestFailure for wrong text."""

    def __init__(self, test: PassTest) -> None:
        self.test = test

    @functools.cached_property
    def before(self) -> Program:
        return self.parsed()

    @functools.cached_property
    def pipeline(self) -> Pipeline:
        try:
            return parse_pipeline(self.test.pipeline or "none")
        except ParseError as error:
            raise PassTestFailure(f"{self.test.file}:{self.test.pipeline_line}: {error}") from None

    @functools.cached_property
    def after(self) -> Program:
        return self.made(self.before)

    @property
    def numerics(self) -> str:
        """The loosest label of what changes the graph."""
        return loosest(self._labels.labels)

    @property
    def rule_numerics(self) -> str:
        """The loosest label of the rules that change the graph."""
        return loosest(self._labels.of_rules)

    @functools.cached_property
    def _labels(self) -> _Labels:
        labels = _Labels()
        self.made(self.before, labels)
        return labels

    def parsed(self) -> Program:
        """A new program, read from the text and verified."""
        try:
            program = parse_program(self.test.text, self.test.file)
            verify_program(program)
        except EulerError as error:
            raise PassTestFailure(str(error)) from None
        return program

    def made(self, program: Program, *instruments: Instrument) -> Program:
        """What the passes make of ``program``, verified; ``instruments`` watch them."""
        if self.test.level != "graph":
            return program
        try:
            return PassManager(self.pipeline, (Verify(), *instruments)).run(program)
        except EulerError as error:
            raise PassTestFailure(f"running {self.pipeline}: {error}") from None


# -- programs of all levels --------------------------------------------------------------------------------------------


def verify_program(program: Program) -> None:
    """Raise VerifyError for the first rule of its level that ``program`` breaks."""
    if isinstance(program, tuple):
        for kernel in program:
            verify_kernel(kernel)
    elif isinstance(program, FusedGraph):
        verify_fused(program)
    else:
        verify(program)


def graph_of(made: Graph | FusedGraph) -> Graph:
    """The graph itself, or what the groups are made of."""
    return made.graph if isinstance(made, FusedGraph) else made


def text_of(program: Program) -> str:
    """What CHECK lines are about."""
    return print_kernels(program) if isinstance(program, tuple) else str(program)


def shown(text: str) -> str:
    return "\n".join(window(text.rstrip("\n").split("\n"), 0))


def changes(before: str, after: str) -> str:
    """The lines in which two texts differ, with a few around them."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2))[2:]
    return "\n".join(window(lines, 0))


def window(lines: list[str], row: int) -> list[str]:
    """At most MOST_LINES of ``lines``, those around ``row``."""
    start = max(0, min(row - MOST_LINES // 4, len(lines) - MOST_LINES))
    end = min(len(lines), start + MOST_LINES)
    above = [f"({start} lines above)"] if start else []
    below = [f"({len(lines) - end} lines below)"] if end < len(lines) else []
    return [*above, *lines[start:end], *below]
