"""Adam with decoupled weight decay."""

from __future__ import annotations

from euler_ir.dtypes import accumulation_dtype, f64, i64
from euler_ir.graph import Graph, Value
from euler_ir.optim.gradients import Gradients
from euler_ir.optim.moments import moment
from euler_ir.optim.optimizer import Optimizer
from euler_ir.tensor import add, cast, power, sqrt


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

    def _updates(self, graph: Graph, gradients: Gradients) -> dict[Value, Value]:
        counter = graph.state("optim.step", (), dtype=i64)
        step = add(counter, 1)
        updates = {counter: step}
        time = cast(step, f64)
        beta1, beta2 = self.betas
        rate = self._rate(graph)
        step_size = rate / (1.0 - power(graph.constant(beta1, f64), time))
        correction = 1.0 / sqrt(1.0 - power(graph.constant(beta2, f64), time))
        keep = 1.0 - rate * self.weight_decay
        for parameter, gradient in gradients.items():
            dtype = accumulation_dtype(parameter.dtype)
            g, p = cast(gradient, dtype), cast(parameter, dtype)
            first, second = moment(parameter, "optim.m"), moment(parameter, "optim.v")
            m = first * beta1 + g * (1.0 - beta1)
            v = second * beta2 + g * g * (1.0 - beta2)
            if parameter.ndim >= 2:
                p = p * cast(keep, dtype)
            p = p - cast(step_size, dtype) * m / (sqrt(v) * cast(correction, dtype) + self.epsilon)
            updates |= {first: m, second: v, parameter: cast(p, parameter.dtype)}
        return updates
