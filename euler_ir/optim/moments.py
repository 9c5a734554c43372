"""State that belongs to a parameter."""

from __future__ import annotations

from euler_ir.dtypes import accumulation_dtype
from euler_ir.graph import Value


def moment(parameter: Value, prefix: str) -> Value:
    """The state ``<prefix>.<name>`` of the parameter's shape, in f32 for half types; it begins with zeros."""
    name = f"{prefix}.{parameter.op.attributes['name']}"
    return parameter.graph.state(name, parameter.shape, dtype=accumulation_dtype(parameter.dtype))
