"""GPT-2 (Radford et al., 2019).

Parameters have the names and layouts of Hugging Face's checkpoints, without their prefix `transformer.`.
"""

import functools
from dataclasses import dataclass
from typing import ClassVar

import euler_ir as ei
from euler_ir import nn
from models.language_model import LanguageModel


ACTIVATIONS = {
    "gelu_new": functools.partial(ei.gelu, approximate="tanh"),
    "gelu": functools.partial(ei.gelu, approximate="none"),
    "relu": ei.relu,
    "silu": ei.silu,
    "tanh": ei.tanh,
}
"""What may stand between the two layers of an MLP, under transformers' names; "gelu_new" is GPT-2's."""


@dataclass(frozen=True)
class GPT2Config:
    """Sizes of a GPT-2: `layers` blocks of `width` features and `heads` heads, for up to `context` tokens.

    The other fields are where its descendants differ: the width of the MLP (None: four times `width`) and its
    activation, the epsilon of the layer norms, a head of its own in place of the token embedding (`tied_head` False),
    no biases in linear layers and layer norms (`biases` False), and scores of layer n divided by n, counted from 1
    (`scores_by_layer`).
    """

    vocab_size: int
    context: int
    layers: int
    heads: int
    width: int
    dropout: float = 0.0
    mlp_width: int | None = None
    activation: str = "gelu_new"
    epsilon: float = 1e-5
    tied_head: bool = True
    biases: bool = True
    scores_by_layer: bool = False
    architecture: ClassVar[str] = "gpt2"
    title: ClassVar[str] = "GPT-2"

    def __post_init__(self):
        sizes = self.vocab_size, self.context, self.layers, self.heads, self.width
        if min(*sizes, 1 if self.mlp_width is None else self.mlp_width) < 1:
            raise ValueError(f"Every size of a GPT-2 must be at least 1: {self}.")
        if self.width % self.heads:
            raise ValueError(f"A width of {self.width} does not divide into {self.heads} heads.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"The dropout rate must be at least 0 and below 1, not {self.dropout}.")
        if not 0 <= self.epsilon < float("inf"):
            raise ValueError(f"The epsilon of layer norms must be at least 0 and finite, not {self.epsilon}.")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"There is no activation {self.activation!r} here. There are {', '.join(ACTIVATIONS)}.")

    def build(self):
        """The model of these sizes."""
        return GPT2(self)

    def next_token_only(self):
        """This one: a GPT-2 predicts nothing else."""
        return self


PRESETS = {
    "pico": GPT2Config(512, 128, layers=2, heads=2, width=32),
    "micro": GPT2Config(512, 128, layers=3, heads=4, width=64),
    "nano": GPT2Config(512, 128, layers=4, heads=4, width=128),
    "nanogpt-cpu": GPT2Config(65, 64, layers=4, heads=4, width=128, activation="gelu", biases=False),
    "small": GPT2Config(512, 256, layers=6, heads=6, width=384),
    "124M": GPT2Config(50257, 1024, layers=12, heads=12, width=768),
    "355M": GPT2Config(50257, 1024, layers=24, heads=16, width=1024),
    "774M": GPT2Config(50257, 1024, layers=36, heads=20, width=1280),
    "1558M": GPT2Config(50257, 1024, layers=48, heads=25, width=1600),
}


class Attention(nn.Module):
    """Causal multi-head self-attention: [batch, T, width] to the same, with one projection for query, key and value."""

    def __init__(self, config, residual, layer):
        self.heads = config.heads
        self.query_scale = 1 / (layer + 1) if config.scores_by_layer else 1
        self.c_attn = _linear(config, config.width, 3 * config.width, ei.initializers.Normal(0.02))
        self.c_proj = _linear(config, config.width, config.width, residual)

    def forward(self, x, sequence):
        batch, length, width = x.shape
        by_head = self.c_attn(x).reshape(batch, length, 3 * self.heads, width // self.heads).transpose(0, 2, 1, 3)
        query, key, value = by_head.split(3, axis=1)
        if self.query_scale != 1:
            query = query * self.query_scale
        mixed = sequence.attention(self.path, query, key, value)
        return self.c_proj(mixed.transpose(0, 2, 1, 3).reshape(batch, length, width))


class MLP(nn.Module):
    """Two linear layers around an activation: [..., width] to the same."""

    def __init__(self, config, residual):
        inner = 4 * config.width if config.mlp_width is None else config.mlp_width
        self.activation = ACTIVATIONS[config.activation]
        self.c_fc = _linear(config, config.width, inner, ei.initializers.Normal(0.02))
        self.c_proj = _linear(config, inner, config.width, residual)

    def forward(self, x):
        return self.c_proj(self.activation(self.c_fc(x)))


class Block(nn.Module):
    """Attention and MLP, each behind a layer norm and added to what it read; `layer` counts blocks from 0."""

    def __init__(self, config, layer):
        # Radford et al., 2.3: what adds to the residual stream begins smaller, by the square root of its summands.
        residual = ei.initializers.Normal(0.02 / (2 * config.layers) ** 0.5)
        self.ln_1 = _layer_norm(config)
        self.attn = Attention(config, residual, layer)
        self.ln_2 = _layer_norm(config)
        self.mlp = MLP(config, residual)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x, sequence, randomness=()):
        x = x + self.attended(x, sequence, randomness)
        return x + self.transformed(x, randomness)

    def attended(self, x, sequence, randomness):
        """What attention adds to `x`."""
        return self.dropout(self.attn(self.ln_1(x), sequence), *randomness)

    def transformed(self, x, randomness):
        """What the MLP adds to `x`."""
        return self.dropout(self.mlp(self.ln_2(x)), *randomness)


class GPT2(LanguageModel):
    """The language model; its head is the token embedding, transposed, or a table of the same shape.

    A kind of its own gives `blocks`, modules that are called as `Block` is, and the order in which tokens pass them.
    """

    def __init__(self, config, blocks=None):
        self.wte = nn.Embedding(config.vocab_size, config.width, ei.initializers.Normal(0.02))
        self.wpe = nn.Embedding(config.context, config.width, ei.initializers.Normal(0.02))
        self.h = nn.ModuleList(blocks or (Block(config, layer) for layer in range(config.layers)))
        self.ln_f = _layer_norm(config)
        self.lm_head = self.wte if config.tied_head else nn.Embedding(config.vocab_size, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens, sequence, randomness=()):
        x = self.wte(tokens)
        x = x + sequence.at_positions(self.wpe.weight.value)
        x = self.dropout(x, *randomness)
        for block in self.in_order():
            x = block(x, sequence, randomness)
        return self.ln_f(x)

    def in_order(self):
        """The blocks in the order in which tokens pass through them."""
        return self.h

    def logits(self, features):
        return ei.matmul(features, self.lm_head.weight.value, transpose_right=True)


def _linear(config, inputs, outputs, initializer):
    return nn.Linear(inputs, outputs, config.biases, initializer)


def _layer_norm(config):
    return nn.LayerNorm(config.width, config.epsilon, bias=config.biases)
