"""Muon: momentum whose matrices are made orthogonal before they move the parameters."""

from __future__ import annotations

import re
from collections.abc import Callable

from euler_ir.dtypes import accumulation_dtype
from euler_ir.errors import GraphError
from euler_ir.graph import Graph, Value
from euler_ir.optim.adamw import AdamW
from euler_ir.optim.gradients import Gradients
from euler_ir.optim.moments import moment
from euler_ir.optim.optimizer import Optimizer
from euler_ir.tensor import cast, matmul, sqrt

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic that raises small singular values fastest (Jordan et al., 2024)."""


def is_hidden_matrix(parameter: Value) -> bool:
    """Whether a parameter has two axes and is inside of a block of a list, as ``h.3.mlp.c_fc.weight`` is.

    Embeddings and heads, also several as ``heads.1.weight``, are not hidden: what they map from or to are ids, not
    features.
    """
    return parameter.ndim == 2 and re.search(r"\.\d+\.\w+\.", f".{parameter.op.attributes['name']}") is not None


class Muon(Optimizer):
    """Muon (Jordan et al., 2024, kellerjordan.github.io/posts/muon) for hidden matrices, `AdamW` for all others.

    With gradient g of a matrix of r rows and c columns, in the form of torch's Muon::

        M = momentum M + (1 - momentum) g       u = momentum M + (1 - momentum) g
        p = (1 - learning_rate weight_decay) p - 0.2 sqrt(max(r, c)) learning_rate orthogonal(u)

    ``orthogonal`` is five steps of Newton-Schulz from u / |u|. The factor makes the update as large as AdamW's mostly
    is (Liu et al., arXiv:2502.16982, 2.2), so that learning rate and weight decay of AdamW do for both. States are
    ``optim.momentum.<name>`` and those of AdamW. ``hidden`` says which parameters Muon is for; a step raises
    GraphError when one of those is no matrix.
    """

    def __init__(
        self,
        learning_rate: Value | float,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
        momentum: float = 0.95,
        hidden: Callable[[Value], bool] = is_hidden_matrix,
    ) -> None:
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be at least 0 and below 1, not {momentum}")
        super().__init__(learning_rate)
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.hidden = hidden
        self._others = AdamW(learning_rate, betas, epsilon, weight_decay)

    def _updates(self, graph: Graph, gradients: Gradients) -> dict[Value, Value]:
        matrices = {parameter: value for parameter, value in gradients.items() if self.hidden(parameter)}
        others = {parameter: value for parameter, value in gradients.items() if parameter not in matrices}
        updates = self._others._updates(graph, others) if others else {}
        rate = self._rate(graph)
        keep = 1.0 - rate * self.weight_decay
        for parameter, gradient in matrices.items():
            if parameter.ndim != 2:
                error = GraphError(f"Muon is for matrices: {parameter.name} is {parameter.type}")
                raise graph.explain(error, (parameter,))
            dtype = accumulation_dtype(parameter.dtype)
            g, p, velocity = cast(gradient, dtype), cast(parameter, dtype), moment(parameter, "optim.momentum")
            m = velocity * self.momentum + g * (1.0 - self.momentum)
            direction = orthogonal(m * self.momentum + g * (1.0 - self.momentum))
            size = rate * (0.2 * max(parameter.shape) ** 0.5)
            p = p * cast(keep, dtype) - cast(size, dtype) * direction
            updates |= {velocity: m, parameter: cast(p, parameter.dtype)}
        return updates


def orthogonal(matrix: Value, steps: int = 5) -> Value:
    """``matrix`` with its singular values all brought near 1, by ``steps`` steps of Newton-Schulz; zeros stay zeros."""
    a, b, c = NEWTON_SCHULZ
    rows, columns = matrix.shape
    x = matrix / (sqrt((matrix * matrix).sum()) + 1e-7)
    for _ in range(steps):
        # X (X^T X) = (X X^T) X: the smaller of the two products is the cheaper one.
        if rows <= columns:
            square = matmul(x, x, transpose_right=True)
            x = x * a + matmul(square * b + matmul(square, square) * c, x)
        else:
            square = matmul(x, x, transpose_left=True)
            x = x * a + matmul(x, square * b + matmul(square, square) * c)
    return x
