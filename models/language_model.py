"""What every language model here offers, and the graphs that train and evaluate one, whatever its architecture.

A config is a frozen dataclass of sizes. It has `architecture`, the name that checkpoints keep, `title`, what people
call it, `vocab_size`, `context`, `layers`, `width`, `dropout`, `build()`, which gives the model, and
`next_token_only()`, a config without the parts that only pretraining uses.
"""

import math

import euler_ir as ei
from euler_ir import nn, optim
from models.data.batches import IGNORED_LABEL

OPTIMIZERS = {"adamw": optim.AdamW, "muon": optim.Muon}


class WholeTexts:
    """How tokens stand to each other where each row is one text from its first token on: all before is seen.

    This is the interface of all such classes; a model asks them alone where its tokens are and what they see.
    """

    def __init__(self, length):
        self.length = length

    def at_positions(self, table):
        """Rows of `table` [context, ...] at each token's position: [T, ...] or [batch, T, ...]."""
        return table[: self.length]

    def attention(self, path, query, key, value):
        """Each token's attention to what it sees: [batch, heads, T, head width] to the same.

        `path` names the layer. `key` and `value` may have fewer heads than `query`: as many queries in turn share one.
        """
        return ei.attention(query, key, value, causal=True)


class LanguageModel(nn.Module):
    """Base of the models: token ids, integer [batch, T], to features [batch, T, width], and from there to logits."""

    def forward(self, tokens, sequence, randomness=()):
        """Features of `tokens`, which stand to each other as `sequence` (see `WholeTexts`) says.

        `randomness`, a pair (seed, draw) of 0-d integers, switches dropout on.
        """
        raise NotImplementedError

    def logits(self, features):
        """Logits [..., vocab_size], of the token that follows, of features [..., width]."""
        raise NotImplementedError

    def losses(self, features, targets):
        """Negative log-likelihood of `targets`, i32[batch, T]: f32[batch, T], 0 where they are IGNORED_LABEL."""
        return ei.cross_entropy(self.logits(features), targets, ignore_index=IGNORED_LABEL)

    def training_losses(self, features, targets):
        """What training minimises, of the shape of `losses`."""
        return self.losses(features, targets)


def next_token(config, batch, context, training):
    """The objective of pretraining: each token of a text, given all before it.

    An objective declares the inputs of the current graph, of `batch` rows of `context` tokens, and gives (total, count,
    measures): the loss summed over its examples, how many they are, and other sums over them by name, all 0-d. With
    `training` it is what a step minimises, dropout included; else what evaluation reports.
    """
    tokens = ei.input("tokens", (batch, context), ei.i32)
    targets = ei.input("targets", (batch, context), ei.i32)
    model = model_for(config, context)
    features = model(tokens, WholeTexts(context), dropout_inputs(config, training))
    losses = model.training_losses(features, targets) if training else model.losses(features, targets)
    return ei.sum(losses), ei.sum(ei.not_equal(targets, IGNORED_LABEL)), {}


def model_for(config, context):
    """The model of `config`, for texts of `context` tokens. Raises ValueError when it has fewer positions."""
    if context > config.context:
        raise ValueError(f"A context of {context} tokens is more than the {config.context} positions of the model.")
    return config.build()


def dropout_inputs(config, training):
    """The `randomness` of a model in the current graph: inputs `seed` and `draw`, i64[], where it drops anything."""
    if not (training and config.dropout):
        return ()
    return ei.input("seed", (), ei.i64), ei.input("draw", (), ei.i64)


def train_graph(config, batch, context, objective=next_token, loss_scale=None, **optimizer_options):
    """One whole training step as a graph.

    Inputs: those of `objective`, as `tokens` and `targets`, i32[batch, context]; `learning_rate`, f32[]; with dropout
    also `seed` and `draw`, i64[], of which `draw` must differ from call to call. Outputs: `loss`, f32[], the mean over
    targets that are not IGNORED_LABEL; `gradient_norm`, f64[], before clipping; `gradient_norms`, f64[parameters]; and
    the means of the objective's measures, f32[]. With `loss_scale`, an `optim.LossScale`, also `loss_scale`, f32[], by
    which the loss was multiplied. `optimizer_options` are those of `update_parameters`.
    """
    with ei.Graph("train") as graph:
        total, count, measures = objective(config, batch, context, training=True)
        count = ei.maximum(count, 1).cast(ei.f32)
        loss = total / count
        gradients = loss_scale.gradients(loss) if loss_scale else optim.gradients(loss)
        update_parameters(gradients, loss, loss_scale, **optimizer_options)
        ei.output(**{name: measure / count for name, measure in measures.items()})
    return graph


def accumulation_graphs(config, batch, context, objective=next_token, loss_scale=None, **optimizer_options):
    """A training step over several batches, as two graphs that share a State: (accumulate, apply).

    Call `accumulate` with the objective's inputs (and `seed` and `draw`) for each batch, then `apply` once with
    `learning_rate`. Loss, measures and gradient are means over all examples of the step, however they are spread over
    the batches. Inputs and outputs are those of `train_graph`, shared between the two.
    """
    with ei.Graph("accumulate") as accumulate:
        total, count, measures = objective(config, batch, context, training=True)
        for name, value in {"loss": total, **measures}.items():
            held = ei.state(f"accumulator.{name}", (), dtype=ei.f64)
            ei.update(held, held + value.cast(ei.f64))
        optim.accumulate(_gradients_of_sum(total, count, loss_scale), count)
    with ei.Graph("apply") as apply:
        gradients, count = optim.accumulated([parameter.value for parameter in config.build().parameters()])
        means = {}
        for name in ("loss", *measures):
            held = ei.state(f"accumulator.{name}", (), dtype=ei.f64)
            ei.update(held, ei.zeros((), ei.f64))
            means[name] = (held / ei.maximum(count, 1.0)).cast(ei.f32)
        update_parameters(gradients, means.pop("loss"), loss_scale, **optimizer_options)
        ei.output(**means)
    return accumulate, apply


def _gradients_of_sum(total, count, loss_scale):
    """The gradients of `total`, a sum over `count` examples."""
    if not loss_scale:
        return optim.gradients(total)
    # On the way they are those of the mean, since what f16 holds does not grow with the batch.
    count = ei.maximum(count, 1).cast(ei.f32)
    return {parameter: mean * count for parameter, mean in loss_scale.gradients(total / count).items()}


def update_parameters(
    gradients,
    loss,
    loss_scale=None,
    optimizer="adamw",
    betas=(0.9, 0.95),
    epsilon=1e-8,
    weight_decay=0.1,
    max_norm=1.0,
):
    """Let the current graph move the parameters by one of OPTIMIZERS along gradients clipped to the norm `max_norm`.

    Nothing is updated when the loss or a gradient turns out not to be finite, but for the `loss_scale`.
    """
    learning_rate = ei.input("learning_rate", ())
    clipped, norm = optim.clip_by_global_norm(gradients, max_norm)
    # A step whose numbers are not finite leaves everything as it was; the loop sees that and decides what then.
    finite = ei.logical_and(ei.absolute(loss) < math.inf, norm < math.inf)
    OPTIMIZERS[optimizer](learning_rate, betas, epsilon, weight_decay).step(clipped, condition=finite)
    ei.output(loss=loss, gradient_norm=norm, gradient_norms=optim.gradient_norms(gradients))
    if loss_scale:
        ei.output(loss_scale=loss_scale.scale(norm.graph))
        loss_scale.update(norm.graph, finite)


def evaluation_graph(config, batch, context, objective=next_token):
    """Inputs: those of `objective`. Outputs: the summed `loss`, f32[], `count`, i64[], and summed measures."""
    with ei.Graph("evaluate") as graph:
        total, count, measures = objective(config, batch, context, training=False)
        ei.output(loss=total, count=count, **measures)
    return graph
