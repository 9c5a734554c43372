"""`python -m models.gradient_check`: every gradient, of operators and of whole models, against finite differences."""

import dataclasses
import sys

import numpy as np

import euler_ir as ei
from euler_ir.gradient_check import GradientError, check_gradients, check_operators, report
from models.data.batches import IGNORED_LABEL
from models.gpt2 import GPT2Config
from models.language_model import train_graph
from models.nanoeuler import NanoEulerConfig

MODELS = {
    "GPT-2": GPT2Config(vocab_size=23, context=8, layers=2, heads=2, width=12, dropout=0.1),
    "NanoEuler": NanoEulerConfig(
        vocab_size=23, context=8, layers=2, heads=4, key_heads=2, head_width=4, width=12, mlp_width=20, dropout=0.1
    ),
}


def check_model(config, elements: int = 16) -> list[GradientError]:
    """The gradient of the training loss for every parameter of a small model with dropout; see `check_gradients`.

    Every parameter is moved off its first value: zero biases and near-zero attention scores would hide mistakes.
    """
    graph = train_graph(config, batch=2, context=config.context)
    random = np.random.default_rng(0)
    state = {name: array + 0.2 * random.standard_normal(array.shape) for name, array in ei.initial_state(graph).items()}
    tokens = random.integers(0, config.vocab_size, (2, config.context + 1))
    targets = tokens[:, 1:].copy()
    targets[0, 2] = IGNORED_LABEL
    inputs = {"tokens": tokens[:, :-1], "targets": targets, "learning_rate": 1e-3, "seed": 1, "draw": 2}
    tied = {"wte.weight": "wte.weight (embedding and tied head)"}
    return [
        dataclasses.replace(row, name=tied.get(row.name, row.name))
        for row in check_gradients(graph, state, inputs, elements=elements)
    ]


def main() -> int:
    """Print a table of the operators and one of each model; the exit code is 1 when a gradient is off too far."""
    passed = [report("operator", check_operators())]
    for name, config in MODELS.items():
        print()
        passed.append(report(f"{name} tensor", check_model(config)))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
