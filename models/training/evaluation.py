"""How well a model predicts text that it has not seen."""

import math
from dataclasses import dataclass

import euler_ir as ei
from euler_ir.quantization import quantize_weights
from models.data.batches import IGNORED_LABEL, validation_windows
from models.language_model import evaluation_graph

# Bounds the time that validation takes on a large corpus; the first 64 batches hold 131,072 tokens of nano's.
MAX_BATCHES = 64


@dataclass(frozen=True)
class Score:
    """What predicting some tokens cost, summed: natural units of information (nats), tokens, and the tokens' bytes.

    Sums of scores are scores, so that means are always over all tokens, never of means.
    """

    nats: float
    tokens: float
    bytes: float

    def __add__(self, other):
        return Score(self.nats + other.nats, self.tokens + other.tokens, self.bytes + other.bytes)

    def per_token(self, share=1.0):
        """The score of `share` tokens at the same cost each."""
        factor = share / self.tokens
        return Score(self.nats * factor, share, self.bytes * factor)

    @property
    def loss(self):
        """Nats per token."""
        return self.nats / self.tokens

    @property
    def perplexity(self):
        """e to the loss: as many equally likely tokens would be as hard to predict."""
        return math.exp(min(self.loss, 700.0))

    @property
    def bits_per_byte(self):
        """Compares models with different tokenizers."""
        return self.nats / math.log(2) / self.bytes


class Evaluation:
    """Scores a model on windows of `context` tokens, `batch_size` at a time.

    With `weights` ('i8', 'bf16' or 'f16') it is that of a State with weights in that type.
    """

    def __init__(self, config, tokenizer, batch_size, context, weights=None, backend="cpu", threads=None):
        self._shape = batch_size, context
        graph = evaluation_graph(config, batch_size, context)
        graph = quantize_weights(graph, weights) if weights else graph
        self.executable = ei.compile(graph, backend=backend, threads=threads)
        # Counted from the tokens: a half character decodes to U+FFFD, which has more bytes than it stands for.
        self._byte_count = tokenizer.byte_lengths.copy()
        self._byte_count[list(tokenizer.special_tokens.values())] = 0

    def of(self, state, pieces):
        """The Score of `pieces`, integer [tokens] each, with the parameters of `state`; None with nothing to predict.

        Every token but the first of a piece is predicted once, up to MAX_BATCHES batches in all.
        """
        batch_size, context = self._shape
        total, left = Score(0.0, 0, 0), MAX_BATCHES
        for piece in pieces:
            if len(piece) < 2 or not left:
                continue
            windows = validation_windows(piece[: left * batch_size * context + 1], context, batch_size)
            left -= len(windows)
            for tokens, targets in windows:
                outputs = self.executable(state, tokens=tokens, targets=targets)
                byte_count = int(self._byte_count[targets[targets != IGNORED_LABEL]].sum())
                total += Score(float(outputs["loss"]), int(outputs["count"]), byte_count)
        return total if total.bytes else None
