"""``euler-ir bisect``: the planted rewrite or kernel is the one that is named."""

import json
from dataclasses import replace

import pytest
from planted import DropTanh, Swap, arrays_of, small_graph
from test_compare import wrong_subtraction

import euler_ir as ei
from euler_ir.cli import main
from euler_ir.inspect.numerics.bisect import bisect
from euler_ir.loops import lower
from euler_ir.loops.kernel import Compute
from euler_ir.passes import PIPELINE
from euler_ir.plan import build
from models.gpt2 import GPT2Config
from models.language_model import train_graph


def deep_graph():
    """Many rewrites, of which one is wrong once a rule that swaps differences is among them."""
    with ei.Graph("deep") as graph:
        x, y = ei.input("x", (5,)), ei.input("y", (5,))
        for _ in range(20):
            x = x * 1 + ei.tanh(x) * y
        ei.output(end=x - y)
    return graph


def test_what_is_right_is_called_right():
    graph = train_graph(GPT2Config(23, 8, 2, 2, 12), 1, 4)
    found = bisect(graph, arrays_of(graph))
    assert found.is_right and found.runs == 2 and found.applications > 20


def test_a_wrong_rule_is_found_among_many():
    graph = deep_graph()
    found = bisect(graph, arrays_of(graph), (*PIPELINE[:2], Swap(), *PIPELINE[2:]))
    assert (found.verdict, found.what, found.within) == ("rule", "swap-difference", "planted-swap")
    assert found.runs <= 2 + found.applications.bit_length()
    assert any("subtract" in line for line in found.before) and any("subtract" in line for line in found.after)
    assert len(found.before) == 1, "what no result needed is no difference"
    assert "x - y" in found.location.source_line() and found.location.function == "deep_graph"
    assert found.divergence.wrong == 5


def test_a_pass_that_drops_an_op_is_found():
    graph = small_graph()
    found = bisect(graph, arrays_of(graph), (*PIPELINE[:3], DropTanh(), *PIPELINE[3:]))
    assert (found.verdict, found.what) == ("pass", "planted-drop")
    assert [line for line in found.before if "= tanh" in line]
    assert str(found).startswith("a pass makes it wrong")


def test_a_predicate_of_the_user_judges_instead():
    graph = small_graph()

    def keeps_tanh(after):
        return any(op.name == "tanh" for op in after.ops)

    found = bisect(graph, arrays_of(graph), (*PIPELINE, DropTanh()), keeps_tanh)
    assert (found.verdict, found.what, found.divergence) == ("pass", "planted-drop", None)
    with pytest.raises(ValueError, match="before any rewrite"):
        bisect(graph, arrays_of(graph), PIPELINE, lambda after: False)


def test_wrong_machine_code_is_told_from_wrong_loops(monkeypatch):
    graph = small_graph()
    with monkeypatch.context() as patched:
        wrong_subtraction(patched)
        found = bisect(graph, arrays_of(graph))
    assert found.verdict == "code" and "subtract" in found.kernel and "tanh(difference)" in found.location.source_line()
    # One in the loops themselves is there for both backends.
    right = lower.lower

    def wrong(*given, **options):
        lowered = right(*given, **options)
        return swapped_exp(lowered)

    monkeypatch.setattr("euler_ir.plan.epilogues.lower", wrong)
    found = bisect(graph, arrays_of(graph))
    assert found.verdict == "loops" and "kernel" in found.what


def swapped_exp(lowered):
    """A lowered group that takes the hyperbolic tangent where it should take the exponential."""
    body = tuple(
        replace(each, operation="tanh") if isinstance(each, Compute) and each.operation == "exp" else each
        for each in lowered.nest.body
    )
    return replace(lowered, nest=replace(lowered.nest, body=body))


def test_a_product_with_a_wrong_flag_is_a_call(monkeypatch):
    right = build._Builder._matmul

    def wrong(self, unit, groups):
        step = right(self, unit, groups)
        return replace(step, left=replace(step.left, offset=0, leading=1, transposed=not step.left.transposed))

    monkeypatch.setattr(build._Builder, "_matmul", wrong)
    graph = small_graph()
    found = bisect(graph, arrays_of(graph), backend="reference")
    assert found.verdict == "call" and "product" in found.what


def test_memory_that_is_used_again_too_early_is_found(monkeypatch):
    monkeypatch.setattr(build, "assign_offsets", lambda slots: ([0 for _ in slots], max(s.nbytes for s in slots)))
    graph = train_graph(GPT2Config(23, 8, 2, 2, 12), 1, 4)
    found = bisect(graph, arrays_of(graph), backend="reference")
    assert found.verdict == "memory" and found.divergence.value.startswith("output")


def test_the_command(capsys, tmp_path):
    file = tmp_path / "small.eir"
    file.write_text(str(small_graph()))
    checks = tmp_path / "checks.py"
    checks.write_text("def few(graph):\n    return len(graph.ops) < 15\n\ndef broken(graph):\n    return 1 / 0\n")
    assert main(["bisect", str(file)]) == 0
    assert "nothing is wrong" in capsys.readouterr().out
    assert main(["bisect", str(file), "--predicate", f"{checks}:few", "--json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["verdict"] in ("right", "pass", "rule")
    assert main(["bisect", str(file), "--predicate", f"{checks}:broken"]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err
    checks.write_text("def never(graph):\n    return False\n")
    assert main(["bisect", str(file), "--predicate", f"{checks}:never"]) == 2
    assert "before any rewrite" in capsys.readouterr().err
