"""NanoEuler's model (JustVugg, 2026), which is Llama's (Touvron et al., arXiv:2302.13971) with heads for later tokens.

RMS norms before each half of a block, rotary embeddings, attention with fewer heads of keys than of queries, SwiGLU,
no biases, and heads that predict several next tokens (Gloeckle et al., arXiv:2404.19737), each a table of its own.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import euler_ir as ei
from euler_ir import nn
from models.data.batches import IGNORED_LABEL
from models.language_model import LanguageModel


@dataclass(frozen=True, kw_only=True)
class NanoEulerConfig:
    """Sizes of a NanoEuler: `layers` blocks of `width` features, for up to `context` tokens.

    Attention has `heads` heads of queries and `key_heads`, which divide them, of keys and values, all `head_width`
    wide. `mlp_width` is that between the layers of an MLP. Of `predictions` heads the first predicts the next token,
    the others those after it. `rotary_base` sets how slowly the angles of positions grow.
    """

    vocab_size: int
    context: int
    layers: int
    heads: int
    key_heads: int
    head_width: int
    width: int
    mlp_width: int
    predictions: int = 4
    rotary_base: float = 10000.0
    epsilon: float = 1e-5
    dropout: float = 0.0
    architecture: ClassVar[str] = "nanoeuler"
    title: ClassVar[str] = "NanoEuler"

    def __post_init__(self):
        sizes = ("vocab_size", "context", "layers", "heads", "key_heads", "head_width", "width", "mlp_width")
        for name in (*sizes, "predictions"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} of a NanoEuler must be at least 1, not {getattr(self, name)}.")
        if self.heads % self.key_heads:
            raise ValueError(f"{self.heads} heads of queries cannot share {self.key_heads} heads of keys evenly.")
        if self.head_width % 2:
            raise ValueError(f"head_width must be even, not {self.head_width}: pairs of features are turned.")
        if not 0 < self.rotary_base < float("inf"):
            raise ValueError(f"rotary_base must be above 0 and finite, not {self.rotary_base}.")
        if not 0 <= self.epsilon < float("inf"):
            raise ValueError(f"The epsilon of RMS norms must be at least 0 and finite, not {self.epsilon}.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"The dropout rate must be at least 0 and below 1, not {self.dropout}.")

    def build(self):
        """The model of these sizes."""
        return NanoEuler(self)

    def next_token_only(self):
        """The same without the heads of later tokens."""
        return replace(self, predictions=1)


PRESETS = {
    "nanoeuler-cpu": NanoEulerConfig(
        vocab_size=512, context=128, layers=4, heads=4, key_heads=2, head_width=32, width=128, mlp_width=344
    ),
    "nanoeuler-116M": NanoEulerConfig(
        vocab_size=4096, context=512, layers=16, heads=12, key_heads=4, head_width=64, width=768, mlp_width=2048
    ),
}
"""NanoEuler's two configurations, with its numbers of parameters: 1,053,824 and 116,417,280."""


class Attention(nn.Module):
    """Causal self-attention: [batch, T, width] to the same.

    One projection gives the heads of queries, then those of keys, then those of values.
    """

    def __init__(self, config, residual):
        self.heads, self.key_heads, self.head_width = config.heads, config.key_heads, config.head_width
        projected = (config.heads + 2 * config.key_heads) * config.head_width
        self.qkv = _linear(config.width, projected)
        self.output = _linear(config.heads * config.head_width, config.width, residual)
        self.rotate = nn.RotaryEmbedding(config.head_width, config.rotary_base)

    def forward(self, x, sequence, turns):
        batch, length, _ = x.shape
        by_head = self.qkv(x).reshape(batch, length, self.heads + 2 * self.key_heads, self.head_width)
        turned = self.rotate(by_head[:, :, : self.heads + self.key_heads], turns)
        parts = turned[:, :, : self.heads], turned[:, :, self.heads :], by_head[:, :, self.heads + self.key_heads :]
        mixed = sequence.attention(self.path, *(part.transpose(0, 2, 1, 3) for part in parts))
        return self.output(mixed.transpose(0, 2, 1, 3).reshape(batch, length, self.heads * self.head_width))


class SwiGLU(nn.Module):
    """Two linear layers, the first gated by a third (Shazeer, arXiv:2002.05202): [..., width] to the same."""

    def __init__(self, config, residual):
        self.gate = _linear(config.width, config.mlp_width)
        self.up = _linear(config.width, config.mlp_width)
        self.down = _linear(config.mlp_width, config.width, residual)

    def forward(self, x):
        return self.down(ei.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Attention and MLP, each behind an RMS norm and added to what it read."""

    def __init__(self, config):
        # As in GPT-2: what adds to the residual stream begins smaller, by the square root of its summands.
        residual = 0.02 / (2 * config.layers) ** 0.5
        self.attention_norm = nn.RMSNorm(config.width, config.epsilon)
        self.attention = Attention(config, residual)
        self.mlp_norm = nn.RMSNorm(config.width, config.epsilon)
        self.mlp = SwiGLU(config, residual)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x, sequence, turns, randomness=()):
        x = x + self.dropout(self.attention(self.attention_norm(x), sequence, turns), *randomness)
        return x + self.dropout(self.mlp(self.mlp_norm(x)), *randomness)


class NanoEuler(LanguageModel):
    """The language model. Its first head gives the next token, and is all that evaluation and generation use."""

    def __init__(self, config):
        self.embedding = nn.Embedding(config.vocab_size, config.width, ei.initializers.Normal(0.02))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width, config.epsilon)
        self.heads = nn.ModuleList(_linear(config.width, config.vocab_size) for _ in range(config.predictions))
        self.dropout = nn.Dropout(config.dropout)
        self.rotate = nn.RotaryEmbedding(config.head_width, config.rotary_base)
        self.context = config.context

    def forward(self, tokens, sequence, randomness=()):
        turns = self.rotate.turns(sequence.at_positions(ei.arange(self.context)))
        x = self.dropout(self.embedding(tokens), *randomness)
        for block in self.blocks:
            x = block(x, sequence, turns, randomness)
        return self.norm(x)

    def logits(self, features):
        return self.heads[0](features)

    def training_losses(self, features, targets):
        """The mean over all heads of their losses, so that the first counts as one of `predictions` equals.

        Head k predicts the target k places further on. It has none, and a loss of 0, where that is beyond the row or
        where one of the targets as far as that is IGNORED_LABEL: no head looks across what is not learned, such as
        the end of a text that others share a row with.
        """
        losses, ahead = self.losses(features, targets), targets
        for distance, head in enumerate(self.heads[1:], start=1):
            ahead = ei.where(ei.not_equal(ahead, IGNORED_LABEL), _later(targets, distance), IGNORED_LABEL)
            losses = losses + ei.cross_entropy(head(features), ahead, ignore_index=IGNORED_LABEL)
        return losses / len(self.heads)


def _linear(inputs, outputs, deviation=0.02):
    return nn.Linear(inputs, outputs, bias=False, initializer=ei.initializers.Normal(deviation))


def _later(targets, distance):
    """The targets `distance` places further on, and IGNORED_LABEL beyond the end of the row."""
    length = targets.shape[1]
    distance = min(distance, length)
    beyond = ei.full((targets.shape[0], distance), IGNORED_LABEL, targets.dtype)
    return ei.concatenate((targets[:, distance:], beyond), 1)
