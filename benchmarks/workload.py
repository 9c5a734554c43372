"""What is trained: a GPT-2 of a given size on given tokens, and the arithmetic that it takes."""

from dataclasses import dataclass

import numpy as np

LEARNING_RATE = 1e-3
BETAS = (0.9, 0.95)
EPSILON = 1e-8
WEIGHT_DECAY = 0.1
MAX_NORM = 1.0


@dataclass(frozen=True)
class Workload:
    """The sizes of a GPT-2 and of its batches. It needs no framework, so that a peer's process loads only the peer."""

    layers: int
    heads: int
    width: int
    context: int
    vocab_size: int
    batch: int
    length: int
    biases: bool = True
    gelu: str = "tanh"

    @property
    def tokens(self):
        """Tokens a step."""
        return self.batch * self.length

    @property
    def parameters(self):
        """All but the position embedding; the token embedding counts, because it is the output matmul as well."""
        block = 12 * self.width**2 + 13 * self.width
        return self.vocab_size * self.width + self.layers * block + 2 * self.width

    @property
    def gflop(self):
        """Billions of operations a step: 6 a token and parameter, and those of attention over all pairs of tokens.

        That is how model FLOPs are counted (Chowdhery et al. 2022, "PaLM", appendix B).
        """
        return self.tokens * (6 * self.parameters + 12 * self.layers * self.width * self.length) / 1e9

    @property
    def causal_gflop(self):
        """The same without the pairs of tokens that the mask hides, half of them: what has to be computed."""
        return self.tokens * (6 * self.parameters + 6 * self.layers * self.width * self.length) / 1e9

    def batches(self, count):
        """`count` pairs (tokens, targets), i32[batch, length], the same at every call."""
        generator = np.random.default_rng(0)
        windows = generator.integers(0, self.vocab_size, (count, self.batch, self.length + 1), np.int32)
        return [(np.ascontiguousarray(w[:, :-1]), np.ascontiguousarray(w[:, 1:])) for w in windows]


WORKLOADS = {
    "nano": Workload(layers=4, heads=4, width=128, context=128, vocab_size=512, batch=16, length=128),
    "small": Workload(layers=6, heads=6, width=384, context=256, vocab_size=4096, batch=8, length=256),
    "124M-T256": Workload(layers=12, heads=12, width=768, context=1024, vocab_size=50257, batch=1, length=256),
    "124M-T1024": Workload(layers=12, heads=12, width=768, context=1024, vocab_size=50257, batch=1, length=1024),
}
