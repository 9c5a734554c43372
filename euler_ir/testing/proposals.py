"""CHECK lines for tests that have none yet: a proposal, to be read by a person before it is kept."""

from __future__ import annotations

import re
from pathlib import Path

from euler_ir.files import write_file
from euler_ir.graph import Graph
from euler_ir.testing.pass_run import PassRun, PassTestFailure, text_of
from euler_ir.testing.pass_test import read_pass_tests
from euler_ir.text.printer import value_names

_VALUE = re.compile(r'%(?:[A-Za-z_][A-Za-z0-9_.]*|"(?:[^"\\]|\\.)*")(?:#[0-9]+)?')
_SPECIAL = re.compile(r"\[\[|\{\{")


def propose(path: Path) -> None:
    """Write CHECK lines into each test of the file that has a RUN line and says nothing else."""
    lines = path.read_text(encoding="utf-8").split("\n")
    for test in reversed(read_pass_tests(path)):
        if test.pipeline is None or test.level != "graph":
            continue
        if test.checks or test.errors or test.expected or test.unchanged:
            continue
        run = PassRun(test)
        try:
            checks = check_lines(run.before, text_of(run.after))
        except PassTestFailure:
            continue  # its checks will say what is wrong
        lines[test.last_line : test.last_line] = [f"// {check}" for check in checks]
    write_file(path, "\n".join(lines))


def check_lines(before: Graph, text: str) -> list[str]:
    """CHECK lines for all lines of ``text`` from the first operator to the last output.

    Inputs, parameters and states are called as in ``before``; any other value is given a name where it first stands, so
    that the lines do not depend on what the passes call it.
    """
    leaves = {name for value, name in value_names(before).items() if value.op.definition.has_identity}
    checks: list[str] = []
    names: dict[str, str] = {}
    for line in text.rstrip("\n").split("\n")[2:-1]:
        line = line.strip()
        if not checks and any(line.startswith(f"{leaf} = ") for leaf in leaves):
            continue
        kind = "CHECK-NEXT" if checks else "CHECK"
        checks.append(f"{kind}: {_pattern(line, leaves, names)}")
    return checks


def _pattern(line: str, leaves: set[str], names: dict[str, str]) -> str:
    parts, end = [], 0
    for match in _VALUE.finditer(line):
        parts += [_literal(line[end : match.start()]), _named(match[0], leaves, names)]
        end = match.end()
    return "".join([*parts, _literal(line[end:])])


def _literal(text: str) -> str:
    return _SPECIAL.sub(lambda match: "{{" + re.escape(match[0]) + "}}", text)


def _named(value: str, leaves: set[str], names: dict[str, str]) -> str:
    if value in leaves:
        return value
    if value in names:
        return f"[[{names[value]}]]"
    base = re.sub(r"\W+", "_", value).strip("_")
    name = base if base[:1].isalpha() else f"v{base}"
    while name in names.values():
        name += "_"
    names[value] = name
    return f"[[{name}:%.*]]"
