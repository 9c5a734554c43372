"""Where a model's parts are in its graph, found from what is computed of what, not from names."""

from dataclasses import dataclass

import euler_ir as ei


@dataclass(frozen=True)
class Addition:
    """A step of the residual stream: `after` is what was before plus `added`, the output of the module `label`."""

    label: str
    added: ei.Value
    after: ei.Value


def residual_stream(graph):
    """(first, additions): the residual stream of a graph of `Subject.graph`, from the embedding to the final norm.

    A step adds to the stream what is computed from the stream; going back from the model's features, each such sum is
    one, as long as what it adds to is such a sum again. Raises ValueError for a model without any.
    """
    features = graph.outputs["features"]
    sums = [op.result for op in graph.needed([features]) if op.name == "add" and op.result.type == features.type]
    stream = next((value for value in reversed(sums) if _parts(value)), None)
    if stream is None:
        raise ValueError("The model has no residual stream: nowhere is something added to what it is computed from.")
    additions = []
    while parts := _parts(stream):
        before, added = parts
        additions.append(Addition(_label(stream.op, added), added, stream))
        stream = before
    return stream, additions[::-1]


def _parts(value):
    """(before, added) of a sum of which one part is computed from the other; None for anything else."""
    if value.op.name != "add":
        return None
    left, right = value.op.operands
    for before, added in ((left, right), (right, left)):
        if before is not added and before.op in value.graph.needed([added]):
            return before, added
    return None


def _label(op, added):
    """The path of the module that made what is added: one step below that of the sum."""
    below = added.op.scope.removeprefix(op.scope).strip(".").split(".")[0]
    return f"{op.scope}.{below}".strip(".") if below else op.result.name


def attention_results(graph):
    """The output of each attention, [batch, heads, T, head width], before it is projected, in the order of layers."""
    return [op.result for op in graph.ops if op.name == "attention"]


def embedded_tokens(graph):
    """The rows of the embedding that the graph's `tokens` pick: [batch, T, width]."""
    tokens = graph.leaf("tokens")
    return next(op.result for op in graph.uses()[tokens] if op.name == "take")
