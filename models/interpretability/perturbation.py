"""Nudge weights and watch what the model predicts."""

import difflib
import re
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

import euler_ir as ei
from models.interpretability.subject import (
    as_tokens,
    check_finite,
    divergence,
    entropy,
    next_token_graph,
    target_log_probability,
)
from models.named_tensors import tensors_digest

DELTAS = (-0.3, -0.1, -0.03, 0.03, 0.1, 0.3)
MOVERS = 5


@dataclass(frozen=True)
class Place:
    """Elements of one tensor of a State, as `h.1.mlp.c_fc.weight[3,7]`, `wte.weight[:, 0:4]` or a whole `ln_f.bias`."""

    name: str
    index: tuple

    @classmethod
    def of(cls, text, arrays):
        """Read `text`. Raises ValueError when no array of `arrays` has the name, or the index does not fit it."""
        found = re.fullmatch(r"\s*([^\[\]\s]+)\s*(?:\[([^\[\]]*)\])?\s*", text)
        if not found:
            raise ValueError(f"{text!r} names no weight. Write it as h.1.mlp.c_fc.weight[3,7] or ln_f.bias[0:4].")
        name, inner = found.groups()
        if name not in arrays:
            near = difflib.get_close_matches(name, arrays, 3, cutoff=0.0)
            raise ValueError(f"There is no weight {name!r} among {len(arrays)}. The nearest are {', '.join(near)}.")
        array = arrays[name]
        parts = [] if inner is None else inner.split(",")
        if len(parts) > array.ndim:
            raise ValueError(f"{text!r} has {len(parts)} indices, but {name} has the shape {list(array.shape)}.")
        index = tuple(_index(part.strip(), size, text) for part, size in zip(parts, array.shape))
        if not array[index].size:
            raise ValueError(f"{text!r} holds no element: {name} has the shape {list(array.shape)}.")
        return cls(name, index)


def _index(part, size, text):
    try:
        if ":" in part:
            chosen = slice(*(int(bound) if bound.strip() else None for bound in part.split(":")))
            chosen.indices(size)
            return chosen
        position = int(part)
    except (ValueError, TypeError):
        raise ValueError(f"{part!r} in {text!r} is no index. Write numbers and slices, as [3,7] or [:,0:4].") from None
    if not -size <= position < size:
        raise ValueError(f"Index {position} in {text!r} is outside of the {size} that there are, from 0.")
    return position


@contextmanager
def nudged(state, place, delta):
    """Inside, `delta` is added to the elements of `state` at `place`; after it they have their old bits again.

    So also after an exception or Ctrl-C. `state` is changed in place: whoever shares it sees the nudge.
    """
    array = state[place.name]
    saved = array[place.index].copy()
    try:
        array[place.index] += array.dtype.type(delta)
        yield
    finally:
        array[place.index] = saved


@dataclass(frozen=True)
class Nudge:
    """What a nudge by `delta` does to the distribution of the next token.

    `divergence` is KL(before || after) and `entropy` the entropy after, both in nats; `log_probability` is that of the
    target after, `predicted` what the slope at 0 says that it would be; `movers` are those tokens whose probability
    changes most, as (id, before, after).
    """

    delta: float
    divergence: float
    entropy: float
    log_probability: float
    predicted: float
    movers: tuple


@dataclass(frozen=True)
class Perturbation:
    """Nudges of `count` weights at once and how the next token's distribution follows.

    `slope` is the derivative of the target's log-probability by the nudge at 0, by autodiff; `differences` are central
    differences (step, slope) of the same, whose error falls with the square of the step, down to the rounding of f32.
    """

    count: int
    target: int
    log_probability: float
    entropy: float
    slope: float
    differences: tuple
    nudges: tuple


def perturb(subject, ids, place, deltas=DELTAS, target=None):
    """A `Perturbation` of the token that follows `ids`; `target` is by default the likeliest.

    The weights of `subject`, which are its own, have their old bits at the end: this is checked. Raises ValueError for
    a delta that the weights' type does not hold, and RuntimeError if the weights are not as they were.
    """
    largest = float(np.finfo(subject.state[place.name].dtype).max)
    if bad := [delta for delta in deltas if not abs(delta) <= largest]:
        raise ValueError(f"A weight is nudged by a finite number of its type, not by {bad[0]}.")
    before_hash = tensors_digest(subject.state)
    predict = subject.compile(next_token_graph(subject, len(ids)))

    def predicted(delta):
        with nudged(subject.state, place, delta):
            return predict(tokens=as_tokens(ids))["log_probabilities"]

    before = predict(tokens=as_tokens(ids))["log_probabilities"]
    check_finite(before)
    target = int(before.argmax()) if target is None else target
    gradient = subject.compile(_slope_graph(subject, len(ids), place.name))
    slope = float(gradient(tokens=as_tokens(ids), target=np.int32(target))["slope"][place.index].sum(dtype=np.float64))
    steps = sorted({abs(delta) for delta in deltas if delta})
    differences = [(step, (predicted(step)[target] - predicted(-step)[target]) / (2 * step)) for step in steps]
    nudges = [_nudge(delta, before, predicted(delta), target, slope) for delta in deltas]
    if tensors_digest(subject.state) != before_hash:
        raise RuntimeError("The weights are not as they were before: something else has changed them meanwhile.")
    count = int(np.size(subject.state[place.name][place.index]))
    return Perturbation(
        count, target, float(before[target]), float(entropy(before)), slope, tuple(differences), tuple(nudges)
    )


def _nudge(delta, before, after, target, slope):
    change = np.abs(np.exp(after) - np.exp(before))
    movers = np.argsort(-change, kind="stable")[:MOVERS]
    return Nudge(
        delta,
        float(divergence(before, after)),
        float(entropy(after)),
        float(after[target]),
        float(before[target] + slope * delta),
        tuple((int(token), float(np.exp(before[token])), float(np.exp(after[token]))) for token in movers),
    )


def _slope_graph(subject, length, name):
    """The gradient of the log-probability of `target`, i32[], after the text by the parameter `name`: `slope`."""
    graph = next_token_graph(subject, length)
    with graph:
        ei.output(slope=ei.gradient(target_log_probability(graph), [graph.leaf(name)])[0])
    return graph
