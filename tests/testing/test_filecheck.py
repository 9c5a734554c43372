"""CHECK lines mean what they mean to LLVM's FileCheck, and PyPI's filecheck agrees, where it does what LLVM does."""

import contextlib
import io

import pytest

from euler_ir.testing.filecheck import CheckFailure, CheckSyntaxError, check_order, match_checks, parse_check

TEXT = """\
graph @first {
  %x = input : f32[2]
  %tanh = tanh   %x : f32[2]
  %add = add %tanh, %x : f32[2]

  output "y" = %add
}
graph @second {
  %x = input : f32[3]
  %exp = exp %x : f32[3]
  output "y" = %exp
}
"""

# What the lines are, and whether they hold of TEXT.
CASES = [
    ("CHECK: tanh %x", True),
    ("CHECK: tanhh", False),
    ("CHECK: exp\nCHECK: tanh", False),
    ("CHECK: tanh\nCHECK: tanh\nCHECK: tanh", True),
    ("CHECK: tanh\nCHECK: tanh\nCHECK: tanh\nCHECK: tanh", False),
    ("CHECK: f32[2]\nCHECK: f32[3]", True),
    ("CHECK: {{.}}[2]", True),
    ("CHECK: {{[a-z]+}} %x", True),
    ("CHECK: {{a|b}}dd %tanh", True),
    ("CHECK: {{^}}graph", True),
    ("CHECK: {{^}}input", False),
    ("CHECK: f32[2]{{$}}", True),
    ("CHECK: input{{$}}", False),
    ("CHECK: {\nCHECK-NEXT: input", True),
    ("CHECK: {\nCHECK-NEXT: tanh", False),
    ("CHECK: first\nCHECK-NEXT: f32\nCHECK-NEXT: tanh\nCHECK-NEXT: add", True),
    ("CHECK: {\nCHECK-NEXT: {{^}} %x", True),
    ("CHECK: tanh\nCHECK-SAME: %x", True),
    ("CHECK: tanh\nCHECK-SAME: %x\nCHECK-SAME: f32[2]", True),
    ("CHECK: tanh\nCHECK-SAME: add", False),
    ("CHECK: add\nCHECK-EMPTY:\nCHECK-NEXT: output", True),
    ("CHECK: tanh\nCHECK-EMPTY:", False),
    ("CHECK: %add\nCHECK-NOT: tanh\nCHECK: output", False),
    ("CHECK: %add = add %tanh\nCHECK-NOT: tanh\nCHECK: second", True),
    ("CHECK-NOT: input\nCHECK: tanh", False),
    ("CHECK-NOT: sigmoid", True),
    ("CHECK-NOT: exp", False),
    ("CHECK: second\nCHECK-NOT: tanh", True),
    ("CHECK: exp\nCHECK-NOT: {{^}}}", False),
    ("CHECK-NOT: tanh\nCHECK-NOT: add\nCHECK: exp", False),
    ("CHECK-DAG: add %tanh\nCHECK-DAG: input", True),
    ("CHECK-DAG: add %tanh\nCHECK-DAG: input\nCHECK: output", True),
    ("CHECK-DAG: exp\nCHECK-DAG: input\nCHECK: tanh", False),
    ("CHECK-DAG: %exp = exp\nCHECK-DAG: %exp = exp", False),
    ("CHECK-DAG: f32[3]\nCHECK-DAG: f32[3]\nCHECK-NOT: f32[3]", True),
    ("CHECK-DAG: tanh %x\nCHECK-NOT: %add\nCHECK-DAG: output", False),
    ("CHECK-DAG: tanh %x\nCHECK-NOT: exp\nCHECK-DAG: output", True),
    ("CHECK-DAG: output\nCHECK-NOT: exp\nCHECK-DAG: tanh %x", False),
    ("CHECK-COUNT-2: input", True),
    ("CHECK-COUNT-3: input", False),
    ("CHECK-COUNT-2: input\nCHECK-NEXT: exp", True),
    ("CHECK-COUNT-2: tanh\nCHECK-SAME: %x", True),
    ("CHECK-LABEL: @first\nCHECK: tanh\nCHECK-LABEL: @second\nCHECK: exp", True),
    ("CHECK-LABEL: @first\nCHECK: exp\nCHECK-LABEL: @second", False),
    ("CHECK-LABEL: @first\nCHECK-NOT: exp\nCHECK-LABEL: @second\nCHECK-NOT: tanh", True),
    ("CHECK-LABEL: @first\nCHECK-NOT: tanh\nCHECK-LABEL: @second", False),
    ("CHECK: exp\nCHECK-LABEL: @second", False),
    ("CHECK-LABEL: @second\nCHECK-LABEL: @first", False),
    ("CHECK-LABEL: @second\nCHECK-NEXT: input", True),
    ("CHECK: [[v:%[a-z]+]] = tanh\nCHECK: add [[v]]", True),
    ("CHECK: [[v:%[a-z]+]] = input\nCHECK: add [[v]]", False),
    ("CHECK: [[v:%[a-z]+]] = tanh\nCHECK-NEXT: [[w:%.*]] = add [[v]]\nCHECK: output \"y\" = [[w]]", True),
    ("CHECK: %[[n:[a-z]+]] = [[n]]", True),
    ("CHECK: %[[n:[a-z]+]] = [[n]]\nCHECK-NEXT: %[[n:[a-z]+]] = [[n]]", True),
    ("CHECK: second\nCHECK: [[t:f32.*]]\nCHECK-NOT: [[t]]", False),
    ("CHECK-DAG: [[a:%.*]] = tanh\nCHECK-DAG: add [[a]]", True),
    ("CHECK: add [[a]]", False),
    ("CHECK: %add\nCHECK-NEXT: output", False),
]  # fmt: skip

# PyPI's filecheck does not do as LLVM here: it keeps tabs in patterns, and counts brackets behind a backslash.
OURS = [("CHECK: tanh  \t %x", True), ("CHECK: [[t:f32\\[[0-9]\\]]]\nCHECK-NEXT: [[t]]", True)]


def parsed(lines):
    checks = [parse_check(line, number) for number, line in enumerate(lines.split("\n"), 1)]
    check_order(checks)
    return checks


def holds(lines, text=TEXT):
    try:
        match_checks(parsed(lines), text)
    except CheckFailure:
        return False
    return True


@pytest.mark.parametrize(("lines", "expected"), CASES + OURS, ids=lambda value: str(value).replace("\n", " / "))
def test_a_table_of_cases(lines, expected):
    assert holds(lines) is expected


@pytest.mark.parametrize(("lines", "expected"), CASES, ids=lambda value: str(value).replace("\n", " / "))
def test_filecheck_agrees(lines, expected, tmp_path):
    assert by_filecheck(lines, TEXT, tmp_path) is expected


def by_filecheck(lines, text, folder):
    """What PyPI's filecheck says of the same lines."""
    from filecheck.matcher import Matcher
    from filecheck.options import Options

    checks, output = folder / "checks", folder / "output"
    checks.write_text("".join(f"// {line}\n" for line in lines.split("\n")))
    output.write_text(text)
    options = Options(str(checks), str(output), check_prefixes=["CHECK"], comment_prefixes=["RUN"])
    with contextlib.redirect_stderr(io.StringIO()):
        return Matcher.from_opts(options).run() == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("CHECK tanh", "lacks its ':'"),
        ("CHECK:", "no pattern"),
        ("CHECK-NOT:   ", "no pattern"),
        ("CHECK-NXT: tanh", "there is no CHECK-NXT; did you mean CHECK-NEXT?"),
        ("CHECK-COUNT: tanh", "CHECK-COUNT-3"),
        ("CHECK-COUNT-0: tanh", "1 or more"),
        ("CHECK-NEXT-2: tanh", "CHECK-COUNT-3"),
        ("CHECK-EMPTY: tanh", "takes no pattern"),
        ("CHECK: {{tanh", "'{{' has no '}}'"),
        ("CHECK: [[tanh", "'[[' has no ']]'"),
        ("CHECK: [[v:[a-z]]", "'[[' has no ']]'"),
        ("CHECK: {{(}}", "no regular expression"),
        ("CHECK: {{}}", "matches anything"),
        ("CHECK: [[a b]]", "'a b' is no name"),
        ("CHECK: [[#n]]", "'#n' is no name"),
        ("CHECK: [[a:x]] [[a:y]]", "twice"),
        ("CHECK-LABEL: [[a]]", "no names"),
        ("CHECK-NEXT: tanh", "CHECK-NEXT needs a CHECK before it"),
        ("CHECK-NOT: exp\nCHECK-SAME: tanh", "CHECK-SAME needs a CHECK before it"),
    ],
)
def test_a_line_that_is_no_check(line, message):
    with pytest.raises(CheckSyntaxError) as caught:
        parsed(line)
    assert message in str(caught.value) and caught.value.line == 1 + line.count("\n")


@pytest.mark.parametrize("line", ["CHECKS", "checks: tanh", "a CHECK: tanh", "RUN: cse"])
def test_other_comments_are_no_checks(line):
    assert parse_check(line, 1) is None


# Lines, then what is said: the number of the check, the message, where the search began, the line most like it.
FAILURES = [
    ("CHECK: graph\nCHECK: tanhh %x", 2, "not found", 0, 2),
    ("CHECK: add\nCHECK: %tanh = tanh %x", 2, "not found", 3, 9),
    ("CHECK: add\nCHECK: zzzzzzzz", 2, "not found", 3, None),
    ("CHECK: tanh\nCHECK-NEXT: output", 2, "not on the line after the last match", 3, 5),
    ("CHECK: tanh\nCHECK-SAME: %add", 2, "not on the rest of the last match's line", 2, None),
    ("CHECK: tanh\nCHECK-EMPTY:", 2, "the line after the last match is not empty", 2, 3),
    ("CHECK: {{^}}}\nCHECK: {{^}}}\nCHECK-EMPTY:", 3, "there is no line after the last match", 11, None),
    ("CHECK: {{^}}}\nCHECK-NOT: tanh\nCHECK-NOT: exp", 3, "it is there", 6, 9),
    ("CHECK-COUNT-4: f32[3]", 1, "found 2 of 4", 9, 9),
    ("CHECK-LABEL: @second\nCHECK-LABEL: @first", 2, "no such label", 7, None),
    ("CHECK: @first\nCHECK: [[w]]", 2, "nothing above gives [[w]] a meaning", 0, None),
]


@pytest.mark.parametrize(("lines", "number", "message", "began", "nearest"), FAILURES, ids=lambda value: str(value)[:9])
def test_what_a_failure_says(lines, number, message, began, nearest):
    with pytest.raises(CheckFailure) as caught:
        match_checks(parsed(lines), TEXT)
    failure = caught.value
    assert (failure.check.line, failure.message, failure.began, failure.nearest) == (number, message, began, nearest)
