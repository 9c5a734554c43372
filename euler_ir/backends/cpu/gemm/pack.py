"""Packing: a strip of a matrix copied so that a tile reads it straight through, whichever way the matrix is stored.

A packed panel holds, for each step along the inner axis, ``width`` neighbouring elements of the other one. A matrix
whose neighbours lie side by side in memory is copied vector by vector; one that is stored the other way round is
transposed in registers, a square of elements at a time.
"""

from __future__ import annotations

import functools

from euler_ir.backends.cpu.gemm.tile import Tile
from euler_ir.backends.cpu.writer import Code, Definition, Register, constant, lane_constants


def overrun(tile: Tile, width: int) -> int:
    """Elements that packing a panel may overwrite beyond its end."""
    return tile.lanes * width


def pack_symbol(tile: Tile, width: int, across: bool) -> str:
    """The name of what `pack_ir` makes."""
    return f"eir_pack_{tile.dtype}_{width}_{'across' if across else 'along'}"


@functools.cache
def pack_ir(tile: Tile, width: int, across: bool) -> Definition:
    """The function that packs one panel::

        void @eir_pack_f32_WIDTH_along(ptr source, i64 leading, i64 valid, i64 inner, ptr target)

    ``target[k * width + p] = source[k * leading + p]``, or with ``across`` ``source[p * leading + k]``, for k < inner
    and p < valid <= width. Elements from ``valid`` on are finite where the valid ones are, and up to `overrun` elements
    beyond the panel's end are overwritten. Nothing outside of the valid source is read.
    """
    writer = _Packer(tile, width)
    return writer.function(pack_symbol(tile, width, across), writer.across if across else writer.along)


class _Packer:
    def __init__(self, tile: Tile, width: int) -> None:
        self.tile = tile
        self.width = width
        self.code = Code()
        self.inner = Register("%inner", "i64")
        # The next panel's lines are fetched meanwhile: so many of them are more than the hardware follows by itself.
        self.ahead = self.code.binary("mul", Register("%leading", "i64"), constant(width, "i64"))
        self.valid = Register("%valid", "i64")

    def function(self, symbol: str, body) -> Definition:
        body()
        text = (
            f"define void @{symbol}(ptr noalias %source, i64 %leading, i64 %valid, i64 %inner, ptr noalias %target) "
            f"nounwind {{\n{self.code.body()}\n}}\n"
        )
        return Definition(text, frozenset(self.code.helpers))

    # -- neighbours side by side ---------------------------------------------------------------------------------------

    def along(self) -> None:
        code = self.code
        full = code.compare("icmp eq", self.valid, constant(self.width, "i64"))
        with code.when(full):
            self._rows(masked=False)
        with code.when(code.binary("xor", full, constant(True, "i1"))):
            self._rows(masked=True)

    def _rows(self, masked: bool) -> None:
        code = self.code
        with code.loop(constant(0, "i64"), self.inner, 1, nonempty=False) as k:
            source = self._at("%source", code.binary("mul", k, Register("%leading", "i64")))
            target = self._at("%target", code.binary("mul", k, constant(self.width, "i64")))
            start = 0
            while start < self.width:
                lanes = self._piece(self.width - start)
                mask = self._below(self.valid, start, lanes) if masked else None
                row = code.load(self._at(source.text, constant(start, "i64")), self.tile.element, lanes, mask)
                code.store(row, self._at(target.text, constant(start, "i64")))
                start += lanes

    # -- neighbours far apart ------------------------------------------------------------------------------------------

    def across(self) -> None:
        code, side = self.code, self.tile.lanes
        whole = code.binary("and", self.inner, constant(-side, "i64"))
        with code.loop(constant(0, "i64"), whole, side, nonempty=False) as k:
            self._square(k, None)
        with code.when(code.compare("icmp slt", whole, self.inner)):
            rest = code.binary("sub", self.inner, whole)
            self._square(whole, self._below(rest, 0, side))

    def _square(self, k: Register, mask: Register | None) -> None:
        """Transpose ``side`` steps of all lines, ``side`` lines at a time."""
        code, side = self.code, self.tile.lanes
        last = code.binary("sub", self.valid, constant(1, "i64"))
        target = self._at("%target", code.binary("mul", k, constant(self.width, "i64")))
        for start in range(0, self.width, side):
            lines = []
            for line in range(start, min(start + side, self.width)):
                # Beyond the last line it is read again: what stands there is never used, but must be memory of ours.
                number = code.intrinsic("smin", constant(line, "i64"), last)
                source = self._at("%source", code.binary("mul", number, Register("%leading", "i64")))
                lines.append(code.load(self._at(source.text, k), self.tile.element, side, mask))
                self._prefetch(self._at(source.text, code.binary("add", k, self.ahead)))
            count = len(lines)
            lines += [Register("poison", self.tile.element, side)] * (side - count)
            for step, row in enumerate(self._transposed(lines)):
                self._store_first(row, count, self._at(target.text, constant(step * self.width + start, "i64")))

    def _store_first(self, row: Register, count: int, target: Register) -> None:
        """Store the first ``count`` lanes of ``row``, in pieces that are whole registers."""
        start = 0
        while start < count:
            lanes = self._piece(count - start)
            piece = row if lanes == row.lanes else self.code.shuffle(row, row, list(range(start, start + lanes)))
            self.code.store(piece, self._at(target.text, constant(start, "i64")))
            start += lanes

    def _piece(self, rest: int) -> int:
        """The lanes of the largest register that ``rest`` elements fill."""
        return min(self.tile.lanes, 1 << (rest.bit_length() - 1))

    def _transposed(self, rows: list[Register]) -> list[Register]:
        """The transpose of a square of registers, by shuffles that are one instruction each: first inside of every 128
        bits, where pairs of registers interleave, then of the 128-bit parts.
        """
        within = 16 // self.tile.dtype.itemsize
        parts = len(rows) // within
        grouped = [self._interleaved(rows[part * within : (part + 1) * within]) for part in range(parts)]
        columns: list[Register] = [rows[0]] * len(rows)
        for inside in range(within):
            exchanged = self._exchanged([group[inside] for group in grouped], within)
            for part, column in enumerate(exchanged):
                columns[part * within + inside] = column
        return columns

    def _interleaved(self, rows: list[Register]) -> list[Register]:
        """Transposes the squares that ``rows`` have in each of their 128-bit parts."""
        side, count = self.tile.lanes, len(rows)
        low = [part + lane // 2 + (side if lane & 1 else 0) for part in range(0, side, count) for lane in range(count)]
        high = [lane + count // 2 for lane in low]
        distance = count // 2
        while distance:
            mixed = list(rows)
            for first in (row for row in range(count) if not row & distance):
                second = first | distance
                pair = rows[first], rows[second]
                mixed[first], mixed[second] = (self.code.shuffle(*pair, lanes) for lanes in (low, high))
            rows, distance = mixed, distance // 2
        return rows

    def _exchanged(self, rows: list[Register], size: int) -> list[Register]:
        """Transposes the square of parts of ``size`` lanes that ``rows`` make: 1, 2 or 4 parts each."""

        def parts(first: Register, second: Register, chosen: list[int]) -> Register:
            return self.code.shuffle(first, second, [part * size + lane for part in chosen for lane in range(size)])

        if len(rows) == 1:
            return rows
        if len(rows) == 2:
            return [parts(*rows, [0, 2]), parts(*rows, [1, 3])]
        low = [parts(*rows[:2], [0, 1, 4, 5]), parts(*rows[2:], [0, 1, 4, 5])]
        high = [parts(*rows[:2], [2, 3, 6, 7]), parts(*rows[2:], [2, 3, 6, 7])]
        return [parts(*half, chosen) for half in (low, high) for chosen in ([0, 2, 4, 6], [1, 3, 5, 7])]

    # -- memory --------------------------------------------------------------------------------------------------------

    def _at(self, base: str, index: Register) -> Register:
        return self.code.emit(f"getelementptr {self.tile.element}, ptr {base}, {index.typed}", "ptr")

    def _prefetch(self, pointer: Register) -> None:
        self.code.line(f"call void @llvm.prefetch.p0({pointer.typed}, i32 0, i32 2, i32 1)")

    def _below(self, limit: Register, start: int, lanes: int) -> Register:
        """The lanes ``start``, ``start + 1`` ... that are below ``limit``."""
        return self.code.compare("icmp slt", lane_constants(list(range(start, start + lanes)), "i64"), limit)
