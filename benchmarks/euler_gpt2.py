"""The training step of `models.gpt2`, compiled by euler_ir for the CPU."""

import numpy as np

import euler_ir as ei
from benchmarks import workload as settings
from models.gpt2 import GPT2Config, train_graph


class EulerStep:
    """The step of a Workload. It begins with weights of its own and writes them to the file `weights` for the peers."""

    def __init__(self, workload, weights, threads):
        config = GPT2Config(
            workload.vocab_size, workload.length, workload.layers, workload.heads, workload.width, dropout=0.0
        )
        graph = train_graph(
            config,
            workload.batch,
            workload.length,
            betas=settings.BETAS,
            epsilon=settings.EPSILON,
            weight_decay=settings.WEIGHT_DECAY,
            max_norm=settings.MAX_NORM,
        )
        self._state = ei.initial_state(graph)
        names = [parameter.op.attributes["name"] for parameter in graph.parameters]
        np.savez(weights, **{name: self._state[name] for name in names})
        self._run = ei.compile(graph, threads=threads)

    def prepare(self, tokens, targets):
        """The inputs of a step."""
        return {"tokens": tokens, "targets": targets, "learning_rate": np.float32(settings.LEARNING_RATE)}

    def step(self, inputs):
        """Train on one batch and return its loss."""
        return float(self._run(self._state, **inputs)["loss"])
