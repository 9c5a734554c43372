"""Weights in fewer bits: what is stored, what is computed from it, and what is left alone."""

import ml_dtypes
import numpy as np
import pytest

import euler_ir as ei
from euler_ir.quantization import quantize_weights, quantized_state


def model():
    """Every way in which a parameter may be read."""
    normal = ei.initializers.Normal(1.0)
    with ei.Graph("model") as graph:
        x, rows = ei.input("x", (3, 6)), ei.input("rows", (3,), ei.i32)
        plain, turned = ei.parameter("plain", (6, 5), normal), ei.parameter("turned", (7, 6), normal)
        tied = ei.parameter("tied", (8, 6), normal)
        left, table = ei.parameter("left", (4, 3), normal), ei.parameter("table", (8, 6), normal)
        both, bias = ei.parameter("both", (6, 6), normal), ei.parameter("bias", (5,), normal)
        x = x + ei.take(tied, rows) + ei.take(table, rows)
        ei.output(
            plain=x @ plain + bias,
            turned=ei.matmul(x, turned, transpose_right=True),
            row=ei.matmul(x[0], plain),
            tied=ei.matmul(x, tied, transpose_right=True),
            left=left @ x,
            both=x @ both + ei.matmul(x, both, transpose_right=True),
        )
    return graph


INPUTS = {
    "x": np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32),
    "rows": np.array([2, 0, 7], np.int32),
}
WEIGHTS = {"plain": 1, "turned": 0, "tied": 0}


def dequantised(state, name, axis, dtype):
    """The weight that the stored one stands for, in f64 and as it was stored before."""
    rows = state[f"{name}.{dtype}"].astype(np.float64)
    if dtype == "i8":
        rows = rows * state[f"{name}.scale"].astype(np.float64)[:, None]
    return rows.T if axis else rows


@pytest.mark.parametrize("dtype", ["i8", "bf16", "f16"])
def test_products_are_those_of_the_weights_made_wide_again(backend, dtype):
    graph = model()
    state = ei.initial_state(graph, seed=1)
    weights = {name: state[name].astype(np.float64) for name in state}
    stored = quantized_state(graph, state, dtype)
    weights |= {name: dequantised(stored, name, axis, dtype) for name, axis in WEIGHTS.items()}
    found = ei.compile(quantize_weights(graph, dtype), backend=backend)(stored, **INPUTS)

    x = INPUTS["x"].astype(np.float64) + weights["tied"][INPUTS["rows"]] + weights["table"][INPUTS["rows"]]
    expected = {
        "plain": x @ weights["plain"] + weights["bias"],
        "turned": x @ weights["turned"].T,
        "row": x[0] @ weights["plain"],
        "tied": x @ weights["tied"].T,
        "left": weights["left"] @ x,
        "both": x @ weights["both"] + x @ weights["both"].T,
    }
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5, err_msg=name)


def test_only_weights_of_products_are_stored_in_fewer_bits():
    graph = model()
    state = ei.initial_state(graph)
    stored = quantized_state(graph, state)
    assert {name.removesuffix(".i8") for name in stored if name.endswith(".i8")} == WEIGHTS.keys()
    assert stored["plain.i8"].shape == (5, 6) and stored["plain.scale"].shape == (5,)
    for name in ("left", "table", "both", "bias"):
        np.testing.assert_array_equal(stored[name], state[name])
    quantised = quantize_weights(graph)
    assert {leaf.op.attributes["name"] for leaf in quantised.parameters} == set(stored)
    assert str(quantize_weights(quantised)) == str(quantised)


def test_an_updated_weight_and_one_that_is_shown_stay():
    with ei.Graph() as graph:
        x = ei.input("x", (2, 3))
        trained, shown = (ei.parameter(name, (3, 3), ei.initializers.Ones()) for name in ("trained", "shown"))
        ei.update(trained, trained * 0.5)
        ei.output(y=x @ trained @ shown, shown=shown)
    assert str(quantize_weights(graph)) == str(graph)


def test_i8_rounds_to_the_nearest_and_keeps_the_largest():
    with ei.Graph() as graph:
        weight = ei.parameter("w", (4, 5), ei.initializers.Zeros())
        ei.output(y=ei.input("x", (1, 4)) @ weight)
    state = ei.initial_state(graph)
    rows = [[0, 0, 0, 0], [1, -254, 127, 3], [1e-45, 0, 0, 0], [3e38, 1, -3e38, 0], [-1, 1, 0.5, 0.25]]
    rows = np.array(rows, np.float32)
    state["w"] = rows.T
    stored = quantized_state(graph, state)
    assert stored["w.scale"][0] == 1 and np.all(stored["w.scale"] > 0)
    np.testing.assert_array_equal(stored["w.i8"][1], [0, -127, 64, 2])
    np.testing.assert_array_equal(stored["w.i8"][3], [127, 0, -127, 0])
    error = np.abs(dequantised(stored, "w", 0, "i8") - rows)
    assert np.all(error <= stored["w.scale"].astype(np.float64)[:, None] * 0.5000001)
    half = quantized_state(graph, state, "bf16")
    np.testing.assert_array_equal(half["w.bf16"], rows.astype(ml_dtypes.bfloat16))


def test_what_has_no_place_is_refused():
    graph = model()
    state = ei.initial_state(graph)
    with pytest.raises(ei.DTypeError, match="not kept in i32"):
        quantize_weights(graph, "i32")
    state["turned"] = np.full((7, 6), np.nan, np.float32)
    with pytest.raises(ei.ExecutionError, match="'turned' is not finite"):
        quantized_state(graph, state)
