"""The logit lens: what the model would say if it stopped after each attention and each MLP.

nostalgebraist, "interpreting GPT: the logit lens" (2020). The final norm is computed anew of each row, and the last row
is what the model says.
"""

from dataclasses import dataclass

import numpy as np

import euler_ir as ei
from models.interpretability.structure import residual_stream
from models.interpretability.subject import as_tokens, check_finite, log_probabilities


@dataclass(frozen=True)
class Lens:
    """`labels` of the rows: the embedding, then what was added last. `log_probabilities` f64[rows, positions, vocab].

    `error` is the largest difference between the logits of the last row and those of the model.
    """

    labels: tuple
    log_probabilities: np.ndarray
    error: float


def lens(subject, ids, positions=(-1,)):
    """The `Lens` for the tokens that follow `ids` up to each of `positions`, which count from the end when negative.

    Raises IndexError for a position that is not there.
    """
    positions = np.arange(len(ids))[list(positions)]
    graph = subject.graph(len(ids))
    first, additions = residual_stream(graph)
    names = [first.name, *(addition.after.name for addition in additions)]
    read = subject.compile(ei.read_values(graph, names))
    found = read(tokens=as_tokens(ids))
    head = subject.compile(head_graph(subject, len(positions)))
    rows = [head(stream=found[name][:, positions]) for name in names]
    check_finite(found["logits"])
    error = np.abs(rows[-1]["logits"] - found["logits"][:, positions]).max()
    labels = ("embedding", *(addition.label for addition in additions))
    return Lens(labels, np.stack([row["log_probabilities"][0] for row in rows]), float(error))


def head_graph(subject, length):
    """The model behind its last block: `stream`, f32[1, length, width], to `logits` and `log_probabilities`."""
    graph = subject.graph(length)
    _, additions = residual_stream(graph)
    graph = ei.replace_values(graph, {additions[-1].after.name: lambda stream: ei.input("stream", stream.shape)})
    graph = ei.read_values(graph, {"logits": graph.outputs["logits"].name}, stop=True)
    with graph:
        ei.output(log_probabilities=log_probabilities(graph.outputs["logits"]))
    return graph
