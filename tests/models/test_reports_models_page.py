"""docs/reports_models.md names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    line
    for line in (ROOT / "docs" / "reports_models.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| report |")
]
NAME = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")


def functions_of(path):
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: re.sub(r"\W+", "-", row.split("](")[0])[:40].strip("-"))
def test_a_row_names_tests_that_exist(row):
    report, here, tests = (cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1])
    assert report and here
    named = NAME.findall(tests)
    assert named
    for path, test in named:
        assert not test or test in functions_of(ROOT / path), (path, test)
