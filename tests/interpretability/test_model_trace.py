"""Values read and edited while a model reads a text: against GPT-2 in numpy, and nothing stays behind."""

import numpy as np
import numpy_gpt2
import pytest

import euler_ir as ei
from models.interpretability.trace import continued, trace, value_names
from models.named_tensors import tensors_digest

TEXT = [10, 200, 31, 7, 99, 150]


def test_values_are_read_by_name(subject, micro_weights):
    expected = numpy_gpt2.forward(micro_weights, TEXT, 3)
    found = trace(subject, TEXT, ["h.0.mlp.gelu", "h.1.attn.attention"]).values
    np.testing.assert_allclose(found["h.0.mlp.gelu"][0], expected["0.gelu"], atol=2e-5)
    np.testing.assert_allclose(found["h.1.attn.attention"][0], expected["1.mixed"], atol=2e-5)
    np.testing.assert_allclose(found["logits"][0], expected["logits"], atol=5e-5)


def without_head(mixed):
    mixed = mixed.copy()
    mixed[1] = 0
    return mixed


def test_values_are_replaced(subject, micro_weights):
    kept = np.array([1, 0, 1], np.float32).reshape(1, 3, 1, 1)
    edits = {"h.0.attn.attention": lambda mixed: mixed * ei.constant(kept), "h.1.mlp.gelu": lambda x: x * 0.5}
    found = trace(subject, TEXT, replace=edits)
    expected = numpy_gpt2.forward(micro_weights, TEXT, 3, {"0.mixed": without_head, "1.gelu": lambda x: x * 0.5})
    np.testing.assert_allclose(found.values["logits"][0], expected["logits"], atol=5e-5)
    assert "multiply %h.1.mlp.gelu" in str(found.graph)


def test_a_value_of_another_text_is_patched_in(subject, micro_weights):
    other = trace(subject, [1, 2, 3, 4, 5, 6], ["h.0.mlp.gelu"], stop=True).values["h.0.mlp.gelu"]
    found = trace(subject, TEXT, replace={"h.0.mlp.gelu": other}).values["logits"][0]
    patch = numpy_gpt2.forward(micro_weights, [1, 2, 3, 4, 5, 6], 3)["0.gelu"]
    expected = numpy_gpt2.forward(micro_weights, TEXT, 3, {"0.gelu": lambda hidden: patch})["logits"]
    np.testing.assert_allclose(found, expected, atol=5e-5)


def test_stopping_runs_nothing_behind(subject):
    found = trace(subject, TEXT, ["h.0.mlp.gelu"], stop=True)
    assert list(found.values) == ["h.0.mlp.gelu"]
    assert not any(op.scope.startswith("h.1") for op in found.graph.ops)
    with pytest.raises(ValueError, match="nothing to stop at"):
        trace(subject, TEXT, stop=True)


def test_nothing_stays_behind(subject):
    """Neither after an edit nor after one that fails: the next trace, of the same or another text, is as the first."""
    before, weights = trace(subject, TEXT), tensors_digest(subject.state)
    trace(subject, TEXT, replace={"h.0.mlp.gelu": 0.0})
    with pytest.raises(ZeroDivisionError):
        trace(subject, TEXT, replace={"h.0.mlp.gelu": lambda value: 1 / 0})
    with pytest.raises(ei.GraphError, match="did you mean h.0.mlp.gelu"):
        trace(subject, TEXT, ["h.0.mlp.gelo"])
    after = trace(subject, TEXT)
    assert str(after.graph) == str(before.graph) and tensors_digest(subject.state) == weights
    np.testing.assert_array_equal(after.values["logits"], before.values["logits"])
    with pytest.raises(ei.GraphError, match="no graph is being built"):
        ei.constant(1.0)


def test_one_edit_is_left_out_without_the_others(subject):
    """The edits of one run are those that it is given, whatever other runs had."""
    one, two = {"h.0.mlp.gelu": 0.0}, {"h.1.mlp.gelu": 0.0}
    alone = trace(subject, TEXT, replace=two).values["logits"]
    trace(subject, TEXT, replace=one | two)
    np.testing.assert_array_equal(trace(subject, TEXT, replace=two).values["logits"], alone)


def test_continuing_with_edits_at_single_steps(subject, micro_weights):
    def silent(value):
        return value * 0.0

    found = continued(subject, TEXT, 4, lambda step: {"h.1.mlp.c_proj.add": silent} if step == 2 else {})
    expected = list(TEXT)
    for step in range(4):
        edits = {"1.mlp": lambda value: 0 * value} if step == 2 else {}
        logits = numpy_gpt2.forward(micro_weights, expected, 3, edits)["logits"]
        expected.append(int(logits[-1].argmax()))
    assert found == expected[-4:]
    assert continued(subject, TEXT, 0) == []
    with pytest.raises(ValueError, match="40 tokens are more than the 32"):
        continued(subject, TEXT, 34)


def test_names_are_those_of_the_printed_graph(subject):
    names = dict(value_names(subject, 6))
    assert names["h.0.mlp.gelu"] == "f32[1, 6, 96]" and names["tokens"] == "i32[1, 6]"
    assert all(f"%{name}" in str(subject.graph(6)) for name in names)
