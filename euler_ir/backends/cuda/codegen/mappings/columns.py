"""The mapping for reductions down columns: neighbouring points in the lanes of a warp, the iterations of loops dealt to
the warps of a block.

Where columns are few and long, several blocks share a column: each leaves what it has found in scratch memory, and a
second stage combines that in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from euler_ir.backends.cuda.calls import ScratchPointer
from euler_ir.backends.cuda.codegen.indexing import counter_type
from euler_ir.backends.cuda.codegen.sharing import Access, accesses, can_be_shared, meet, names_at
from euler_ir.backends.cuda.codegen.stage import (
    THREADS,
    WARP,
    WARPS,
    Mapped,
    Parameter,
    Spot,
    Stage,
    position_of,
    stage_of,
)
from euler_ir.backends.cuda.codegen.statements import COMBINER, Accumulator, Statements
from euler_ir.backends.cuda.codegen.types import register_type
from euler_ir.index import Axis
from euler_ir.loops.hoist import hoist
from euler_ir.loops.kernel import Loop, Nest, Reduction, Statement, Store

MANY_POINTS = 1 << 17
"""Points that keep a GPU busy with a thread each."""
SHORT = 32
"""Iterations that one thread may well do alone."""
BLOCKS = 1024
"""Blocks that a nest is cut into, if its columns are long enough: eight, all of its threads, for each multiprocessor of
the largest GPUs, since a thread has few bytes on their way to it.
"""
SHORTEST_SHARE = 8 * WARPS
"""Iterations that a block has at least, so that combining what they found costs little."""
MOST_SHARES = 64


def suits(nest: Nest) -> bool:
    loops = [statement for statement in nest.body if isinstance(statement, Loop)]
    if not nest.vector or nest.locals or nest.points > MANY_POINTS or not loops:
        return False
    if max(loop.iterations for loop in loops) <= SHORT or not all(map(can_be_shared, loops)):
        return False
    # What stands after the last loop is left to the first warp, before it stores nothing.
    last = max(place for place, statement in enumerate(nest.body) if isinstance(statement, Loop))
    return not any(isinstance(statement, Store) for statement in nest.body[:last])


def map_nest(nest: Nest, in_place: frozenset[int]) -> Mapped:
    shared = names_at(nest, in_place)
    body = hoist(nest.body, shared)
    loops = [statement for statement in body if isinstance(statement, Loop)]
    shares = _shares(nest, body, shared)
    if shares == 1:
        return Mapped((_Columns(nest, in_place, body).whole(),))
    parts, scratch_bytes = _scratch(nest, loops[0], shares)
    first = _Columns(nest, in_place, body[: body.index(loops[0]) + 1], parts).share(shares)
    second = _combined(nest, in_place, body, shares, parts)
    return Mapped((first, second), scratch_bytes)


def spot(nest: Nest, in_place: frozenset[int], point: Mapping[Axis, int]) -> Spot:
    shared = names_at(nest, in_place)
    body = hoist(nest.body, shared)
    loops = [statement for statement in body if isinstance(statement, Loop)]
    shares = _shares(nest, body, shared)
    column = position_of(nest.axes, point)
    loop = next((loop for loop in loops if set(loop.axes) <= set(point)), None)
    if loop is None and shares > 1:
        return Spot(*divmod(column, THREADS), stage=1)
    step, warp = divmod(position_of(loop.axes if loop else (), point), WARPS)
    task = step % shares * -(-nest.points // WARP) + column // WARP
    return Spot(task, warp * WARP + column % WARP, step // shares)


def _shares(nest: Nest, body: tuple[Statement, ...], in_place: frozenset[str]) -> int:
    """Among how many blocks the iterations of the only loop in ``body`` are dealt.

    What stands before it is done by each of them and once more by the second stage, so that it must not see what the
    loop stores, which may lie in the memory of others ``in_place``.
    """
    places = [place for place, statement in enumerate(body) if isinstance(statement, Loop)]
    before, loop = [access for statement in body[: places[0]] for access in accesses(statement)], body[places[0]]
    stored = {access.buffer for access in accesses(loop) if access.is_store}
    stored |= in_place if stored & in_place else frozenset()
    if len(places) > 1 or any(access.buffer in stored for access in before):
        return 1
    columns = -(-nest.points // WARP)
    return max(1, min(BLOCKS // columns, loop.iterations // SHORTEST_SHARE, MOST_SHARES))


def _scratch(nest: Nest, loop: Loop, shares: int) -> tuple[list[Parameter], int]:
    """For each reduction of ``loop`` where its parts lie, share by share; and the bytes of all."""
    parameters, taken = [], 0
    for reduction in loop.reductions:
        name = f"parts_{len(parameters)}"
        parameters.append(Parameter(f"{register_type(reduction.dtype)}*", name, ScratchPointer(taken)))
        taken += -(-shares * nest.points * reduction.dtype.itemsize // 256) * 256
    return parameters, taken


class _Columns:
    """Writes ``body``: 32 points a block, the iterations of its loops dealt to its warps in turn.

    What the blocks of a `share` have found goes to ``parts``.
    """

    def __init__(
        self, nest: Nest, in_place: frozenset[int], body: tuple[Statement, ...], parts: Sequence[Parameter] = ()
    ) -> None:
        self.nest, self.in_place, self.body, self.parts = nest, in_place, body, parts
        self.code = Statements(nest, *(parameter.name for parameter in parts))
        self.shared_names = names_at(nest, in_place)
        self.columns = -(-nest.points // WARP)
        self.shared_bytes = 0

    def whole(self) -> Stage:
        """All iterations, and what follows them."""
        self._comment("a block")
        self._place_point("task")
        self._statements(lambda loop: (f"threadIdx.x / {WARP}", WARPS))
        return stage_of(self.nest, self.in_place, self.code, self.columns, self.shared_bytes)

    def share(self, shares: int) -> Stage:
        """One of ``shares`` of the iterations."""
        code = self.code
        self._comment(f"{shares} blocks")
        share = code.names.new("share")
        code.line(f"const int {share} = task / {self.columns};")
        self._place_point(f"task % {self.columns}")
        self._statements(lambda loop: (f"{share} * {WARPS} + threadIdx.x / {WARP}", shares * WARPS))
        with code.block(f"if (threadIdx.x < {WARP} && {self.is_point})"):
            for parameter, reduction in zip(self.parts, self.body[-1].reductions, strict=True):
                place = f"{_wide(shares * self.nest.points)}({share}) * {self.nest.points} + {self.point}"
                code.line(f"{parameter.name}[{place}] = {code.values[reduction.result]};")
        stage = stage_of(self.nest, self.in_place, code, shares * self.columns, self.shared_bytes)
        return replace(stage, parameters=(*stage.parameters, *self.parts))

    def _comment(self, owner: str) -> None:
        self.code.comment(f"{self.nest.points} columns, {WARP} for {owner}")

    def _place_point(self, group: str) -> None:
        """Threads beyond the last point do what the last one does, but store nothing."""
        code, points = self.code, self.nest.points
        column, self.is_point, self.point = map(code.names.new, ("column", "is_point", "point"))
        code.line(f"const int {column} = ({group}) * {WARP} + threadIdx.x % {WARP};")
        code.line(f"const bool {self.is_point} = {column} < {points};")
        code.line(f"const int {self.point} = {self.is_point} ? {column} : {points - 1};")
        code.place_axes(self.nest.axes, self.point, points)

    def _statements(self, lane_of: Callable[[Loop], tuple[str, int]]) -> None:
        code = self.code
        last = max(place for place, statement in enumerate(self.body) if isinstance(statement, Loop))
        since_barrier: list[Access] = []

        def wait_for(later: list[Access]) -> None:
            if any(meet(earlier, each, self.shared_names) for earlier in since_barrier for each in later):
                code.line("__syncthreads();")
                since_barrier.clear()

        for statement in self.body[: last + 1]:
            found = list(accesses(statement))
            wait_for(found)
            since_barrier += found
            if isinstance(statement, Loop):
                self._loop(statement, *lane_of(statement))
                if statement.reductions:
                    since_barrier.clear()  # their barriers stand behind what the loop touches
            else:
                code.statement(statement)
        if rest := self.body[last + 1 :]:
            wait_for([access for statement in rest for access in accesses(statement)])
            code.line(f"if (threadIdx.x >= {WARP} || !{self.is_point}) return;")
            code.statements(rest)

    def _loop(self, loop: Loop, first: str, step: int) -> None:
        code, length = self.code, loop.iterations
        accumulators = [Accumulator(code, reduction, -(-length // step)) for reduction in loop.reductions]
        kind = counter_type(length + step)
        iteration = code.names.new("iteration")
        code.line("#pragma unroll 4")
        with code.block(f"for ({kind} {iteration} = {first}; {iteration} < {length}; {iteration} += {step})"):
            code.place_axes(loop.axes, iteration, length)
            for statement in loop.body:
                if isinstance(statement, Store):
                    with code.block(f"if ({self.is_point})"):
                        code.statement(statement)
                else:
                    code.statement(statement)
            for reduction, accumulator in zip(loop.reductions, accumulators, strict=True):
                accumulator.add(code.values[reduction.value])
        for accumulator in accumulators:
            accumulator.end()
        self._over_warps(loop.reductions, accumulators)
        for reduction, accumulator in zip(loop.reductions, accumulators, strict=True):
            code.values[reduction.result], code.dtypes[reduction.result] = accumulator.name, reduction.dtype

    def _over_warps(self, reductions: tuple[Reduction, ...], accumulators: list[Accumulator]) -> None:
        """What the warps found for each column, combined: every one of them gets the same bits."""
        if not reductions:
            return
        code, taken = self.code, 0
        code.needs.add("reduce.cuh")
        places = []
        for accumulator in accumulators:
            places.append(f"shared + {taken}")
            taken += THREADS * accumulator.dtype.itemsize
        self.shared_bytes = max(self.shared_bytes, taken)
        code.line("__syncthreads();  // what the shared memory held has been read")
        for accumulator, place in zip(accumulators, places):
            code.line(f"eir::put_own({place}, {accumulator.name});")
        code.line("__syncthreads();")
        for accumulator, place, reduction in zip(accumulators, places, reductions):
            arguments = f"{place}, {COMBINER[reduction.combine]}"
            kind = register_type(accumulator.dtype)
            code.line(f"{accumulator.name} = eir::over_warps<{WARPS}, {kind}>({arguments});")


def _combined(
    nest: Nest, in_place: frozenset[int], body: tuple[Statement, ...], shares: int, parts: list[Parameter]
) -> Stage:
    """The second stage: a point a thread combines what the shares have found, and does what follows the loop."""
    loop = next(statement for statement in body if isinstance(statement, Loop))
    before, after = body[: body.index(loop)], body[body.index(loop) + 1 :]
    code = Statements(nest, "share", *(parameter.name for parameter in parts))
    code.comment(f"{nest.points} columns, one a thread, each of {shares} parts")
    point = code.thread_number("point", nest.points)
    code.place_axes(nest.axes, point, nest.points)
    code.statements(before)
    for reduction, parameter in zip(loop.reductions, parts, strict=True):
        accumulator = Accumulator(code, reduction, math.inf)
        code.line("#pragma unroll 8")
        with code.block(f"for (int share = 0; share < {shares}; ++share)"):
            place = f"{_wide(shares * nest.points)}(share) * {nest.points} + {point}"
            accumulator.add(f"{parameter.name}[{place}]")
        accumulator.end()
        code.values[reduction.result], code.dtypes[reduction.result] = accumulator.name, reduction.dtype
    code.statements(after)
    stage = stage_of(nest, in_place, code, -(-nest.points // THREADS))
    return replace(stage, parameters=(*stage.parameters, *parts))


def _wide(count: int) -> str:
    return "(long long)" if counter_type(count) == "long long" else "int"
