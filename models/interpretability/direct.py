"""Direct logit attribution: what each head and MLP adds to one logit, by way of the residual stream alone.

Elhage et al., "A Mathematical Framework for Transformer Circuits" (2021). With the scale of the final norm held at what
it is, the way from the stream to the logits is affine: the contributions and one constant sum to the logit.
"""

from dataclasses import dataclass

import numpy as np

import euler_ir as ei
from euler_ir.passes import Decompose
from models.interpretability.lens import head_graph
from models.interpretability.structure import attention_results, residual_stream
from models.interpretability.subject import as_tokens, check_finite

TOLERANCE = 1e-4


@dataclass(frozen=True)
class DirectAttribution:
    """`contributions`, {label: to the logit of `target`}, which with `constant`, the norm's bias, sum to `logit`."""

    target: int
    logit: float
    contributions: dict
    constant: float

    @property
    def error(self):
        return sum(self.contributions.values()) + self.constant - self.logit


def direct_logit_attribution(subject, ids, target=None):
    """The `DirectAttribution` of the logit of `target`, by default the likeliest token, after `ids`.

    An attention counts for each head and for what does not depend on the heads, its bias. Raises ArithmeticError when
    the contributions do not sum to the logit, as for a model whose way to the logits is not affine.
    """
    graph = subject.graph(len(ids))
    first, additions = residual_stream(graph)
    mixed = [value.name for value in attention_results(graph)]
    added = [addition.added.name for addition in additions]
    names = list(dict.fromkeys([first.name, *mixed, *added, additions[-1].after.name]))
    found = subject.compile(ei.read_values(graph, names))(tokens=as_tokens(ids))
    logits = found["logits"][0, -1]
    check_finite(logits)
    target = int(logits.argmax()) if target is None else int(target)
    contribution, constant = _affine_head(subject, found[additions[-1].after.name][:, -1:], target)
    contributions = {"embedding": contribution(found[first.name][:, -1:])}
    projections = _projections(subject)
    for addition in additions:
        parts = {addition.label: found[addition.added.name][:, -1:]}
        if addition.label in projections:
            layer, project = projections[addition.label]
            parts = _parts_of_heads(addition.label, project, found[mixed[layer]][:, :, -1:])
        contributions |= {label: contribution(part) for label, part in parts.items()}
    result = DirectAttribution(target, float(logits[target]), contributions, constant)
    if not abs(result.error) <= TOLERANCE * max(1.0, sum(map(abs, contributions.values()))):
        raise ArithmeticError(f"The contributions miss the logit {result.logit:.6f} by {result.error:.2e}.")
    return result


def _affine_head(subject, stream, target):
    """(contribution, constant): of a part of `stream` to the logit, and what there is without any.

    The one thing on the way to the logits that is not affine is the square root in the norm; it is held at `stream`'s.
    """
    graph = head_graph(subject, 1)
    graph = Decompose().run(ei.read_values(graph, {"logits": graph.outputs["logits"].name}, stop=True))
    roots = [op.result.name for op in graph.ops if op.name in ("sqrt", "rsqrt")]
    scales = subject.compile(ei.read_values(graph, roots, stop=True))(stream=stream) if roots else {}

    def held(number):
        return lambda root: ei.input(f"scale.{number}", root.shape, root.dtype)

    run = subject.compile(ei.replace_values(graph, {name: held(number) for number, name in enumerate(roots)}))
    inputs = {f"scale.{number}": scales[name] for number, name in enumerate(roots)}
    constant = float(run(stream=np.zeros_like(stream), **inputs)["logits"][0, 0, target])
    return lambda part: float(run(stream=part, **inputs)["logits"][0, 0, target]) - constant, constant


def _projections(subject):
    """{label: (layer, function)} of what attentions add to the stream, by one token's heads, [1, heads, 1, width]."""
    graph = subject.graph(1)
    _, additions = residual_stream(graph)
    projections = {}
    for layer, mixed in enumerate(attention_results(graph)):
        # The first addition that an attention reaches is its own; those behind it are computed from the stream.
        own = next((each for each in additions if mixed.op in graph.needed([each.added])), None)
        if own is None:
            continue
        by_heads = ei.replace_values(graph, {mixed.name: lambda value: ei.input("mixed", value.shape)})
        stopped = ei.read_values(by_heads, {"added": own.added.name}, stop=True)
        if [leaf.name for leaf in stopped.inputs] == ["mixed"]:
            projections[own.label] = layer, subject.compile(stopped)
    return projections


def _parts_of_heads(label, project, mixed):
    """What each head adds, [1, 1, width], and, under the label with `bias`, what is added without them."""
    rest = project(mixed=np.zeros_like(mixed))["added"]
    parts = {}
    for head in range(mixed.shape[1]):
        alone = np.zeros_like(mixed)
        alone[:, head] = mixed[:, head]
        parts[f"{label} head {head}"] = project(mixed=alone)["added"] - rest
    return parts | {f"{label} bias": rest}
