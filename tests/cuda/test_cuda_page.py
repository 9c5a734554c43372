"""docs/cuda.md names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cuda.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| [")]
NAME = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")


def functions_of(path):
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: re.sub(r"\W+", "-", row.split("](")[0]).strip("-"))
def test_a_row_names_its_report_and_tests_that_exist(row):
    report, here, tests = (cell.strip() for cell in row.strip("|").split(" | "))
    assert re.match(r"(\[[^\]]+\]\(https://github\.com/[\w.-]+/[\w.-]+/issues/\d+\)(, )?)+: ", report) and here
    named = NAME.findall(tests)
    assert named
    for path, test in named:
        assert not test or test in functions_of(ROOT / path), (path, test)


def test_all_reports_have_a_row():
    assert len(ROWS) >= 19
