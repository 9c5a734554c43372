"""The pytest plugin, as a user meets it: what is collected, what each check finds, and what a failure says."""

import subprocess
import sys
from pathlib import Path

import pytest

from euler_ir.passes.manager import PASSES

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]

GOOD = """\
// RUN: simplify
eir 1
graph @twice_negated {
  %x = input {name = "x"} : f32[3]
  %n = negative %x : f32[3]
  %m = negative %n : f32[3]
  %e = exp %m : f32[3]
  output "y" = %e
}
// CHECK: [[e:%.*]] = exp %x
// CHECK-NEXT: output "y" = [[e]]
"""


@pytest.fixture
def check(pytester, monkeypatch):
    """Run pytest on a file of that text, with passes defined by a conftest.py; gives the result."""
    monkeypatch.setattr("euler_ir.passes.manager.PASSES", PASSES)
    known = dict(PASSES)

    def run(text, *arguments, conftest=""):
        if conftest:
            pytester.makeconftest(PASSES_BY_HAND + conftest)
        pytester.path.joinpath("case.eir").write_text(text)
        return pytester.runpytest_inprocess("-p", "pytest_euler_ir", "-p", "no:cacheprovider", *arguments)

    yield run
    PASSES.clear()
    PASSES.update(known)


PASSES_BY_HAND = """\
from dataclasses import dataclass
import itertools
import euler_ir as ei
from euler_ir.passes import Pass, Rebuild

calls = itertools.count()

def rebuilt(graph, operator, change):
    rebuild = Rebuild(graph, "by-hand")
    for op in rebuild:
        if op.name == operator:
            rebuild.replace(op, (change(*rebuild.operands(op)),))
        else:
            rebuild.copy(op)
    return rebuild.finish()

"""


def items(result):
    """The outcome of each item by the end of its name."""
    return {
        report.nodeid.removeprefix("case.eir::"): report.outcome
        for report in result.reprec.getreports("pytest_runtest_logreport")
        if report.when == "call" or report.outcome == "skipped"
    }


def failures(result):
    return {name for name, outcome in items(result).items() if outcome == "failed"}


def said(result):
    return "\n".join(result.outlines)


def test_every_check_is_an_item(check):
    result = check(GOOD + "// -----\n" + GOOD.replace("twice_negated", "other"))
    result.assert_outcomes(passed=12)
    names = ["verifies", "round-trip", "checks", "deterministic", "idempotent", "same-results"]
    assert list(items(result)) == [f"{case}::{name}" for case in ("twice_negated", "other") for name in names]


def test_a_graph_without_passes_is_checked_by_itself(check):
    result = check(GOOD.partition("\n")[2].partition("// CHECK")[0])
    assert list(items(result)) == ["twice_negated::verifies", "twice_negated::round-trip"]
    result.assert_outcomes(passed=2)


def test_a_run_line_holds_until_the_next(check):
    one = GOOD.partition("// CHECK")[0]
    result = check(one + "// -----\n" + one.partition("\n")[2].replace("twice", "again") + "// CHECK-NOT: negative\n")
    assert items(result)["again_negated::checks"] == "passed"


def test_a_failing_line_says_where_the_search_began_and_what_is_near(check):
    result = check(GOOD.replace("= exp %x", "= exp %y"))
    assert failures(result) == {"twice_negated::checks"}
    assert FAILURE in said(result) and "Traceback" not in said(result) and "pass_checks.py" not in said(result)


FAILURE = """\
case.eir:10: CHECK: [[e:%.*]] = exp %y
  not found
  the search began at line 1 below
  most like it is line 4: %e = exp %x : f32[3]
The text after simplify:
> 1  eir 1
  2  graph @twice_negated {
  3    %x = input {name = "x"} : f32[3]
? 4    %e = exp %x : f32[3]
  5    output "y" = %e
  6  }
"""


def test_a_line_that_must_not_be_there(check):
    result = check(GOOD + "// CHECK-NOT: {{^}}}\n")
    for line in ("case.eir:12: CHECK-NOT: {{^}}}", "\n  it is there\n  at line 6 below\n", "\n! 6  }\n"):
        assert line in said(result)


def test_a_line_that_is_no_check(check):
    result = check(GOOD + "// CHECK-NXT: exp\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*case.eir:12: there is no CHECK-NXT; did you mean CHECK-NEXT?"])


BROKEN = {
    "same-results": (
        "class OneBit(Pass):\n    'Turn one bit.'\n    name = 'one-bit'\n"
        "    def run(self, graph):\n        return rebuilt(graph, 'exp', lambda x: ei.exp(x) * 1.0000001)\n",
        "one-bit changes a result, on random numbers: output 'y': 3 of 3 elements",
    ),
    "deterministic": (
        "class Whim(Pass):\n    'Do it every third time.'\n    name = 'whim'\n    numerics = 'approximate'\n"
        "    def run(self, graph):\n"
        "        return rebuilt(graph, 'exp', ei.exp if next(calls) % 3 else lambda x: -(-ei.exp(x)))\n",
        "makes now this, now that",
    ),
    "idempotent": (
        "class More(Pass):\n    'Do more and more.'\n    name = 'more'\n"
        "    def run(self, graph):\n        return rebuilt(graph, 'exp', lambda x: ei.exp(-(-x)))\n",
        "// NOT-IDEMPOTENT: reason",
    ),
    "verifies": (
        "class Wreck(Pass):\n    'Forget an op.'\n    name = 'wreck'\n"
        "    def run(self, graph):\n        after = Rebuild(graph, 'wreck')\n        for op in after: after.copy(op)\n"
        "        after = after.finish()\n        del after.ops[1]\n        return after\n",
        "after pass wreck: V01",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_check_finds_a_pass_that_breaks_it(check, name):
    definition, message = BROKEN[name]
    pass_name = definition.partition("name = '")[2].partition("'")[0]
    text = GOOD.partition("// CHECK")[0].replace("RUN: simplify", f"RUN: {pass_name}")
    result = check(text, conftest="@dataclass(frozen=True)\n" + definition)
    assert f"twice_negated::{name}" in failures(result)
    assert message in said(result) and "Traceback" not in said(result)


@pytest.mark.parametrize(("error", "passes"), [(1e-4, True), (1e-2, False)])
def test_an_approximate_pass_may_be_off_by_what_its_label_says(check, error, passes):
    definition = (
        "@dataclass(frozen=True)\nclass Near(Pass):\n    'Be near.'\n    name = 'near'\n    numerics = 'approximate'\n"
        f"    def run(self, graph):\n        return rebuilt(graph, 'exp', lambda x: ei.exp(x) * {1 + error})\n"
    )
    mark = "// NOT-IDEMPOTENT: it is off once more\n"
    result = check(GOOD.partition("// CHECK")[0].replace("RUN: simplify", "RUN: near") + mark, conftest=definition)
    assert failures(result) == (set() if passes else {"twice_negated::same-results"})


def test_a_pass_that_changes_what_it_is_given(check):
    definition = (
        "@dataclass(frozen=True)\nclass Spoil(Pass):\n    'Change the graph itself.'\n    name = 'spoil'\n"
        "    def run(self, graph):\n        graph.outputs['y'] = graph.leaf('x')\n        return graph\n"
    )
    result = check(GOOD.partition("// CHECK")[0].replace("simplify", "spoil"), conftest=definition)
    assert "twice_negated::verifies" in failures(result)
    assert "spoil changes the graph that it is given" in said(result)


def test_not_idempotent_must_be_true(check):
    mark = "// NOT-IDEMPOTENT: it does more and more\n"
    more = "@dataclass(frozen=True)\n" + BROKEN["idempotent"][0]
    text = GOOD.partition("// CHECK")[0]
    check(text.replace("simplify", "more") + mark, conftest=more).assert_outcomes(passed=5)
    result = check(text + mark, conftest=more)
    assert failures(result) == {"twice_negated::idempotent"} and "remove the line NOT-IDEMPOTENT" in said(result)


def test_unchanged_must_be_true(check):
    one = GOOD.partition("// CHECK")[0]
    result = check(one + "// UNCHANGED: minus is no plus\n")
    assert failures(result) == {"twice_negated::unchanged"}
    assert "simplify must leave the graph as it is: minus is no plus\nit becomes\neir 1" in said(result)
    check(one.replace("negative", "absolute") + "// UNCHANGED: nor is abs\n").assert_outcomes(passed=6)


ROOT_OF_SQUARE = """\
// RUN: root-of-square
eir 1
graph @root_of_square {
  %x = input {name = "x"} : f32[3]
  %m = multiply %x, %x : f32[3]
  %y = sqrt %m : f32[3]
  output "y" = %y
}
"""


@pytest.mark.parametrize(
    ("label", "factor", "outcome"),
    [
        ("exact", "", "failed"),
        ("better", "", "passed"),
        ("better", " * 1.001", "failed"),
        ("reassociating", "", "failed"),
    ],
)
def test_labels_say_how_strict(check, label, factor, outcome):
    # The square of a denormal is 0: abs(x) is another number, and a better one.
    definition = (
        f"@dataclass(frozen=True)\nclass RootOfSquare(Pass):\n    'Write sqrt(x * x) as abs(x).'\n"
        f"    name = 'root-of-square'\n    numerics = {label!r}\n"
        "    def run(self, graph):\n"
        f"        return rebuilt(graph, 'sqrt', lambda m: ei.absolute(m.op.operands[0]){factor})\n"
    )
    result = check(ROOT_OF_SQUARE, conftest=definition)
    assert items(result)["root_of_square::same-results"] == outcome
    assert (f"is labelled {label}" in said(result)) is (outcome == "failed")


def test_rules_have_labels_of_their_own(check):
    # 1 - sigmoid(x) as sigmoid(-x) is labelled better: not the same bits. Simplify itself has no label.
    text = """\
// RUN: simplify
eir 1
graph @one_minus_sigmoid {
  %x = input {name = "x"} : f32[64]
  %s = sigmoid %x : f32[64]
  %one = constant {value = 1.0} : f32[]
  %ones = broadcast %one : f32[64]
  %y = subtract %ones, %s : f32[64]
  output "y" = %y
}
// CHECK: negative %x
// CHECK-NEXT: sigmoid
"""
    check(text).assert_outcomes(passed=6)


# -- expected errors ---------------------------------------------------------------------------------------------------

WRONG = """\
eir 1
graph @wrong {
  %x = input {name = "x"} : f32[3]
  %y = negativ %x : f32[3]
  output "y" = %y
}
"""


def test_an_error_that_is_expected(check):
    beside = WRONG.replace("f32[3]\n  output", 'f32[3]  // expect-error "negativ"\n  output')
    above = WRONG.replace("  %y =", '  // expect-error "did you mean negative?"\n  %y =')
    for text in (beside, above):
        result = check(text)
        assert items(result) == {"wrong::errors": "passed"}


def marked(line, error):
    return WRONG.replace(line, f"  // expect-error {error}\n{line}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (marked("  %x =", '"negativ"'), ':4: nothing is wrong here, expected "negativ"'),
        (marked("  %y =", '"squared"'), ':5: nothing is wrong here, expected "squared"'),
        (marked("  %y =", '"squared"'), ":5: not expected: "),
        (marked("  %y =", 'V04 "negativ"'), ":5: nothing is wrong here, expected V04"),
        (marked("  %y =", '"x"').replace("negativ ", "negative "), ":5: nothing is wrong here"),
    ],
)
def test_errors_that_are_not_as_expected(check, text, message):
    result = check(text)
    assert failures(result) == {"wrong::errors"} and message in said(result) and "Traceback" not in said(result)


def test_an_error_that_nobody_expects(check):
    result = check("// RUN: simplify\n" + WRONG + "// CHECK: negative\n")
    result.assert_outcomes(failed=1, skipped=5)
    assert failures(result) == {"wrong::verifies"} and "did you mean negative?" in said(result)


@pytest.mark.parametrize("alone", ["round-trip", "checks", "deterministic", "idempotent", "same-results"])
def test_a_check_alone_fails_for_an_error_too(check, alone):
    text = "// RUN: simplify\n" + WRONG + "// CHECK: negative\n"
    result = check(text, "-k", alone)
    assert items(result) == {f"wrong::{alone}": "failed"} and "did you mean negative?" in said(result)


def test_an_error_of_the_pipeline_is_that_of_the_run_line(check):
    text = GOOD.partition("// CHECK")[0].replace("RUN: simplify", "RUN: simplfy")
    result = check(text.replace("simplfy", 'simplfy  // expect-error "did you mean simplify?"'))
    assert items(result) == {"twice_negated::errors": "passed"}
    result = check(text)
    assert failures(result) == {"twice_negated::verifies"} and "case.eir:1: pipeline: there is no pass" in said(result)


KERNEL = """\
eir 1
kernel @double {
  nest (input %x: f32[3], output %y: f32[3]) for i in 3 {
    %a: f32 = load %x[i]
    %b: f32 = add %a, %a
    store %y[i] = %b
  }
}
"""


def test_texts_of_other_levels(check):
    result = check(KERNEL + "// CHECK: add %[[a:.*]], %[[a]]\n")
    assert list(items(result)) == ["double::verifies", "double::round-trip", "double::checks"]
    result.assert_outcomes(passed=3)
    wrong = KERNEL.replace("%y[i] = %b", '%y[i + 1] = %b  // expect-error L11 "may leave"')
    assert items(check(wrong)) == {"double::errors": "passed"}


# -- values ------------------------------------------------------------------------------------------------------------

VALUES = GOOD + "// INPUT: %x = [0.0, -0.0, -inf]\n// EXPECT: %e = [1.0, 1.0, 0.0]\n// EXPECT: %n = [-0.0, 0.0, inf]\n"


def test_values_that_are_expected(check):
    check(VALUES).assert_outcomes(passed=7)
    check(VALUES.replace("[1.0, 1.0, 0.0]", "[1.0001, 1.0, 0.0] within 1e-3")).assert_outcomes(passed=7)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[1.0, 1.0, 0.0]", "[1.0, 1.0, 1e-40]", ":13: e is [1.0, 1.0, 0.0] by the interpreter, expected ["),
        ("[1.0, 1.0, 0.0]", "[1.01, 1.0, 0.0] within 1e-3", "within 0.001"),
        ("%n = [-0.0, 0.0, inf]", "%n = [0.0, 0.0, inf]", ":14: n is [-0.0, 0.0, inf]"),
        ("EXPECT: %n =", "EXPECT: %k =", ":14: the graph has no value 'k'"),
        ("INPUT: %x =", "INPUT: %e =", ":12: 'e' is no input, parameter or state"),
        ("// INPUT: %x = [0.0, -0.0, -inf]\n", "", "no INPUT line for x"),
        ("[0.0, -0.0, -inf]", "[0.0, -inf]", ":12: x: "),
    ],
)
def test_values_that_are_not_as_expected(check, old, new, message):
    result = check(VALUES.replace(old, new))
    assert failures(result) == {"twice_negated::expected-values"}
    assert message in said(result) and "Traceback" not in said(result)


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("// EXPCT: %e = [1.0]", "there is no EXPCT:; did you mean EXPECT:?"),
        ("// EXPECT: %e", "an array is written EXPECT: %x = [1.0, 2.0]"),
        ("// EXPECT: %e = 1.0 within x", None),
        ("// EXPECT: %e = [1.0] within 1e-6e", "'1e-6e' is no number"),
        ("// INPUT: %x = [1.0] within 1e-6", "an INPUT is what it is: 'within' goes with EXPECT"),
        ("// expect-error V04", "an error is written expect-error V04"),
        ("// NOT-IDEMPOTENT:", "NOT-IDEMPOTENT: says why"),
        ("// UNCHANGED:", "UNCHANGED: says why"),
        ("// CHEK: exp", "there is no CHEK:; did you mean CHECK:?"),
        ("// Check: exp", "there is no Check:; did you mean CHECK:?"),
        ("// CHECK : exp", "'CHECK' lacks its ':', without a blank before it"),
        ("// CHECK: {{(}}", "'(' is no regular expression"),
        ("// RUN simplify", "'RUN' lacks its ':'"),
        ("// RUN:", "RUN: names the passes, or says none"),
        ("// expected-error \"x\"", "there is no expected-error; did you mean expect-error?"),
        ("// A CHECK in the middle of a sentence: nothing is meant by it", None),
        ("// NOTE: this is a note", None),
        ("// TODO: another one", None),
    ],
)
def test_comments_that_are_wrong(check, line, message):
    result = check(GOOD + line + "\n", "--collect-only")
    if message is None:
        assert result.ret == 0
    else:
        result.assert_outcomes(errors=1)
        assert f"case.eir:12: {message}" in said(result) and "Traceback" not in said(result)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "there is no graph to test in this file"),
        ("// only a comment\n// -----\n\n", 1, "there is no graph to test in this file"),
        ("// RUN: simplify\n// CHECK: exp\n", 1, "RUN: no graph stands beside it"),
        (GOOD + "// -----\n// CHECK: exp\n", 13, "CHECK: no graph stands beside it"),
        (GOOD.replace("// RUN: ", "// "), 1, "CHECK: no RUN line says of which passes"),
        (GOOD.replace("}\n", "} // CHECK: exp\n"), 9, "CHECK: stands in a line of its own"),
    ],
)
def test_what_would_check_nothing(check, text, line, message):
    result = check(text)
    result.assert_outcomes(errors=1)
    assert f"case.eir:{line}: {message}" in said(result) and "Traceback" not in said(result)


def test_two_tests_of_one_name(check):
    result = check(GOOD + "// -----\n" + GOOD)
    assert "case.eir:15: there is a test 'twice_negated' above" in said(result)


def test_a_file_that_is_no_text(check, pytester):
    pytester.path.joinpath("other.eir").write_bytes(b"\xff\xfe")
    assert "other.eir is not text: invalid start byte at byte 0" in said(check(GOOD))


def test_slashes_in_a_string_are_no_comment(check):
    text = GOOD.replace("twice_negated", '"a // expect-error"').partition("// CHECK")[0]
    check(text).assert_outcomes(passed=5)


# -- updating ----------------------------------------------------------------------------------------------------------


def test_lines_are_proposed_where_there_are_none(check, pytester):
    bare = GOOD.partition("// CHECK")[0]
    text = f"{bare}// -----\n\n{GOOD.replace('twice', 'again')}// -----\n{bare.replace('twice', 'third')}\n"
    check(text, "--eir-update").assert_outcomes(passed=18)
    now = pytester.path.joinpath("case.eir").read_text()
    lines = '// CHECK: [[e:%.*]] = exp %x : f32[3]\n// CHECK-NEXT: output "y" = [[e]]\n'
    assert now == text.replace("}\n// -----\n\n", "}\n" + lines + "// -----\n\n").replace("}\n\n", "}\n" + lines + "\n")
    check(now, "--eir-update").assert_outcomes(passed=18)
    assert pytester.path.joinpath("case.eir").read_text() == now


def test_nested_lists_are_no_names(check, pytester):
    text = """\
// RUN: none
eir 1
graph @nested {
  %c = constant {value = [[1.0, 2.0], [3.0, 4.0]]} : f32[2, 2]
  output "y" = %c
}
"""
    check(text, "--eir-update").assert_outcomes(passed=6)
    assert r"{value = {{\[\[}}1.0, 2.0]" in pytester.path.joinpath("case.eir").read_text()


# -- costs nothing -----------------------------------------------------------------------------------------------------


def test_a_run_without_such_files_does_not_import_the_package(pytester):
    pytester.makepyfile("import sys\n\ndef test_it():\n    assert not {'euler_ir', 'numpy'} & set(sys.modules)\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "pytest_euler_ir", "-p", "no:cacheprovider"]
    finished = subprocess.run(command, cwd=pytester.path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout
