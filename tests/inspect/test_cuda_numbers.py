"""A kernel for GPUs that computes something else is found on the CPU: by `compare`, `bisect` and `reduce`."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.backends.cuda.codegen import operations
from euler_ir.cli import main
from euler_ir.inspect.given_arrays import given_arrays
from euler_ir.inspect.numerics.bisect import bisect
from euler_ir.inspect.numerics.compare import compare
from euler_ir.text.printer import print_graph

# Of sizes that no other test has: what is wrong is kept by caches that know nests by their loops.
SIZES = (37, 41)


def graph_of_rows():
    with ei.Graph("rows") as graph:
        x, w = ei.input("x", SIZES), ei.parameter("w", (41, 3), ei.initializers.Normal(1.0))
        ei.output(y=ei.tanh(x) @ w, z=ei.exp(x) - x)
    return graph


@pytest.fixture
def wrong(monkeypatch):
    """The graph, while subtraction on a GPU adds."""
    monkeypatch.setitem(operations._FLOAT_ARITHMETIC, "subtract", "+")
    return graph_of_rows()


def test_compare_names_the_value_and_the_kernel(wrong):
    found = compare(wrong, given_arrays(wrong, None, None, 0), backend="cuda-emulator")
    assert found.first.value == "%subtract" and "subtract" in found.first.made_by
    (stage,) = (stage for stage in found.stages if stage.divergence is not None)
    assert stage.name == "cuda-emulator"


def test_bisect_blames_the_code_and_not_the_loops(wrong):
    found = bisect(wrong, given_arrays(wrong, None, None, 0), backend="cuda-emulator")
    assert found.verdict == "code" and "subtract" in found.kernel


@pytest.mark.usefixtures("cpp_compiler")
def test_reduce_finds_the_operator(wrong, tmp_path, capsys):
    (tmp_path / "rows.eir").write_text(print_graph(wrong))
    out = tmp_path / "small.eir"
    options = ["--check", "compare", "--backend", "cuda-emulator", "--runs", "4", "-o", str(out)]
    assert main(["reduce", str(tmp_path / "rows.eir"), *options]) == 0
    text = out.read_text()
    assert "// RUN: euler-ir compare" in text and "--backend cuda-emulator" in text and "--passes" not in text
    assert "subtract" in text and "matmul" not in text


def test_what_is_right_is_called_right():
    with ei.Graph("right") as graph:
        ei.output(z=ei.exp(ei.input("x", (7, 5))) - 1.5)
    found = compare(graph, given_arrays(graph, None, None, 0), backend="cuda-emulator")
    assert found.first is None and found.backend == "cuda-emulator"
    assert np.isfinite(found.stored[0].error.relative)
