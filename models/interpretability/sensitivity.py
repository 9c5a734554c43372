"""How much the loss depends on each weight: gradient, gradient times weight, and the empirical Fisher information."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

import euler_ir as ei
from euler_ir import optim
from models.interpretability.structure import attention_results
from models.interpretability.subject import as_tokens, check_finite


@dataclass(frozen=True)
class Sensitivity:
    """Means over examples, of the loss of each, which is the mean over its tokens.

    By parameter: `gradient` g and `fisher`, the mean of g^2 over single examples (not the square of the mean), f64
    arrays of the parameter's shape. By attention and head: `head_gradient` and `head_fisher`, f64[layers, heads], the
    same for a gate of 1 by which the head's output is multiplied (Michel et al., arXiv:1905.10650, 3.1): what g.w is
    for a weight, since scaling a head is scaling the rows of the projection that read it. `attentions` are its paths.
    """

    weights: Mapping[str, np.ndarray]
    gradient: Mapping[str, np.ndarray]
    fisher: Mapping[str, np.ndarray]
    attentions: tuple
    head_gradient: np.ndarray
    head_fisher: np.ndarray
    loss: float
    examples: int

    def row(self, names):
        """Sums over the elements of some parameters: count, |g|, |g.w|, g.w and Fisher."""
        totals = np.zeros(5)
        for name in names:
            g, w = self.gradient[name], self.weights[name].astype(np.float64)
            totals += [g.size, np.abs(g).sum(), np.abs(g * w).sum(), (g * w).sum(), self.fisher[name].sum()]
        return totals

    def by_block(self, blocks):
        """{block: names of its parameters}; those outside of any block stand under their module's path."""
        groups = {}
        for name in self.gradient:
            inside = [block for block in blocks if name.startswith(f"{block}.")]
            groups.setdefault(inside[0] if inside else name.rpartition(".")[0] or name, []).append(name)
        return groups


def sensitivity(subject, examples):
    """The `Sensitivity` of the loss on `examples`, integer [examples, T + 1]: each token but the first is predicted.

    Raises ValueError for no examples, for ones of less than two tokens, and for losses that are not finite.
    """
    examples = _checked(examples)
    graph, attentions = _gradient_graph(subject, examples.shape[1] - 1)
    state = subject.state.view().add(graph)
    run = subject.compile(graph, state)
    losses = [float(run(gates=np.ones(state["sum.gates"].shape), **_inputs(example))["loss"]) for example in examples]
    check_finite(losses)
    count = len(examples)
    return Sensitivity(
        subject.state,
        {name: state[f"sum.{name}"] / count for name in subject.parameters},
        {name: state[f"squares.{name}"] / count for name in subject.parameters},
        tuple(attentions),
        state["sum.gates"] / count,
        state["squares.gates"] / count,
        float(np.mean(losses)),
        count,
    )


def scaling_slope(subject, examples, step=2e-3):
    """The derivative of the mean loss by s, where all weights are s times what they are, at 1, by central differences.

    It is what the sum of all g.w must be: a check of `sensitivity` that uses no gradient.
    """
    examples = _checked(examples)
    graph = _loss_graph(subject, examples.shape[1] - 1)

    def scaled(weight):
        scale = weight.graph.leaf("scale")
        return weight * (weight.graph.input("scale", ()) if scale is None else scale)

    run = subject.compile(ei.replace_values(graph, dict.fromkeys(subject.parameters, scaled)))
    higher, lower = (
        np.mean([run(scale=np.float32(scale), **_inputs(example))["loss"] for example in examples])
        for scale in (1 + step, 1 - step)
    )
    return float(higher - lower) / (2 * step)


def _checked(examples):
    examples = np.asarray(examples)
    if examples.ndim != 2 or not len(examples) or examples.shape[1] < 2:
        raise ValueError(f"Give examples of two tokens or more each, not an array of shape {list(examples.shape)}.")
    return examples


def _inputs(example):
    return {"tokens": as_tokens(example[:-1]), "targets": as_tokens(example[1:])}


def _loss_graph(subject, length):
    """`tokens` and `targets`, i32[1, length], to `loss`, f64[], the mean over tokens."""
    graph = subject.graph(length)
    with graph:
        targets = ei.input("targets", (1, length), ei.i32)
        ei.output(loss=ei.mean(ei.cross_entropy(graph.outputs["logits"].cast(ei.f64), targets)))
    return graph


def _gradient_graph(subject, length):
    """(graph, paths of attentions): adds an example's gradients and their squares to `sum.<name>` and `squares.<name>`.

    Each head's output is multiplied by its element of the input `gates`, whose gradient is summed like a parameter's.
    """
    graph = _loss_graph(subject, length)
    attentions = attention_results(graph)
    shape = (len(attentions), max((value.shape[1] for value in attentions), default=0))

    def gates_of(graph):
        return graph.input("gates", shape, ei.f64) if graph.leaf("gates") is None else graph.leaf("gates")

    def gated(layer):
        def multiplied(mixed):
            return mixed * gates_of(mixed.graph)[layer].reshape(1, shape[1], 1, 1).cast(mixed.dtype)

        return multiplied

    graph = ei.replace_values(graph, {value.name: gated(layer) for layer, value in enumerate(attentions)})
    with graph:
        gradients = optim.gradients(graph.outputs["loss"])
        gates = gates_of(graph)
        gradients[gates] = ei.gradient(graph.outputs["loss"], [gates])[0]
        for leaf, gradient in gradients.items():
            wide = gradient.cast(ei.f64)
            for name, summand in (("sum", wide), ("squares", wide * wide)):
                total = ei.state(f"{name}.{leaf.name}", leaf.shape, dtype=ei.f64)
                ei.update(total, total + summand)
    return graph, [value.op.scope for value in attentions]
