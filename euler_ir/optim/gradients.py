"""Gradients of a loss: their norms, clipped, and added up over several calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from euler_ir import autodiff
from euler_ir.dtypes import f64
from euler_ir.errors import GraphError
from euler_ir.graph import Value
from euler_ir.optim.moments import moment
from euler_ir.tensor import cast, full_like, maximum, minimum, sqrt, stack

Gradients = Mapping[Value, Value]
"""The gradient of each parameter, both as values of one graph."""


def gradients(loss: Value) -> dict[Value, Value]:
    """The gradient of a 0-d ``loss`` for every float parameter of its graph; zeros where the loss does not reach."""
    parameters = [parameter for parameter in loss.graph.parameters if parameter.dtype.is_float]
    return dict(zip(parameters, autodiff.gradient(loss, parameters), strict=True))


def gradient_norms(gradients: Gradients) -> Value:
    """Euclidean norm of each gradient, summed in f64: f64[number of gradients], in their order.

    Raises GraphError when there are none.
    """
    return sqrt(_sums_of_squares(gradients))


def clip_by_global_norm(gradients: Gradients, max_norm: float) -> tuple[dict[Value, Value], Value]:
    """Gradients scaled so that their joint Euclidean norm is at most ``max_norm``, and that norm before, f64[].

    The factor is ``min(1, max_norm / (norm + 1e-6))``, as torch's ``clip_grad_norm_``. A NaN or infinite gradient
    makes the norm NaN or infinite: look at it before using what was updated. Raises ValueError unless
    ``max_norm > 0``, GraphError when there are no gradients.
    """
    if not max_norm > 0:
        raise ValueError(f"max_norm must be above 0, not {max_norm}. To leave gradients as they are, do not clip them.")
    norm = sqrt(_sums_of_squares(gradients).sum())
    scale = minimum(max_norm / (norm + 1e-6), 1.0)
    scales = {gradient.dtype: cast(scale, gradient.dtype) for gradient in gradients.values()}
    return {parameter: gradient * scales[gradient.dtype] for parameter, gradient in gradients.items()}, norm


def _sums_of_squares(gradients: Gradients) -> Value:
    if not gradients:
        raise GraphError("there are no gradients to take the norm of", hint="the graph has no float parameter")
    wide = [cast(gradient, f64) for gradient in gradients.values()]
    return stack([(gradient * gradient).sum() for gradient in wide])


def accumulate(gradients: Gradients, count: Value) -> None:
    """Add gradients of a *sum* over examples, and how many they were, to the states ``accumulator.*``.

    Calls of this graph, then one of a graph that uses ``accumulated``, make one optimiser step over all of their
    examples. ``count`` is 0-d.
    """
    for parameter, value in gradients.items():
        total = moment(parameter, "accumulator")
        total.graph.set_update(total, total + cast(value, total.dtype))
    examples = count.graph.state("accumulator.count", (), dtype=f64)
    count.graph.set_update(examples, examples + cast(count, f64))


def accumulated(parameters: Sequence[Value]) -> tuple[dict[Value, Value], Value]:
    """The mean gradient of each parameter over all examples given to ``accumulate``, and the count of these, f64[].

    The mean is the sum over all calls divided by the count over all calls, whatever the share of each call. The graph
    also empties the sums. Raises GraphError when there are no parameters.
    """
    if not parameters:
        raise GraphError("there are no parameters to accumulate gradients for")
    graph = parameters[0].graph
    examples = graph.state("accumulator.count", (), dtype=f64)
    graph.set_update(examples, full_like(examples, 0))
    share = 1.0 / maximum(examples, 1.0)
    means = {}
    for parameter in parameters:
        total = moment(parameter, "accumulator")
        graph.set_update(total, full_like(total, 0))
        means[parameter] = total * cast(share, total.dtype)
    return means, examples
