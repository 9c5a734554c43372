"""The training step of `models.gpt2`, compiled by euler_ir for the CPU."""

import functools

import numpy as np

import euler_ir as ei
from benchmarks import workload as settings
from models.gpt2 import GPT2Config
from models.language_model import evaluation_graph, train_graph

ACTIVATIONS = {"tanh": "gelu_new", "none": "gelu"}

def config_of(workload):
    """The GPT-2 of a Workload."""
    sizes = workload.vocab_size, workload.context, workload.layers, workload.heads, workload.width
    return GPT2Config(*sizes, activation=ACTIVATIONS[workload.gelu], biases=workload.biases)


def step_graph(workload, betas=settings.BETAS):
    """The graph of the step of a Workload."""
    return train_graph(
        config_of(workload),
        workload.batch,
        workload.length,
        betas=betas,
        epsilon=settings.EPSILON,
        weight_decay=settings.WEIGHT_DECAY,
        max_norm=settings.MAX_NORM,
    )


def first_state(graph, weights):
    """The state that the graph begins with; its parameters are written to the file `weights`, unless that is None."""
    state = ei.initial_state(graph)
    if weights is not None:
        names = [parameter.op.attributes["name"] for parameter in graph.parameters]
        np.savez(weights, **{name: state[name] for name in names})
    return state


class EulerStep:
    """The step of a Workload. It begins with weights of its own and writes them to the file `weights` for the peers."""

    def __init__(self, workload, weights, threads, betas=settings.BETAS):
        self._workload, self._threads = workload, threads
        graph = step_graph(workload, betas)
        self._state = first_state(graph, weights)
        self._run = ei.compile(graph, threads=threads)

    def prepare(self, tokens, targets):
        """The inputs of a step."""
        return {"tokens": tokens, "targets": targets, "learning_rate": np.float32(settings.LEARNING_RATE)}

    def step(self, inputs):
        """Train on one batch and return its loss."""
        return float(self._run(self._state, **inputs)["loss"])

    def at_rate(self, inputs, learning_rate):
        """`inputs` of a step with another learning rate than the usual one."""
        return inputs | {"learning_rate": np.float32(learning_rate)}

    def loss(self, inputs):
        """The mean loss on one batch, without training."""
        outputs = self._evaluate(self._state, tokens=inputs["tokens"], targets=inputs["targets"])
        return float(outputs["loss"]) / int(outputs["count"])

    @functools.cached_property
    def _evaluate(self):
        graph = evaluation_graph(config_of(self._workload), self._workload.batch, self._workload.length)
        return ei.compile(graph, threads=self._threads)

    def planned(self):
        """What is known of memory before the run, in bytes: of all, of the arena, and of the least arena possible."""
        needs = self._run.memory
        return {"total": needs.total, "arena": needs.arena, "least_arena": self._run.plan.lower_bound}
