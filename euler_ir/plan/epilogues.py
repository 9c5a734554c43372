"""Elementwise nests that run inside of the product whose result they read: part by part, while it is in the cache.

The product then waits for what its epilogue reads, and its result lies where an output of the epilogue will: each
element of the one becomes one of the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from euler_ir.graph import Value
from euler_ir.index import Index, linearize
from euler_ir.loops.kernel import Compute, Constant, IndexValue, Load, Nest, Store
from euler_ir.loops.lower import LoweredGroup, lower
from euler_ir.passes.groups import Group
from euler_ir.passes.library_calls import MatmulCall
from euler_ir.passes.refusals import Refusal
from euler_ir.plan.in_place import Accesses


@dataclass(frozen=True)
class Unit:
    """What runs as one: the nest of a group, a call, or a call and then, as its epilogue, the nest of a group that
    alone reads its result. That result has no buffer: it shares that of ``host``, one of the outputs.

    ``group`` is all of it, ``lowered`` the nest and ``nested`` the group that this comes from; ``parts`` are the groups
    that were one by one, the call first. A call that adds its
    result to ``running``, which nothing else reads, needs no nest for that: ``host`` takes the memory of ``running``.
    """

    group: Group
    parts: tuple[Group, ...]
    lowered: LoweredGroup | None = None
    nested: Group | None = None
    host: Value | None = None
    running: Value | None = None

    @property
    def product(self) -> Value | None:
        """The result that the epilogue reads."""
        return None if self.host is None else self.group.call.results[0]


def units(
    groups: Sequence[Group], results: Collection[Value], replaced: Mapping[Value, Sequence[Value]]
) -> tuple[list[Unit], dict[tuple[Value, Group], Refusal]]:
    """One unit a group, but for calls that have found an epilogue, in an order that runs; and for each result of a
    product and nest that reads it from memory why this does not run inside of the product.

    ``results`` are needed after the last group. ``replaced`` holds the leaves that each update may be written over: an
    update hosts no product while the product or its epilogue still reads one of them.
    """
    readers: dict[Value, list[Group]] = {}
    calls: dict[Value, Group] = {}
    for group in groups:
        for value in group.inputs:
            readers.setdefault(value, []).append(group)
        if isinstance(group.call, MatmulCall):
            calls[group.call.results[0]] = group
    alone = {value for value, reading in readers.items() if len(reading) == 1 and value not in results}
    made = {value for group in groups for value in group.outputs}
    joined: dict[Group, Unit | None] = {}
    refusals: dict[tuple[Value, Group], Refusal] = {}
    for group in groups:
        products = [value for value in group.inputs if value in calls] if group.call is None else ()
        # The latest first: an earlier one would have to wait for it.
        for value in sorted(products, key=lambda value: -calls[value].order):
            if group in joined:
                unit = Refusal("product-after-another")
            elif value in alone and group.kind == "pointwise":
                unit = _add_to(calls[value], group, alone & made) or _join(calls[value], group, replaced)
            else:
                unit = _shared(value, group, readers[value], results)
            if isinstance(unit, Refusal):
                refusals[value, group] = unit
            else:
                joined[group] = unit
                joined[calls[value]] = None
    found = (joined[group] if group in joined else _alone(group) for group in groups)
    return [unit for unit in found if unit is not None], refusals


def _alone(group: Group) -> Unit:
    return Unit(group, (group,)) if group.call is not None else Unit(group, (group,), lower(group), group)


def _shared(product: Value, group: Group, readers: Sequence[Group], results: Collection[Value]) -> Refusal:
    """Why ``product`` cannot be for ``group`` alone, element by element."""
    if product in results:
        return Refusal("product-is-result")
    if len(readers) > 1:
        return Refusal("product-read-twice", (" and ".join(dict.fromkeys(reader.name for reader in readers)),))
    return Refusal("product-reader-kind", (group.kind,))


def _add_to(product: Group, group: Group, sums: Collection[Value]) -> Unit | None:
    """``product`` adding to one of ``sums``, if ``group`` does nothing else with its result; or None."""
    (result,) = product.call.results
    total, op = group.outputs[0], group.ops[-1]
    if op.name != "add" or len(group.ops) > 1 or total not in sums or result not in op.operands:
        return None
    others = [value for value in op.operands if value is not result]
    if len(others) != 1 or others[0] not in sums:
        return None
    inputs = (*product.inputs, *others)
    merged = _merged(product, group, inputs)
    return Unit(merged, (product, group), host=total, running=others[0])


def _join(product: Group, group: Group, replaced: Mapping[Value, Sequence[Value]]) -> Unit | Refusal:
    """``product`` with ``group`` as its epilogue, or why that does not fit."""
    call, (result,) = product.call, product.call.results
    view = call.result_view
    is_whole = not call.batch and view.offset == 0 and view.leading == call.columns
    if not is_whole or min(call.rows, call.columns) == 1:
        return Refusal("product-batched")
    lowered = lower(group, columns=call.columns)
    names = dict(zip(lowered.arguments, (buffer.name for buffer in lowered.nest.parameters)))
    if not _runs_by_parts(lowered.nest, call.columns, names[result]):
        return Refusal("product-other-order")
    accesses = Accesses(lowered.nest)
    inputs = dict.fromkeys((*product.inputs, *(other for other in group.inputs if other is not result)))
    for value in group.outputs:
        same_size = (value.dtype, value.size) == (result.dtype, result.size)
        fits = same_size and inputs.keys().isdisjoint(replaced.get(value, ()))
        if fits and accesses.can_overwrite(names[result], names[value]):
            return Unit(_merged(product, group, tuple(inputs)), (product, group), lowered, group, value)
    return Refusal("product-no-host")


def _merged(product: Group, group: Group, inputs: tuple[Value, ...]) -> Group:
    ops = [*product.ops, *group.ops]
    return replace(product, order=group.order, ops=ops, inputs=inputs, outputs=group.outputs)


def _runs_by_parts(nest: Nest, columns: int, product: str) -> bool:
    """Whether ``nest`` can run for any rows and columns alone: plain statements over rows and columns, each point of
    which reads ``product`` at its own place, and neighbours read neighbours.
    """
    simple = all(isinstance(statement, (Constant, IndexValue, Compute, Load, Store)) for statement in nest.body)
    if not simple or not nest.vector or nest.axes[-1].extent != columns:
        return False
    here = linearize(tuple(map(Index.of, nest.axes)), tuple(axis.extent for axis in nest.axes))
    return all(
        load.index == here and not load.conditions
        if load.buffer == product
        else load.index.coefficient(nest.axes[-1]) in (0, 1)
        for load in nest.body
        if isinstance(load, Load)
    )
