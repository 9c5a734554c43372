"""The base of all optimisers, and the simplest of them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from euler_ir.dtypes import accumulation_dtype, f64
from euler_ir.errors import GraphError
from euler_ir.graph import Graph, Value
from euler_ir.optim.gradients import Gradients, gradients
from euler_ir.optim.moments import moment
from euler_ir.tensor import cast, where


class Optimizer(ABC):
    """Base of all optimisers. ``learning_rate`` is a number or a 0-d float tensor, such as an input."""

    def __init__(self, learning_rate: Value | float) -> None:
        self.learning_rate = learning_rate

    def step(self, loss_or_gradients: Value | Gradients, condition: Value | None = None) -> None:
        """Add the updates of one step to the graph, given a 0-d loss or a gradient for each parameter.

        Where ``condition``, a 0-d bool, turns out false, all parameters and states stay as they are. A parameter that
        the loss does not reach has gradient zero. Raises GraphError when there is nothing to train.
        """
        given = gradients(loss_or_gradients) if isinstance(loss_or_gradients, Value) else dict(loss_or_gradients)
        if not given:
            raise GraphError("there is nothing to train", hint="the graph has no float parameter")
        graph = next(iter(given)).graph
        with graph.scope("optim"):
            for leaf, value in self._updates(graph, given).items():
                graph.set_update(leaf, value if condition is None else where(condition, value, leaf))

    @abstractmethod
    def _updates(self, graph: Graph, gradients: Gradients) -> dict[Value, Value]:
        """What takes the place of ``gradients``' parameters and of the optimiser's states."""

    def _rate(self, graph: Graph) -> Value:
        rate = self.learning_rate if isinstance(self.learning_rate, Value) else graph.constant(self.learning_rate, f64)
        return cast(rate, f64)


class SGD(Optimizer):
    """``p -= learning_rate * b`` with ``b = momentum * b + gradient``, as torch's; state ``optim.b.<name>``."""

    def __init__(self, learning_rate: Value | float, momentum: float = 0.0) -> None:
        super().__init__(learning_rate)
        self.momentum = momentum

    def _updates(self, graph: Graph, gradients: Gradients) -> dict[Value, Value]:
        rate = self._rate(graph)
        updates = {}
        for parameter, gradient in gradients.items():
            wide = accumulation_dtype(parameter.dtype)
            direction = cast(gradient, wide)
            if self.momentum:
                velocity = moment(parameter, "optim.b")
                direction = velocity * self.momentum + direction
                updates[velocity] = direction
            updates[parameter] = cast(cast(parameter, wide) - direction * cast(rate, wide), parameter.dtype)
        return updates
