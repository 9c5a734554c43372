"""How the next token is chosen: the settings, and the tokens that may come with their probabilities."""

from dataclasses import dataclass

import numpy as np

FIRST_CANDIDATES = 256
"""So many of the likeliest tokens are sorted at first; more only when they do not reach `top_p` together."""


@dataclass(frozen=True)
class Sampling:
    """How to choose the next token. They act in this order: repetition penalty, temperature, `top_k`, `top_p`.

    `temperature` divides the logits; 0 takes the likeliest token. `top_k` keeps the k likeliest tokens; `top_p` keeps
    the likeliest ones until their probabilities reach p (Holtzman et al., arXiv:1904.09751), always at least one.
    `repetition_penalty` r makes tokens that the text holds already less likely (Keskar et al., arXiv:1909.05858): a
    positive logit is divided by r, a negative one multiplied, once however often the token occurs. Tokens of the
    prompt count unless `penalize_prompt` is False. Raises ValueError for a setting out of its range.
    """

    temperature: float = 0.8
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0
    penalize_prompt: bool = True

    def __post_init__(self):
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"The temperature must be 0 or above, not {self.temperature}. 0 takes the likeliest one.")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, not {self.top_k}. Leave it out to keep all tokens.")
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise ValueError(f"top_p must be between 0 and 1, not {self.top_p}. Leave it out to keep all tokens.")
        if not 0 < self.repetition_penalty < float("inf"):
            raise ValueError(
                f"The repetition penalty must be above 0, not {self.repetition_penalty}. 1 is none, 1.1 is mild."
            )


def distribution(logits, sampling, seen=()):
    """The tokens that may come next, ids ascending, and the probability of each, f64, for logits [vocab].

    `seen` are the distinct ids that the repetition penalty concerns. Among equally likely tokens the lowest ids are
    kept. Raises ValueError when no logit is a number to choose by.
    """
    logits = np.array(logits, np.float64)
    if np.isnan(logits).any() or not np.isfinite(logits.max()):
        raise ValueError("The model's logits are not finite. Its weights are damaged; use an earlier checkpoint.")
    if sampling.repetition_penalty != 1 and len(seen):
        ids, penalty = np.asarray(seen), sampling.repetition_penalty
        logits[ids] = np.where(logits[ids] > 0, logits[ids] / penalty, logits[ids] * penalty)
    if sampling.temperature == 0:
        return np.array([np.argmax(logits)]), np.ones(1)
    ids = np.arange(len(logits)) if sampling.top_k is None else np.sort(_likeliest(logits, sampling.top_k))
    weights = _softmax(logits[ids], sampling.temperature)
    if sampling.top_p is not None and sampling.top_p < 1:
        places = np.sort(_nucleus(weights, sampling.top_p))
        ids, weights = ids[places], weights[places] / weights[places].sum()
    return ids, weights


def draw(ids, probabilities, random):
    """One of `ids`, by one number of `random`, a numpy Generator."""
    reached = np.cumsum(probabilities)
    return int(ids[np.searchsorted(reached / reached[-1], random.random(), side="right")])


def _softmax(logits, temperature):
    # Subtracting before dividing keeps the largest at exp(0), however small the temperature.
    with np.errstate(over="ignore"):
        weights = np.exp((logits - logits.max()) / temperature)
    return weights / weights.sum()


def _likeliest(values, count):
    """Places of the `count` largest of `values`, the largest first and the lowest place first among equals."""
    count = min(count, len(values))
    least = np.partition(values, -count)[-count]
    above = np.flatnonzero(values > least)
    places = np.concatenate([above, np.flatnonzero(values == least)[: count - len(above)]])
    return places[np.argsort(-values[places], kind="stable")]


def _nucleus(weights, top_p):
    """Places of the largest of `weights`, which sum to 1, until they reach `top_p` together."""
    count = FIRST_CANDIDATES
    while True:
        places = _likeliest(weights, count)
        # A token stays while the mass before it is below p: the one that crosses p is kept.
        before = np.concatenate([[0.0], np.cumsum(weights[places])])
        if before[-1] >= top_p or len(places) == len(weights):
            kept = before[:-1] < top_p
            kept[0] = True
            return places[kept]
        count *= 8
