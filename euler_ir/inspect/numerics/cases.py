"""A graph with the arrays that it runs on, and smaller ones made of it: parts, with other values, in other sizes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from euler_ir.errors import EulerError, GraphError
from euler_ir.graph import Graph, Op, Value
from euler_ir.inspect.random_inputs import index_limits
from euler_ir.interpreter import evaluate
from euler_ir.rebuild import Rebuild
from euler_ir.shapes import Shape
from euler_ir.verify import verify


@dataclass(frozen=True)
class Case:
    """A graph, and an array for each of its leaves by name."""

    graph: Graph
    arrays: Mapping[str, np.ndarray]

    @property
    def size(self) -> tuple[int, int, int]:
        """What makes a case small: few operators, then few results and leaves, then few elements."""
        ops = [op for op in self.graph.ops if op.definition.family != "leaf"]
        ends = len(self.graph.outputs) + len(self.graph.updates) + len(self.graph.ops) - len(ops)
        return len(ops), ends, sum(value.size for op in self.graph.ops for value in op.results)

    def values(self, wanted: Collection[Value]) -> dict[Value, np.ndarray]:
        """What the interpreter computes for ``wanted``; ops that these do not need are not run, since one may fail."""
        return evaluate(self.graph, self.arrays, wanted)


Ends = tuple[Mapping[str, Value], Mapping[str, Value]]
"""Outputs and updates by name."""


def ends(case: Case) -> Ends:
    """The outputs and updates that a case has."""
    return case.graph.outputs, case.graph.updates


def part(case: Case, results: Ends, swaps: Mapping[Value, Value | None] = {}) -> Case:
    """What ``results`` need of ``case``, with the values in ``swaps`` replaced.

    A value is replaced by another one that comes before it, or for None by an input that holds what the interpreter
    computes for it.
    """
    outputs, updates = results
    needed = _needed(case.graph, (*outputs.values(), *updates.values(), *map(case.graph.leaf, updates)), swaps)
    given = [value for op in case.graph.ops for value in op.results if value in needed and swaps.get(value, op) is None]
    computed = case.values(given) if given else {}
    rebuild = Rebuild(case.graph, "reduce")
    arrays: dict[str, np.ndarray] = {}
    for op in rebuild:
        kept = [value for value in op.results if value in needed]
        if not kept:
            continue
        if any(value not in swaps for value in kept):
            rebuild.copy(op)
            if op.definition.has_identity:
                arrays[op.attributes["name"]] = case.arrays[op.attributes["name"]]
        for value in kept:
            if value not in swaps:
                continue
            if swaps[value] is not None:
                rebuild.values[value] = rebuild.values[swaps[value]]
                continue
            name = _free_name(value.name, case.graph, arrays)
            rebuild.values[value] = rebuild.target.input(name, value.shape, value.dtype)
            arrays[name] = computed[value]
    rebuild.target.outputs = {name: rebuild.values[value] for name, value in outputs.items()}
    rebuild.target.updates = {name: rebuild.values[value] for name, value in updates.items()}
    return Case(rebuild.target, arrays)


def _needed(graph: Graph, results: Iterable[Value], swaps: Mapping[Value, Value | None]) -> set[Value]:
    needed: set[Value] = set()
    pending = list(results)
    while pending:
        value = pending.pop()
        if value in needed:
            continue
        needed.add(value)
        if value not in swaps:
            pending += value.op.operands
        elif swaps[value] is not None:
            pending.append(swaps[value])
    return needed


def _free_name(name: str, graph: Graph, taken: Mapping[str, np.ndarray]) -> str:
    number, free = 1, name
    while free in taken or graph.leaf(free) is not None:
        number += 1
        free = f"{name}.{number}"
    return free


def around(case: Case, name: str, depth: int) -> Case:
    """The value ``name`` as the only output, made of the ops up to ``depth`` steps above it; what these read is given.

    Raises GraphError where there is no such value.
    """
    value = next((value for op in case.graph.ops for value in op.results if value.name == name), None)
    if value is None:
        raise GraphError(f"there is no value {name!r}")
    inside, edge = {value.op}, [value.op]
    for _ in range(depth - 1):
        edge = [operand.op for op in edge for operand in op.operands if operand.op not in inside]
        inside.update(edge)
    read = {operand for op in inside for operand in op.operands}
    given = {each: None for each in read if each.op not in inside and each.op.definition.family != "leaf"}
    return part(case, ({"value": value}, {}), given)


def window(case: Case, first: int, last: int) -> Case:
    """The ops from number ``first`` to before ``last``, and the leaves: what they read of earlier ones is given, and
    what later ones read of them is an output, as are results among them.
    """
    ops = case.graph.ops
    inside = {value for op in ops[first:last] if op.definition.family != "leaf" for value in op.results}
    before = {value: None for op in ops[:first] if op.definition.family != "leaf" for value in op.results}
    read_later = {operand for op in ops[last:] for operand in op.operands}
    outputs = {name: value for name, value in case.graph.outputs.items() if value in inside}
    named = set(outputs.values())
    for op in ops[first:last]:
        for value in op.results:
            if value in inside and value in read_later and value not in named:
                outputs[_free_output(value.name, outputs)] = value
    updates = {name: value for name, value in case.graph.updates.items() if value in inside}
    return part(case, (outputs, updates), before)


def _free_output(name: str, taken: Mapping[str, Value]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}.{number}"
    return free


def with_arrays(case: Case, arrays: Mapping[str, np.ndarray]) -> Case:
    """The same graph on other arrays."""
    return Case(case.graph, {**case.arrays, **arrays})


# -- other attributes and sizes ----------------------------------------------------------------------------------------


def with_attribute(case: Case, target: Op, name: str, value) -> Case:
    """``case`` with another attribute of one op. Raises EulerError where types do not fit then."""
    return _emitted(case, lambda op, operands: {**op.attributes, name: value} if op is target else op.attributes)


def resized(case: Case, sizes: Mapping[int, int]) -> Case:
    """``case`` with every axis of a size in ``sizes`` as large as that says, where it is free to be.

    Types are inferred anew; arrays are cut, and indices held below what they index. Raises EulerError where no types
    fit.
    """

    def shape(old: Sequence[int]) -> Shape:
        return tuple(sizes.get(size, size) for size in old)

    def attributes(op: Op, operands: Sequence[Value]) -> Mapping:
        changed = dict(op.attributes)
        match op.name:
            case "constant":
                array = op.attributes["value"]
                changed["value"] = np.array(array[tuple(slice(size) for size in shape(array.shape))], order="C")
            case "reshape":
                changed["shape"] = _of_size(shape(changed["shape"]), operands[0].size)
            case "slice":
                changed |= _slice(op, operands[0].shape, shape)
            case "scatter_add":
                changed["size"] = sizes.get(changed["size"], changed["size"])
            case _ if "shape" in changed:
                changed["shape"] = shape(changed["shape"])
        return changed

    return _emitted(case, attributes)


def _of_size(shape: Shape, size: int) -> Shape:
    """``shape`` with one axis, the first that can be, changed so that it has ``size`` elements."""
    if math.prod(shape) == size:
        return shape
    for axis in sorted(range(len(shape)), key=lambda axis: -shape[axis]):
        rest = math.prod(shape[:axis] + shape[axis + 1 :])
        if rest and size % rest == 0:
            return (*shape[:axis], size // rest, *shape[axis + 1 :])
    return shape


def _slice(op: Op, operand: Shape, shape) -> dict:
    """Where a slice of an operand that is smaller now begins, and how large it is."""
    starts, steps, wanted = op.attributes["starts"], op.attributes["steps"], shape(op.attributes["sizes"])
    starts = tuple(min(start, max(size - 1, 0)) for start, size in zip(starts, operand))
    room = (max(-(-(size - start) // step), 0) for size, start, step in zip(operand, starts, steps))
    return {"starts": starts, "sizes": tuple(map(min, wanted, room))}


def _emitted(case: Case, attributes) -> Case:
    """Every op of ``case`` anew, with what ``attributes(op, operands)`` says."""
    rebuild = Rebuild(case.graph, "reduce")
    target, arrays = rebuild.target, {}
    for op in rebuild:
        operands = rebuild.operands(op)
        changed = attributes(op, operands)
        if op.definition.has_identity:
            results = getattr(target, op.name)(**changed)
            arrays[changed["name"]] = case.arrays[changed["name"]][tuple(slice(size) for size in results.shape)]
        else:
            results = target.emit(op.name, operands, **changed)
        rebuild.replace(op, results if isinstance(results, tuple) else (results,))
    graph = rebuild.finish()
    verify(graph)
    for each, limit in index_limits(graph).items():
        name = each.op.attributes["name"]
        arrays[name] = np.minimum(arrays[name], limit - 1).astype(arrays[name].dtype)
    return Case(graph, {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()})


def is_well_formed(case: Case) -> bool:
    """Whether the graph of ``case`` keeps all rules and returns anything."""
    try:
        verify(case.graph)
    except EulerError:
        return False
    return bool(case.graph.results())
