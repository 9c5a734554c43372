"""The meaning of every graph, in numpy: runs the ops one by one and keeps what is asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from euler_ir.errors import EulerError, ExecutionError
from euler_ir.graph import Graph, Op, Value


def evaluate(
    graph: Graph, leaves: Mapping[str, np.ndarray], values: Iterable[Value] | None = None
) -> dict[Value, np.ndarray]:
    """Arrays of ``values`` (by default all results of ``graph``), given an array for each leaf by name.

    Without ``values`` every op is run, also one that no result needs; with them only what they need.
    Raises ExecutionError for a missing leaf, a wrong shape or dtype, or an index out of range, with the user's line.
    """
    wanted = set(graph.results() if values is None else values)
    ops = graph.ops if values is None else graph.needed(wanted)
    remaining = Counter(operand for op in ops for operand in op.operands)
    arrays: dict[Value, np.ndarray] = {}
    kept: dict[Value, np.ndarray] = {}
    for op in ops:
        if op.definition.has_identity:
            results = leaf(op, leaves)
        else:
            results = apply(op, [arrays[operand] for operand in op.operands])
        for value, array in zip(op.results, results, strict=True):
            if value in wanted:
                kept[value] = array
            if remaining[value]:
                arrays[value] = array
        for operand in op.operands:
            remaining[operand] -= 1
            if not remaining[operand]:
                arrays.pop(operand, None)
    return kept


def run(graph: Graph, leaves: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The outputs and the updates of ``graph``, each by name; ``leaves`` as for ``evaluate``."""
    arrays = evaluate(graph, leaves)
    outputs = {name: np.array(arrays[value]) for name, value in graph.outputs.items()}
    return outputs, {name: np.array(arrays[value]) for name, value in graph.updates.items()}


def leaf(op: Op, leaves: Mapping[str, np.ndarray]) -> tuple[np.ndarray]:
    """The array of the input, parameter or state ``op``. Raises ExecutionError for one that is missing or unlike it."""
    name, type = op.attributes["name"], op.result.type
    if name not in leaves:
        raise ExecutionError(f"{op.name} {name!r} is missing", location=op.location)
    array = np.asarray(leaves[name])
    if array.shape != type.shape or array.dtype != type.dtype.numpy:
        raise ExecutionError(
            f"{op.name} {name!r} needs {type}, not {array.dtype}{list(array.shape)}", location=op.location
        )
    return (array,)


def apply(op: Op, operands: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The results of ``op`` on arrays of its operands' types. Raises ExecutionError as ``evaluate`` does."""
    try:
        with np.errstate(all="ignore"):
            results = op.definition.evaluate(op.attributes, *operands)
    except EulerError as error:
        error.location = error.location or op.location
        raise
    results = results if isinstance(results, tuple) else (results,)
    for value, array in zip(op.results, results, strict=True):
        if array.shape != value.shape or array.dtype != value.dtype.numpy:
            raise ExecutionError(
                f"{op.name} is declared to give {value.type} but gave {array.dtype}{list(array.shape)}",
                location=op.location,
                hint="its type rule and its numpy meaning disagree",
            )
    return tuple(np.asarray(result) for result in results)
