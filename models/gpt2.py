"""GPT-2 (Radford et al., 2019).

Parameters have the names and layouts of Hugging Face's checkpoints, without their prefix `transformer.`.
"""

from dataclasses import dataclass
from typing import ClassVar

import euler_ir as ei
from euler_ir import nn
from models.language_model import LanguageModel


@dataclass(frozen=True)
class GPT2Config:
    """Sizes of a GPT-2: `layers` blocks of `width` features and `heads` heads, for up to `context` tokens."""

    vocab_size: int
    context: int
    layers: int
    heads: int
    width: int
    dropout: float = 0.0
    architecture: ClassVar[str] = "gpt2"

    def __post_init__(self):
        if min(self.vocab_size, self.context, self.layers, self.heads, self.width) < 1:
            raise ValueError(f"Every size of a GPT-2 must be at least 1: {self}.")
        if self.width % self.heads:
            raise ValueError(f"A width of {self.width} does not divide into {self.heads} heads.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"The dropout rate must be at least 0 and below 1, not {self.dropout}.")

    def build(self):
        """The model of these sizes."""
        return GPT2(self)


PRESETS = {
    "nano": GPT2Config(512, 128, layers=4, heads=4, width=128),
    "small": GPT2Config(512, 256, layers=6, heads=6, width=384),
    "124M": GPT2Config(50257, 1024, layers=12, heads=12, width=768),
    "355M": GPT2Config(50257, 1024, layers=24, heads=16, width=1024),
    "774M": GPT2Config(50257, 1024, layers=36, heads=20, width=1280),
    "1558M": GPT2Config(50257, 1024, layers=48, heads=25, width=1600),
}


class Attention(nn.Module):
    """Causal multi-head self-attention: [batch, T, width] to the same, with one projection for query, key and value."""

    def __init__(self, config, residual):
        self.heads = config.heads
        self.c_attn = nn.Linear(config.width, 3 * config.width, initializer=ei.initializers.Normal(0.02))
        self.c_proj = nn.Linear(config.width, config.width, initializer=residual)

    def forward(self, x, sequence):
        batch, length, width = x.shape
        by_head = self.c_attn(x).reshape(batch, length, 3 * self.heads, width // self.heads).transpose(0, 2, 1, 3)
        mixed = sequence.attention(self.path, *by_head.split(3, axis=1))
        return self.c_proj(mixed.transpose(0, 2, 1, 3).reshape(batch, length, width))


class MLP(nn.Module):
    """Two linear layers around a GELU: [..., width] to the same."""

    def __init__(self, config, residual):
        self.c_fc = nn.Linear(config.width, 4 * config.width, initializer=ei.initializers.Normal(0.02))
        self.c_proj = nn.Linear(4 * config.width, config.width, initializer=residual)

    def forward(self, x):
        return self.c_proj(ei.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    """Attention and MLP, each behind a layer norm and added to what it read."""

    def __init__(self, config):
        # Radford et al., 2.3: what adds to the residual stream begins smaller, by the square root of its summands.
        residual = ei.initializers.Normal(0.02 / (2 * config.layers) ** 0.5)
        self.ln_1 = nn.LayerNorm(config.width)
        self.attn = Attention(config, residual)
        self.ln_2 = nn.LayerNorm(config.width)
        self.mlp = MLP(config, residual)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x, sequence, randomness=()):
        x = x + self.dropout(self.attn(self.ln_1(x), sequence), *randomness)
        return x + self.dropout(self.mlp(self.ln_2(x)), *randomness)


class GPT2(LanguageModel):
    """The language model, with the token embedding, transposed, as its head."""

    def __init__(self, config):
        self.wte = nn.Embedding(config.vocab_size, config.width, ei.initializers.Normal(0.02))
        self.wpe = nn.Embedding(config.context, config.width, ei.initializers.Normal(0.02))
        self.h = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens, sequence, randomness=()):
        x = self.wte(tokens)
        x = x + sequence.at_positions(self.wpe.weight.value)
        x = self.dropout(x, *randomness)
        for block in self.h:
            x = block(x, sequence, randomness)
        return self.ln_f(x)

    def logits(self, features):
        return ei.matmul(features, self.wte.weight.value, transpose_right=True)
