"""The table of seeded faults is in order, and a few of them are planted and killed; `run.py` does so with all."""

import ast
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest
from fault import ROOT, Fault, plant
from run import HERE, _killer, table_of, try_fault
from table import FAULTS

CHEAP = ("prints-0-for-minus-0", "overwrites-what-is-read-elsewhere", "rule-L07-is-not-checked")


@cache
def names_of_tests(path):
    """The names of the test functions of a file."""
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_there_are_faults_of_every_part():
    assert len(FAULTS) >= 100
    parts = {re.split("[./]", fault.module)[0] for fault in FAULTS.values()}
    assert parts >= {"ops", "tensor", "autodiff", "optim", "text", "verify", "passes", "loops", "plan", "backends"}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_has_its_place_and_its_killers(fault):
    if fault.path.suffix == ".py":
        compile(fault.source(), str(fault.path), "exec")
    assert fault.source() != fault.path.read_text()
    assert fault.imitates.endswith(".") and fault.killers
    for killer in fault.killers:
        path, _, test = killer.partition("::")
        assert (ROOT / path).is_file(), killer
        assert not test or test.partition("[")[0] in names_of_tests(path), killer


def test_every_killer_is_found():
    killers = {killer for fault in FAULTS.values() for killer in fault.killers if "::" in killer}
    command = (sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider", *sorted(killers))
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert collected.returncode == 0, [line for line in collected.stderr.splitlines() if line.startswith("ERROR")]


def test_every_rule_has_its_fault():
    from euler_ir import verify
    from euler_ir.loops import verify as verify_loops
    from euler_ir.passes import verify_fused

    rules = {*verify.RULES, *verify_fused.RULES, *verify_loops.RULES}
    assert {name[5:8] for name in FAULTS if name.startswith("rule-")} == rules


def test_a_few_faults_are_killed():
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(try_fault, (FAULTS[name] for name in CHEAP)))
    assert [outcome.fault for outcome in outcomes if outcome.killed_by is None] == []
    assert all("::test_" in outcome.killed_by for outcome in outcomes)


def test_a_place_that_moved_is_named():
    moved = Fault("moved", "It moved.", "autodiff", "no such line", "", ("tests/graph/test_text.py",))
    with pytest.raises(ValueError, match="fault moved: 'no such line' stands 0 times in autodiff.py"):
        moved.source()


def test_a_module_that_is_imported_already_cannot_be_changed():
    import euler_ir.autodiff  # noqa: F401

    with pytest.raises(ValueError, match="euler_ir.autodiff is imported already"):
        plant(next(fault for fault in FAULTS.values() if fault.module == "autodiff"))


def test_a_file_that_is_no_python_is_read_with_its_fault():
    file = "backends/cuda/sources/target.cuh"
    fault = Fault("other", "Another.", file, "namespace eir {\n\nstruct", "namespace x {", ())
    code = (
        f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
        f"from fault import Fault, plant\nplant({fault!r})\n"
        "from euler_ir.backends.cuda.sources import unit\nprint(unit('u', ['target.cuh'], '').count('namespace x {'))"
    )
    ran = subprocess.run((sys.executable, "-c", code), cwd=ROOT, capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("1\n", "")
    assert fault.old in fault.path.read_text()


@pytest.mark.parametrize(
    ("code", "output", "killer"),
    [
        (0, "3 passed", None),
        (1, "FAILED tests/a.py::test_b[x f64[2]-cpu] - AssertionError: no", "tests/a.py::test_b[x f64[2]-cpu]"),
        (1, "ERROR tests/a.py::test_b", "tests/a.py::test_b"),
        (-11, "", "signal 11"),
    ],
)
def test_what_counts_as_killed(code, output, killer):
    assert _killer(subprocess.CompletedProcess((), code, output, "")) == killer


@pytest.mark.parametrize(("code", "output"), [(2, "ERROR tests/a.py"), (4, "not found"), (5, "no tests ran"), (1, "")])
def test_tests_that_do_not_run_kill_nothing(code, output):
    with pytest.raises(RuntimeError, match="did not run"):
        _killer(subprocess.CompletedProcess((), code, output, ""))


def test_survivors_stand_out():
    from run import Outcome

    outcomes = [Outcome("a", "A.", "tests/a.py::test_a", 1.0), Outcome("b", "B.", None, 2.0)]
    table = table_of(outcomes)
    assert [str(row.style) for row in table.rows] == ["", "bold red"]
    assert list(table.columns[2].cells) == ["tests/a.py::test_a", "SURVIVES"]
