"""What each head looks at, and which of three known kinds it resembles."""

import math
from dataclasses import dataclass

import numpy as np

import euler_ir as ei
from models.interpretability.subject import check_finite
from models.language_model import WholeTexts

_STREAM = 0x7265706561746564


class RecordedAttention(WholeTexts):
    """Whole texts whose attention probabilities are kept: `probabilities`, {path: f32[batch, heads, T, T]}."""

    def __init__(self, length):
        super().__init__(length)
        self.probabilities = {}

    def attention(self, path, query, key, value):
        """Softmax of scaled scores over what is seen, spelled out so that the probabilities are values of the graph."""
        groups = query.shape[1] // key.shape[1]
        key, value = (_for_each_query(shared, groups) for shared in (key, value))
        scores = ei.matmul(query, key, transpose_right=True) * (1 / math.sqrt(query.shape[-1]))
        positions = ei.arange(self.length)
        seen = positions <= positions.reshape(self.length, 1)
        probabilities = ei.softmax(ei.where(seen, scores, float("-inf")), axis=-1)
        self.probabilities[path] = probabilities
        return probabilities @ value


def _for_each_query(shared, groups):
    """Keys or values [batch, heads, T, width], each head repeated for the `groups` queries in turn that share it."""
    if groups == 1:
        return shared
    batch, heads, length, width = shared.shape
    repeated = ei.stack([shared] * groups, axis=2)
    return repeated.reshape(batch, heads * groups, length, width)


def attention_probabilities(subject, ids):
    """{path of the attention: f32[heads, T, T]}: how much each token (row) takes from each one before it (column).

    `ids` may also be integer [batch, T], and the arrays are then [batch, heads, T, T]. Raises ValueError for a model
    without attention.
    """
    tokens = np.atleast_2d(np.asarray(ids, np.int32))
    sequence = RecordedAttention(tokens.shape[1])
    graph = subject.graph(tokens.shape[1], len(tokens), sequence)
    with graph:
        names = {path: probabilities.name for path, probabilities in sequence.probabilities.items()}
    if not names:
        raise ValueError("The model has no attention.")
    found = subject.compile(ei.read_values(graph, names, stop=True))(tokens=tokens)
    check_finite(np.stack(list(found.values())))
    return found if np.ndim(ids) == 2 else {path: array[0] for path, array in found.items()}


@dataclass(frozen=True)
class HeadScores:
    """Of one attention, f64[heads] each: mean probability that goes to the token before, to the token itself, and, in
    random tokens repeated once, to the token after the earlier occurrence (Olsson et al., arXiv:2209.11895).
    """

    previous: np.ndarray
    same: np.ndarray
    induction: np.ndarray


def repeated_tokens(subject, seed=0, batch=8, length=64):
    """Rows of `length` random tokens, each row twice in a row: i32[batch, 2 * length], a function of `seed`.

    Rows are as much shorter as the model's context asks for. Raises ValueError when not even two tokens fit twice.
    """
    length = min(length, subject.config.context // 2)
    if length < 2:
        raise ValueError(f"Induction needs a context of 4 tokens, and the model has {subject.config.context}.")
    random = np.random.default_rng([_STREAM, seed])
    known = min(subject.config.vocab_size, subject.tokenizer.vocab_size)
    return np.tile(random.integers(known, size=(batch, length), dtype=np.int32), 2)


def head_scores(subject, tokens):
    """{path of the attention: `HeadScores`} on `tokens`, those of `repeated_tokens`."""
    length = tokens.shape[1] // 2
    scores = {}
    for path, probabilities in attention_probabilities(subject, tokens).items():
        wide = probabilities.astype(np.float64)
        same, previous, induction = (np.diagonal(wide, -offset, 2, 3) for offset in (0, 1, length - 1))
        # The first element of a diagonal is the row `offset`; induction begins with the first token seen before.
        means = (diagonal.mean(axis=(0, 2)) for diagonal in (previous, same, induction[..., 1:]))
        scores[path] = HeadScores(*means)
    return scores
