"""Optimisers as graph builders: gradients in, updates of parameters and of the optimiser's own state out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from euler_ir import autodiff
from euler_ir.dtypes import accumulation_dtype, f64, i64
from euler_ir.errors import GraphError
from euler_ir.graph import Graph, Value
from euler_ir.tensor import add, cast, full_like, maximum, minimum, power, sqrt, stack

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
        total = _state(parameter, "accumulator")
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
        total = _state(parameter, "accumulator")
        graph.set_update(total, full_like(total, 0))
        means[parameter] = total * cast(share, total.dtype)
    return means, examples


def _state(parameter: Value, prefix: str) -> Value:
    name = f"{prefix}.{parameter.op.attributes['name']}"
    return parameter.graph.state(name, parameter.shape, dtype=accumulation_dtype(parameter.dtype))


class Optimizer(ABC):
    """Base of all optimisers. ``learning_rate`` is a number or a 0-d float tensor, such as an input."""

    def __init__(self, learning_rate: Value | float) -> None:
        self.learning_rate = learning_rate

    def step(self, loss_or_gradients: Value | Gradients) -> None:
        """Add the updates of one step to the graph, given a 0-d loss or a gradient for each parameter.

        A parameter that the loss does not reach has gradient zero. Raises GraphError when there is nothing to train.
        """
        given = gradients(loss_or_gradients) if isinstance(loss_or_gradients, Value) else dict(loss_or_gradients)
        if not given:
            raise GraphError("there is nothing to train", hint="the graph has no float parameter")
        graph = next(iter(given)).graph
        with graph.scope("optim"):
            self._update(graph, given)

    @abstractmethod
    def _update(self, graph: Graph, gradients: Gradients) -> None:
        """Set the updates of ``gradients``' parameters and of the optimiser's states."""

    def _rate(self, graph: Graph) -> Value:
        rate = self.learning_rate if isinstance(self.learning_rate, Value) else graph.constant(self.learning_rate, f64)
        return cast(rate, f64)


class SGD(Optimizer):
    """``p -= learning_rate * b`` with ``b = momentum * b + gradient``, as torch's; state ``optim.b.<name>``."""

    def __init__(self, learning_rate: Value | float, momentum: float = 0.0) -> None:
        super().__init__(learning_rate)
        self.momentum = momentum

    def _update(self, graph: Graph, gradients: Gradients) -> None:
        rate = self._rate(graph)
        for parameter, gradient in gradients.items():
            wide = accumulation_dtype(parameter.dtype)
            direction = cast(gradient, wide)
            if self.momentum:
                velocity = _state(parameter, "optim.b")
                direction = velocity * self.momentum + direction
                graph.set_update(velocity, direction)
            graph.set_update(parameter, cast(cast(parameter, wide) - direction * cast(rate, wide), parameter.dtype))


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101), in the form of torch's AdamW.

    With gradient g and t counted from 1::

        m = beta1 m + (1 - beta1) g         v = beta2 v + (1 - beta2) g^2
        p = (1 - learning_rate weight_decay) p
            - learning_rate / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)

    Only parameters of two or more axes decay: matrices and embeddings, not biases and norms. States are
    ``optim.m.<name>``, ``optim.v.<name>`` (f32 for half types) and the counter ``optim.step``, i64[]. What depends on
    t is computed in f64, because ``1 - beta^t`` cancels.
    """

    def __init__(
        self,
        learning_rate: Value | float,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas must be at least 0 and below 1, not {betas}")
        super().__init__(learning_rate)
        self.betas = betas
        self.epsilon = epsilon
        self.weight_decay = weight_decay

    def _update(self, graph: Graph, gradients: Gradients) -> None:
        counter = graph.state("optim.step", (), dtype=i64)
        step = add(counter, 1)
        graph.set_update(counter, step)
        time = cast(step, f64)
        beta1, beta2 = self.betas
        rate = self._rate(graph)
        step_size = rate / (1.0 - power(graph.constant(beta1, f64), time))
        correction = 1.0 / sqrt(1.0 - power(graph.constant(beta2, f64), time))
        keep = 1.0 - rate * self.weight_decay
        for parameter, gradient in gradients.items():
            dtype = accumulation_dtype(parameter.dtype)
            g, p = cast(gradient, dtype), cast(parameter, dtype)
            first, second = _state(parameter, "optim.m"), _state(parameter, "optim.v")
            m = first * beta1 + g * (1.0 - beta1)
            v = second * beta2 + g * g * (1.0 - beta2)
            if parameter.ndim >= 2:
                p = p * cast(keep, dtype)
            p = p - cast(step_size, dtype) * m / (sqrt(v) * cast(correction, dtype) + self.epsilon)
            graph.set_update(first, m)
            graph.set_update(second, v)
            graph.set_update(parameter, cast(p, parameter.dtype))


def warmup_cosine(step: int, peak: float, floor: float, warmup: int, total: int) -> float:
    """Learning rate of ``step`` (from 0): linear up to ``peak`` over ``warmup`` steps, then half a cosine to ``floor``.

    During warm-up it is ``peak (step + 1) / (warmup + 1)``, never 0; from ``total`` on it stays at ``floor``
    (Loshchilov and Hutter, arXiv:1608.03983, without restarts).
    """
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    return floor + (peak - floor) * 0.5 * (1.0 + math.cos(math.pi * progress))
