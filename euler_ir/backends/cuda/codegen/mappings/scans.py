"""The mapping for running sums along rows: a block takes as many neighbours of a row at a time as it has threads.

What comes before each of them is the sum of the neighbours before it, found by shuffles and through shared memory
(G. E. Blelloch: Prefix Sums and Their Applications, 1990), and all that the block has added up before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from euler_ir.backends.cuda.codegen.indexing import counter_type
from euler_ir.backends.cuda.codegen.sharing import can_be_shared
from euler_ir.backends.cuda.codegen.stage import THREADS, WARPS, Mapped, Spot, position_of, stage_of
from euler_ir.backends.cuda.codegen.statements import Statements
from euler_ir.backends.cuda.codegen.types import literal, register_type
from euler_ir.index import Axis
from euler_ir.loops.hoist import buffers_stored, split_invariant
from euler_ir.loops.kernel import Carry, Compute, Loop, Nest, Statement

SHORT = 64
"""Elements of a row that one thread may well add up alone."""
_PARTS_BYTES = 8 * WARPS


@dataclass(frozen=True)
class _Scan:
    """The loop of a running sum, ``carry``: to it ``value`` is added, which ``before`` gives; ``after`` may read it."""

    loop: Loop
    carry: Carry
    value: str
    before: tuple[Statement, ...]
    after: tuple[Statement, ...]


def suits(nest: Nest) -> bool:
    """Columns next to each other are left to a thread each, if they are not few."""
    return (not nest.vector or nest.points < THREADS) and _scan_of(nest) is not None


def _scan_of(nest: Nest) -> _Scan | None:
    """The only loop of ``nest``, at its end, if its only carry is a running sum of what does not depend on it."""
    *others, loop = nest.body or (None,)
    if not isinstance(loop, Loop) or buffers_stored(tuple(others)) or any(isinstance(each, Loop) for each in others):
        return None
    if len(loop.carries) != 1 or loop.reductions or nest.locals or loop.iterations <= SHORT:
        return None
    (carry,) = loop.carries
    total = next((s for s in loop.body if isinstance(s, Compute) and s.result == carry.update), None)
    if total is None or total.operation != "add" or total.operands.count(carry.name) != 1:
        return None
    if not can_be_shared(replace(loop, carries=())):
        return None
    before, after = split_invariant(loop.body, (), buffers_stored(loop.body), {carry.name})
    value = total.operands[1 - total.operands.index(carry.name)]
    is_before = value not in {getattr(statement, "result", None) for statement in after}
    return _Scan(loop, carry, value, before, after) if is_before else None


def map_nest(nest: Nest, in_place: frozenset[int]) -> Mapped:
    found, code = _scan_of(nest), Statements(nest)
    length, carry = found.loop.iterations, found.carry
    kind, counter = register_type(carry.dtype), counter_type(length + THREADS)
    code.needs.add("reduce.cuh")
    code.comment(f"{nest.points} rows, a block for each")
    code.place_axes(nest.axes, "task", nest.points)
    code.line("__syncthreads();  // the row before this one is done")
    code.statements(nest.body[:-1])
    begin, position, value, prefix, running = map(code.names.new, ("begin", "position", "value", "prefix", "running"))
    code.line(f"{kind} {running} = {literal(carry.dtype, carry.initial)};")
    with code.block(f"for ({counter} {begin} = 0; {begin} < {length}; {begin} += {THREADS})"):
        code.line(f"const bool present = {begin} + threadIdx.x < {length};")
        code.line(f"const {counter} {position} = present ? {begin} + threadIdx.x : {length - 1};")
        code.place_axes(found.loop.axes, position, length)
        code.statements(found.before)
        code.line(f"const {kind} {value} = present ? {code.values[found.value]} : {literal(carry.dtype, 0)};")
        parts = f"shared + {begin} / {THREADS} % 2 * {_PARTS_BYTES}"
        code.line(f"const eir::Prefix<{kind}> {prefix} = eir::before_in_block<{WARPS}>({parts}, {value});")
        code.define(carry.name, carry.dtype, code.apply("add", carry.dtype, [running, f"{prefix}.before"]))
        with code.block("if (present)"):
            code.statements(found.after)
        code.line(f"{running} = {code.apply('add', carry.dtype, [running, f'{prefix}.all'])};")
    return Mapped((stage_of(nest, in_place, code, nest.points, 2 * _PARTS_BYTES),))


def spot(nest: Nest, in_place: frozenset[int], point: Mapping[Axis, int]) -> Spot:
    step, thread = divmod(position_of(_scan_of(nest).loop.axes, point), THREADS)
    return Spot(position_of(nest.axes, point), thread, step)
