"""Read, replace, or stop at, any named value of a model's graph while it reads a text. Nothing stays behind.

Values have the names that the printed graph shows, such as `h.0.mlp.gelu`. An edit makes another graph, which shows it.
"""

from dataclasses import dataclass

import numpy as np

import euler_ir as ei
from models.interpretability.subject import as_tokens


@dataclass(frozen=True)
class Trace:
    """The `graph` that was run, the given one with the edits in it, and the arrays that were read, by name."""

    graph: ei.Graph
    values: dict


def trace(subject, ids, read=(), replace=None, stop=False):
    """Run the model on `ids`, with `replace` done as by `ei.replace_values`, and read the values called `read`.

    The values also hold `logits` and `features`, unless `stop` ends the run at what is read. Raises GraphError for a
    name that is not in the graph, and ValueError when there is nothing to stop at.
    """
    if stop and not read:
        raise ValueError("There is nothing to stop at. Name the values to read.")
    graph = ei.read_values(ei.replace_values(subject.graph(len(ids)), replace or {}), read, stop)
    inputs = {"tokens": as_tokens(ids)} if graph.leaf("tokens") is not None else {}
    return Trace(graph, subject.compile(graph)(**inputs))


def value_names(subject, length=1):
    """(name, type) of each value that can be read or replaced, as text, in the order in which they are computed."""
    return [(value.name, str(value.type)) for op in subject.graph(length).ops for value in op.results]


def continued(subject, ids, count, edits=lambda step: {}):
    """The `count` likeliest ids after `ids`, one by one; `edits(step)` are the replacements of that step, from 0.

    A replacement is for the whole text of its step, which is filled up behind with tokens that have no influence; steps
    with the same functions share a graph. Raises ValueError for more tokens than the model sees at once.
    """
    length = len(ids) + count
    if length > subject.config.context:
        raise ValueError(f"{length} tokens are more than the {subject.config.context} that the model sees at once.")
    compiled, ids = {}, list(ids)
    for step in range(count):
        replacements = edits(step)
        key = tuple((name, id(replacement)) for name, replacement in sorted(replacements.items()))
        if key not in compiled:
            # The replacements are kept beside the graph: an id is one object's only as long as that lives.
            graph = ei.replace_values(subject.graph(length), replacements)
            compiled[key] = subject.compile(graph), replacements
        tokens = np.zeros(length, np.int32)
        tokens[: len(ids)] = ids
        logits = compiled[key][0](tokens=as_tokens(tokens))["logits"]
        ids.append(int(logits[0, len(ids) - 1].argmax()))
    return ids[len(ids) - count :] if count else []
