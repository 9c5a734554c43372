"""How often tokens follow one, two or no tokens in a text: what a model of such counts would predict."""

import numpy as np

NAMES = ("unigram", "bigram", "trigram")


class NGrams:
    """Distributions of the token that follows, counted in `tokens`, integer [tokens], of a vocabulary of `vocab_size`.

    Each order leans on the one below, down to an even distribution: (count + strength * lower) / (all counts +
    strength) (MacKay and Peto, 1995), so that nothing has the probability 0.
    """

    def __init__(self, tokens, vocab_size, strength=5.0):
        self._tokens, self._vocab_size, self._strength = np.asarray(tokens), vocab_size, strength

    def predictions(self, ids):
        """f64[3, positions, vocab]: those of orders 1 to 3 for the token after each of `ids` but the first."""
        return np.stack([self._predicted(before, last) for before, last in zip(ids, ids[1:])], axis=1)

    def _predicted(self, before, last):
        tokens, following = self._tokens, self._tokens[2:]
        after_last = tokens[1:-1] == last
        rows, lower = [], np.full(self._vocab_size, 1 / self._vocab_size)
        for counted in (tokens, following[after_last], following[after_last & (tokens[:-2] == before)]):
            counts = np.bincount(counted, minlength=self._vocab_size)
            lower = (counts + self._strength * lower) / (len(counted) + self._strength)
            rows.append(lower)
        return np.stack(rows)
