"""The logit lens and direct attribution: against transformers' hidden states and GPT-2 in numpy, in f64."""

import numpy as np
import numpy_gpt2
import pytest

from models.interpretability.direct import direct_logit_attribution
from models.interpretability.lens import lens

TEXT = [10, 200, 31, 7, 99, 150]


def test_rows_are_hidden_states_behind_a_final_norm_of_their_own(subject, micro_weights, micro_reference):
    tokens = micro_reference["x"][1]
    found = lens(subject, tokens.tolist(), positions=range(len(tokens)))
    assert found.labels == ("embedding", "h.0.attn", "h.0.mlp", "h.1.attn", "h.1.mlp")
    w = {name: array.astype(np.float64) for name, array in micro_weights.items()}
    for label, hidden in (("embedding", "hidden_0"), ("h.0.mlp", "hidden_1")):
        normed = numpy_gpt2.layer_norm(micro_reference[hidden][1], w["ln_f.weight"], w["ln_f.bias"])
        expected = numpy_gpt2.log_softmax(normed @ w["wte.weight"].T)
        row = found.log_probabilities[found.labels.index(label)]
        np.testing.assert_allclose(row, expected, atol=2e-5, err_msg=label)
    expected = numpy_gpt2.log_softmax(micro_reference["logits"][1].astype(np.float64))
    np.testing.assert_allclose(found.log_probabilities[-1], expected, atol=2e-5)
    assert found.error < 1e-5


def test_rows_behind_attention_too(subject, micro_weights):
    values = numpy_gpt2.forward(micro_weights, TEXT, 3)
    found = lens(subject, TEXT, positions=(-1, 0))
    w = {name: array.astype(np.float64) for name, array in micro_weights.items()}
    streams = ("stream", "0.after_attention", "0.after_mlp", "1.after_attention", "1.after_mlp")
    for row, name in zip(found.log_probabilities, streams, strict=True):
        normed = numpy_gpt2.layer_norm(values[name][[-1, 0]], w["ln_f.weight"], w["ln_f.bias"])
        np.testing.assert_allclose(row, numpy_gpt2.log_softmax(normed @ w["wte.weight"].T), atol=2e-5, err_msg=name)


def test_a_position_that_is_not_there_is_said(subject):
    with pytest.raises(IndexError):
        lens(subject, TEXT, positions=(6,))


def test_contributions_are_those_with_the_scale_of_the_real_stream_and_sum_to_the_logit(subject, micro_weights):
    values = numpy_gpt2.forward(micro_weights, TEXT, 3)
    w = {name: array.astype(np.float64) for name, array in micro_weights.items()}
    found = direct_logit_attribution(subject, TEXT, target=17)

    def contribution(part):
        normed = numpy_gpt2.layer_norm(part, w["ln_f.weight"], 0, scale_of=values["1.after_mlp"][-1])
        return normed @ w["wte.weight"][17]

    expected = {"embedding": contribution(values["stream"][-1])}
    for layer in range(2):
        projection, bias = (w[f"h.{layer}.attn.c_proj.{kind}"] for kind in ("weight", "bias"))
        for head in range(3):
            part = values[f"{layer}.mixed"][head, -1] @ projection[8 * head : 8 * head + 8]
            expected[f"h.{layer}.attn head {head}"] = contribution(part)
        expected[f"h.{layer}.attn bias"] = contribution(bias)
        expected[f"h.{layer}.mlp"] = contribution(values[f"{layer}.mlp"][-1])
    assert found.contributions == pytest.approx(expected, abs=1e-4)
    assert found.constant == pytest.approx(w["ln_f.bias"] @ w["wte.weight"][17], abs=1e-4)
    assert found.logit == pytest.approx(values["logits"][-1, 17], abs=1e-4)
    total = sum(expected.values()) + w["ln_f.bias"] @ w["wte.weight"][17]
    assert total == pytest.approx(values["logits"][-1, 17]) and abs(found.error) < 1e-4


def test_the_likeliest_token_is_the_default(subject, micro_weights):
    logits = numpy_gpt2.forward(micro_weights, TEXT, 3)["logits"][-1]
    assert direct_logit_attribution(subject, TEXT).target == logits.argmax()
