"""What each token of a text contributes to a prediction: gradient times activation, and integrated gradients.

Both are taken at the embedded tokens, never at the ids, and keep their sign.
"""

import heapq
from dataclasses import dataclass

import numpy as np

import euler_ir as ei
from models.interpretability.structure import embedded_tokens
from models.interpretability.subject import (
    as_tokens,
    check_finite,
    next_log_probabilities,
    next_token_graph,
    target_log_probability,
)

TOLERANCE = 1e-3
POINTS = 8
"""At which the gradient is taken in each part of the way."""
MOST_POINTS = 1024


@dataclass(frozen=True)
class Attribution:
    """`scores`, f64[tokens], signed, of the log-probability of `target` after the text.

    `value` is that log-probability and `baseline_value` what it is at the baseline. Integrated gradients are complete:
    the scores sum to the difference; `points` says at how many points the gradient was taken. Gradient times activation
    has neither baseline nor sum: both are None.
    """

    scores: np.ndarray
    target: int
    value: float
    baseline_value: float | None = None
    points: int | None = None

    @property
    def error(self):
        """By how much the scores' sum misses the difference to the baseline; None where they need not sum to it."""
        return None if self.baseline_value is None else float(self.scores.sum() - (self.value - self.baseline_value))


def gradient_times_activation(subject, ids, target=None, value=None):
    """An `Attribution` to each position of `value`, a name of the graph, [1, tokens, ...]; by default the embedding.

    Raises GraphError for a name that is not in the graph, and ValueError for a value without an element a token.
    """
    graph = next_token_graph(subject, len(ids))
    activation = embedded_tokens(graph) if value is None else graph.value(value)
    if activation.ndim < 2 or activation.shape[:2] != (1, len(ids)):
        raise ValueError(f"{value} is {activation.type}: it has no row for each of the {len(ids)} tokens.")
    with graph:
        chosen = target_log_probability(graph)
        product = activation.cast(ei.f64) * ei.gradient(chosen, [activation])[0].cast(ei.f64)
        ei.output(value=chosen, scores=product.reshape(len(ids), -1).sum(1))
    target = _target(subject, ids, target)
    found = subject.compile(graph)(tokens=as_tokens(ids), target=np.int32(target))
    check_finite(found["scores"])
    return Attribution(found["scores"], target, float(found["value"]))


def integrated_gradients(subject, ids, target=None, baseline=None, tolerance=TOLERANCE):
    """Integrated gradients (Sundararajan et al., arXiv:1703.01365) from a baseline to the embedded tokens.

    The baseline puts the embedding of the token `baseline`, or zeros where that is None, in the place of every token,
    the first one too; positions stay. Each part of the way is summed by Gauss and Legendre's rule, and the part whose
    scores miss its own difference most is halved, until all together miss the whole by no more than `tolerance` of it.
    Raises ArithmeticError when MOST_POINTS do not do.
    """
    graph = _path_graph(subject, len(ids))
    run = subject.compile(graph)
    target = _target(subject, ids, target)
    rows = subject.compile(ei.read_values(graph, {"rows": embedded_tokens(graph).name}, stop=True))
    start = np.zeros((1, len(ids), subject.config.width), np.float32)
    if baseline is not None:
        start = rows(tokens=as_tokens([baseline] * len(ids)))["rows"]

    def at(share):
        return run(tokens=as_tokens(ids), target=np.int32(target), baseline=start, share=np.float32(share))

    nodes, weights = np.polynomial.legendre.leggauss(POINTS)

    def part(begin, end, first, last):
        """(minus what its scores miss, begin, end, f at both, scores): the heap's smallest is the worst."""
        middle, half = (begin + end) / 2, (end - begin) / 2
        scores = sum(weight * half * at(middle + node * half)["scores"] for node, weight in zip(nodes, weights))
        return -abs(scores.sum() - (last - first)), begin, end, first, last, scores

    baseline_value, value = (float(at(share)["value"]) for share in (0, 1))
    check_finite([baseline_value, value])
    parts = [part(0.0, 1.0, baseline_value, value)]
    while not -sum(each[0] for each in parts) <= tolerance * max(abs(value - baseline_value), tolerance):
        if len(parts) * POINTS >= MOST_POINTS:
            total = sum(each[-1].sum() for each in parts)
            raise ArithmeticError(
                f"The scores sum to {total:.6f}, not to {value - baseline_value:.6f}, with {len(parts) * POINTS} "
                "points. Give another baseline or a larger tolerance."
            )
        _, begin, end, first, last, _ = heapq.heappop(parts)
        middle = (begin + end) / 2
        between = float(at(middle)["value"])
        heapq.heappush(parts, part(begin, middle, first, between))
        heapq.heappush(parts, part(middle, end, between, last))
    scores = sum(each[-1] for each in parts)
    return Attribution(scores, target, value, baseline_value, len(parts) * POINTS)


def _path_graph(subject, length):
    """The gradient at a point of the way from `baseline` to the embedded tokens: `share`, 0 to 1, of it is done.

    `scores`, f64[length], are the gradient there times the whole way, `value` is the log-probability of `target` there.
    """
    graph = next_token_graph(subject, length)
    name = embedded_tokens(graph).name
    point = None

    def between(rows):
        nonlocal point
        start, share = ei.input("baseline", rows.shape), ei.input("share", ())
        point = start + (rows - start) * share
        return point

    graph = ei.replace_values(graph, {name: between})
    with graph:
        chosen = target_log_probability(graph)
        way = (graph.value(name) - graph.leaf("baseline")).cast(ei.f64)
        slope = ei.gradient(chosen, [point])[0].cast(ei.f64)
        ei.output(value=chosen, scores=(way * slope).reshape(length, -1).sum(1))
    return graph


def _target(subject, ids, target):
    return int(next_log_probabilities(subject, ids).argmax() if target is None else target)
