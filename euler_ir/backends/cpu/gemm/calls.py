"""The products of a plan as calls of generated code: which functions they need, and with which arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from euler_ir.backends.cpu.gemm.pack import pack_ir, pack_symbol
from euler_ir.backends.cpu.gemm.product import ARGUMENTS, Blocks, choose_blocks, choose_grid, product_ir, product_symbol
from euler_ir.backends.cpu.gemm.tile import Tile, best_tile, tile_ir, tile_symbol
from euler_ir.plan.plan import MadeOperand, MatmulStep, PlannedView


@dataclass(frozen=True)
class Cut:
    """How a product is shared among the threads, parts along rows and columns, and cut into blocks."""

    tile: Tile
    grid: tuple[int, int]
    blocks: Blocks

    def made_leading(self, side: str, transposed: bool) -> int:
        """Columns of the memory in which a prologue makes a block of an operand, before that is transposed."""
        along_inner = transposed == (side == "right")
        lines = self.blocks.rows if side == "left" else self.blocks.columns
        return self.blocks.inner if along_inner else lines


class ProductModules:
    """The modules of products: one for each function, however many products call it.

    ``texts`` holds their LLVM IR by the symbol that each exports; ``scratch`` is how many bytes of memory of its own
    each thread needs for any of the products.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.scratch = 0
        self.texts: dict[str, str] = {}

    def cut(self, step: MatmulStep) -> Cut:
        """How ``step`` is shared and cut into blocks."""
        tile = best_tile(step.dtype)
        items = 1
        for extent in step.batch:
            items *= extent
        grid = (1, 1)
        if items % self.threads and items < 4 * self.threads:
            grid = choose_grid(tile, step.rows, step.columns, self.threads)
        blocks = choose_blocks(tile, -(-step.rows // grid[0]), -(-step.columns // grid[1]), step.inner)
        return Cut(tile, grid, blocks)

    def call(self, step: MatmulStep, cut: Cut, pointers: Mapping[str, str]) -> str:
        """The call for ``step`` as a line of the step function, where ``%wide.thread`` is this thread's number,
        ``%scratch`` its own memory, and ``%argument`` what is passed on to prologues and epilogue. ``pointers`` are the
        arguments of that kind: left, right, result, make_left, make_right, epilogue.
        """
        tile, grid, blocks = cut.tile, cut.grid, cut.blocks
        left_bytes, right_bytes = (size * step.dtype.itemsize for size in blocks.scratch(tile))
        made = [blocks.made(side) for side in ("left", "right") if pointers[f"make_{side}"] != "null"]
        self.scratch = max(self.scratch, left_bytes + right_bytes + max(made, default=0) * step.dtype.itemsize)
        left_row, left_inner = _steps(step.left)
        right_inner, right_column = _steps(step.right)
        strides = {}
        for side, view in (("left", step.left), ("right", step.right), ("result", step.result)):
            strides[f"{side}_outer"], strides[f"{side}_item"] = (0, 0, *view.batch_strides)[-2:]
        batch = (1, 1, *step.batch)
        values = {
            "thread": "%wide.thread",
            "threads": self.threads,
            "items": batch[-1] * batch[-2],
            "inner_items": batch[-1],
            **strides,
            "rows": step.rows,
            "columns": step.columns,
            "inner": step.inner,
            **pointers,
            "made_left": cut.made_leading("left", step.left.transposed),
            "made_right": cut.made_leading("right", step.right.transposed),
            "made_bytes": left_bytes + right_bytes,
            "left_row": left_row,
            "left_inner": left_inner,
            "right_column": right_column,
            "right_inner": right_inner,
            "leading": step.result.leading,
            "accumulate": "false" if step.running is None else "true",
            "row_parts": grid[0],
            "column_parts": grid[1],
            "block_rows": blocks.rows,
            "block_columns": blocks.columns,
            "block_inner": blocks.inner,
            "pack_left": f"@{self._packing(tile, tile.rows, not step.left.transposed)}",
            "pack_right": f"@{self._packing(tile, tile.columns, step.right.transposed)}",
            "rest_tile": f"@{self._tile(tile, step.rows % tile.rows or tile.rows)}",
            "scratch": "%scratch",
            "left_bytes": left_bytes,
            "context": "%argument",
        }
        self._tile(tile, tile.rows)
        self.texts[product_symbol(tile)] = product_ir(tile).module()
        arguments = ", ".join(f"{kind} {values[name]}" for name, kind in ARGUMENTS.items())
        return f"  call void @{product_symbol(tile)}({arguments})"

    def _packing(self, tile: Tile, width: int, across: bool) -> str:
        symbol = pack_symbol(tile, width, across)
        self.texts[symbol] = pack_ir(tile, width, across).module()
        return symbol

    def _tile(self, tile: Tile, rows: int) -> str:
        symbol = tile_symbol(tile, rows)
        self.texts[symbol] = tile_ir(tile, rows).module()
        return symbol

    def declarations(self) -> str:
        """Of the functions that calls name."""
        called = {"product": ", ".join(ARGUMENTS.values())}
        return "\n".join(f"declare void @{symbol}({called.get(symbol.split('_')[1], '')})" for symbol in self.texts)


def _steps(view: PlannedView | MadeOperand) -> tuple[int, int]:
    """Elements from row to row and from column to column."""
    return (1, view.leading) if view.transposed else (view.leading, 1)
