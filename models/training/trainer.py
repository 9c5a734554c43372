"""What one step of training a GPT-2 does."""

import math
import time
from dataclasses import dataclass

import numpy as np

import euler_ir as ei
from euler_ir import optim
from models.architectures import PRESETS
from models.data.batches import Batches
from models.data.token_files import check_token_ids
from models.language_model import accumulation_graphs, train_graph
from models.training.evaluation import Evaluation

LEARNING_RATES = {"nano": 4e-3, "small": 1e-3, "124M": 6e-4, "355M": 3e-4, "774M": 2.5e-4, "1558M": 2e-4}
"""Peak learning rate of each preset: measured for nano, from 124M on those of Brown et al. (arXiv:2005.14165, 2.1)."""


@dataclass(frozen=True)
class Settings:
    """All that decides what a training run computes. Two runs with equal settings and corpus give equal weights.

    `steps` is also the horizon of the learning-rate schedule. A step sees `batch_size * accumulate` windows of
    `context` tokens.
    """

    corpus: str
    preset: str = "nano"
    steps: int = 1500
    batch_size: int = 16
    accumulate: int = 1
    context: int = 128
    vocab_size: int = 512
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
    def for_preset(cls, corpus, preset="nano", **given):
        """Settings that suit a preset and the number of steps, except for what is `given`."""
        if preset not in PRESETS:
            raise ValueError(f"There is no preset {preset!r}. Choose one of {', '.join(PRESETS)}.")
        given = {"context": PRESETS[preset].context, "learning_rate": LEARNING_RATES[preset], **given}
        steps = given.setdefault("steps", cls.steps)
        given.setdefault("final_learning_rate", given["learning_rate"] / 10)
        given.setdefault("warmup", min(cls.warmup, steps // 10))
        given.setdefault("validate_every", max(1, steps // 10))
        return cls(corpus, preset, **given)

    @property
    def tokens_per_step(self):
        return self.batch_size * self.accumulate * self.context


class Diverged(ArithmeticError):
    """The loss or a gradient is not finite any more, at `step`, counted from 1."""

    def __init__(self, step, message):
        super().__init__(message)
        self.step = step


class Trainer:
    """A model in training. `state` holds its parameters and the optimiser's moments between steps."""

    def __init__(self, settings, config, tokenizer, train_tokens, validation_tokens, backend="cpu", threads=None):
        """Build and compile the graphs, and begin the parameters from the seed.

        Tokens are integer [tokens]. Raises ValueError when the training tokens are too few for one window, or an id
        is outside of the vocabulary.
        """
        check_token_ids(train_tokens, config.vocab_size, "The training text")
        check_token_ids(validation_tokens, config.vocab_size, "The validation text")
        self.settings = settings
        self._batches = Batches(train_tokens, settings.batch_size, settings.context, settings.seed)
        shape = (config, settings.batch_size, settings.context)
        options = {"betas": settings.betas, "weight_decay": settings.weight_decay, "max_norm": settings.max_norm}
        if settings.accumulate == 1:
            graphs = [train_graph(*shape, **options)]
        else:
            graphs = accumulation_graphs(*shape, **options)
        self._names = [parameter.op.attributes["name"] for parameter in graphs[0].parameters]
        self.state = ei.initial_state(*graphs, seed=settings.seed)
        self._run = [ei.compile(graph, backend=backend, threads=threads) for graph in graphs]
        self._evaluation = Evaluation(
            config, tokenizer, validation_tokens, *shape[1:], backend=backend, threads=threads
        )

    def step(self, step):
        """Take optimiser step `step`, from 0, and return its record for the log. Raises Diverged."""
        settings = self.settings
        started = time.perf_counter()
        peak, floor = settings.learning_rate, settings.final_learning_rate
        rate = optim.warmup_cosine(step, peak, floor, settings.warmup, settings.steps)
        if settings.accumulate == 1:
            outputs = self._run[0](self.state, learning_rate=np.float32(rate), **self._inputs(step, 0))
        else:
            accumulate, apply = self._run
            for micro_step in range(settings.accumulate):
                accumulate(self.state, **self._inputs(step, micro_step))
            outputs = apply(self.state, learning_rate=np.float32(rate))
        loss, norm = float(outputs["loss"]), float(outputs["gradient_norm"])
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise Diverged(step + 1, self._blame(step + 1, loss, outputs["gradient_norms"]))
        return {
            "step": step + 1,
            "loss": loss,
            "learning_rate": rate,
            "gradient_norm": norm,
            "tokens": (step + 1) * settings.tokens_per_step,
            "seconds": time.perf_counter() - started,
        }

    def _blame(self, step, loss, norms):
        broken = ~np.isfinite(norms)
        worst = int(np.argmax(broken)) if broken.any() else int(np.argmax(norms))
        others = f", as are those of {broken.sum() - 1} more parameters" if broken.sum() > 1 else ""
        return (
            f"Step {step}: the loss is {loss:.6g} and the gradient norm of {self._names[worst]} is {norms[worst]:.6g}"
            f"{others}. Try a lower learning rate."
        )

    def _inputs(self, step, micro_step):
        tokens, targets = self._batches.batch(step, micro_step)
        inputs = {"tokens": tokens, "targets": targets}
        if self.settings.dropout:
            draw = step * self.settings.accumulate + micro_step
            inputs |= {"seed": np.int64(self.settings.seed), "draw": np.int64(draw)}
        return inputs

    def validate(self, step):
        """{"validation_loss": nats per token, "bits_per_byte": ...} after `step` steps; {} without validation text.

        Raises Diverged when the loss is not finite.
        """
        found = self._evaluation.of(self.state)
        if found is None:
            return {}
        if not math.isfinite(found[0]):
            raise Diverged(step, f"Step {step}: the validation loss is {found[0]:.6g}. Try a lower learning rate.")
        return dict(zip(("validation_loss", "bits_per_byte"), found))
