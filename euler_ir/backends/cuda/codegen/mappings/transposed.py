"""The mapping for nests without loops that read or write along different axes: tiles that turn in shared memory.

Neighbouring threads touch neighbouring elements on both sides (G. Ruetsch, P. Micikevicius: Optimizing Matrix Transpose
in CUDA, 2009): what lies across is loaded along its own rows and read from the tile along the others, stores likewise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from euler_ir.backends.cuda.codegen.indexing import counter_type
from euler_ir.backends.cuda.codegen.stage import THREADS, Mapped, Spot, stage_of
from euler_ir.backends.cuda.codegen.statements import Statements
from euler_ir.backends.cuda.codegen.types import from_memory, literal, memory_type, to_memory
from euler_ir.backends.cuda.limits import DEFAULT_SHARED
from euler_ir.index import Axis
from euler_ir.loops.hoist import buffers_loaded, buffers_stored
from euler_ir.loops.kernel import Load, Loop, Nest, Statement, Store

EDGE = 32
"""Elements along each side of a tile."""
SHORTEST = 8
"""Extent of either axis below which a tile would be mostly empty."""

_ROWS = THREADS // EDGE
_PITCH = EDGE + 1  # rows begin in different banks, so that a column of the tile is read at once


@dataclass(frozen=True)
class _Turned:
    """``axis`` is the one along which ``across``, loads and stores, touch neighbours; the nest's last axis is not."""

    axis: Axis
    across: tuple[Load | Store, ...]
    shared_bytes: int


def suits(nest: Nest) -> bool:
    return _turned(nest) is not None


def _turned(nest: Nest) -> _Turned | None:
    """Along which axis most bytes lie that do not lie along the last one; None if there are none."""
    if len(nest.axes) < 2 or nest.locals or any(isinstance(statement, Loop) for statement in nest.body):
        return None
    *others, last = nest.axes
    sizes = {buffer.name: buffer.dtype.itemsize for buffer in nest.parameters}
    best: tuple[int, Axis | None] = 0, None
    for axis in others:
        gained = sum(sizes[access.buffer] for access in nest.body if _is_across(access, axis, last, nest.body))
        best = max(best, (gained, axis), key=lambda each: each[0])
    axis = best[1]
    if axis is None or min(axis.extent, last.extent) < SHORTEST:
        return None
    across = tuple(access for access in nest.body if _is_across(access, axis, last, nest.body))
    shared_bytes = sum(_tile_bytes(sizes[access.buffer]) for access in across)
    return _Turned(axis, across, shared_bytes) if shared_bytes <= DEFAULT_SHARED else None


def _is_across(access: Statement, axis: Axis, last: Axis, body: tuple[Statement, ...]) -> bool:
    """Whether neighbours along ``axis`` lie together for ``access``, and those along ``last`` do not."""
    if isinstance(access, Load):
        is_free = access.buffer not in buffers_stored(body)
        is_free &= not any(condition.index.dynamics() for condition in access.conditions)
    elif isinstance(access, Store):
        is_free = not access.accumulate and access.buffer not in buffers_loaded(body)
        is_free &= sum(isinstance(other, Store) and other.buffer == access.buffer for other in body) == 1
    else:
        return False
    is_free &= not access.index.dynamics()
    return is_free and access.index.coefficient(axis) == 1 and access.index.coefficient(last) not in (0, 1)


def _tile_bytes(itemsize: int) -> int:
    return -(-EDGE * _PITCH * itemsize // 16) * 16


def map_nest(nest: Nest, in_place: frozenset[int]) -> Mapped:
    turned = _turned(nest)
    tiles = [-(-axis.extent // EDGE) if axis in (turned.axis, nest.axes[-1]) else axis.extent for axis in nest.axes]
    code = _Tiles(nest, turned, tiles).write()
    return Mapped((stage_of(nest, in_place, code, math.prod(tiles), turned.shared_bytes),))


def spot(nest: Nest, in_place: frozenset[int], point: Mapping[Axis, int]) -> Spot:
    """Who computes it: loads and stores across may be another thread's of the block."""
    axis, last = _turned(nest).axis, nest.axes[-1]
    task = 0
    for each in nest.axes:
        along = point.get(each, 0)
        is_tiled = each in (axis, last)
        tiles = -(-each.extent // EDGE) if is_tiled else each.extent
        task = task * tiles + (along // EDGE if is_tiled else along)
    turn, row = divmod(point.get(axis, 0) % EDGE, _ROWS)
    return Spot(task, row * EDGE + point.get(last, 0) % EDGE, turn)


class _Tiles:
    """Writes a tile a task: loads from across, what each point computes, stores to across."""

    def __init__(self, nest: Nest, turned: _Turned, tiles: list[int]) -> None:
        self.nest, self.axis, self.last, self.across = nest, turned.axis, nest.axes[-1], turned.across
        self.counts, self.shared_bytes = tiles, turned.shared_bytes
        self.code = Statements(nest, "pass")
        self.tile_of: dict[Load | Store, str] = {}
        self.begin_of: dict[Axis, str] = {}
        self.row, self.column = map(self.code.names.new, ("tile_row", "tile_column"))

    def write(self) -> Statements:
        code = self.code
        code.comment(f"tiles of {EDGE} x {EDGE} along {code.name_of(self.axis)} and {code.name_of(self.last)}")
        self._place_tile()
        self._declare_tiles()
        loads = [access for access in self.across if isinstance(access, Load)]
        stores = [access for access in self.across if isinstance(access, Store)]
        code.line("__syncthreads();  // what the shared memory held has been read")
        if loads:
            self._over_tile(self.last, self.axis, lambda: [self._fetch(load) for load in loads])
            code.line("__syncthreads();")
        self._over_tile(self.axis, self.last, self._points)
        if stores:
            code.line("__syncthreads();")
            self._over_tile(self.last, self.axis, lambda: [self._put(store) for store in stores])
        return code

    def _place_tile(self) -> None:
        """The axes that no tile extends along, and where the tile begins along the others."""
        code, count = self.code, math.prod(self.counts)
        wide = "LL" if counter_type(count) == "long long" else ""
        inner = 1
        for axis, tiles in reversed(list(zip(self.nest.axes, self.counts))):
            part = f"eir::modulo(eir::quotient(task, {inner}{wide}), {tiles}{wide})"
            inner *= tiles
            if axis in (self.axis, self.last):
                begin = self.begin_of[axis] = code.names.new(f"{axis.name}_begin")
                kind = counter_type(axis.extent + EDGE)
                cast = "(long long)" if kind == "long long" else "int"
                code.line(f"const {kind} {begin} = {cast}({part}) * {EDGE};")
            else:
                code.define_axis(axis, part, count)

    def _declare_tiles(self) -> None:
        taken = 0
        for access in self.across:
            kind = memory_type(self.code.buffers[access.buffer].dtype)
            tile = self.tile_of[access] = self.code.names.new(f"{access.buffer}_tile")
            self.code.line(f"{kind}* const {tile} = reinterpret_cast<{kind}*>(shared + {taken});")
            taken += _tile_bytes(self.code.buffers[access.buffer].dtype.itemsize)

    def _over_tile(self, rows: Axis, columns: Axis, write: Callable[[], object]) -> None:
        """What ``write`` writes, for each element: neighbouring threads are neighbours along ``columns``."""
        code = self.code
        code.line("#pragma unroll")
        with code.block(f"for (int pass = 0; pass < {EDGE // _ROWS}; ++pass)"):
            code.line(f"const int {self.row} = pass * {_ROWS} + threadIdx.x / {EDGE};")
            code.line(f"const int {self.column} = threadIdx.x % {EDGE};")
            code.define_axis(rows, f"{self.begin_of[rows]} + {self.row}")
            code.define_axis(columns, f"{self.begin_of[columns]} + {self.column}")
            ragged = [axis for axis in (rows, columns) if axis.extent % EDGE]
            inside = " && ".join(f"{code.name_of(axis)} < {axis.extent}" for axis in ragged)
            with code.block(f"if ({inside})" if inside else ""):
                write()

    def _fetch(self, load: Load) -> None:
        code = self.code
        element = code.places[load.buffer](code.index(load.index))
        holds = code.conditions(load.conditions)
        if holds:
            element = f"{holds} ? {element} : {to_memory(load.dtype, literal(load.dtype, 0))}"
        code.line(f"{self.tile_of[load]}[{self.row} * {_PITCH} + {self.column}] = {element};")

    def _points(self) -> None:
        """All statements, for points whose neighbours lie along the last axis: the tiles are seen turned."""
        code, place = self.code, f"[{self.column} * {_PITCH} + {self.row}]"
        for statement in self.nest.body:
            if statement not in self.tile_of:
                code.statement(statement)
            elif isinstance(statement, Load):
                element = from_memory(statement.dtype, self.tile_of[statement] + place)
                code.define(statement.result, statement.dtype, element)
            else:
                value = to_memory(code.buffers[statement.buffer].dtype, code.values[statement.value])
                code.line(f"{self.tile_of[statement]}{place} = {value};")

    def _put(self, store: Store) -> None:
        code = self.code
        element = code.places[store.buffer](code.index(store.index))
        code.line(f"{element} = {self.tile_of[store]}[{self.row} * {_PITCH} + {self.column}];")
