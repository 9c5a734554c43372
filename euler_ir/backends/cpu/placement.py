"""Who computes what: the thread, and the lane or register tile, of a point of a nest, a product or an attention.

The arithmetic is that of the generated code and stands beside what writes it; here it is put together for a plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from euler_ir.backends.cpu.attention.blocks import KEYS_PER_TILE
from euler_ir.backends.cpu.attention.forward import dealt
from euler_ir.backends.cpu.gemm.product import Panel, panel_of, pieces
from euler_ir.backends.cpu.product_choice import known_choice
from euler_ir.backends.cpu.step import StepWriter, owner_of
from euler_ir.backends.cpu.widths import Lane, lane_of, loop_width, task_count
from euler_ir.index import Axis
from euler_ir.loops.kernel import Loop
from euler_ir.plan.plan import AttentionStep, CopyStep, KernelStep, MatmulStep, Plan
from euler_ir.threads import default_threads


@dataclass(frozen=True)
class ProductPlace:
    """Where a product meets an element of an operand or of its result: on ``thread``, which computes so many ``rows``
    and ``columns``. An operand's element is packed in ``panel``; a result's lies in a register tile at ``tile_row`` and
    in ``lane`` of ``vector``.
    """

    thread: int
    rows: range
    columns: range
    panel: Panel | None = None
    tile_row: int | None = None
    vector: int | None = None
    lane: int | None = None


class Placement:
    """The placements of ``plan`` compiled for ``threads``, by default as many as `compile` takes.

    Which products OpenBLAS does is asked of the cache alone: see ``by_openblas``.
    """

    def __init__(self, plan: Plan, threads: int | None = None) -> None:
        self.plan = plan
        self.threads = default_threads() if threads is None else threads
        self._writer = StepWriter(plan, self.threads, lambda step: bool(known_choice(step)))
        self._writer.step_module()

    def by_openblas(self, step: MatmulStep) -> bool | None:
        """Whether OpenBLAS does the product; None where that is still to be tried, and generated code is assumed."""
        return known_choice(step)

    def of_point(self, step: KernelStep, nest: int, point: Mapping[Axis, int]) -> tuple[int, Lane]:
        """The thread and the lane of a point of the axes of a nest."""
        lane = lane_of(step.kernel.nests[nest], point)
        tasks = task_count(step.kernel.nests[nest])
        return owner_of(lane.task, tasks, self._writer.turns[id(step), nest], self.threads), lane

    def of_loop(self, loop: Loop, point: Mapping[Axis, int]) -> tuple[int, int, bool]:
        """Lane and width of a point of a vector loop, and whether its vector is masked."""
        axis, width = loop.axes[-1], loop_width(loop)
        return point[axis] % width, width, point[axis] >= axis.extent // width * width

    def of_product(
        self, step: MatmulStep, side: str, items: Iterable[int], row: int | None, column: int | None, inner: int | None
    ) -> list[ProductPlace]:
        """Where generated code meets element (``row``, ``inner``) of the 'left' operand, (``inner``, ``column``) of the
        'right' one, or (``row``, ``column``) of the 'result', in each of ``items`` of the batch.
        """
        cut = self._writer.products.cut(step)
        tile, blocks, wanted = cut.tile, cut.blocks, set(items)
        places = []
        for piece in pieces(tile, cut.grid, math.prod(step.batch), step.rows, step.columns, self.threads):
            if piece.item not in wanted or not piece.rows or not piece.columns:
                continue
            if side == "left" and row in piece.rows:
                panel = panel_of(row, inner, piece.rows.start, tile.rows, blocks.rows, blocks.inner)
                places.append(ProductPlace(piece.thread, piece.rows, piece.columns, panel))
            elif side == "right" and column in piece.columns:
                panel = panel_of(column, inner, piece.columns.start, tile.columns, blocks.columns, blocks.inner)
                places.append(ProductPlace(piece.thread, piece.rows, piece.columns, panel))
            elif side == "result" and row in piece.rows and column in piece.columns:
                down = (row - piece.rows.start) % blocks.rows % tile.rows
                vector, lane = divmod((column - piece.columns.start) % blocks.columns % tile.columns, tile.lanes)
                places.append(ProductPlace(piece.thread, piece.rows, piece.columns, None, down, vector, lane))
        return places

    def of_queries(self, step: AttentionStep, head: int, query: int) -> int:
        """The thread that has a query of a head."""
        return self._owner(step, self._task(step, head, query))

    def of_keys(self, step: AttentionStep, head: int, key: int) -> list[int]:
        """The threads that read a key, or its value, of a head: those with a query that may see it."""
        block = self._writer.attentions.function(step).block or step.queries
        first = max(key - (step.keys - step.queries), 0) if step.causal else 0
        queries = range(first // block * block, step.queries, block)
        return sorted({self.of_queries(step, head, query) for query in queries})

    def key_tile(self, key: int) -> tuple[int, int]:
        """The tile of keys that ``key`` is in, and its row there."""
        return divmod(key, KEYS_PER_TILE)

    def query_block(self, step: AttentionStep, query: int) -> tuple[int, int] | None:
        """The block of queries that ``query`` is in, and its place there; None in the gradient: heads are whole."""
        block = self._writer.attentions.function(step).block
        return None if block is None else divmod(query, block)

    def of_copy(self, step: CopyStep, byte: int) -> int:
        """The thread that copies a byte."""
        return owner_of(byte, self.plan.buffers[step.source].type.nbytes, 0, self.threads)

    def _task(self, step: AttentionStep, head: int, query: int) -> int:
        block = self._writer.attentions.function(step).block
        if block is None:
            return head // step.group
        blocks = -(-step.queries // block)
        return head * blocks + next(turn for turn in range(blocks) if dealt(turn, blocks) == query // block)

    def _owner(self, step: AttentionStep, task: int) -> int:
        tasks = self._writer.attentions.function(step).tasks(step)
        return owner_of(task, tasks, self._writer.turns[id(step), 0], self.threads)
