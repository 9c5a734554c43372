"""All that decides what a training run computes."""

import math
from dataclasses import dataclass

from models.architectures import PRESETS

LEARNING_RATES = {"pico": 4e-3, "micro": 4e-3, "nano": 4e-3, "small": 1e-3, "124M": 6e-4, "355M": 3e-4, "774M": 2.5e-4, "1558M": 2e-4}
"""Peak learning rate of each preset: measured for nano, from 124M on those of Brown et al. (arXiv:2005.14165, 2.1)."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a model is trained, whatever it learns from; a stage of training adds its own.

    `steps` is also the horizon of the learning-rate schedule. A step sees `batch_size * accumulate` windows of
    `context` tokens.
    """

    steps: int = 1500
    batch_size: int = 16
    accumulate: int = 1
    context: int = 128
    learning_rate: float = 4e-3
    final_learning_rate: float = 4e-4
    warmup: int = 100
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.1
    max_norm: float = 1.0
    dropout: float = 0.0
    validate_every: int = 150
    seed: int = 0

    def __post_init__(self):
        for name in ("steps", "batch_size", "accumulate", "context", "validate_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate must be above 0, not {self.learning_rate}.")
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or above, not {self.seed}.")

    @classmethod
    def of(cls, document):
        """The settings of which `dataclasses.asdict` and JSON made `document`."""
        return cls(**document | {"betas": tuple(document["betas"])})

    @property
    def tokens_per_step(self):
        return self.batch_size * self.accumulate * self.context

    @property
    def optimizer_options(self):
        """What `train_graph` and `accumulation_graphs` take beside the sizes."""
        return {"betas": self.betas, "weight_decay": self.weight_decay, "max_norm": self.max_norm}


@dataclass(frozen=True, kw_only=True)
class PretrainingSettings(Settings):
    """Two runs with equal settings and corpus give equal weights."""

    corpus: str
    preset: str = "nano"
    vocab_size: int = 512

    @classmethod
    def for_preset(cls, corpus, preset="nano", **given):
        """Settings that suit a preset and the number of steps, except for what is `given`."""
        if preset not in PRESETS:
            raise ValueError(f"There is no preset {preset!r}. Choose one of {', '.join(PRESETS)}.")
        given = {"context": PRESETS[preset].context, "learning_rate": LEARNING_RATES[preset], **given}
        steps = given.setdefault("steps", cls.steps)
        given.setdefault("final_learning_rate", given["learning_rate"] / 10)
        given.setdefault("warmup", min(cls.warmup, steps // 10))
        given.setdefault("validate_every", max(1, steps // 10))
        return cls(corpus=corpus, preset=preset, **given)
