"""How a graph is begun: inputs, parameters, state, constants, outputs and updates of the current graph."""

from __future__ import annotations

from euler_ir.dtypes import as_dtype, f32, i64
from euler_ir.graph import Value, current_graph
from euler_ir.initializers import Initializer, Zeros
from euler_ir.shapes import as_shape
from euler_ir.tensor import broadcast_to


def input(name: str, shape, dtype=f32) -> Value:
    """A tensor that every call is given by name. Raises GraphError for a name that is taken."""
    return current_graph().input(name, shape, dtype)


def parameter(name: str, shape, initializer: Initializer, dtype=f32) -> Value:
    """A trained tensor, kept in a State under ``name``. Raises GraphError for a name that is taken."""
    return current_graph().parameter(name, shape, initializer, dtype)


def state(name: str, shape, initializer: Initializer = Zeros(), dtype=f32) -> Value:
    """A tensor kept from call to call in a State under ``name``. Raises GraphError for a name that is taken."""
    return current_graph().state(name, shape, initializer, dtype)


def constant(array, dtype=None) -> Value:
    """An array or number fixed in the graph. Python floats give f32, ints i64; an array keeps its dtype."""
    return current_graph().constant(array, dtype)


def full(shape, number, dtype=f32) -> Value:
    """A tensor of ``shape`` filled with ``number``."""
    return broadcast_to(current_graph().constant(number, dtype), as_shape(shape))


def zeros(shape, dtype=f32) -> Value:
    return full(shape, 0, dtype)


def ones(shape, dtype=f32) -> Value:
    return full(shape, 1, dtype)


def arange(start, stop=None, step=1, dtype=None) -> Value:
    """``start, start + step, ...`` up to but without ``stop``, as numpy's; i64 for ints, f32 when one is a float."""
    start, stop = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise ValueError("arange: the step is 0")
    is_float = any(isinstance(number, float) for number in (start, stop, step))
    dtype = as_dtype(dtype) if dtype is not None else (f32 if is_float else i64)
    count = max(0, -int(-(stop - start) // step))
    grid = iota((count,), 0, dtype)
    return grid if (start, step) == (0, 1) else grid * step + start


def iota(shape, axis: int, dtype=i64) -> Value:
    """A tensor of ``shape`` whose every element is its index along ``axis``."""
    return current_graph().emit("iota", (), shape=as_shape(shape), axis=axis, dtype=as_dtype(dtype))


def random_uniform(shape, seed, step, dtype=f32) -> Value:
    """Uniform numbers in [0, 1), a function of (seed, step, this operator, element)."""
    return current_graph().random_uniform(shape, seed, step, dtype)


def random_normal(shape, seed, step, dtype=f32) -> Value:
    """Standard normal numbers, a function of (seed, step, this operator, element)."""
    return current_graph().random_normal(shape, seed, step, dtype)


def output(**values: Value) -> None:
    """Name values that a call returns. Raises GraphError for a name that is taken."""
    current_graph().set_outputs(**values)


def update(leaf: Value, value: Value) -> None:
    """Let ``value`` replace the parameter or state ``leaf`` when a call ends."""
    leaf.graph.set_update(leaf, value)
