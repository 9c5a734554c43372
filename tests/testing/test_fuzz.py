"""Fuzzing writes what fails, made small, each kind of failure once."""

from euler_ir.testing import BrokenLink, read_case
from euler_ir.testing import fuzz as fuzzing


def breaks_at(operators):
    """A chain that breaks at the first of ``operators`` that a graph holds: a link for each."""

    def check_chain(graph, leaves):
        names = {op.name for op in graph.ops}
        for operator in operators:
            if operator in names:
                raise BrokenLink(f"operator {operator}", "it is there")

    return check_chain


def test_each_kind_of_failure_is_found_once_and_made_small(monkeypatch, tmp_path):
    monkeypatch.setattr(fuzzing, "check_chain", breaks_at(["cumsum", "argmax"]))
    # hypothesis draws numbers from the sources of all modules that are loaded: this seed does not depend on its luck.
    *lines, summary = fuzzing.fuzz(range(3), seed=3, folder=tmp_path)
    assert len(lines) == 2 and summary.endswith("2 kinds of failures")
    found = {}
    for path in tmp_path.glob("*.eir"):
        case = read_case(path)
        (operator,) = {"cumsum", "argmax"} & {op.name for op in case.graph.ops}
        found[operator] = sum(op.definition.family != "leaf" for op in case.graph.ops)
        assert path.read_text().startswith("// Found by fuzzing")
        assert f"// operator {operator}: it is there" in path.read_text()
    assert found.keys() == {"cumsum", "argmax"} and found["cumsum"] <= 8


def test_where_nothing_fails_nothing_is_written(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(fuzzing, "check_chain", breaks_at([]))
    assert fuzzing.main(["--minutes", "0.01", "--seed", "3", "--save", str(tmp_path / "new")]) == 0
    assert "seed 3" in capsys.readouterr().out and not list((tmp_path / "new").iterdir())


def test_the_exit_code_says_that_something_failed(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(fuzzing, "check_chain", breaks_at(["add", "subtract", "multiply", "cast", "sum"]))
    assert fuzzing.main(["--minutes", "0.01", "--save", str(tmp_path)]) == 1
    assert "operator" in capsys.readouterr().out
