"""GPT-2 read as the numerical solution of a differential equation, and what that reading lets one vary.

A residual block, x + f(x), is one explicit Euler step of size 1 of dx/dt = f(x) (E, 2017,
doi:10.1007/s40304-017-0103-z). GPT-2 takes two such steps a layer, one along what attention adds and one along what the
MLP adds: a Lie-Trotter splitting (Lu et al., arXiv:1906.02762). Here the size of the steps, the method that takes them,
and how many layers in a row share one block are options. Nothing makes the fields that training finds smooth in depth:
a transformer is not a neural ODE.
"""

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from models.gpt2 import GPT2, Block, GPT2Config

METHODS = {
    "euler": (((),), (1,)),
    "midpoint": (((), (1 / 2,)), (0, 1)),
    "heun": (((), (1,)), (1 / 2, 1 / 2)),
    "rk4": (((), (1 / 2,), (0, 1 / 2), (0, 0, 1)), (1 / 6, 1 / 3, 1 / 3, 1 / 6)),
}
"""Explicit Runge-Kutta methods as Butcher tableaus (Hairer, Norsett, Wanner: Solving ODEs I, II.1): for each slope the
weights of those before it in the point where it is taken, then the weights of all slopes in the step."""


def integrate(field, x, step_size, method):
    """`x` after one step of dx/dt = field(x)."""
    points, weights = METHODS[method]
    slopes = []
    for earlier in points:
        slopes.append(field(_moved(x, step_size, earlier, slopes)))
    return _moved(x, step_size, weights, slopes)


def _moved(x, step_size, weights, slopes):
    for weight, slope in zip(weights, slopes):
        if weight:
            x = x + (step_size * weight) * slope
    return x


@dataclass(frozen=True)
class EulerViewConfig(GPT2Config):
    """A GPT-2 whose `layers` are steps of `step_size` by `method`; `sharing` layers in a row are steps of one block.

    As it stands, with Euler steps of size 1 and a block a layer, it is GPT-2 itself.
    """

    step_size: float = 1.0
    method: str = "euler"
    sharing: int = 1
    architecture: ClassVar[str] = "euler_view"

    def __post_init__(self):
        super().__post_init__()
        if self.method not in METHODS:
            raise ValueError(f"There is no method {self.method!r} here. There are {', '.join(METHODS)}.")
        if self.sharing < 1 or self.layers % self.sharing:
            raise ValueError(f"{self.layers} layers do not divide into runs of {self.sharing} that share a block.")
        if not self.step_size > 0:
            raise ValueError(f"The step size must be above 0, not {self.step_size}.")

    def build(self):
        """The model of these sizes."""
        return EulerView(self)

    @property
    def evaluations(self):
        """How often a token passes through a block."""
        return self.layers * len(METHODS[self.method][0])


class IntegratedBlock(Block):
    """A block of GPT-2, of which both halves are steps of a method."""

    def __init__(self, config, layer):
        super().__init__(config, layer)
        self.step_size, self.method = config.step_size, config.method

    def forward(self, x, sequence, randomness=()):
        def attention(x):
            return self.attended(x, sequence, randomness)

        def mlp(x):
            return self.transformed(x, randomness)

        for field in (attention, mlp):
            x = integrate(field, x, self.step_size, self.method)
        return x


class Evaluations:
    """A `sequence` for layers that are evaluated more than once: each time has its own keys and values in a cache."""

    def __init__(self, sequence):
        self.sequence, self.counts = sequence, Counter()

    def at_positions(self, table):
        return self.sequence.at_positions(table)

    def attention(self, path, query, key, value):
        number = self.counts[path]
        self.counts[path] += 1
        return self.sequence.attention(f"{path}.{number}" if number else path, query, key, value)


class EulerView(GPT2):
    """GPT-2's tables and head around integrated blocks, each for `sharing` layers in a row."""

    def __init__(self, config):
        distinct = config.layers // config.sharing
        super().__init__(config, [IntegratedBlock(config, layer) for layer in range(distinct)])
        self.sharing = config.sharing

    def forward(self, tokens, sequence, randomness=()):
        return super().forward(tokens, Evaluations(sequence), randomness)

    def in_order(self):
        return [block for block in self.h for _ in range(self.sharing)]
