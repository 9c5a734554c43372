"""Dynamic loss scaling: gradients that f16 is too coarse for near zero are computed larger than they are."""

from __future__ import annotations

from euler_ir.dtypes import accumulation_dtype, f32, i64
from euler_ir.graph import Graph, Value
from euler_ir.initializers import Full
from euler_ir.optim.gradients import gradients
from euler_ir.tensor import cast, full_like, maximum, minimum, where

SCALE = "loss_scale.scale"
LEAST, MOST = 1.0, 2.0**24
"""Bounds of the scale: at 1 nothing is scaled, and far above what is largest every gradient is 0."""


class LossScale:
    """A factor for the loss that follows what f16 can hold (Micikevicius et al., arXiv:1710.03740, section 3.2).

    The loss is multiplied before it is differentiated, and gradients are divided by the same in f32. A step whose
    gradients are not all finite is to be left out, and halves the scale; after ``growth_interval`` steps in a row that
    were finite it doubles. The scale begins at ``initial`` and stays between LEAST and MOST. It is the state
    ``loss_scale.scale``, f32[], and the steps since it last changed are ``loss_scale.good_steps``, i64[]::

        scale = LossScale()
        gradients, norm = clip_by_global_norm(scale.gradients(loss), 1.0)
        finite = norm < math.inf
        AdamW(1e-3).step(gradients, condition=finite)
        scale.update(graph, finite)

    Raises ValueError for a scale out of bounds or an interval below 1.
    """

    def __init__(self, initial: float = 2.0**16, growth_interval: int = 2000) -> None:
        if not LEAST <= initial <= MOST:
            raise ValueError(f"initial must be from {LEAST:g} to {MOST:g}, not {initial}")
        if growth_interval < 1:
            raise ValueError(f"growth_interval must be at least 1, not {growth_interval}")
        self.initial = float(initial)
        self.growth_interval = growth_interval

    def scale(self, graph: Graph) -> Value:
        """The factor of the step that ``graph`` is or belongs to, f32[]."""
        found = graph.leaf(SCALE)
        return graph.state(SCALE, (), Full(self.initial), f32) if found is None else found

    def gradients(self, loss: Value) -> dict[Value, Value]:
        """As ``optim.gradients``, of the same size but for rounding, f32 where parameters are of a half type.

        One that overflows on the way is infinite or NaN.
        """
        scale = self.scale(loss.graph)
        scaled = gradients(cast(loss, accumulation_dtype(loss.dtype)) * scale)
        wide = {parameter: cast(value, accumulation_dtype(value.dtype)) for parameter, value in scaled.items()}
        return {parameter: value / cast(scale, value.dtype) for parameter, value in wide.items()}

    def update(self, graph: Graph, finite: Value) -> None:
        """Let the scale follow: ``finite``, a 0-d bool, says whether all gradients of this step were."""
        scale = self.scale(graph)
        good = graph.state("loss_scale.good_steps", (), dtype=i64)
        counted = good + 1
        grows = counted >= self.growth_interval
        larger = where(grows, minimum(scale * 2.0, MOST), scale)
        none = full_like(good, 0)
        graph.set_update(scale, where(finite, larger, maximum(scale * 0.5, LEAST)))
        graph.set_update(good, where(finite, where(grows, none, counted), none))
