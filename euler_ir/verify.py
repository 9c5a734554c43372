"""The rules that every graph keeps, checked one by one. Each has an id, which messages and tests use."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from euler_ir.absent import AbsentArray
from euler_ir.dtypes import DType
from euler_ir.errors import EulerError, Location, VerifyError
from euler_ir.graph import Graph, Op, Value
from euler_ir.initializers import Initializer
from euler_ir.ops.definition import OPS, OpDefinition
from euler_ir.shapes import MAX_AXES

RULES = {
    "V01": "every operand is defined by an earlier op of the same graph",
    "V02": "the operator is in the table of operators, and takes that many operands",
    "V03": "attributes are those that the operator declares, each of its kind",
    "V04": "result types are what the type rule of the operator gives",
    "V05": "inputs, parameters and states have distinct names, and the graph finds each, and nothing else, by its name",
    "V06": "outputs and updates are values of the graph, under names that are strings",
    "V07": "an update replaces a parameter or state of the graph by a value of its type",
    "V08": "no two random ops share a stream, but for one that is repeated: it reads its operands `later`",
    "V09": "the name of a value is a string that no other value of the graph has",
    "V10": "a tensor has at most 64 axes, and sizes that are integers of 0 or more, below 2 to the 63",
    "V11": "an op comes from a Location or None, a scope that is a string, and via a tuple of strings",
}

_KINDS = {
    "bool": lambda value: type(value) is bool,
    "int": lambda value: type(value) is int,
    "float": lambda value: type(value) is float,
    "str": lambda value: type(value) is str,
    "ints": lambda value: type(value) is tuple and all(type(item) is int for item in value),
    "dtype": lambda value: isinstance(value, DType),
    "array": lambda value: isinstance(value, (np.ndarray, AbsentArray)),
    "initializer": lambda value: isinstance(value, Initializer),
}

_STREAMS = {"random_uniform": 1, "random_normal": 2}


def verify(graph: Graph) -> None:
    """Raise VerifyError, naming the rule and the op, for the first rule of ``RULES`` that ``graph`` breaks."""
    defined: set[Value] = set()
    taken: dict[int, Op] = {}
    names: set[str] = set()
    for op in graph.ops:
        _check_operands(graph, op, defined)
        _check_schema(op)
        _check_types(op)
        repeated = all(operand.op.name == "later" for operand in op.operands)
        for stream in random_streams(op) if not repeated else ():
            if taken.setdefault(stream, op) is not op:
                raise _broken("V08", op, f"{op.name} uses stream {stream}, as does another {taken[stream].name}")
        _check_results(op, names)
        _check_origin(op)
        defined.update(op.results)
    _check_leaves(graph)
    _check_ends(graph, defined)


def random_streams(op: Op) -> range:
    """The numbers of the random streams that ``op`` reads; empty for one that is not random."""
    if "stream" not in op.definition.attributes:
        return range(0)
    stream = op.attributes["stream"]
    return range(stream, stream + _STREAMS.get(op.name, 1))


def operand_count_fault(definition: OpDefinition, count: int) -> str | None:
    """What is wrong with giving ``count`` operands to an operator, or None. Without names it takes one or more."""
    wanted = len(definition.operand_names)
    if definition.family != "leaf" and not wanted:
        return None if count else f"{definition.name} needs at least one operand"
    least = wanted - definition.optional
    if least <= count <= wanted:
        return None
    takes = f"{least} to {wanted}" if definition.optional else f"{wanted}"
    names = f" ({', '.join(definition.operand_names)})" if wanted else ""
    return f"{definition.name} takes {takes} operand{'' if wanted == 1 else 's'}{names}, not {count}"


def attribute_faults(definition: OpDefinition, attributes) -> Iterator[str]:
    """What is wrong with the names and kinds of ``attributes``, one message each."""
    for name in definition.attributes:
        if name not in attributes:
            yield f"{definition.name} lacks attribute {name!r}"
    for name, value in attributes.items():
        kind = definition.attributes.get(name)
        if kind is None:
            yield f"{definition.name} has no attribute {name!r}"
        elif not _KINDS[kind](value):
            yield f"{definition.name}: attribute {name!r} is {value!r}, not of kind {kind}"


def _broken(rule: str, op: Op | None, what: str, details: tuple[str, ...] = (), hint: str | None = None) -> VerifyError:
    location = op.location if op is not None else None
    return VerifyError(f"{rule}: {what}", details=details, location=location, hint=hint or RULES[rule])


def _check_operands(graph: Graph, op: Op, defined: set[Value]) -> None:
    for position, operand in enumerate(op.operands):
        if operand not in defined:
            where = "is defined later or never" if operand.op.graph is graph else "belongs to another graph"
            raise _broken("V01", op, f"operand {position} of {op.name} {where}", (operand.describe(),))
    if op.graph is not graph or any(value.op is not op or value.index != i for i, value in enumerate(op.results)):
        raise _broken("V01", op, f"{op.name} or its results belong to another op or graph")


def _check_schema(op: Op) -> None:
    if OPS.get(op.name) is not op.definition:
        raise _broken("V02", op, f"{op.name!r} is not in the table of operators")
    fault = operand_count_fault(op.definition, len(op.operands))
    if fault:
        raise _broken("V02", op, fault)
    for fault in attribute_faults(op.definition, op.attributes):
        raise _broken("V03", op, fault)


def _check_types(op: Op) -> None:
    stored = tuple(value.type for value in op.results)
    try:
        inferred = op.definition.infer(tuple(value.type for value in op.operands), op.attributes)
    except EulerError as error:
        raise _broken("V04", op, error.message, _describe(op), error.hint) from None
    if inferred != stored:
        wanted, found = (", ".join(map(str, types)) for types in (inferred, stored))
        raise _broken("V04", op, f"{op.name} gives {wanted}, but {found} is stored", _describe(op))


def _check_results(op: Op, names: set[str]) -> None:
    for value in op.results:
        if value.name in names or type(value.name) is not str:
            raise _broken("V09", op, f"{op.name} gives a value the name {value.name!r}", (value.describe(),))
        names.add(value.name)
        if len(value.type.shape) > MAX_AXES:
            raise _broken("V10", op, f"{op.name} gives {len(value.type.shape)} axes")
        for size in value.type.shape:
            if type(size) is not int or not 0 <= size < 1 << 63:
                raise _broken("V10", op, f"{op.name} gives a size of {size!r}", (value.describe(),))


def _check_origin(op: Op) -> None:
    location, scope, via = op.location, op.scope, op.via
    is_place = location is None or isinstance(location, Location)
    if not is_place or type(scope) is not str or type(via) is not tuple or any(type(by) is not str for by in via):
        raise _broken("V11", None, f"{op.name} comes from {location!r}, scope {scope!r}, via {via!r}")


def _describe(op: Op) -> tuple[str, ...]:
    return tuple(value.describe() for value in op.operands)


def _check_leaves(graph: Graph) -> None:
    seen: dict[str, Op] = {}
    for op in graph.ops:
        if not op.definition.has_identity:
            continue
        name = op.attributes["name"]
        if name in seen:
            raise _broken("V05", op, f"{op.name} {name!r} bears the name of another {seen[name].name}")
        if graph.leaf(name) is not op.result:
            raise _broken("V05", op, f"graph {graph.name!r} does not find {op.name} {name!r} by its name")
        seen[name] = op
    for name, leaf in graph._leaves.items():
        if seen.get(name) is not leaf.op:
            raise _broken("V05", None, f"graph {graph.name!r} finds {leaf.op.name} {name!r}, which is not in it")


def _check_ends(graph: Graph, defined: set[Value]) -> None:
    for label, ends in (("output", graph.outputs), ("update", graph.updates)):
        for name, value in ends.items():
            if type(name) is not str:
                raise _broken("V06", value.op, f"{label} {name!r} is not named by a string")
            if value not in defined:
                raise _broken("V06", value.op, f"{label} {name!r} is not a value of graph {graph.name!r}")
    for name, value in graph.updates.items():
        leaf = graph.leaf(name)
        if leaf is None or leaf.op.name not in ("parameter", "state"):
            raise _broken("V07", value.op, f"update {name!r} names no parameter or state of graph {graph.name!r}")
        if leaf.type != value.type:
            raise _broken("V07", value.op, f"update of {name!r} is {value.type}, the {leaf.op.name} {leaf.type}")
