"""A diary of a training: what the model is like at chosen steps, one JSON object a line. It never changes the training."""

import numpy as np

from models.generation.sampling import Sampler, Sampling
from models.interpretability.ngrams import NAMES, NGrams
from models.interpretability.perturbation import divergence
from models.interpretability.subject import Subject, as_tokens, log_probabilities
import euler_ir as ei
from models.training.metrics import MetricsFile

POSITIONS = 256


class Diary:
    """An observer of a `TrainingRun` that writes to the file `path` after each step that is in `steps`.

    `weights` and `gradients` are the norms of tensors before the step, `updates` the norm of what the step changed over
    that of the weight; `samples` continue each of `prompts` greedily; `divergence` is KL(model || n-gram) in nats, a
    mean over the first POSITIONS tokens of `text`, from the counts of `corpus`, both integer [tokens].
    """

    def __init__(self, path, steps, tokenizer, config, corpus, text, prompts=("\n",), sample_tokens=40, resumed_at=0):
        self._file = MetricsFile(path, resumed_at)
        self._steps, self._tokenizer, self._config = frozenset(steps), tokenizer, config
        self._prompts, self._sample_tokens = prompts, sample_tokens
        self._ids = np.asarray(text[: min(POSITIONS, config.context)], np.int32)
        self._ngrams = np.log(NGrams(corpus, config.vocab_size).predictions(self._ids))
        self._before, self._subject, self._predict = None, None, None

    def before_step(self, step, trainer):
        """Keep the weights as they are before step `step`, from 0, if that is one to write about."""
        self._before = None
        if step + 1 in self._steps:
            self._before = {name: trainer.state[name].astype(np.float64) for name in trainer.parameters}

    def after_step(self, record, trainer):
        """Write about the step of `record`."""
        if self._before is None:
            return
        norms = {name: float(np.linalg.norm(array)) for name, array in self._before.items()}
        changes = {name: np.linalg.norm(trainer.state[name] - array) for name, array in self._before.items()}
        self._file.append(
            {
                "step": record["step"],
                "loss": record["loss"],
                "weights": norms,
                "gradients": trainer.gradient_norms,
                "updates": {name: float(changes[name] / norms[name]) if norms[name] else None for name in norms},
                **self._portrait(trainer.state),
            }
        )
