"""A whole product: its result is cut among the threads, and each piece into blocks that stay in the caches.

The loops around a tile are those of BLIS, but for the outermost two: along the inner axis first, so that a left
operand of few rows is packed once for all columns. The order in which an element's products are added depends on
``Blocks.inner`` alone, never on where the element lies nor on the number of threads.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from euler_ir.backends.cpu.gemm.pack import overrun
from euler_ir.backends.cpu.gemm.tile import Tile, tile_symbol
from euler_ir.backends.cpu.writer import Code, Definition, Register, constant

_INNER = 768
"""Steps along the inner axis in a block. A packed panel of the right operand then streams from the second-level cache,
fast enough; shorter blocks would load and store the result more often, which costs more."""
_LEFT_BYTES = 320 * 1024
"""Packed blocks of the left operand that stay in the second-level cache."""
_RIGHT_BYTES = 3 * 1024 * 1024
"""Packed blocks of the right operand that stay in a thread's part of the last-level cache."""
_EPILOGUE_COLUMNS = 128
"""Columns of a block that the epilogue takes at a time, while they are in the nearest caches."""
_PACKING = 12
"""What packing an element costs, in multiply-adds."""


@dataclass(frozen=True)
class Blocks:
    """How a thread cuts its piece: ``rows`` x ``inner`` of the left operand and ``inner`` x ``columns`` of the right
    one are packed at a time.
    """

    rows: int
    columns: int
    inner: int

    def scratch(self, tile: Tile) -> tuple[int, int]:
        """Elements that the packed left and right blocks take, rounded up to whole cache lines."""
        sizes = (
            (_up(self.rows, tile.rows) * self.inner + overrun(tile, tile.rows)),
            (_up(self.columns, tile.columns) * self.inner + overrun(tile, tile.columns)),
        )
        left, right = (_up(size, 64 // tile.dtype.itemsize) for size in sizes)
        return left, right

    def made(self, side: str) -> int:
        """Elements of a block of one operand, 'left' or 'right', as its prologue makes it: not packed."""
        return self.inner * (self.rows if side == "left" else self.columns)


def choose_blocks(tile: Tile, rows: int, columns: int, inner: int) -> Blocks:
    """Blocks for a piece of ``rows`` x ``columns``: even ones, of whole tiles, that fit the caches."""
    size = tile.dtype.itemsize
    steps = _even(inner, _INNER * 4 // size, 1)
    most_rows = max(_LEFT_BYTES // (steps * size), tile.rows)
    most_columns = max(_RIGHT_BYTES // (steps * size), tile.columns)
    height = _even(rows, most_rows, tile.rows)
    if height >= rows:
        # The left block is packed once; each part of the right one is used up while it is near.
        most_columns = _EPILOGUE_COLUMNS
    return Blocks(height, _even(columns, most_columns, tile.columns), steps)


def choose_grid(tile: Tile, rows: int, columns: int, threads: int) -> tuple[int, int]:
    """Parts along rows and columns, one for each thread: those that take the least time to pack and multiply."""

    def cost(grid: tuple[int, int]) -> int:
        high, wide = _up(-(-rows // grid[0]), tile.rows), _up(-(-columns // grid[1]), tile.columns)
        return high * wide + _PACKING * (high + wide)

    return min(((parts, threads // parts) for parts in range(1, threads + 1) if threads % parts == 0), key=cost)


@dataclass(frozen=True)
class Piece:
    """The part of a product that one thread computes as one: some rows and columns of item ``item`` of the batch."""

    thread: int
    item: int
    rows: range
    columns: range


def pieces(tile: Tile, grid: tuple[int, int], items: int, rows: int, columns: int, threads: int) -> list[Piece]:
    """Who computes what, as the function of `product_ir` shares the units of ``grid`` parts of each item."""
    row_parts, column_parts = grid
    parts, units = row_parts * column_parts, items * row_parts * column_parts
    found = []
    for thread in range(threads):
        for unit in range(units * thread // threads, units * (thread + 1) // threads):
            row_part, column_part = divmod(unit % parts, column_parts)
            spans = _part(rows, tile.rows, row_part, row_parts), _part(columns, tile.columns, column_part, column_parts)
            found.append(Piece(thread, unit // parts, *spans))
    return found


def _part(size: int, unit: int, part: int, parts: int) -> range:
    """What `_ProductWriter._part` computes: an even part, of whole tiles."""
    tiles = (size + unit - 1) // unit
    first, last = (min(tiles * number // parts * unit, size) for number in (part, part + 1))
    return range(first, last)


@dataclass(frozen=True)
class Panel:
    """Where an element of an operand is packed: in which block along its lines and along the inner axis, in which panel
    of the block, at which step of the panel and which place of the step; the place is the line within a register tile.
    """

    line_block: int
    inner_block: int
    panel: int
    step: int
    place: int


def panel_of(line: int, inner: int, begin: int, width: int, block_lines: int, block_inner: int) -> Panel:
    """Where element (``line``, ``inner``) of an operand is packed, in a piece whose lines begin at ``begin``; panels
    are ``width`` lines wide. Lines are the rows of the left operand, or the columns of the right one.
    """
    line_block, rest = divmod(line - begin, block_lines)
    panel, place = divmod(rest, width)
    return Panel(line_block, inner // block_inner, panel, inner % block_inner, place)


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _even(size: int, most: int, unit: int) -> int:
    """The length of the parts of ``size`` when it is cut into as few as ``most`` allows; whole units, at least one."""
    parts = max(math.ceil(size / max(most, 1)), 1)
    return max(_up(-(-size // parts), unit), unit)


ARGUMENTS = {
    "thread": "i64",
    "threads": "i64",
    "items": "i64",  # of the batch, which has an outer and an inner axis
    "inner_items": "i64",
    "left_outer": "i64",  # elements from item to item
    "left_item": "i64",
    "right_outer": "i64",
    "right_item": "i64",
    "result_outer": "i64",
    "result_item": "i64",
    "rows": "i64",
    "columns": "i64",
    "inner": "i64",
    "left": "ptr",
    "left_row": "i64",  # elements from row to row, and from step to step along the inner axis: one of them is 1
    "left_inner": "i64",
    "right": "ptr",
    "right_column": "i64",
    "right_inner": "i64",
    "result": "ptr",
    "leading": "i64",
    "accumulate": "i1",  # add to what the result holds
    "row_parts": "i64",
    "column_parts": "i64",
    "block_rows": "i64",
    "block_columns": "i64",
    "block_inner": "i64",
    "pack_left": "ptr",
    "pack_right": "ptr",
    "rest_tile": "ptr",  # the tile of the rows that are left over
    "scratch": "ptr",  # memory of this thread alone for the packed blocks: the left one, then the right one
    "left_bytes": "i64",
    "make_left": "ptr",  # void (ptr context, i64 row, i64 row_end, i64 column, i64 column_end, ptr target), or null
    "make_right": "ptr",
    "made_left": "i64",  # columns of what these make, which lies behind made_bytes of the scratch
    "made_right": "i64",
    "made_bytes": "i64",
    "epilogue": "ptr",  # void (ptr context, i64 row, i64 row_end, i64 column, i64 column_end), or null
    "context": "ptr",
}


def product_symbol(tile: Tile) -> str:
    """The name of what `product_ir` makes."""
    return f"eir_product_{tile.dtype}"


@functools.cache
def product_ir(tile: Tile) -> Definition:
    """The function ``void @eir_product_f32(...)``: one thread's part of a batch of products; see `ARGUMENTS`.

    ``epilogue`` is called for each part of the result once it is complete, while it is in the cache; there is no batch
    then. `Blocks.scratch` says how much scratch there must be.
    """
    return _ProductWriter(tile).function()


class _ProductWriter:
    def __init__(self, tile: Tile) -> None:
        self.tile = tile
        self.code = Code()
        self.argument = {name: Register(f"%{name}", kind) for name, kind in ARGUMENTS.items()}

    def function(self) -> Definition:
        self._units()
        parameters = ", ".join(register.typed for register in self.argument.values())
        text = f"define void @{product_symbol(self.tile)}({parameters}) nounwind {{\n{self.code.body()}\n}}\n"
        whole = f"declare void @{tile_symbol(self.tile, self.tile.rows)}()"
        return Definition(text, frozenset({*self.code.helpers, whole}))

    def _units(self) -> None:
        """This thread's share of all parts of all items."""
        code, argument = self.code, self.argument
        right = code.emit(f"getelementptr i8, {argument['scratch'].typed}, {argument['left_bytes'].typed}", "ptr")
        self.packed = {"left": argument["scratch"], "right": right}
        parts = code.binary("mul", argument["row_parts"], argument["column_parts"])
        units = code.binary("mul", argument["items"], parts)

        def edge(number: Register) -> Register:
            return code.binary("udiv", code.binary("mul", units, number), argument["threads"])

        end = edge(code.binary("add", argument["thread"], constant(1, "i64")))
        with code.loop(edge(argument["thread"]), end, 1, nonempty=False) as unit:
            item, part = code.binary("udiv", unit, parts), code.binary("urem", unit, parts)
            outer, inner = (code.binary(way, item, argument["inner_items"]) for way in ("udiv", "urem"))
            self.pointer = {}
            for side in ("left", "right", "result"):
                from_outer = code.binary("mul", outer, argument[f"{side}_outer"])
                from_inner = code.binary("mul", inner, argument[f"{side}_item"])
                self.pointer[side] = self._at(argument[side], code.binary("add", from_outer, from_inner))
            self._piece(part)

    def _piece(self, part: Register) -> None:
        """Some rows and columns of one product, block by block along the inner axis."""
        code, argument = self.code, self.argument
        row_part, column_part = (code.binary(way, part, argument["column_parts"]) for way in ("udiv", "urem"))
        self.row, self.row_end = self._part(argument["rows"], self.tile.rows, row_part, argument["row_parts"])
        self.column, self.column_end = self._part(
            argument["columns"], self.tile.columns, column_part, argument["column_parts"]
        )
        height = code.binary("sub", self.row_end, self.row)
        self.is_one_block = code.compare("icmp sle", height, argument["block_rows"])
        with code.when(code.compare("icmp slt", self.row, self.row_end)):
            with code.loop(constant(0, "i64"), argument["inner"], argument["block_inner"], nonempty=True) as k:
                self.k = k
                self.steps = self._rest(argument["inner"], k, argument["block_inner"])
                has_begun = code.compare("icmp sgt", k, constant(0, "i64"))
                self.accumulate = code.binary("or", has_begun, argument["accumulate"])
                is_last = code.compare("icmp eq", code.binary("add", k, self.steps), argument["inner"])
                has_epilogue = code.compare("icmp ne", argument["epilogue"], Register("null", "ptr"))
                self.is_complete = code.binary("and", is_last, has_epilogue)
                self._right_blocks()

    def _part(self, size: Register, unit: int, part: Register, parts: Register) -> tuple[Register, Register]:
        """Begin and end of an even part, of whole tiles."""
        code = self.code
        tiles = code.binary("udiv", code.binary("add", size, constant(unit - 1, "i64")), constant(unit, "i64"))

        def edge(number: Register) -> Register:
            first = code.binary("udiv", code.binary("mul", tiles, number), parts)
            return code.intrinsic("smin", code.binary("mul", first, constant(unit, "i64")), size)

        return edge(part), edge(code.binary("add", part, constant(1, "i64")))

    def _rest(self, end: Register, position: Register, most: Register) -> Register:
        return self.code.intrinsic("smin", self.code.binary("sub", end, position), most)

    def _right_blocks(self) -> None:
        code, argument = self.code, self.argument
        with code.loop(self.column, self.column_end, argument["block_columns"], nonempty=False) as column:
            width = self._rest(self.column_end, column, argument["block_columns"])
            self._pack("right", column, width)
            is_first = code.compare("icmp eq", column, self.column)
            # With one block of rows the left operand is packed already.
            needs_left = code.binary("or", is_first, code.binary("xor", self.is_one_block, constant(True, "i1")))
            with code.loop(self.row, self.row_end, argument["block_rows"], nonempty=True) as row:
                height = self._rest(self.row_end, row, argument["block_rows"])
                with code.when(needs_left):
                    self._pack("left", row, height)
                self._tiles(row, height, column, width)

    def _pack(self, side: str, first: Register, count: Register) -> None:
        """Pack ``count`` lines of an operand, from ``first`` on, panel by panel."""
        code, argument = self.code, self.argument
        unit, step = (self.tile.rows, "left_row") if side == "left" else (self.tile.columns, "right_column")
        inner = argument[f"{side}_inner"]
        leading = code.intrinsic("smax", argument[step], inner)
        from_line, from_inner = code.binary("mul", first, argument[step]), code.binary("mul", self.k, inner)
        begin = code.slot(self._at(self.pointer[side], code.binary("add", from_line, from_inner)))
        line_step, distance = code.slot(argument[step]), code.slot(leading)
        with code.when(code.compare("icmp ne", argument[f"make_{side}"], Register("null", "ptr"))):
            made = argument[f"made_{side}"]
            begin.set(self._make(side, first, count))
            is_across = code.compare("icmp eq", inner, constant(1, "i64"))
            line_step.set(code.select(is_across, made, constant(1, "i64")))
            distance.set(made)
        leading = distance.get()
        with code.loop(constant(0, "i64"), count, unit, nonempty=True) as line:
            source = self._at(begin.get(), code.binary("mul", line, line_step.get()))
            target = self._at(self.packed[side], code.binary("mul", line, self.steps))
            valid = self._rest(count, line, constant(unit, "i64"))
            operands = ", ".join(value.typed for value in (source, leading, valid, self.steps, target))
            code.line(f"call void {argument[f'pack_{side}'].text}({operands})")

    def _make(self, side: str, first: Register, count: Register) -> Register:
        """Have the prologue make this block of the operand, as it stands before it is transposed; gives where."""
        code, argument = self.code, self.argument
        target = code.emit(f"getelementptr i8, {argument['scratch'].typed}, {argument['made_bytes'].typed}", "ptr")
        lines = first, code.binary("add", first, count)
        steps = self.k, code.binary("add", self.k, self.steps)
        is_across = code.compare("icmp eq", argument[f"{side}_inner"], constant(1, "i64"))
        # Lines are rows when the inner axis lies along them.
        edges = [code.select(is_across, one, other) for one, other in zip((*lines, *steps), (*steps, *lines))]
        operands = ", ".join(value.typed for value in (argument["context"], *edges, target))
        code.line(f"call void {argument[f'make_{side}'].text}({operands})")
        return target

    def _tiles(self, row: Register, height: Register, column: Register, width: Register) -> None:
        """The result's part at (row, column): all of its tiles, a few columns of them at a time."""
        code = self.code
        corner = self._at(self.pointer["result"], code.binary("mul", row, self.argument["leading"]))
        with code.loop(constant(0, "i64"), width, _EPILOGUE_COLUMNS, nonempty=True) as group:
            group_width = self._rest(width, group, constant(_EPILOGUE_COLUMNS, "i64"))
            group_end = code.binary("add", group, group_width)
            with code.loop(group, group_end, self.tile.columns, nonempty=True) as across:
                panel = self._at(self.packed["right"], code.binary("mul", across, self.steps))
                top = self._at(corner, code.binary("add", column, across))
                columns = self._rest(width, across, constant(self.tile.columns, "i64"))
                with code.loop(constant(0, "i64"), height, self.tile.rows, nonempty=True) as down:
                    self._tile(down, height, panel, top, columns)
            with code.when(self.is_complete):
                first = code.binary("add", column, group)
                edges = (row, code.binary("add", row, height), first, code.binary("add", first, group_width))
                operands = ", ".join(value.typed for value in (self.argument["context"], *edges))
                code.line(f"call void {self.argument['epilogue'].text}({operands})")

    def _tile(self, down: Register, height: Register, panel: Register, top: Register, columns: Register) -> None:
        code, tile, argument = self.code, self.tile, self.argument
        left = self._at(self.packed["left"], code.binary("mul", down, self.steps))
        result = self._at(top, code.binary("mul", down, argument["leading"]))
        rows = code.binary("sub", height, down)
        is_whole = code.compare("icmp sge", rows, constant(tile.rows, "i64"))
        whole = Register(f"@{tile_symbol(tile, tile.rows)}", "ptr")
        function = code.select(is_whole, whole, argument["rest_tile"])
        operands = (self.steps, left, panel, result, argument["leading"], columns, self.accumulate)
        code.line(f"call void {function.text}({', '.join(value.typed for value in operands)})")

    def _at(self, base: Register, index: Register) -> Register:
        return self.code.emit(f"getelementptr {self.tile.element}, {base.typed}, {index.typed}", "ptr")
