"""docs/reports.md names tests that exist, and each test of a report stands in it."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reports.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| [")]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def functions_of(path):
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: re.sub(r"\W+", "-", row.split("]")[0]).strip("-"))
def test_a_row_names_its_report_and_tests_that_exist(row):
    report, wrong, here, test = (cell.strip() for cell in row.strip("|").split(" | "))
    assert re.fullmatch(r"(\[[^\]]+\]\(https://github\.com/[\w.-]+/[\w.-]+/(?:issues|pull)/\d+\)(?:, )?)+", report)
    assert wrong and here and TEST.search(test)
    for path, name in TEST.findall(test):
        assert name in functions_of(ROOT / path)


def test_every_test_of_a_report_is_on_the_page():
    named = {(path, name) for row in ROWS for path, name in TEST.findall(row)}
    for path in sorted(Path(__file__).parent.glob("test_reported_*.py")):
        for name in functions_of(path):
            if name.startswith("test_"):
                assert (str(path.relative_to(ROOT)), name) in named
