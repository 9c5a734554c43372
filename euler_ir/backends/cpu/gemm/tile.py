"""The innermost part of a product: a tile of the result in registers, updated at each step along the inner axis."""

from __future__ import annotations

import functools
import platform
from dataclasses import dataclass

from euler_ir.backends.cpu.jit import vector_bytes
from euler_ir.backends.cpu.writer import Code, Definition, Register, constant, lane_constants
from euler_ir.dtypes import DType

_UNROLL = 4


@dataclass(frozen=True)
class Tile:
    """``rows`` x ``vectors * lanes`` elements of the result, all in registers at once."""

    dtype: DType
    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    @property
    def element(self) -> str:
        return {"f32": "float", "f64": "double"}[self.dtype.name]


def best_tile(dtype: DType) -> Tile:
    """The tile for this CPU: 24 of 32 vector registers hold sums, or 12 of 16; the rest hold one row of the right panel
    and the element that it is multiplied with.
    """
    many_registers = vector_bytes() == 64 or platform.machine() == "aarch64"
    return Tile(dtype, 12 if many_registers else 6, 2, vector_bytes() // dtype.itemsize)


def tile_symbol(tile: Tile, rows: int) -> str:
    """The name of what `tile_ir` makes."""
    return f"eir_tile_{tile.dtype}_{rows}"


@functools.cache
def tile_ir(tile: Tile, rows: int) -> Definition:
    """The function of a tile of ``rows`` rows, at most those of ``tile``::

        void @eir_tile_f32_ROWS(i64 inner, ptr left, ptr right, ptr result, i64 leading, i64 columns, i1 accumulate)

    ``result[r, c] = sum over k < inner of left[k, r] * right[k, c]``, added to what is there with ``accumulate``, for
    the first ``columns`` columns. ``left`` is a packed panel of steps of ``tile.rows`` elements, ``right`` one of
    ``tile.columns``; rows of the result are ``leading`` elements apart. Each element is one chain of fused
    multiply-adds in the order of k, whatever the tile it lies in.
    """
    return _TileWriter(tile, rows).function()


class _TileWriter:
    def __init__(self, tile: Tile, rows: int) -> None:
        self.tile = tile
        self.rows = rows
        self.code = Code()

    def function(self) -> Definition:
        code, tile = self.code, self.tile
        zero = code.splat(constant(0.0, tile.element), tile.lanes)
        sums = [[code.slot(zero) for _ in range(tile.vectors)] for _ in range(self.rows)]
        for row in self._rows_of_result():
            for vector in range(tile.vectors):
                # Where the sums go, they arrive without waiting for memory.
                place = self._at(row.text, constant(vector * tile.lanes, "i64"))
                code.line(f"call void @llvm.prefetch.p0({place.typed}, i32 1, i32 3, i32 1)")
        inner = Register("%inner", "i64")
        whole = code.binary("and", inner, constant(-_UNROLL, "i64"))
        with code.loop(constant(0, "i64"), whole, _UNROLL, nonempty=False) as k:
            for ahead in range(_UNROLL):
                self._step(k, ahead, sums)
        with code.loop(whole, inner, 1, nonempty=False) as k:
            self._step(k, 0, sums)
        full = code.compare("icmp eq", Register("%columns", "i64"), constant(tile.columns, "i64"))
        with code.when(full):
            self._finish(sums, masks=None)
        with code.when(code.binary("xor", full, constant(True, "i1"))):
            self._finish(sums, [self._mask(vector) for vector in range(tile.vectors)])
        text = (
            f"define void @{tile_symbol(tile, self.rows)}(i64 %inner, ptr noalias %left, ptr noalias %right, "
            "ptr noalias %result, i64 %leading, i64 %columns, i1 %accumulate) nounwind {\n"
            f"{code.body()}\n}}\n"
        )
        return Definition(text, frozenset(code.helpers))

    def _step(self, k: Register, ahead: int, sums) -> None:
        code, tile = self.code, self.tile
        left, right = (
            self._at(base, code.binary("mul", k, constant(step, "i64")), ahead * step)
            for base, step in (("%left", tile.rows), ("%right", tile.columns))
        )
        row = [
            code.load(self._at(right.text, constant(vector * tile.lanes, "i64")), tile.element, tile.lanes)
            for vector in range(tile.vectors)
        ]
        for number in range(self.rows):
            pointer = self._at(left.text, constant(number, "i64"))
            factor = code.emit(f"load {tile.element}, {pointer.typed}", tile.element)
            for slot, vector in zip(sums[number], row):
                slot.set(code.intrinsic("fma", factor, vector, slot.get()))

    def _rows_of_result(self) -> list[Register]:
        leading = Register("%leading", "i64")
        return [
            self._at("%result", self.code.binary("mul", leading, constant(row, "i64"))) for row in range(self.rows)
        ]

    def _at(self, base: str, index: Register, further: int = 0) -> Register:
        pointer = self.code.emit(f"getelementptr {self.tile.element}, ptr {base}, {index.typed}", "ptr")
        if not further:
            return pointer
        return self.code.emit(f"getelementptr {self.tile.element}, {pointer.typed}, i64 {further}", "ptr")

    def _mask(self, vector: int) -> Register:
        """The lanes of a vector that lie within ``columns``."""
        code, tile = self.code, self.tile
        first = vector * tile.lanes
        numbers = lane_constants(list(range(first, first + tile.lanes)), "i64")
        return code.compare("icmp slt", numbers, Register("%columns", "i64"))

    def _finish(self, sums, masks: list[Register] | None) -> None:
        """Add what is in the result if asked to, then store."""
        code, tile = self.code, self.tile
        accumulate = Register("%accumulate", "i1")
        pointers = [
            [self._at(row.text, constant(vector * tile.lanes, "i64")) for vector in range(tile.vectors)]
            for row in self._rows_of_result()
        ]
        with code.when(accumulate):
            for number in range(self.rows):
                for vector, slot in enumerate(sums[number]):
                    old = code.load(pointers[number][vector], tile.element, tile.lanes, masks and masks[vector])
                    slot.set(code.binary("fadd", old, slot.get()))
        for number in range(self.rows):
            for vector, slot in enumerate(sums[number]):
                code.store(slot.get(), pointers[number][vector], masks and masks[vector])
