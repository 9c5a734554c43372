"""The gradient of attention in generated code (Dao et al., arXiv:2205.14135, appendix B).

A task is one head of keys, with all heads of queries that share it. For each block of queries and each tile of keys the
weights are computed again from the logsumexp; nothing of the size of all scores is kept. The gradients of keys and
values are summed in their places, block by block and head by head, those of queries in scratch memory.
"""

from __future__ import annotations

from euler_ir.backends.cpu.attention.blocks import KEYS_PER_TILE, AttentionVariant, AttentionWriter, Rows
from euler_ir.backends.cpu.attention.tiles import masks, number, step, unpacked_tile
from euler_ir.backends.cpu.writer import Register, constant

_QUERIES = 32  # in a block at least: fewer would pass over the gradients of keys and values too often


class GradientWriter(AttentionWriter):
    """``delta`` is, for each query, the sum of d_output * output less the cotangent of the logsumexp."""

    operands = ("query", "key", "value", "logsumexp", "d_output", "delta")
    results = ("d_query", "d_key", "d_value")

    def __init__(self, variant: AttentionVariant) -> None:
        super().__init__(variant, max(_QUERIES // unpacked_tile(variant.dtype).columns, 1))
        code, width, value_width = self.code, variant.width, variant.value_width
        self.packed_query = self.scratch(width * self.block)
        self.packed_output = self.scratch(value_width * self.block)
        self.query_sums = self.scratch(width * self.block)
        self.weights = self.scratch(KEYS_PER_TILE * self.block)
        self.by_scores = self.scratch(KEYS_PER_TILE * self.block)
        self.shifts = self.scratch(self.block)
        self.deltas = self.scratch(self.block)
        with code.loop(Register("%begin", "i64"), Register("%end", "i64"), 1, nonempty=False) as point:
            views = dict(zip(self.views, self.of_head(point, number(0))))
            self._clear(views["d_key"], width)
            self._clear(views["d_value"], value_width)
            with code.loop(number(0), Register("%group", "i64"), 1, nonempty=True) as member:
                views = dict(zip(self.views, self.of_head(point, member)))
                with code.loop(number(0), self.queries, self.block, nonempty=False) as first:
                    self._block(**views, first=first)

    def _clear(self, rows: Rows, width: int) -> None:
        code, zero = self.code, self.code.splat(constant(0, self.element), self.lanes)
        with code.loop(number(0), self.keys, 1, nonempty=False) as key:
            for column, count in self.groups(width, self.lanes):
                (mask,) = masks(count, self.lanes)
                code.store(zero, step(code, self.row(rows, key), self.element, column), mask)

    def _block(
        self, query: Rows, key: Rows, value: Rows, logsumexp: Rows, d_output: Rows, delta: Rows,
        d_query: Rows, d_key: Rows, d_value: Rows, first: Register, visible_from: Rows | None = None,
    ) -> None:  # fmt: skip
        code, width, value_width = self.code, self.variant.width, self.variant.value_width
        self.pack(query, first, width, self.packed_query)
        self.pack(d_output, first, value_width, self.packed_output)
        self._copy_lanes(logsumexp, delta, first)
        self.fill(0, self.query_sums, width)
        count_queries = code.intrinsic("smin", code.binary("sub", self.queries, first), number(self.block))
        for start, count in self.tiles(self.first_seen(visible_from, first), self.seen(first)):
            with code.loop(number(0), number(self.block), self.tile.columns, nonempty=True) as panel:
                first_query = code.binary("add", first, panel)
                packed_query, packed_output, weights, by_scores = (
                    step(code, matrix, self.element, panel)
                    for matrix in (self.packed_query, self.packed_output, self.weights, self.by_scores)
                )

                def finish(sums, first_key, last_key):
                    return self.scores_of(first_query, panel, sums, first_key, last_key)

                self.against_keys(key, width, packed_query, start, count, weights, finish)
                self.against_keys(value, value_width, packed_output, start, count, by_scores)
                self._weigh(count, panel, weights, by_scores)
                self.add_by_query(key, width, by_scores, start, count, step(code, self.query_sums, self.element, panel))
            self.add_by_key(self.weights, d_output, value_width, first, count_queries, d_value, start, count)
            self.add_by_key(self.by_scores, query, width, first, count_queries, d_key, start, count)
        self.unpack(self.query_sums, width, d_query, first)

    def _copy_lanes(self, logsumexp: Rows, delta: Rows, first: Register) -> None:
        """The block's part of the two vectors; beyond the last query its element again, as ``pack`` does it."""
        code = self.code
        for source, target in ((logsumexp, self.shifts), (delta, self.deltas)):
            last = code.load(self.row(source, self.last_query), self.element)
            with code.loop(number(0), number(self.block), self.lanes, nonempty=True) as lane:
                at = code.binary("add", first, lane)
                inside = code.compare("icmp sle", self.query_lanes(at), self.last_query)
                value = code.load(self.row(source, at), self.element, self.lanes, inside)
                value = code.select(inside, value, last)
                if source is logsumexp:
                    value = self.finite_shift(value)
                code.store(value, step(code, target, self.element, lane))

    def _weigh(self, count: Register, panel: Register, weights: Register, by_scores: Register) -> None:
        """From scores and products with values: the weights, and the gradient by the products of queries and keys."""
        code = self.code
        rows = (step(code, row, self.element, panel) for row in (self.shifts, self.deltas))
        shifts, deltas = (
            [code.load(pointer, self.element, self.lanes) for pointer in self.pointers(row, self.tile.vectors)]
            for row in rows
        )
        groups = code.binary("udiv", code.binary("add", count, number(self.tile.rows - 1)), number(self.tile.rows))
        with code.loop(number(0), code.binary("mul", groups, number(self.tile.rows)), 1, nonempty=True) as row:
            places = (self.pointers(self.block_row(m, row), self.tile.vectors) for m in (weights, by_scores))
            for weight_at, by_score_at, shift, delta in zip(*places, shifts, deltas):
                score = code.load(weight_at, self.element, self.lanes)
                weight = code.math("exp", code.binary("fsub", score, shift))
                code.store(weight, weight_at)
                by_weight = code.binary("fsub", code.load(by_score_at, self.element, self.lanes), delta)
                code.store(code.binary("fmul", code.binary("fmul", weight, by_weight), self.scale), by_score_at)
