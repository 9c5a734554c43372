"""The rules that every fused graph keeps, checked one by one. Each has an id, which messages and tests use."""

from __future__ import annotations

from collections.abc import Iterator

from euler_ir.errors import LoweringError, VerifyError
from euler_ir.graph import Op, Value
from euler_ir.index import Indices
from euler_ir.passes.attention_calls import OPERATORS as ATTENTION
from euler_ir.passes.attention_calls import AttentionCall, match_attention
from euler_ir.passes.groups import (
    IN_PLACE,
    MOST_OPS,
    FusedGraph,
    Group,
    frame_axes,
    inline_sources,
    is_in_memory,
    root_of,
)
from euler_ir.passes.library_calls import MatmulCall, match_matmul
from euler_ir.passes.stored_values import begins_with

RULES = {
    "F01": "a group reads what is in memory from the start, or what an earlier group writes",
    "F02": "each value is written by one group; outputs and updates of the graph are in memory, or written by a group",
    "F03": "a group computes all between what it reads and what it writes: no input, parameter or state stands there",
    "F04": "what needs loops or a call of its own is computed by its own group alone",
    "F05": "the operators of a group are what its kind says, and its loops are over what they make",
    "F06": "a value of a group's own is made at the indices of its loops, or of its rows; what is written is its own",
    "F07": "a reduction sums over the axes that its group reduces",
    "F08": "a group reads the values of its own at the indices at which it makes them",
    "F09": "a call does what its group says: one product or attention, and movements that its views can follow",
    "F10": "a prologue makes an operand, element by element, of a product that has no batch and reads it row by row",
    "F11": "what an operator changes in place nobody else reads; of what is in memory it is the update",
    "F12": f"a group computes at most {MOST_OPS} operators",
}

_ALONE = {"scatter": ("scatter_add", "index_add"), "update": ("dynamic_update_slice",), "scan": ("cumsum",)}
"""By kind: the operators, one of which is all that such a group does."""
_INLINE = ("constant", "iota", "take", "later")
"""Beside elementwise operators and movements, those that any group may compute."""


def verify_fused(fused: FusedGraph) -> None:
    """Raise VerifyError, naming the rule and the group, for the first rule of ``RULES`` that ``fused`` breaks.

    ``subject`` of the error is the group, or ``fused`` itself. The rules of its graph are those of ``verify``.
    """
    written: dict[Value, Group] = {}
    for group in fused.groups:
        _check_reads(group, written)
        _check_computed(group)
        _check_kind(group)
        _check_call(group)
        for value in group.outputs:
            _expect(value not in written, "F02", f"{_said(value)} is written by another group already", group)
            _expect(not is_in_memory(value.op), "F02", f"{_said(value)} is in memory already", group)
            written[value] = group
    for label, ends in (("output", fused.graph.outputs), ("update", fused.graph.updates)):
        for name, value in ends.items():
            made = value in written or is_in_memory(value.op)
            _expect(made, "F02", f"{label} {name!r} is {_said(value)}, which no group writes", fused)
    _check_changed(fused, written)


def call_of(group: Group) -> MatmulCall | AttentionCall:
    """The call that does what ``group``, which has ``inputs``, ``outputs`` and ``prologues``, computes.

    Raises VerifyError when it computes no product or attention, or more than a call of it can do.
    """
    computed = group.computed()
    for made in group.prologues.values():
        computed -= made.computed()
    products = [op for op in computed if op.definition.family == "contraction" or op.name in ATTENTION]
    _expect(len(products) == 1, "F09", f"a call does one product or attention, not {len(products)}", group)
    (product,) = products
    uses: dict[Value, list[Op]] = {}
    for op in computed:
        for operand in op.operands:
            uses.setdefault(operand, []).append(op)
    in_memory = {*group.inputs, *group.prologues}
    match = match_attention if product.name in ATTENTION else match_matmul
    try:
        call = match(product, uses, frozenset(group.outputs), in_memory.__contains__)
    except LoweringError as error:
        raise _broken("F09", error.message, group) from None
    read = {operand for operand in in_memory if operand in call.sources}
    _expect(len(read) == len(set(call.sources)), "F09", f"the call reads {_listed(call.sources)}", group)
    _expect(set(call.results) == set(group.outputs), "F09", f"the call writes {_listed(call.results)}", group)
    return call


# -- each group --------------------------------------------------------------------------------------------------------


def _check_reads(group: Group, written: dict[Value, Group]) -> None:
    for value in group.inputs:
        in_memory = is_in_memory(value.op) or value in written
        _expect(in_memory, "F01", f"{_said(value)} is read before a group has written it", group)


def _check_computed(group: Group) -> None:
    computed, own = group.computed(), set(group.ops)
    _expect(len(computed) <= MOST_OPS, "F12", f"the group computes {len(computed)} operators", group)
    for op in computed:
        _expect(not is_in_memory(op), "F03", f"{_said(op.result)} is not among what the group reads", group)
        free = op.definition.family in ("elementwise", "movement") or op.name in _INLINE
        _expect(op in own or free or _is_made(op, group), "F04", f"{op.name} is not the group's own", group)
    for value in group.outputs:
        _expect(value.op in own, "F06", f"{_said(value)} is written and not the group's own", group)


def _is_made(op: Op, group: Group) -> bool:
    """Whether a prologue of ``group`` makes the result of ``op``."""
    return any(op in made.ops for made in group.prologues.values())


def _check_kind(group: Group) -> None:
    if group.call is not None:
        return
    if group.kind in _ALONE:
        _check_alone(group)
        return
    _expect(group.kind in ("pointwise", "reduction"), "F05", f"{group.kind!r} is no kind of group", group)
    _expect((group.kind == "reduction") == (group.reduced is not None), "F05", "reductions alone reduce axes", group)
    axes = group.reduced or ()
    known = all(0 <= axis < len(group.frame) for axis in axes) and len(set(axes)) == len(axes)
    _expect(known, "F05", f"axes {axes} are not of the {len(group.frame)} that the loops have", group)
    for op in group.ops:
        family = op.definition.family
        if family == "reduction":
            _expect(group.kind == "reduction", "F05", f"{op.name} in a group of kind {group.kind}", group)
            _check_reduction(op, group)
        else:
            free = family in ("elementwise", "movement", "random") or op.name in _INLINE
            _expect(free, "F05", f"{op.name} in a group of kind {group.kind}", group)
            roots = [root_of(op.result.shape, group, full) for full in (True, False)]
            _check_root(op, group, [root for root in roots if root is not None])
    for op in group.ops:
        _check_aligned(op, group)


def _check_alone(group: Group) -> None:
    names = _ALONE[group.kind]
    alone = len(group.ops) == 1 and group.ops[0].name in names
    _expect(alone, "F05", f"a group of kind {group.kind} does one {' or '.join(names)} and no more", group)
    op = group.ops[0]
    loops = op.result if group.kind == "scan" else op.operands[-1 if group.kind == "scatter" else 1]
    _expect(group.frame == loops.shape, "F05", f"{op.name} here needs loops over {loops.type}", group)


def _check_reduction(op: Op, group: Group) -> None:
    at = root_of(op.operands[0].shape, group, full=True)
    if at is None:
        raise _broken("F05", f"{op.name} sums {_said(op.operands[0])}, which is no value of these loops", group)
    axes = frame_axes(group.frame)
    wanted = {atom for axis in op.attributes["axes"] for atom in at[axis].axes()}
    reduced = {axes[position] for position in group.reduced if axes[position].extent != 1}
    _expect(wanted == reduced, "F07", f"{op.name} sums over {_axes(wanted)}, the group over {_axes(reduced)}", group)
    rows = root_of(op.result.shape, group, full=False)
    _check_root(op, group, [] if rows is None else [rows])


def _check_root(op: Op, group: Group, allowed: list[Indices]) -> None:
    root = group.roots.get(op.result)
    if root not in allowed:
        shown = " or ".join(f"[{', '.join(map(str, each))}]" for each in dict.fromkeys(allowed)) or "none of these"
        at = "nowhere" if root is None else f"at [{', '.join(map(str, root))}]"
        raise _broken("F06", f"{_said(op.result)} is made {at}; its indices are {shown}", group)


def _check_aligned(op: Op, group: Group) -> None:
    for value, indices in _accesses(op, group):
        made = group.roots[value]
        if indices != made:
            at, own = (f"[{', '.join(map(str, each))}]" for each in (indices, made))
            what = f"{_said(op.result)} reads {_said(value)} at {at}, and it is made at {own}"
            raise _broken("F08", what, group)


def _accesses(op: Op, group: Group) -> Iterator[tuple[Value, Indices]]:
    """Each value of the group's own that ``op`` reads, at which indices, looking through operators that are not."""
    if op.definition.family == "reduction":
        pending = [(op.operands[0], root_of(op.operands[0].shape, group, full=True))]
    elif op.definition.family == "random":
        pending = [(operand, ()) for operand in op.operands]
    else:
        pending = list(inline_sources(op, group.roots[op.result]))
    seen: set[tuple[Value, Indices]] = set()
    while pending:
        value, indices = pending.pop()
        if value in group.inputs or (value, indices) in seen:
            continue
        seen.add((value, indices))
        if value in group.roots:
            yield value, indices
        else:
            pending.extend(inline_sources(value.op, indices))


def _check_call(group: Group) -> None:
    if group.call is None:
        _expect(not group.prologues, "F10", f"a group of kind {group.kind} has no operands to make", group)
        return
    call = call_of(group)
    kind = "matmul" if isinstance(call, MatmulCall) else call.operator
    _expect(group.kind == kind, "F05", f"a group of kind {group.kind} does {kind}", group)
    _expect(call == group.call, "F09", "the call is another than what the group computes", group)
    _expect(group.frame == call.results[0].shape, "F05", f"the call makes {call.results[0].type}", group)
    _expect(set(group.inputs) == set(group.read_by_call), "F09", f"the call reads {_listed(group.read_by_call)}", group)
    for value, made in group.prologues.items():
        _check_prologue(value, made, group)


def _check_prologue(value: Value, made: Group, group: Group) -> None:
    call = group.call
    views = [view for view in (call.left, call.right) if view.source is value] if group.kind == "matmul" else []
    _expect(len(views) == 1, "F10", f"{_said(value)} is not one operand of a product", group)
    _expect(begins_with(views[0]) and not call.batch, "F10", f"{_said(value)} is not read row by row", group)
    is_it = made.outputs == (value,) and made.kind == "pointwise" and made.frame == value.shape
    _expect(is_it, "F10", f"the prologue does not make {_said(value)}", group)
    _check_computed(made)
    _check_kind(made)


# -- the whole ---------------------------------------------------------------------------------------------------------


def _check_changed(fused: FusedGraph, written: dict[Value, Group]) -> None:
    results = set(fused.graph.results())
    readers: dict[Value, list[Group]] = {}
    for group in fused.groups:
        for value in group.inputs:
            readers.setdefault(value, []).append(group)
    for group in fused.groups:
        if group.call is not None or not group.ops or group.ops[0].name not in IN_PLACE:
            continue
        changed, result = group.changed, group.ops[0].result
        what = f"{group.ops[0].name} changes {_said(changed)}"
        _expect(readers.get(changed, []) == [group], "F11", f"{what}, which another group reads", group)
        if changed in written:
            _expect(changed not in results, "F11", f"{what}, which the graph gives out", group)
            continue
        updated = [name for name, value in fused.graph.updates.items() if value is result]
        own = any(fused.graph.leaf(name) is changed for name in updated)
        _expect(own, "F11", f"{what}, whose update it is not", group)


def _expect(holds: bool, rule: str, what: str, subject: Group | FusedGraph) -> None:
    if not holds:
        raise _broken(rule, what, subject)


def _broken(rule: str, what: str, subject: Group | FusedGraph) -> VerifyError:
    details = (f"in group {subject.order} {subject.name}",) if isinstance(subject, Group) else ()
    return VerifyError(f"{rule}: {what}", details=details, hint=RULES[rule], subject=subject)


def _said(value: Value) -> str:
    return f"%{value.name or value.op.name}"


def _listed(values) -> str:
    return ", ".join(map(_said, dict.fromkeys(values)))


def _axes(axes) -> str:
    return ", ".join(sorted(map(str, axes))) or "no axis"
