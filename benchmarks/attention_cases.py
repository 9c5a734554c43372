"""The attention that is timed on GPUs: causal, in bf16, as many tokens in all whatever the length of a text."""

from dataclasses import dataclass

import numpy as np

TOKENS, WIDTH = 16384, 2048


@dataclass(frozen=True)
class AttentionCase:
    """Attention of [batch, heads, length, head width] to itself, with its gradients where ``backward``."""

    batch: int
    heads: int
    length: int
    head_width: int
    backward: bool

    NAMES = ("query", "key", "value")

    @property
    def shape(self):
        return self.batch, self.heads, self.length, self.head_width

    @property
    def name(self):
        what = "forward + backward" if self.backward else "forward"
        return f"{what} {' x '.join(map(str, self.shape))}"

    @property
    def gflop(self):
        """Billions of operations: two products forward, five backward, half of the pairs (Dao 2023, section 4.1)."""
        products = 7 if self.backward else 2
        return products * 2 * self.batch * self.heads * self.length**2 * self.head_width / 2 / 1e9

    def arrays(self):
        """The operands by name, f32 with bf16's digits; where ``backward`` also ``weights``, the result's gradient."""
        generator = np.random.default_rng(0)
        names = (*self.NAMES, "weights") if self.backward else self.NAMES
        drawn = {name: generator.standard_normal(self.shape, np.float32) for name in names}
        return {name: (array.view(np.uint32) & 0xFFFF0000).view(np.float32) for name, array in drawn.items()}


CASES = tuple(
    AttentionCase(TOKENS // length, WIDTH // head_width, length, head_width, backward)
    for head_width in (64, 128)
    for backward in (False, True)
    for length in (2048, 4096, 8192)
)
