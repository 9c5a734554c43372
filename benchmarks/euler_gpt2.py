"""The training step of `models.gpt2`, compiled by euler_ir for the CPU."""

import numpy as np

import euler_ir as ei
from benchmarks import workload as settings
from models.gpt2 import GPT2Config
from models.language_model import train_graph


def step_graph(workload):
    """The graph of the step of a Workload."""
    config = GPT2Config(workload.vocab_size, workload.context, workload.layers, workload.heads, workload.width)
    return train_graph(
        config,
        workload.batch,
        workload.length,
        betas=settings.BETAS,
        epsilon=settings.EPSILON,
        weight_decay=settings.WEIGHT_DECAY,
        max_norm=settings.MAX_NORM,
    )


class EulerStep:
    """The step of a Workload. It begins with weights of its own and writes them to the file `weights` for the peers."""

    def __init__(self, workload, weights, threads):
        graph = step_graph(workload)
        self._state = ei.initial_state(graph)
        if weights is not None:
            names = [parameter.op.attributes["name"] for parameter in graph.parameters]
            np.savez(weights, **{name: self._state[name] for name in names})
        self._run = ei.compile(graph, threads=threads)

    def prepare(self, tokens, targets):
        """The inputs of a step."""
        return {"tokens": tokens, "targets": targets, "learning_rate": np.float32(settings.LEARNING_RATE)}

    def step(self, inputs):
        """Train on one batch and return its loss."""
        return float(self._run(self._state, **inputs)["loss"])

    def planned(self):
        """What is known of memory before the run, in bytes: of all, of the arena, and of the least arena possible."""
        needs = self._run.memory
        return {"total": needs.total, "arena": needs.arena, "least_arena": self._run.plan.lower_bound}
