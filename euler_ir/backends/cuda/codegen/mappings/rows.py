"""The mapping for rows: a point of the nest is done by a team of threads, its loops laid over them.

A team is a part of a warp, a warp, or a block. Values that later loops need again stay in registers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from euler_ir.backends.cuda.codegen.indexing import counter_type
from euler_ir.backends.cuda.codegen.sharing import Access, accesses, can_be_shared, meet, names_at
from euler_ir.backends.cuda.codegen.stage import THREADS, WARP, WARPS, Mapped, Spot, position_of, stage_of
from euler_ir.backends.cuda.codegen.statements import COMBINER, Accumulator, Statements
from euler_ir.backends.cuda.codegen.types import memory_type, register_type
from euler_ir.backends.cuda.codegen.vectors import Vectors, vector_axis, vector_width
from euler_ir.backends.cuda.limits import DEFAULT_SHARED
from euler_ir.index import Axis, Index, linearize
from euler_ir.loops.hoist import hoist
from euler_ir.loops.kernel import Buffer, Loop, Nest, Reduction, Statement, Store

MOST_STEPS = 8
"""Steps of a warp beyond which a row is given to a block, and those that are written out one after the other."""

_PART_BYTES = WARPS * 8
"""What a reduction over a block needs of shared memory: a number for each warp."""


def suits(nest: Nest) -> bool:
    loops = [statement for statement in nest.body if isinstance(statement, Loop)]
    if nest.vector or not loops or not all(can_be_shared(loop) for loop in loops):
        return False
    return _Rows(nest, frozenset()).shared_bytes <= DEFAULT_SHARED


def map_nest(nest: Nest, in_place: frozenset[int]) -> Mapped:
    return _Rows(nest, in_place).write()


def spot(nest: Nest, in_place: frozenset[int], point: Mapping[Axis, int]) -> Spot:
    return _Rows(nest, in_place).spot(point)


class _Rows:
    """Writes a nest whose rows are its points; ``team`` threads share one."""

    def __init__(self, nest: Nest, in_place: frozenset[int]) -> None:
        self.nest, self.in_place = nest, in_place
        self.code = Statements(nest)
        self.shared_names = names_at(nest, in_place)
        self.body = hoist(nest.body, self.shared_names)
        self.loops = [statement for statement in self.body if isinstance(statement, Loop)]
        self.widths = self._widths()
        self.team = self._team()
        self.reductions = [reduction.result for loop in self.loops for reduction in loop.reductions]
        self.own = [local for local in nest.locals if self._is_own(local)]
        self.shared_bytes = self._place_locals()

    # -- how rows are laid out -----------------------------------------------------------------------------------------

    def _widths(self) -> Mapping[tuple[Axis, ...], int]:
        """How many neighbours a thread takes in the loops over the same axes."""
        bodies: dict[tuple[Axis, ...], list[tuple[Statement, ...]]] = {}
        for loop in self.loops:
            bodies.setdefault(loop.axes, []).append(loop.body)
        return {
            axes: vector_width(found, axes[-1], self.code.buffers) if axes and axes[-1].extent else 1
            for axes, found in bodies.items()
        }

    def _team(self) -> int:
        """A power of two: as many threads as find work, up to a warp; a block for long rows, and long ones if few."""
        vectors = max((_length(axes) // width for axes, width in self.widths.items()), default=1)
        is_long = vectors > WARP * MOST_STEPS or (vectors > WARP and self.nest.points <= THREADS)
        return THREADS if is_long else min(WARP, 1 << max(vectors - 1, 0).bit_length())

    def _steps(self, axes: tuple[Axis, ...]) -> int:
        return -(-_length(axes) // self.widths[axes] // self.team)

    def _is_own(self, local: Buffer) -> bool:
        """Whether each thread reads of ``local`` only what it wrote, step by step: then it may lie in registers."""
        found = [access for statement in self.body for access in accesses(statement) if access.buffer == local.name]
        places = {(access.axes, access.index) for access in found}
        if len(places) != 1 or (axes := found[0].axes) is None or self._steps(axes) > MOST_STEPS:
            return False
        position = linearize(tuple(map(Index.of, axes)), tuple(axis.extent for axis in axes))
        return found[0].index == position

    def _place_locals(self) -> int:
        """Bytes of shared memory: for reductions over a block, and for the locals of each row in it."""
        taken = len(self.reductions) * _PART_BYTES if self.team > WARP else 0
        self.offsets: dict[str, int] = {}
        for local in self.nest.locals:
            if local not in self.own:
                self.offsets[local.name] = taken
                taken += -(-local.size * local.dtype.itemsize * (THREADS // self.team) // 16) * 16
        return taken

    def spot(self, point: Mapping[Axis, int]) -> Spot:
        """Who computes ``point``: what is of the row alone, the first thread of its team stores."""
        task, team = divmod(position_of(self.nest.axes, point), THREADS // self.team)
        axes = next((axes for axes in self.widths if axes and set(axes) <= set(point)), ())
        vector, element = divmod(position_of(axes, point), self.widths.get(axes, 1))
        step, lane = divmod(vector, self.team)
        return Spot(task, team * self.team + lane, step * self.widths.get(axes, 1) + element)

    # -- the function --------------------------------------------------------------------------------------------------

    def write(self) -> Mapped:
        nest, code, team = self.nest, self.code, self.team
        rows = THREADS // team
        tasks = -(-nest.points // rows)
        threads = "a block" if team > WARP else f"{team} threads" if team > 1 else "one thread"
        code.comment(f"{nest.points} rows, {threads} for each")
        self.row, self.lane = code.names.new("row"), code.names.new("lane")
        kind = counter_type(nest.points + rows)
        if team > WARP:
            code.line(f"const {kind} {self.row} = task;")
            code.line(f"const int {self.lane} = threadIdx.x;")
        else:
            task = "task" if kind == "int" else "(long long)(task)"
            of_team = f" / {team}" if team > 1 else ""
            code.line(f"const {kind} {self.row} = {task} * {rows} + threadIdx.x{of_team};")
            if nest.points % rows:
                code.line(f"if ({self.row} >= {nest.points}) return;")
            if team > 1:
                code.line(f"const int {self.lane} = threadIdx.x % {team};")
        code.place_axes(nest.axes, self.row, nest.points)
        self._declare_locals()
        if self.shared_bytes:
            self._barrier()  # the row before this one is done
        self._statements()
        return Mapped((stage_of(nest, self.in_place, code, tasks, self.shared_bytes),))

    def _declare_locals(self) -> None:
        code = self.code
        for local in self.nest.locals:
            name, kind = code.names.of("buffer", local.name), memory_type(local.dtype)
            if local in self.own:
                (axes,) = {access.axes for s in self.body for access in accesses(s) if access.buffer == local.name}
                code.line(f"{kind} {name}[{max(self._steps(axes) * self.widths[axes], 1)}];")
                element = f" * {self.widths[axes]} + element" if self.widths[axes] > 1 else ""
                code.places[local.name] = lambda _, name=name, element=element: f"{name}[step{element}]"
            else:
                begin = f"reinterpret_cast<{kind}*>(shared + {self.offsets[local.name]})"
                of_row = f" + threadIdx.x / {self.team} * {local.size}" if self.team < THREADS else ""
                code.line(f"{kind}* const {name} = {begin}{of_row};")
                code.places[local.name] = f"{name}[{{}}]".format

    def _statements(self) -> None:
        since_barrier: list[Access] = []
        for statement in self.body:
            found = list(accesses(statement))
            if any(meet(earlier, later, self.shared_names) for earlier in since_barrier for later in found):
                self._barrier()
                since_barrier = []
            since_barrier += found
            if isinstance(statement, Loop):
                self._loop(statement)
            elif isinstance(statement, Store) and self.team > 1:
                with self.code.block(f"if ({self.lane} == 0)"):
                    self.code.statement(statement)
            else:
                self.code.statement(statement)

    def _barrier(self) -> None:
        if self.team > WARP:
            self.code.line("__syncthreads();")
        elif self.team > 1:
            self.code.needs.add("reduce.cuh")
            self.code.line(f"eir::wait_for_team<{self.team}>();")

    # -- loops ---------------------------------------------------------------------------------------------------------

    def _loop(self, loop: Loop) -> None:
        code, length = self.code, _length(loop.axes)
        accumulators = [Accumulator(code, reduction, -(-length // self.team)) for reduction in loop.reductions]
        if length:
            self._iterations(loop, accumulators)
        for accumulator in accumulators:
            accumulator.end()
        self._reduce(loop.reductions, accumulators)
        for reduction, accumulator in zip(loop.reductions, accumulators, strict=True):
            code.values[reduction.result], code.dtypes[reduction.result] = accumulator.name, reduction.dtype

    def _iterations(self, loop: Loop, accumulators: list[Accumulator]) -> None:
        code, width, steps = self.code, self.widths[loop.axes], self._steps(loop.axes)
        vectors = _length(loop.axes) // width
        kind = counter_type(vectors)

        def take_in() -> None:
            for reduction, accumulator in zip(loop.reductions, accumulators, strict=True):
                accumulator.add(code.values[reduction.value])

        def iteration() -> None:
            *outer, axis = loop.axes or (Axis("once", 1),)
            first = vector_axis(self.nest, axis, width)
            code.place_axes((*outer, first), group, vectors)
            Vectors(code, axis, first, width, has_rest=False).write(loop.body, take_in)

        group = code.names.new("group")
        code.line("#pragma unroll" if steps <= MOST_STEPS else "#pragma unroll 4")
        with code.block(f"for ({kind} step = 0; step < {steps}; ++step)"):
            place = f"{self.lane} + step * {self.team}" if self.team > 1 else "step"
            code.line(f"const {kind} {group} = {place};")
            if vectors % self.team:
                with code.block(f"if ({group} < {vectors})"):
                    iteration()
            else:
                iteration()

    def _reduce(self, reductions: tuple[Reduction, ...], accumulators: list[Accumulator]) -> None:
        """Over the team: every thread gets the same bits."""
        code, in_warp = self.code, min(self.team, WARP)
        if in_warp == 1 or not reductions:
            return
        code.needs.add("reduce.cuh")
        functions = [COMBINER[reduction.combine] for reduction in reductions]
        for accumulator, function in zip(accumulators, functions):
            code.line(f"{accumulator.name} = eir::over_lanes<{in_warp}>({accumulator.name}, {function});")
        if self.team <= WARP:
            return
        slots = [f"shared + {self.reductions.index(reduction.result) * _PART_BYTES}" for reduction in reductions]
        for accumulator, slot in zip(accumulators, slots):
            code.line(f"eir::put_part({slot}, {accumulator.name});")
        code.line("__syncthreads();")
        for accumulator, slot, function in zip(accumulators, slots, functions):
            kind = register_type(accumulator.dtype)
            code.line(f"{accumulator.name} = eir::over_parts<{WARPS}, {kind}>({slot}, {function});")


def _length(axes: tuple[Axis, ...]) -> int:
    return math.prod(axis.extent for axis in axes)
