"""Reverse-mode differentiation, graph to graph: the gradient is made of ordinary ops of the same graph."""

from __future__ import annotations

from collections.abc import Sequence

from euler_ir.errors import GraphError
from euler_ir.graph import Graph, Op, Value
from euler_ir.tensor import add, full_like


def gradient(output: Value, wrt: Sequence[Value], cotangent: Value | None = None) -> list[Value]:
    """The gradient of ``output`` with respect to each value of ``wrt``, of that value's type.

    Without ``cotangent`` the output must be a 0-d float. A value that the output does not depend on gets zeros.
    The result can be differentiated again. Raises GraphError for an output that is no scalar, an integer in ``wrt``, a
    ``wrt`` that is no list, or values of different graphs.
    """
    if isinstance(wrt, Value):
        raise output.graph.explain(GraphError("wrt is a list of tensors"), (wrt,), ("wrt",), "write gradient(y, [x])")
    graph = output.graph
    wrt = list(wrt)
    _check(graph, output, wrt, cotangent)
    on_path = _between(graph, output, wrt)
    if cotangent is None:
        with graph.derived_from(output.op, "gradient"):
            cotangent = full_like(output, 1)
    cotangents: dict[Value, Value] = {output: cotangent}
    targets = set(wrt)
    for op in on_path:
        results = [cotangents.get(value) for value in op.results]
        for value in op.results:
            if value not in targets:
                cotangents.pop(value, None)
        if all(result is None for result in results) or op.definition.vjp is None:
            continue
        with graph.derived_from(op, "gradient"):
            contributions = op.definition.vjp(op, *results)
            for operand, contribution in zip(op.operands, contributions, strict=True):
                if contribution is not None and operand.dtype.is_float:
                    _accumulate(cotangents, operand, contribution, op)
    gradients = []
    for value in wrt:
        with graph.derived_from(value.op, "gradient"):
            gradients.append(cotangents[value] if value in cotangents else full_like(value, 0))
    return gradients


def _check(graph: Graph, output: Value, wrt: list[Value], cotangent: Value | None) -> None:
    if not output.dtype.is_float or (cotangent is None and output.shape != ()):
        raise graph.explain(
            GraphError(f"the gradient needs a 0-d float output, not {output.type}"),
            (output,),
            ("output",),
            "reduce it to a scalar, with sum or mean, or give a cotangent",
        )
    if cotangent is not None and cotangent.type != output.type:
        raise graph.explain(GraphError("the cotangent differs in type"), (output, cotangent), ("output", "cotangent"))
    for value in wrt:
        if value.graph is not graph:
            raise graph.explain(GraphError("a gradient is wanted for a value of another graph"), (value,))
        if not value.dtype.is_float:
            raise graph.explain(GraphError(f"{value.dtype} values have no gradient"), (value,))


def _between(graph: Graph, output: Value, wrt: list[Value]) -> list[Op]:
    """The ops through which ``output`` depends on ``wrt``, from the output backwards."""
    reached = set(wrt)
    forward = []
    for op in graph.ops:
        if any(operand in reached for operand in op.operands):
            reached.update(op.results)
            forward.append(op)
    needed = {output}
    path = []
    for op in reversed(forward):
        if any(value in needed for value in op.results):
            needed.update(op.operands)
            path.append(op)
    return path


def _accumulate(cotangents: dict[Value, Value], operand: Value, contribution: Value, op: Op) -> None:
    if contribution.type != operand.type:
        raise GraphError(f"the gradient rule of {op.name} gives {contribution.type} for an operand of {operand.type}")
    held = cotangents.get(operand)
    cotangents[operand] = contribution if held is None else add(held, contribution)
