"""Two checkpoints side by side: which tensors moved, and what they predict differently."""

from dataclasses import dataclass

import numpy as np

import euler_ir as ei
from models.data.batches import IGNORED_LABEL, validation_windows
from models.interpretability.subject import check_finite, next_log_probabilities

TOKENS_A_PASS = 1024
"""Windows shorter than this are read several at a time."""


@dataclass(frozen=True)
class Movement:
    """How far a tensor moved: `change` is the norm of the difference, `relative` that over the norm of the first."""

    name: str
    change: float
    relative: float
    largest: float


def movements(first, second):
    """([Movement], [difference in words]) of two mappings of arrays by name, those that moved most, relatively, first.

    Tensors that only one has, or whose shapes differ, are not compared but named in the second list.
    """
    moved, differences = [], []
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second:
            differences.append(f"{name} is only in the {'first' if name in first else 'second'}")
        elif first[name].shape != second[name].shape:
            shapes = [list(each[name].shape) for each in (first, second)]
            differences.append(f"{name} is {shapes[0]} in the first and {shapes[1]} in the second")
        else:
            before, after = (np.asarray(each[name], np.float64) for each in (first, second))
            change, norm = float(np.linalg.norm(after - before)), float(np.linalg.norm(before))
            relative = change / norm if norm else float("inf") if change else 0.0
            moved.append(Movement(name, change, relative, float(np.abs(after - before).max(initial=0.0))))
    # NaN has no place in an order; a tensor that holds it is the first to look at.
    return sorted(moved, key=lambda movement: (np.isfinite(movement.relative), -movement.relative)), differences


def token_losses(subject, ids):
    """Loss of each of `ids` but the first, in nats, f64[tokens - 1], in windows of the model's context.

    Raises ValueError for fewer than two ids, and for predictions that are not finite.
    """
    length = min(subject.config.context, max(len(ids) - 1, 1))
    batch = max(1, min(TOKENS_A_PASS, len(ids)) // length)
    windows = validation_windows(np.asarray(ids, np.int32), length, batch)
    graph = subject.graph(length, batch)
    with graph:
        targets = ei.input("targets", (batch, length), ei.i32)
        losses = ei.cross_entropy(graph.outputs["logits"].cast(ei.f64), targets, ignore_index=IGNORED_LABEL)
        ei.output(losses=losses)
    run = subject.compile(graph)
    found = [run(tokens=tokens, targets=targets)["losses"][targets != IGNORED_LABEL] for tokens, targets in windows]
    losses = np.concatenate(found)
    check_finite(losses)
    return losses


def bits_per_byte(subject, text):
    """That of a text, whose first token is not predicted; it compares models with different tokenizers."""
    ids = subject.tokenizer.encode_ordinary(text)
    return float(token_losses(subject, ids).sum() / np.log(2) / len(subject.tokenizer.decode_bytes(ids[1:])))


def next_tokens(subject, ids, count):
    """The `count` likeliest tokens after `ids`, a list of (id, probability). Raises ValueError where they are NaN."""
    found = next_log_probabilities(subject, ids)
    return [(int(token), float(np.exp(found[token]))) for token in np.argsort(-found, kind="stable")[:count]]
