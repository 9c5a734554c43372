"""A diary of a training: what the model is like at chosen steps. Keeping one never changes the training."""

import numpy as np

import euler_ir as ei
from models.generation.sampler import Sampler
from models.generation.sampling import Sampling
from models.interpretability.ngrams import NAMES, NGrams
from models.interpretability.subject import as_tokens, divergence, log_probabilities, look_graph
from models.training.metrics import MetricsFile

POSITIONS = 256
"""Tokens of the held-out text that are compared with n-grams, if the model sees as many."""


class Diary:
    """An observer of `TrainingRun.train` that writes into the file `path` after each step for which `wanted(step)`.

    `weights` are the norms of tensors before the step, `gradients` those of their gradients before clipping, `updates`
    the norm of what the step changed over that of the weight; `samples` go on from each of `prompts` with the likeliest
    tokens. `divergence` is KL(model || n-gram) in nats, a mean over the first tokens of `text`, of n-grams counted in
    `corpus`, both integer [tokens]. `resumed_at` is the step after which the run goes on: later records are left out.
    """

    def __init__(self, path, wanted, task, corpus, text, prompts=("\n",), sample_tokens=40, resumed_at=0):
        self._file, self._wanted, self._task = MetricsFile(path, resumed_at), wanted, task
        self._prompts, self._sample_tokens = prompts, sample_tokens
        self._ids = np.asarray(text[: min(POSITIONS, task.config.context)], np.int32)
        self._ngrams = np.log(NGrams(corpus, task.config.vocab_size).predictions(self._ids))
        self._before = self._sampler = None
        graph = look_graph(task.config, len(self._ids))
        with graph:
            ei.output(log_probabilities=log_probabilities(graph.outputs["logits"][0]))
        self._predict = ei.compile(graph, backend=task.backend, threads=task.threads)

    def before_step(self, step, trainer):
        """Keep the weights as they are before step `step`, from 0, if that is one to write about."""
        self._before = None
        if self._wanted(step + 1):
            self._before = {name: trainer.state[name].astype(np.float64) for name in trainer.parameters}

    def after_step(self, record, trainer):
        """Write about the step of `record`."""
        if self._before is None:
            return
        norms = {name: float(np.linalg.norm(array)) for name, array in self._before.items()}
        moved = {name: float(np.linalg.norm(trainer.state[name] - array)) for name, array in self._before.items()}
        entry = {"step": record["step"], "loss": record["loss"], "weights": norms}
        entry["gradients"] = trainer.gradient_norms
        entry["updates"] = {name: moved[name] / norm if norm else None for name, norm in norms.items()}
        entry["samples"] = {prompt: self._sample(prompt, trainer.state) for prompt in self._prompts}
        predicted = self._predict(trainer.state, tokens=as_tokens(self._ids))["log_probabilities"][1:]
        kl = divergence(predicted, self._ngrams).mean(axis=-1)
        entry["divergence"] = dict(zip(NAMES, map(float, kl)))
        self._file.append(entry)

    def close(self):
        self._file.close()

    def _sample(self, prompt, state):
        if self._sampler is None:
            options = {"backend": self._task.backend, "threads": self._task.threads}
            self._sampler = Sampler(self._task.config, state, self._task.tokenizer, **options)
        return "".join(self._sampler.text(prompt, self._sample_tokens, Sampling(temperature=0)))
