"""Another architecture is looked into by the same code: NanoEuler, with RMS norms, grouped queries and no biases."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import nn
from models.generation.sampler import Sampler
from models.generation.sampling import Sampling
from models.interpretability.attention import RecordedAttention, attention_probabilities
from models.interpretability.attribution import integrated_gradients
from models.interpretability.direct import direct_logit_attribution
from models.interpretability.lens import lens
from models.interpretability.sensitivity import scaling_slope, sensitivity
from models.interpretability.structure import residual_stream
from models.interpretability.subject import Subject, as_tokens
from models.interpretability.trace import trace
from models.language_model import LanguageModel, evaluation_graph
from models.nanoeuler import NanoEulerConfig
from models.tokenizer.bpe import Tokenizer

TEXT = [10, 200, 31, 7, 99, 150]
SIZES = dict(layers=2, heads=4, key_heads=2, head_width=8, width=24, mlp_width=40, predictions=2)
LABELS = ["blocks.0.attention", "blocks.0.mlp", "blocks.1.attention", "blocks.1.mlp"]


@pytest.fixture(scope="module")
def subject():
    config = NanoEulerConfig(vocab_size=257, context=32, **SIZES)
    state = ei.initial_state(evaluation_graph(config, 1, 8))
    for name in state:
        state[name] *= 8  # far from what it begins with, where little would depend on anything
    return Subject(config, state, Tokenizer([]))


@pytest.fixture(scope="module")
def streams(subject):
    """The residual stream after the last token, {label: f64[width]}."""
    first, additions = residual_stream(subject.graph(len(TEXT)))
    assert [addition.label for addition in additions] == LABELS
    names = {"embedding": first.name, **{addition.label: addition.after.name for addition in additions}}
    read = trace(subject, TEXT, names.values()).values
    return {label: read[name][0, -1].astype(np.float64) for label, name in names.items()}


def logits(subject, stream, scale_of=None):
    """By an RMS norm of epsilon 1e-5, with the deviation of `scale_of`, and the first head, in numpy."""
    scale = np.sqrt(np.mean(np.square(stream if scale_of is None else scale_of)) + 1e-5)
    weight, head = (subject.state[name].astype(np.float64) for name in ("norm.weight", "heads.0.weight"))
    return stream / scale * weight @ head


def test_the_lens_has_a_norm_for_each_row(subject, streams):
    found = lens(subject, TEXT)
    assert list(found.labels) == list(streams) and found.error < 1e-5
    for label, row in zip(found.labels, found.log_probabilities[:, 0]):
        expected = logits(subject, streams[label])
        np.testing.assert_allclose(row, expected - np.log(np.exp(expected).sum()), atol=1e-4, err_msg=label)


def test_contributions_sum_to_the_logit(subject, streams):
    found = direct_logit_attribution(subject, TEXT, target=17)
    before = np.zeros(24)
    for label, stream in streams.items():
        parts = [part for name, part in found.contributions.items() if name.startswith(label)]
        assert len(parts) == (5 if "attention" in label else 1)
        expected = logits(subject, stream - before, streams["blocks.1.mlp"])[17]
        assert sum(parts) == pytest.approx(expected, abs=1e-4), label
        before = stream
    assert found.constant == 0 and found.logit == pytest.approx(logits(subject, before)[17], abs=1e-4)


def test_recorded_attention_is_attention(subject):
    found = [
        subject.compile(subject.graph(len(TEXT), sequence=sequence))(tokens=as_tokens(TEXT))["logits"]
        for sequence in (None, RecordedAttention(len(TEXT)))
    ]
    np.testing.assert_allclose(*found, atol=1e-5 * np.abs(found[0]).max())


def test_gradients_foretell_a_scaling_and_belong_to_blocks(subject):
    examples = [TEXT, TEXT[::-1]]
    found = sensitivity(subject, examples)
    assert list(found.by_block(subject.blocks())) == ["embedding", "blocks.0", "blocks.1", "norm", "heads.0"]
    assert found.head_gradient.shape == (2, 4)
    assert found.row(found.gradient)[3] == pytest.approx(scaling_slope(subject, examples), rel=1e-3)


def test_integrated_gradients_where_the_way_begins_steeply(subject):
    """Without positions the baseline is a stream of zeros, whose norm blows up whatever is added first."""
    found = integrated_gradients(subject, TEXT, 17)
    assert abs(found.error) <= 1e-3 * abs(found.value - found.baseline_value) and found.points > 64
    zeros = logits(subject, np.zeros(24))
    assert found.baseline_value == pytest.approx(zeros[17] - np.log(np.exp(zeros).sum()), abs=1e-5)


@dataclass(frozen=True)
class WordByWordConfig:
    """One's own architecture, of what all code here asks of a config."""

    vocab_size: int
    context: int
    layers: int
    width: int
    dropout: float = 0.0
    architecture: ClassVar[str] = "word_by_word"
    title: ClassVar[str] = "Word by word"

    def build(self):
        return WordByWord(self)

    def next_token_only(self):
        return self


class WordByWord(LanguageModel):
    """No attention: what follows a token depends on it alone."""

    def __init__(self, config):
        self.embedding = nn.Embedding(config.vocab_size, config.width, ei.initializers.Normal(1.0))
        self.blocks = nn.ModuleList(nn.Linear(config.width, config.width) for _ in range(config.layers))
        self.head = nn.Linear(config.width, config.vocab_size)

    def forward(self, tokens, sequence, randomness=()):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = x + ei.tanh(block(x))
        return x

    def logits(self, features):
        return self.head(features)


def test_a_model_without_attention():
    config = WordByWordConfig(257, 16, layers=2, width=8)
    state = ei.initial_state(evaluation_graph(config, 1, 8))
    subject = Subject(config, state, Tokenizer([]))
    found = sensitivity(subject, [TEXT])
    assert found.attentions == () and found.head_gradient.shape == (0, 0)
    assert found.row(found.gradient)[3] == pytest.approx(scaling_slope(subject, [TEXT]), rel=1e-3)
    with pytest.raises(ValueError, match="The model has no attention"):
        attention_probabilities(subject, TEXT)
    sampler = Sampler(config, state, Tokenizer([]))
    x = state["embedding.weight"][TEXT[-1]].astype(np.float64)
    for layer in (0, 1):
        x = x + np.tanh(x @ state[f"blocks.{layer}.weight"] + state[f"blocks.{layer}.bias"])
    likeliest = (x @ state["head.weight"] + state["head.bias"]).argmax()
    assert list(sampler.tokens(TEXT, 1, Sampling(temperature=0))) == [likeliest]
