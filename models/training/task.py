"""What a training run asks of that which it trains: the same loop serves pretraining, fine-tuning and preferences."""

import numpy as np

import euler_ir as ei
from models.language_model import accumulation_graphs, next_token, train_graph
from models.training.memory import needs_of


class Task:
    """A model, what it learns from, and how well it does. The loop of `TrainingRun` knows no more about either.

    `title` is a few words for a person; `measure` names the number of `validate` that is lowest in the best checkpoint,
    `unit` what losses count; `objective` (see `next_token`) is what is learned, from `batch_size` rows at a time.
    """

    measure = "validation_loss"
    unit = "nats per token"
    objective = staticmethod(next_token)

    def __init__(self, title, config, tokenizer, settings, backend="cpu", threads=None):
        self.title, self.config, self.tokenizer, self.settings = title, config, tokenizer, settings
        self.backend, self.threads = backend, threads
        self._compiled = None

    def graphs(self):
        """The graphs of an optimiser step: one for all of it, or two, which accumulate a batch and apply their sum.

        The first takes what `inputs` gives. The last takes `learning_rate` and gives `loss`, `gradient_norm` and
        `gradient_norms`, as those of `train_graph`; other outputs are numbers for the log.
        """
        settings = self.settings
        shape, options = (self.config, settings.batch_size, settings.context), settings.optimizer_options
        if settings.accumulate == 1:
            return [train_graph(*shape, **options, objective=self.objective)]
        return accumulation_graphs(*shape, **options, objective=self.objective)

    def compiled(self):
        """The Executables of `graphs`."""
        if self._compiled is None:
            budget = self.settings.memory_budget or None
            options = {"backend": self.backend, "threads": self.threads, "memory_budget": budget}
            passes = self.settings.passes(self.backend)
            self._compiled = [ei.compile(graph, passes=passes, **options) for graph in self.graphs()]
        return self._compiled

    def needs(self):
        """The Needs of training, known before the first step."""
        return needs_of(self.compiled())

    def flops_per_token(self):
        """Floating-point operations that training takes for a token: 6 N + 12 L T W, for N parameters, L layers, T
        tokens a window and W features (Chowdhery et al., arXiv:2204.02311, appendix B). N counts the embeddings too.
        """
        config = self.config
        return 6 * config.build().parameter_count() + 12 * config.layers * self.settings.context * config.width

    def inputs(self, step, micro_step):
        """Arrays by name, a pure function of both numbers, so that a resumed run sees what it would have seen."""
        raise NotImplementedError

    def dropout_inputs(self, step, micro_step):
        """The part of `inputs` that decides what is dropped; {} without dropout."""
        if not self.settings.dropout:
            return {}
        draw = step * self.settings.accumulate + micro_step
        return {"seed": np.int64(self.settings.seed), "draw": np.int64(draw)}

    def validate(self, state):
        """Numbers by name for the log; {} when there is nothing to validate on. Does not depend on the step."""
        raise NotImplementedError

    def in_words(self, validated):
        """What `validate` found, as a part of a line."""
        return ", ".join(f"{name.replace('_', ' ')} {number:.3f}" for name, number in validated.items())

    def description(self):
        """What is about to be trained, on what, in lines for a person."""
        return self.title

    def sample(self, state):
        """Text that shows what the model can do by now, or None."""
        return None
