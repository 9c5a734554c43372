"""All that decides what a training run computes."""

from dataclasses import MISSING, dataclass, fields

import numpy as np

import euler_ir as ei
from euler_ir import optim
from models.architectures import PRESETS
from models.language_model import OPTIMIZERS

PRESET_SETTINGS = {
    "pico": {"learning_rate": 4e-3},
    "micro": {"learning_rate": 4e-3},
    "nano": {"learning_rate": 4e-3},
    "nanogpt-cpu": {"learning_rate": 1e-3, "steps": 2000, "batch_size": 12, "validate_every": 250},
    "small": {"learning_rate": 1e-3},
    "124M": {"learning_rate": 6e-4},
    "355M": {"learning_rate": 3e-4},
    "774M": {"learning_rate": 2.5e-4},
    "1558M": {"learning_rate": 2e-4},
    "nanoeuler-cpu": {"learning_rate": 4e-3},
    "nanoeuler-116M": {"learning_rate": 6e-4},
}
"""What suits a preset: measured for nano (and taken for pico and micro), nanoGPT's own, from 124M on as Brown et al.
(arXiv:2005.14165, 2.1).
"""

LARGEST = float(np.finfo(np.float32).max)
"""What a step computes with is f32: what is larger is infinity there."""

PRECISIONS = ("f32", "bf16", "f16")

CHANGEABLE = ("steps", "patience", "keep", "on_nonfinite", "precision")
"""Settings that may differ when a run is continued: they decide how long it goes on, or how exactly a step computes."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a model is trained, whatever it learns from; a stage of training adds its own.

    `steps` is also the horizon of the learning-rate schedule, one of `optim.SCHEDULES`. A step sees
    `batch_size * accumulate` windows of `context` tokens. After `patience` validations in a row without a new best
    the run ends; 0 lets it go on. `keep` is how many checkpoints are kept by their step, beside latest and best.
    `on_nonfinite` is 'stop', or 'skip' to leave out steps whose loss or gradient is not finite. `memory_budget` bounds
    the bytes of a step's graphs, for which they compute values again; 0 does not. `precision` is the type in which a
    step computes products and attention, one of PRECISIONS; f16 needs the loss to be scaled, which a step does itself.
    """

    steps: int = 1500
    batch_size: int = 16
    accumulate: int = 1
    context: int = 128
    learning_rate: float = 4e-3
    final_learning_rate: float = 4e-4
    schedule: str = "cosine"
    warmup: int = 100
    optimizer: str = "adamw"
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.1
    max_norm: float = 1.0
    dropout: float = 0.0
    validate_every: int = 150
    patience: int = 0
    keep: int = 0
    on_nonfinite: str = "stop"
    precision: str = "f32"
    memory_budget: int = 0
    seed: int = 0

    def __post_init__(self):
        at_least = dict.fromkeys(("steps", "batch_size", "accumulate", "context", "validate_every"), 1)
        at_least |= dict.fromkeys(("warmup", "patience", "keep", "memory_budget", "seed"), 0)
        for name, least in at_least.items():
            if not least <= getattr(self, name) < 1 << 63:
                raise ValueError(f"{name} must be at least {least} and below 2^63, not {getattr(self, name)}.")
        for name in ("learning_rate", "max_norm"):
            if not 0 < getattr(self, name) <= LARGEST:
                raise ValueError(f"{name} must be above 0 and below {LARGEST:.1e}, not {getattr(self, name)}.")
        for name in ("final_learning_rate", "weight_decay"):
            if not 0 <= getattr(self, name) <= LARGEST:
                raise ValueError(f"{name} must be at least 0 and below {LARGEST:.1e}, not {getattr(self, name)}.")
        choices = {"schedule": optim.SCHEDULES, "optimizer": OPTIMIZERS, "on_nonfinite": ("stop", "skip")}
        choices["precision"] = PRECISIONS
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(f"There is no {name} {getattr(self, name)!r}. Choose one of {', '.join(known)}.")

    @classmethod
    def suited(cls, validations, **given):
        """Settings `given`; where they leave it open, what suits the number of steps and the peak learning rate.

        There are `validations` in all, and the default `warmup` is the longest.
        """
        steps, peak = given.get("steps", cls.steps), given.get("learning_rate", cls.learning_rate)
        suiting = {
            "final_learning_rate": peak / 10,
            "warmup": min(cls.warmup, steps // 10),
            "validate_every": max(1, steps // validations),
        }
        return cls(**suiting | given)

    @classmethod
    def of(cls, document):
        """The settings of which `dataclasses.asdict` and JSON made `document`.

        Raises ValueError when they are of another kind of training.
        """
        known = {field.name for field in fields(cls)}
        needed = {field.name for field in fields(cls) if field.default is MISSING}
        if unknown := sorted(document.keys() - known):
            found = f"it has the setting {unknown[0]}"
        elif missing := sorted(needed - document.keys()):
            found = f"it has no setting {missing[0]}"
        else:
            return cls(**document | {"betas": tuple(document.get("betas", cls.betas))})
        raise ValueError(
            f"The run is one of another kind of training: {found}. Continue it with the program that began it."
        )

    @property
    def tokens_per_step(self):
        return self.batch_size * self.accumulate * self.context

    @property
    def optimizer_options(self):
        """What `train_graph` and `accumulation_graphs` take beside the sizes."""
        names = ("optimizer", "betas", "weight_decay", "max_norm")
        scaling = {"loss_scale": optim.LossScale()} if self.precision == "f16" else {}
        return {name: getattr(self, name) for name in names} | scaling

    def passes(self, backend):
        """The passes with which graphs are compiled for `backend` in this precision."""
        own = ei.pipeline_of(backend)
        return own if self.precision == "f32" else f"mixed-precision{{compute={self.precision}}},{own}"

    def learning_rate_of(self, step):
        """The learning rate of `step`, counted from 0: a pure function of it."""
        schedule = optim.SCHEDULES[self.schedule]
        return schedule(step, self.learning_rate, self.final_learning_rate, self.warmup, self.steps)


@dataclass(frozen=True, kw_only=True)
class PretrainingSettings(Settings):
    """Two runs with equal settings and corpus give equal weights.

    `corpus` has the words that name each source (see `SourceFiles`); one text alone may be given as a str. `tokenizer`
    is 'bpe' or 'characters', trained on the corpus, or the file of one to use. `init_from` is the checkpoint of a model
    to begin from, with its sizes and tokenizer; '' begins from the seed. `across_documents` lets a window run on over
    the mark that ends a document.
    """

    corpus: tuple[tuple[str, ...], ...]
    preset: str = "nano"
    tokenizer: str = "bpe"
    vocab_size: int = 512
    init_from: str = ""
    across_documents: bool = False

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "corpus", as_sources(self.corpus))

    @classmethod
    def for_preset(cls, corpus, preset="nano", **given):
        """Settings that suit a preset and the number of steps, except for what is `given`."""
        if preset not in PRESETS:
            raise ValueError(f"There is no preset {preset!r}. Choose one of {', '.join(PRESETS)}.")
        given = {"context": PRESETS[preset].context, **PRESET_SETTINGS.get(preset, {}), **given}
        return cls.suited(validations=10, corpus=corpus, preset=preset, **given)


def as_sources(corpus):
    """The words of each source of a corpus, as tuples; a str is one word of one source."""
    return ((corpus,),) if isinstance(corpus, str) else tuple(tuple(words) for words in corpus)
