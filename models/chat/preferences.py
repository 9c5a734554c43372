"""What direct preference optimisation learns from pairs of answers (Rafailov et al., arXiv:2305.18290).

With the log-probabilities of both answers by the model, p, and by a frozen reference, r, summed over tokens, how much
more the model prefers the chosen one than the reference does is h = (p_chosen - p_rejected) - (r_chosen - r_rejected).
"""

from dataclasses import dataclass

import euler_ir as ei
from models.data.batches import IGNORED_LABEL
from models.language_model import WholeTexts, dropout_inputs, model_for


@dataclass(frozen=True)
class Preference:
    """The objective (see `next_token`) of pairs of answers; a row is a pair.

    `loss` of a pair: "dpo", -log sigmoid(beta h), with a share `label_smoothing` of pairs taken for the wrong way round
    (Mitchell, 2023); "ipo", (h - 1 / (2 beta))^2, where log-probabilities are means over tokens, not sums (Azar et al.,
    arXiv:2310.12036); "hinge", max(0, 1 - beta h) (Zhao et al., arXiv:2305.10425). To it comes `sft_weight` times the
    mean loss of the chosen answer's tokens, which keeps it from becoming less likely along with the other.
    """

    loss: str = "dpo"
    beta: float = 0.1
    label_smoothing: float = 0.0
    sft_weight: float = 0.0

    def __post_init__(self):
        if self.loss not in _LOSSES:
            raise ValueError(f"There is no loss {self.loss!r}. Choose one of {', '.join(_LOSSES)}.")
        if not 0 < self.beta < float("inf"):
            raise ValueError(f"beta must be above 0, not {self.beta}. Try 0.1.")
        if not 0 <= self.label_smoothing < 0.5:
            raise ValueError(f"label_smoothing must be at least 0 and below 0.5, not {self.label_smoothing}.")
        if self.label_smoothing and self.loss != "dpo":
            raise ValueError(f"label_smoothing belongs to the loss dpo, not {self.loss}.")
        if not 0 <= self.sft_weight < float("inf"):
            raise ValueError(f"sft_weight must be 0 or above, not {self.sft_weight}.")

    def __call__(self, config, batch, context, training):
        """Inputs: `tokens` and `targets`, i32[batch, 2, context], chosen first, and `reference`, f32[batch, 2], the
        log-probabilities by the reference. A pair without targets is empty and counts for nothing.

        Measures: rewards beta (p - r) of both answers, their margin, the share of pairs with a margin above 0, the
        log-probabilities p of both, and `kl_estimate`, the mean of p - r. That would estimate the divergence from the
        reference if the model had drawn the answers itself; as it is, it shows how far the model has moved.
        """
        log_probs, counts = answer_log_probs(config, batch, context, training)
        reference = ei.input("reference", (batch, 2))
        given = ei.greater(counts[:, 0], 0)
        loss = self.of(log_probs, reference, ei.maximum(counts, 1).cast(ei.f32))
        ratios = log_probs - reference
        rewards = ratios * self.beta
        margins = rewards[:, 0] - rewards[:, 1]
        measures = {
            "reward_chosen": rewards[:, 0],
            "reward_rejected": rewards[:, 1],
            "margin": margins,
            "accuracy": ei.greater(margins, 0).cast(ei.f32),
            "log_prob_chosen": log_probs[:, 0],
            "log_prob_rejected": log_probs[:, 1],
            "kl_estimate": ei.mean(ratios, 1),
        }
        totals = {name: ei.sum(ei.where(given, value, 0.0)) for name, value in measures.items()}
        return ei.sum(ei.where(given, loss, 0.0)), ei.sum(given), totals

    def of(self, log_probs, reference, counts):
        """The loss of each pair, f32[batch], of f32[batch, 2]: log-probabilities p and r, and numbers of tokens."""
        ratios = log_probs - reference
        if self.loss == "ipo":
            ratios = ratios / counts
        loss = _LOSSES[self.loss](ratios[:, 0] - ratios[:, 1], self)
        return loss - log_probs[:, 0] / counts[:, 0] * self.sft_weight if self.sft_weight else loss


def answer_log_probs(config, batch, context, training):
    """(log-probabilities, f32[batch, 2], and numbers, i64[batch, 2], of tokens) of the answers of the current graph's
    inputs `tokens` and `targets`, i32[batch, 2, context].
    """
    tokens = ei.input("tokens", (batch, 2, context), ei.i32)
    targets = ei.input("targets", (batch, 2, context), ei.i32).reshape(2 * batch, context)
    model = model_for(config, context)
    features = model(tokens.reshape(2 * batch, context), WholeTexts(context), dropout_inputs(config, training))
    losses = model.losses(features, targets)
    counts = ei.sum(ei.not_equal(targets, IGNORED_LABEL), 1)
    return -ei.sum(losses, 1).reshape(batch, 2), counts.reshape(batch, 2)


def reference_graph(config, batch, context):
    """Inputs as `answer_log_probs`; output `log_probs`, f32[batch, 2]."""
    with ei.Graph("reference") as graph:
        ei.output(log_probs=answer_log_probs(config, batch, context, training=False)[0])
    return graph


def _minus_log_sigmoid(x):
    """log(1 + exp(-x)), for x of any size."""
    return ei.maximum(-x, 0.0) + ei.log(ei.exp(-ei.absolute(x)) + 1.0)


def _dpo(h, preference):
    right, share = _minus_log_sigmoid(h * preference.beta), preference.label_smoothing
    if not share:
        return right
    return right * (1 - share) + _minus_log_sigmoid(h * -preference.beta) * share


def _ipo(h, preference):
    return (h - 1 / (2 * preference.beta)) ** 2


def _hinge(h, preference):
    return ei.maximum(1.0 - h * preference.beta, 0.0)


_LOSSES = {"dpo": _dpo, "ipo": _ipo, "hinge": _hinge}
