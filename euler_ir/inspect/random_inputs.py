"""Inputs for a graph or kernels that nobody gave any: of the declared types, and integers where they may index."""

from __future__ import annotations

import numpy as np

from euler_ir.graph import Graph, Op, Value
from euler_ir.plan.kernels import checks
from euler_ir.plan.plan import Plan
from euler_ir.shapes import TensorType

SCALAR = 1e-3
"""What a float without axes is given, since it is most often a rate."""

# By operator: which of its operands is an index, and the number that it must stay below.
_INDEXED = {
    "take": (1, lambda op: op.operands[0].shape[op.attributes["axis"]]),
    "index_add": (1, lambda op: op.result.shape[op.attributes["axis"]]),
    "scatter_add": (0, lambda op: op.attributes["size"]),
    "cross_entropy": (1, lambda op: op.operands[0].shape[-1]),
}


def random_inputs(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """An array for each input of ``graph`` by name, a function of ``seed``.

    Integers go from 0 to below all that they index, also by way of casts and movements; those that index nothing are 0
    or 1. Floats are standard normal, but for SCALAR.
    """
    generator, limits = np.random.default_rng(seed), index_limits(graph)
    return {leaf.op.attributes["name"]: _random(leaf.type, limits.get(leaf, 2), generator) for leaf in graph.inputs}


def _random(type: TensorType, limit: int, generator: np.random.Generator) -> np.ndarray:
    if not type.dtype.is_float:
        array = generator.integers(0, limit, type.shape)
    else:
        array = generator.standard_normal(type.shape) if type.shape else np.array(SCALAR)
    return np.asarray(array).astype(type.dtype.numpy)


def index_limits(graph: Graph) -> dict[Value, int]:
    """For each input, parameter or state that indexes, the least number that it must stay below."""
    leaf_of: dict[Value, Value] = {leaf: leaf for leaf in (*graph.inputs, *graph.parameters, *graph.states)}
    limits: dict[Value, int] = {}
    for op in graph.ops:
        if _keeps_elements(op) and op.operands[0] in leaf_of:
            leaf_of[op.result] = leaf_of[op.operands[0]]
        elif op.name in _INDEXED:
            position, limit = _INDEXED[op.name]
            leaf = leaf_of.get(op.operands[position])
            if leaf is not None:
                limits[leaf] = max(1, min(limit(op), limits.get(leaf, limit(op))))
    return limits


def _keeps_elements(op: Op) -> bool:
    return op.name == "cast" or op.definition.family == "movement"


def random_kernel_inputs(plan: Plan, seed: int = 0) -> dict[str, np.ndarray]:
    """An array for each buffer that the kernels of ``plan`` read and none of them makes, by name; see `random_inputs`.

    In a nest that checks indices, integers stay below the least extent that one is checked against.
    """
    generator = np.random.default_rng(seed)
    arrays = {}
    for step in plan.kernels():
        for nest, arguments in zip(step.kernel.nests, step.arguments):
            limit = min((check.extent for check in checks(nest.body)), default=2)
            for number in (number for number in arguments if plan.buffers[number].place != "output"):
                buffer = plan.buffers[number]
                arrays[buffer.name] = _random(buffer.type, limit, generator)
    return arrays
