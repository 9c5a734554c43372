"""GPT-2 (Radford et al., 2019) and the graphs that train, evaluate and sample it.

Parameters have the names and layouts of Hugging Face's checkpoints, without their prefix `transformer.`.
"""

from dataclasses import dataclass

import euler_ir as ei
from euler_ir import nn, optim
from models.data import IGNORED_LABEL


@dataclass(frozen=True)
class GPT2Config:
    """Sizes of a GPT-2: `layers` blocks of `width` features and `heads` heads, for up to `context` tokens."""

    vocab_size: int
    context: int
    layers: int
    heads: int
    width: int
    dropout: float = 0.0

    def __post_init__(self):
        if min(self.vocab_size, self.context, self.layers, self.heads, self.width) < 1:
            raise ValueError(f"Every size of a GPT-2 must be at least 1: {self}.")
        if self.width % self.heads:
            raise ValueError(f"A width of {self.width} does not divide into {self.heads} heads.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"The dropout rate must be at least 0 and below 1, not {self.dropout}.")


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

    def forward(self, x, cache=None):
        batch, length, width = x.shape
        by_head = self.c_attn(x).reshape(batch, length, 3 * self.heads, width // self.heads).transpose(0, 2, 1, 3)
        heads = by_head.split(3, axis=1)
        mixed = ei.attention(*heads, causal=True) if cache is None else cache.attention(self.path, *heads)
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

    def forward(self, x, randomness=(), cache=None):
        x = x + self.dropout(self.attn(self.ln_1(x), cache), *randomness)
        return x + self.dropout(self.mlp(self.ln_2(x)), *randomness)


class GPT2(nn.Module):
    """The language model: token ids, integer [batch, T], to features [batch, T, width]; `logits` reads them out.

    `randomness`, a pair (seed, step) of 0-d integers, switches dropout on. With a `cache` the tokens stand at its
    positions, and attention sees those before them too.
    """

    def __init__(self, config):
        self.wte = nn.Embedding(config.vocab_size, config.width, ei.initializers.Normal(0.02))
        self.wpe = nn.Embedding(config.context, config.width, ei.initializers.Normal(0.02))
        self.h = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens, randomness=(), cache=None):
        x = self.wte(tokens)
        x = x + (self.wpe.weight.value[: tokens.shape[1]] if cache is None else self.wpe(cache.positions))
        x = self.dropout(x, *randomness)
        for block in self.h:
            x = block(x, randomness, cache)
        return self.ln_f(x)

    def logits(self, features):
        """Logits [..., vocab_size] of features [..., width]; the head is the token embedding, transposed."""
        return ei.matmul(features, self.wte.weight.value, transpose_right=True)


def _summed_loss(config, batch, context, training):
    """The negative log-likelihood of the current graph's targets, summed, and how many count (both 0-d)."""
    if context > config.context:
        raise ValueError(f"A context of {context} tokens is more than the {config.context} positions of the model.")
    tokens = ei.input("tokens", (batch, context), ei.i32)
    targets = ei.input("targets", (batch, context), ei.i32)
    randomness = ()
    if training and config.dropout:
        randomness = (ei.input("seed", (), ei.i64), ei.input("draw", (), ei.i64))
    model = GPT2(config)
    losses = ei.cross_entropy(model.logits(model(tokens, randomness)), targets, ignore_index=IGNORED_LABEL)
    return ei.sum(losses), ei.sum(ei.not_equal(targets, IGNORED_LABEL))


def train_graph(config, batch, context, betas=(0.9, 0.95), epsilon=1e-8, weight_decay=0.1, max_norm=1.0):
    """One whole training step as a graph.

    Inputs: `tokens` and `targets`, i32[batch, context]; `learning_rate`, f32[]; with dropout also `seed` and `draw`,
    i64[], of which `draw` must differ from call to call. Outputs: `loss`, f32[], the mean over targets that are not
    IGNORED_LABEL; `gradient_norm`, f64[], before clipping to `max_norm`; `gradient_norms`, f64[parameters].
    """
    with ei.Graph("train") as graph:
        total, count = _summed_loss(config, batch, context, training=True)
        loss = total / ei.maximum(count, 1).cast(ei.f32)
        _apply(optim.gradients(loss), loss, betas, epsilon, weight_decay, max_norm)
    return graph


def accumulation_graphs(config, batch, context, betas=(0.9, 0.95), epsilon=1e-8, weight_decay=0.1, max_norm=1.0):
    """A training step over several batches, as two graphs that share a State: (accumulate, apply).

    Call `accumulate` with `tokens` and `targets` (and `seed` and `draw`) for each batch, then `apply` once with
    `learning_rate`. Loss and gradient are means over all targets of the step, however they are spread over the
    batches. Inputs and outputs are those of `train_graph`, shared between the two.
    """
    with ei.Graph("accumulate") as accumulate:
        total, count = _summed_loss(config, batch, context, training=True)
        loss_sum = ei.state("accumulator.loss", (), dtype=ei.f64)
        ei.update(loss_sum, loss_sum + total.cast(ei.f64))
        optim.accumulate(optim.gradients(total), count)
    with ei.Graph("apply") as apply:
        gradients, count = optim.accumulated([parameter.value for parameter in GPT2(config).parameters()])
        loss_sum = ei.state("accumulator.loss", (), dtype=ei.f64)
        ei.update(loss_sum, ei.zeros((), ei.f64))
        loss = (loss_sum / ei.maximum(count, 1.0)).cast(ei.f32)
        _apply(gradients, loss, betas, epsilon, weight_decay, max_norm)
    return accumulate, apply


def _apply(gradients, loss, betas, epsilon, weight_decay, max_norm):
    learning_rate = ei.input("learning_rate", ())
    clipped, norm = optim.clip_by_global_norm(gradients, max_norm)
    optim.AdamW(learning_rate, betas, epsilon, weight_decay).step(clipped)
    ei.output(loss=loss, gradient_norm=norm, gradient_norms=optim.gradient_norms(gradients))


def evaluation_graph(config, batch, context):
    """Inputs `tokens` and `targets`, i32[batch, context]. Outputs the summed `loss`, f32[], and `count`, i64[]."""
    with ei.Graph("evaluate") as graph:
        total, count = _summed_loss(config, batch, context, training=False)
        ei.output(loss=total, count=count)
    return graph
