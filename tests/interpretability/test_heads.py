"""What heads look at: against GPT-2 in numpy, and scores of heads that are built to be of a kind."""

import numpy as np
import numpy_gpt2
import pytest

import euler_ir as ei
from models.gpt2 import GPT2Config
from models.interpretability.attention import attention_probabilities, head_scores, repeated_tokens
from models.interpretability.subject import Subject
from models.language_model import evaluation_graph
from models.tokenizer.bpe import Tokenizer

TEXT = [10, 200, 31, 7, 99, 150]


def test_probabilities_are_those_of_numpy(subject, micro_weights):
    found, expected = attention_probabilities(subject, TEXT), numpy_gpt2.forward(micro_weights, TEXT, 3)
    assert list(found) == ["h.0.attn", "h.1.attn"]
    for layer, probabilities in enumerate(found.values()):
        np.testing.assert_allclose(probabilities, expected[f"{layer}.probabilities"], atol=1e-5)
        np.testing.assert_allclose(probabilities.sum(-1), 1, atol=1e-6)
        assert not np.triu(probabilities, 1).any(), "a token looks ahead"
    batch = attention_probabilities(subject, [TEXT, TEXT[::-1]])["h.1.attn"]
    np.testing.assert_allclose(batch[0], found["h.1.attn"], atol=1e-6)


def test_scores_are_means_over_the_probabilities(subject, micro_weights):
    tokens = repeated_tokens(subject, seed=3, batch=2, length=8)
    assert tokens.shape == (2, 16) and (tokens[:, :8] == tokens[:, 8:]).all() and len(np.unique(tokens)) > 8
    assert (tokens != repeated_tokens(subject, seed=4, batch=2, length=8)).any()
    texts = [numpy_gpt2.forward(micro_weights, row, 3) for row in tokens]
    for layer, scores in enumerate(head_scores(subject, tokens).values()):
        # The second occurrence of a token looks at what followed the first: 7 positions before it.
        for kind, begin, offset in (("same", 0, 0), ("previous", 1, 1), ("induction", 8, 7)):
            rows = [text[f"{layer}.probabilities"][:, t, t - offset] for text in texts for t in range(begin, 16)]
            np.testing.assert_allclose(getattr(scores, kind), np.mean(rows, axis=0), atol=1e-5, err_msg=kind)


def test_a_head_that_looks_back_by_position_is_found():
    """One layer whose queries at a position ask for the embedding of the position before, or of the same one."""
    config = GPT2Config(257, 16, layers=1, heads=2, width=32)
    random = np.random.default_rng(0)
    weights = {name: np.zeros(shape, np.float32) for name, shape in shapes(config).items()}
    weights["h.0.ln_1.weight"][:] = 1
    weights["wpe.weight"] = np.concatenate([np.eye(16), -np.eye(16)], axis=1).astype(np.float32)
    weights["wte.weight"] = 1e-3 * random.standard_normal((257, 32)).astype(np.float32)
    project = weights["h.0.attn.c_attn.weight"]
    for head, back in enumerate((1, 0)):
        queries = np.zeros((32, 16))
        queries[:16] = np.eye(16, k=-back) * 10  # the position t asks for the key t - back
        project[:, 16 * head : 16 * head + 16] = queries
        project[:16, 32 + 16 * head : 32 + 16 * head + 16] = np.eye(16)
    built = Subject(config, weights, Tokenizer([]))
    scores = head_scores(built, repeated_tokens(built))["h.0.attn"]
    assert scores.previous[0] > 0.9 and scores.same[1] > 0.9
    assert scores.previous[1] < 0.1 and scores.same[0] < 0.2 and (scores.induction < 0.1).all()


def shapes(config):
    graph = evaluation_graph(config, 1, 2)
    return {name: array.shape for name, array in ei.initial_state(graph).items()}


def test_a_context_without_room_is_said(subject):
    config = GPT2Config(257, 3, layers=1, heads=1, width=4)
    weights = {name: np.zeros(shape, np.float32) for name, shape in shapes(config).items()}
    with pytest.raises(ValueError, match="context of 4 tokens, and the model has 3"):
        repeated_tokens(Subject(config, weights, Tokenizer([])))
