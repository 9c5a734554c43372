"""Drawing text from a language model, one token at a time."""

from dataclasses import dataclass

import numpy as np

from models.generation.predictor import Predictor
from models.tokenizer.bpe import StreamDecoder


@dataclass(frozen=True)
class Sampling:
    """How to choose the next token.

    `temperature` divides the logits; 0 takes the likeliest token. `top_k` keeps the k likeliest tokens; `top_p` keeps
    the likeliest ones until their probabilities reach p (Holtzman et al., arXiv:1904.09751), always at least one.
    Raises ValueError for a negative temperature, `top_k` below 1 or `top_p` outside of 0 to 1.
    """

    temperature: float = 0.8
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self):
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"The temperature must be 0 or above, not {self.temperature}. 0 takes the likeliest one.")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, not {self.top_k}. Leave it out to keep all tokens.")
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise ValueError(f"top_p must be between 0 and 1, not {self.top_p}. Leave it out to keep all tokens.")


def probabilities(logits, sampling):
    """Probability of each token, f64[vocab], for logits [vocab].

    Among equally likely tokens the lowest ids are kept. Raises ValueError when no logit is a number to choose by.
    """
    logits = np.asarray(logits, np.float64)
    if np.isnan(logits).any() or not np.isfinite(logits.max()):
        raise ValueError("The model's logits are not finite. Its weights are damaged; use an earlier checkpoint.")
    result = np.zeros_like(logits)
    if sampling.temperature == 0:
        result[np.argmax(logits)] = 1.0
        return result
    order = np.argsort(-logits, kind="stable")[: sampling.top_k]
    # Subtracting before dividing keeps the largest at exp(0), however small the temperature.
    with np.errstate(over="ignore"):
        weights = np.exp((logits[order] - logits[order[0]]) / sampling.temperature)
    weights /= weights.sum()
    if sampling.top_p is not None:
        # A token stays while the mass before it is below p: the one that crosses p is kept.
        before = np.concatenate([[0.0], np.cumsum(weights)[:-1]])
        kept = before < sampling.top_p
        kept[0] = True
        order, weights = order[kept], weights[kept] / weights[kept].sum()
    result[order] = weights
    return result


class Sampler:
    """Continues token ids of `tokenizer` with a GPT-2. The other arguments are those of `Predictor`."""

    def __init__(self, config, state, tokenizer, weights=None, backend="cpu", threads=None):
        # A model may have more ids than its tokenizer; those stand for nothing.
        self._vocab_size = min(config.vocab_size, tokenizer.vocab_size)
        self._tokenizer = tokenizer
        self._predictor = Predictor(config, state, weights, backend, threads)

    def tokens(self, prompt_ids, count, sampling=Sampling(), seed=0):
        """Yield up to `count` ids that continue the non-empty list `prompt_ids`; ends after an end-of-text id.

        The same seed gives the same ids. The model sees the last `context` ids. Raises ValueError for an empty prompt
        or an id that the model does not know.
        """
        ids = list(prompt_ids)
        if not ids:
            raise ValueError("The prompt is empty. Give at least one character to continue.")
        if unknown := [token_id for token_id in ids if not 0 <= token_id < self._vocab_size]:
            raise ValueError(f"Token id {unknown[0]} of the prompt is not among the model's {self._vocab_size} ids.")
        random = np.random.Generator(np.random.Philox(seed))
        text = self._predictor.begin()
        for _ in range(count):
            logits = text.read(ids)[: self._vocab_size]
            ids = [int(random.choice(self._vocab_size, p=probabilities(logits, sampling)))]
            yield ids[0]
            if ids[0] == self._tokenizer.end_of_text_id:
                return

    def text(self, prompt, count, sampling=Sampling(), seed=0):
        """Yield pieces of text that continue `prompt`, as `count` tokens are drawn; each piece is whole characters."""
        decoder = StreamDecoder(self._tokenizer)
        for token_id in self.tokens(self._tokenizer.encode_ordinary(prompt), count, sampling, seed):
            if token_id != self._tokenizer.end_of_text_id and (piece := decoder.push(token_id)):
                yield piece
        if rest := decoder.finish():
            yield rest
