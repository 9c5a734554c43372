"""``euler-ir nans``: the op that makes the first NaN is named, and why; what is masked or clean is called so."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

import euler_ir as ei
from euler_ir import interpreter
from euler_ir.cli import main
from euler_ir.inspect.numerics.nans import find_nans
from euler_ir.testing import random_graph


def f32(*numbers):
    return np.array(numbers, np.float32)


def test_log_of_a_negative_number_in_the_forward_pass():
    with ei.Graph("forward") as graph:
        x = ei.input("x", (4,))
        bad = ei.log(x).named("bad")
        ei.output(loss=(bad * 2).sum(), fine=x + 1)
    found = find_nans(graph, {"x": f32(1, 2, -3, 4)})
    first = found.first
    assert (first.value, first.place, first.is_backward, first.count) == ("bad", (2,), False, 1)
    assert "negative number -3" in first.why and "ei.log(x)" in first.location.source_line()
    assert [(each.name, each.place, each.text) for each in first.read] == [("x", "[2]", "-3")]
    assert first.reaches == "output 'loss'" and first.path[0] == "%bad" and len(first.path) == 3
    assert found.results == ("output 'loss'",) and found.all_results == 2 and not found.is_clean


def test_zero_times_an_infinity_names_both():
    with ei.Graph("product") as graph:
        x, weight = ei.input("x", (3,)), ei.input("weight", (3,))
        logs = ei.log(x).named("logs")
        ei.output(loss=(logs * weight).named("terms").sum())
    found = find_nans(graph, {"x": f32(1, 0, 2), "weight": f32(1, 0, 1)}).first
    assert (found.value, found.place, found.why) == ("terms", (1,), "0 times an infinity")
    (cause,) = found.earlier
    assert (cause.value, cause.why) == ("logs", "log of 0")


def test_the_gradient_of_a_square_root_at_0_is_backward():
    with ei.Graph("backward") as graph:
        x = ei.input("x", (3,))
        root = ei.sqrt(x)
        (gradient,) = ei.gradient(root.sum(), [x])
        ei.output(gradient=gradient * 0)
    found = find_nans(graph, {"x": f32(1, 0, 4)}, infinities=True)
    assert found.first.is_backward and found.first.why == "0.5 / 0"
    assert "ei.sqrt(x)" in found.first.location.source_line()
    product = find_nans(graph, {"x": f32(1, 0, 4)}).first
    assert product.why == "0 times an infinity" and product.earlier[0].is_backward
    assert find_nans(graph, {"x": f32(1, 2, 4)}).is_clean


def test_a_cast_that_overflows_is_the_cause():
    with ei.Graph("halves") as graph:
        x = ei.input("x", (2,))
        half = ei.cast(x, ei.f16).named("half")
        ei.output(difference=(half - half).named("difference"))
    found = find_nans(graph, {"x": f32(1, 1e5)}).first
    assert found.value == "difference" and "same infinity" in found.why
    assert found.earlier[0].value == "half" and found.earlier[0].why == "100000 is above the largest f16, 65504"


def test_what_where_does_not_choose_is_masked():
    with ei.Graph("masked") as graph:
        x = ei.input("x", (3,))
        logs = ei.log(x).named("logs")
        ei.output(loss=ei.where(x > 0, logs, 0.0).sum())
    found = find_nans(graph, {"x": f32(1, -1, 2)})
    assert found.is_clean and found.first is None
    assert [each.value for each in found.masked] == ["logs"]


def test_a_nan_that_another_one_covers_is_not_masked():
    with ei.Graph("both") as graph:
        x, y = ei.input("x", (2,)), ei.input("y", (2,))
        ei.output(loss=(ei.log(x) + ei.sqrt(y)).sum())
    found = find_nans(graph, {"x": f32(1, -1), "y": f32(1, -1)})
    assert (found.first.operation.split(" = ")[1].split()[0], found.others, found.masked) == ("log", 1, ())


def test_more_of_them_than_are_told_apart():
    with ei.Graph("many") as graph:
        x = ei.input("x", (2,))
        masked = [ei.where(x > 0, ei.log(x - number), 0.0) for number in range(70)]
        ei.output(y=sum(masked[1:], masked[0]), z=ei.sqrt(x).named("last"))
    found = find_nans(graph, {"x": f32(100, -1)})
    assert found.first.value == "last" and found.results == ("output 'z'",)


def test_bad_leaves_are_told():
    with ei.Graph("leaves") as graph:
        x, w = ei.input("x", (2,)), ei.parameter("w", (2,), ei.initializers.Zeros())
        ei.output(y=x * w)
    found = find_nans(graph, {"x": f32(1, 2), "w": f32(np.nan, 1)})
    assert found.first is None and str(found.leaves[0]) == "parameter 'w' holds 1 NaN, the first at [0]"
    assert found.results == ("output 'y'",)
    assert not find_nans(graph, {"x": f32(np.inf, 2), "w": f32(1, 1)}).leaves
    assert find_nans(graph, {"x": f32(np.inf, 2), "w": f32(1, 1)}, infinities=True).leaves[0].infinities == 1


@pytest.mark.parametrize(
    ("build", "arrays", "words"),
    [
        (lambda x: x / x, f32(0, 1), "0 / 0"),
        (lambda x: ei.exp(x) / ei.exp(x), f32(200, 1), "an infinity by an infinity"),
        (lambda x: ei.sqrt(x), f32(-4, 1), "sqrt of the negative number -4"),
        (lambda x: x**0.5, f32(-4, 1), "no integer"),
        (lambda x: ei.sin(ei.exp(x)), f32(200, 1), "sin of an infinity"),
        (lambda x: (x * 3e38).sum() - (x * 3e38).sum(), f32(1, 1), "minus the same infinity"),
        (lambda x: (1 / x) @ ei.reshape(x, (2, 1)), f32(0, 1).reshape(1, 2), "0 times an infinity"),
        (lambda x: ei.softmax(ei.exp(x), 0), f32(200, 200), "an infinity of"),
        (lambda x: ei.remainder(x, x * 0), f32(1, 1), "remainder by 0"),
    ],
)
def test_why_in_words(build, arrays, words):
    with ei.Graph("words") as graph:
        x = ei.input("x", arrays.shape)
        ei.output(y=build(x))
    assert words in find_nans(graph, {"x": arrays}).first.why


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_agree_with_what_their_results_hold(seed):
    random = random_graph(seed)
    found = find_nans(random.graph, random.leaves)
    outputs, updates = interpreter.run(random.graph, random.leaves)
    bad = [array for array in (*outputs.values(), *updates.values()) if has_nan(array)]
    assert len(found.results) == len(bad)
    if bad and not found.leaves:
        constants = any(has_nan(op.attributes["value"]) for op in random.graph.ops if op.name == "constant")
        assert found.first is not None or constants
    if found.first is not None:
        assert np.isnan(found.first.got) and not any(text == "nan" for text in (each.text for each in found.first.read))


def has_nan(array):
    return array.dtype.kind not in "iub" and bool(np.isnan(array).any())


def test_the_command(capsys, tmp_path):
    with ei.Graph("small") as graph:
        x, w = ei.input("x", (2,)), ei.parameter("w", (2,), ei.initializers.Zeros())
        ei.output(y=ei.log(x * w))
    file = tmp_path / "small.eir"
    file.write_text(str(graph))
    save_file({"x": f32(1, -1)}, tmp_path / "inputs.safetensors")
    save_file({"w": f32(1, 1), "adam.moment": f32(0)}, tmp_path / "state.safetensors")
    given = ["--inputs", str(tmp_path / "inputs.safetensors"), "--state", str(tmp_path / "state.safetensors")]
    assert main(["nans", str(file), *given]) == 1
    printed = capsys.readouterr().out
    assert "arrays: all 2 from files" in printed and "log of the negative number -1" in printed
    assert main(["nans", str(file), *given, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["first"]["got"] == "nan"
    assert main(["nans", str(file), "--inputs", str(tmp_path / "state.safetensors")]) == 2
    assert "adam.moment" in capsys.readouterr().err
    (tmp_path / "inputs.safetensors").write_bytes(b"nothing")
    assert main(["nans", str(file), *given]) == 2
    assert "no safetensors file" in capsys.readouterr().err
