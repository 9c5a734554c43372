"""``euler-ir compare``: planted faults are found where they are; what is right, in any type and size, is called so."""

import json

import numpy as np
import pytest
from planted import DropTanh, Swap, WrongOutput, arrays_of, small_graph

import euler_ir as ei
from euler_ir.backends import reference
from euler_ir.backends.cpu import scalar_ops
from euler_ir.cli import main
from euler_ir.inspect.given_arrays import GivenArrays
from euler_ir.inspect.numerics.compare import compare
from euler_ir.passes import PIPELINE
from euler_ir.passes.cse import MergeEqual
from euler_ir.testing import random_graph
from models.gpt2 import GPT2Config
from models.language_model import train_graph


@pytest.mark.parametrize(
    ("fault", "value", "via"),
    [(Swap(), "difference", "swap-difference"), (DropTanh(), "matmul", ""), (WrongOutput(), "output ratio", "")],
)
def test_a_wrong_pass_is_found_at_the_op_that_it_made_wrong(fault, value, via):
    graph = small_graph()
    found = compare(graph, arrays_of(graph), (MergeEqual(), fault, *PIPELINE), backend=None)
    wrong = [stage.name for stage in found.stages if stage.divergence is not None]
    assert wrong == [fault.name]
    divergence = found.first
    assert value in divergence.value
    assert not via or divergence.via[-1] == via
    assert "planted.py" in divergence.location.file and divergence.location.source_line()


def test_a_wrong_difference_is_told_with_its_operands():
    graph = small_graph()
    arrays = arrays_of(graph)
    found = compare(graph, arrays, (Swap(),), backend=None).first
    x, y = (arrays.arrays[name][found.place] for name in "xy")
    assert found.got == pytest.approx(float(y) - float(x)) and found.wanted == pytest.approx(float(x) - float(y))
    assert [(each.name, float(each.text)) for each in found.read] == [
        ("y", pytest.approx(float(y))),
        ("x", pytest.approx(float(x))),
    ]
    assert (found.wrong, found.size) == (32, 32)
    assert "swap-difference" in str(found) and "x - y" in str(found)


def test_a_wrong_operation_of_the_cpu_is_found_in_its_kernel(monkeypatch):
    kernels = wrong_subtraction(monkeypatch)
    graph = small_graph()
    found = compare(graph, arrays_of(graph))
    assert [stage.name for stage in found.stages if stage.divergence is not None] == ["cpu"]
    assert "kernel" in found.first.made_by and kernels
    assert compare(graph, arrays_of(graph), backend="reference").first is None


@pytest.mark.parametrize("dtype", [ei.i64, ei.i8])
def test_a_wrong_operation_on_integers_is_found(monkeypatch, dtype):
    wrong_subtraction(monkeypatch)
    with ei.Graph("integers") as graph:
        ei.output(y=ei.input("x", (5,), dtype) - ei.input("y", (5,), dtype))
    arrays = GivenArrays({name: np.arange(1, 6).astype(dtype.numpy) for name in "xy"}, (), 0)
    assert compare(graph, arrays).first.wanted == 0


def wrong_subtraction(monkeypatch):
    """Let generated code add where it should subtract; gives the list of those times."""
    times = []

    def wrong(code, dtype, left, right):
        times.append(1)
        return scalar_ops._OTHERS["add"](code, dtype, left, right)

    monkeypatch.setitem(scalar_ops._OTHERS, "subtract", wrong)
    return times


def test_a_product_that_reads_an_operand_backwards_is_found(monkeypatch):
    right = reference._operand

    def wrong(flat, operand, batch, rows, columns):
        found = right(flat, operand, batch, rows, columns)
        return found[..., ::-1] if (rows, columns) == (4, 8) else found

    monkeypatch.setattr(reference, "_operand", wrong)
    graph = small_graph()
    found = compare(graph, arrays_of(graph), backend="reference")
    assert "product" in found.first.made_by and " = matmul " in found.first.operation


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_small_gpt2_is_right(backend):
    graph = train_graph(GPT2Config(23, 8, 2, 2, 12), 2, 8)
    found = compare(graph, arrays_of(graph), backend=backend)
    assert found.first is None
    stored = {value.name for value in found.stored}
    assert len(stored) > 50 and found.stages[-1].compared == len(graph.outputs) + len(graph.updates)
    assert np.median([value.error.relative for value in found.stored]) < 1e-5


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_are_right(seed):
    random = random_graph(seed)
    found = compare(random.graph, GivenArrays(random.leaves, (), 0))
    assert found.first is None, str(found.first)


@pytest.mark.parametrize("dtype", [ei.f16, ei.bf16, ei.f64])
def test_other_floats_are_right(dtype):
    with ei.Graph("halves") as graph:
        x, y = ei.input("x", (33, 17), dtype), ei.input("y", (17, 5), dtype)
        ei.output(scores=ei.softmax(x @ y, 1), total=ei.exp(x).sum(), norm=ei.sqrt((x * x).mean(1)))
    assert compare(graph, arrays_of(graph)).first is None


def test_odd_graphs_are_right():
    with ei.Graph("odd") as graph:
        x, n, empty = ei.input("x", ()), ei.input("n", (3,), ei.i64), ei.input("empty", (0, 4))
        s = ei.state("s", (3,), ei.initializers.Zeros(), ei.i64)
        ei.output(a=x, b=x, c=n > 1, d=empty.sum(0), e=empty * 2, f=ei.random_normal((5,), 1, 2), g=n // 2)
        ei.update(s, s + n)
    found = compare(graph, arrays_of(graph))
    assert found.first is None and found.stages[-1].compared == 8


def test_infinities_and_nans_that_should_be_there_are_right():
    with ei.Graph("bad") as graph:
        x = ei.input("x", (6,))
        ei.output(y=ei.log(x) * 2, z=ei.exp(x) / ei.exp(x), t=x / x)
    arrays = GivenArrays({"x": np.array([-1, 0, np.inf, -np.inf, np.nan, 200], np.float32)}, (), 0)
    found = compare(graph, arrays)
    assert found.first is None, str(found.first)
    (log,) = [value for value in found.values if value.operator == "log"]
    assert (log.error.nans, log.error.infinities) == (3, 2)


def test_a_tolerance_allows_what_rounding_does_not_explain():
    graph = small_graph()
    arrays = arrays_of(graph)
    assert compare(graph, arrays, (DropTanh(),), backend=None, tolerance=10.0).first is None


def test_a_tolerance_is_allowed_to_the_program_too(monkeypatch):
    wrong_subtraction(monkeypatch)
    with ei.Graph("difference") as graph:
        ei.output(y=ei.input("x", (2,)) - ei.input("y", (2,)))
    arrays = GivenArrays({"x": np.array([4, 4], np.float32), "y": np.array([1, 1], np.float32)}, (), 0)
    assert compare(graph, arrays, tolerance=0.6).first is not None  # 5 instead of 3
    assert compare(graph, arrays, tolerance=0.7).first is None


def test_the_command(capsys, tmp_path):
    file = tmp_path / "small.eir"
    file.write_text(str(small_graph()))
    assert main(["compare", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "3 drawn with seed 0" in printed and "as exact as rounding" in printed
    assert main(["compare", str(file), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [stage["stage"] for stage in record["stages"]][-2:] == ["cpu", "results"]
    assert {"name", "nans", "relative", "location"} <= record["stored"][0].keys()
    assert all(each["name"].startswith("%") for each in record["stored"])
