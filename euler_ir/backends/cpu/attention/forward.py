"""Attention in generated code: tiled over keys with a running softmax (Dao et al., arXiv:2205.14135 and 2307.08691).

A task is a block of queries of one head. It reads the keys and values of tiles from the first to the last that one of
them may see. What a query does not see has weight 0; whether an infinite or NaN value still spoils the sum (0 times
infinity) then depends on the block.
"""

from __future__ import annotations

from euler_ir.backends.cpu.attention.blocks import KEYS_PER_TILE, AttentionVariant, AttentionWriter, Rows
from euler_ir.backends.cpu.attention.tiles import number, step
from euler_ir.backends.cpu.writer import Register, constant


def dealt(turn: int, blocks: int) -> int:
    """The block of queries of a turn: what `ForwardWriter._dealt` computes."""
    return blocks - 1 - turn // 2 if turn % 2 else turn // 2


class ForwardWriter(AttentionWriter):
    """Output and logsumexp. Maxima and sums over keys are taken lane by lane."""

    operands, results = ("query", "key", "value"), ("output", "logsumexp")

    def __init__(self, variant: AttentionVariant) -> None:
        super().__init__(variant, panels=1)
        code = self.code
        self.packed = self.scratch(variant.width * self.block)
        self.sums = self.scratch(variant.value_width * self.block)
        self.weights = self.scratch(KEYS_PER_TILE * self.block)
        self.factors = self.scratch(self.block)
        blocks = code.binary("udiv", code.binary("add", self.queries, number(self.block - 1)), number(self.block))
        with code.loop(Register("%begin", "i64"), Register("%end", "i64"), 1, nonempty=False) as task:
            head, group = code.binary("udiv", task, blocks), Register("%group", "i64")
            rows = self.of_head(code.binary("udiv", head, group), code.binary("urem", head, group))
            views = dict(zip(self.views, rows))
            block = self._dealt(code.binary("urem", task, blocks), blocks)
            self._block(**views, first=code.binary("mul", block, number(self.block)))

    def _dealt(self, turn: Register, blocks: Register) -> Register:
        """The block of a turn: early ones, which see few keys, alternate with late ones, so that shares are even."""
        code = self.code
        half = code.binary("lshr", turn, number(1))
        late = code.binary("sub", code.binary("sub", blocks, number(1)), half)
        return code.select(code.convert("trunc", turn, "i1"), late, half)

    def _block(
        self, query: Rows, key: Rows, value: Rows, output: Rows, logsumexp: Rows, first: Register,
        visible_from: Rows | None = None,
    ) -> None:  # fmt: skip
        code, variant = self.code, self.variant
        self.pack(query, first, variant.width, self.packed)
        self.fill(0, self.sums, variant.value_width)
        lowest, zero = (code.splat(constant(x, self.element), self.lanes) for x in (float("-inf"), 0))
        tops = [code.slot(lowest) for _ in range(self.tile.vectors)]
        totals = [code.slot(zero) for _ in range(self.tile.vectors)]
        for start, count in self.tiles(self.first_seen(visible_from, first), self.seen(first)):
            new_tops = [code.slot(top.get()) for top in tops]

            def finish(sums, first_key, last_key):
                scores = self.scores_of(first, number(0), sums, first_key, last_key)
                for new_top, column in zip(new_tops, zip(*scores)):
                    for score in column:
                        # A NaN is passed over here, and comes out of exp.
                        higher = code.compare("fcmp ogt", score, new_top.get())
                        new_top.set(code.select(higher, score, new_top.get()))
                return scores

            self.against_keys(key, variant.width, self.packed, start, count, self.weights, finish)
            shifts = [self.finite_shift(new_top.get()) for new_top in new_tops]
            factors = [code.math("exp", code.binary("fsub", top.get(), shift)) for top, shift in zip(tops, shifts)]
            for total, tile_total, factor in zip(totals, self._weigh(count, shifts), factors):
                total.set(code.intrinsic("fma", total.get(), factor, tile_total))
            for top, new_top in zip(tops, new_tops):
                top.set(new_top.get())
            self.add_by_query(value, variant.value_width, self.weights, start, count, self.sums, factors)
        self._finish(output, logsumexp, first, [top.get() for top in tops], [total.get() for total in totals])

    def _weigh(self, count: Register, shifts: list[Register]) -> list[Register]:
        """Turn the tile's scores into exp(score - shift); gives their sums."""
        code = self.code
        totals = [code.slot(code.splat(constant(0, self.element), self.lanes)) for _ in shifts]
        with code.loop(number(0), count, 1, nonempty=True) as row:
            pointers = self.pointers(self.block_row(self.weights, row), len(shifts))
            for pointer, shift, total in zip(pointers, shifts, totals):
                score = code.load(pointer, self.element, self.lanes)
                weight = code.math("exp", code.binary("fsub", score, shift))
                code.store(weight, pointer)
                total.set(code.binary("fadd", total.get(), weight))
        return [total.get() for total in totals]

    def _finish(self, output: Rows, logsumexp: Rows, first: Register, tops, totals) -> None:
        code = self.code
        for vector, (top, total) in enumerate(zip(tops, totals)):
            is_empty = code.compare("fcmp oeq", total, constant(0, self.element))
            one = constant(1, self.element)
            factor = code.binary("fdiv", one, code.select(is_empty, one, total))
            code.store(factor, step(code, self.factors, self.element, vector * self.lanes))
            result = code.binary("fadd", code.math("log", total), self.finite_shift(top))
            at = code.binary("add", first, number(vector * self.lanes))
            inside = code.compare("icmp sle", self.query_lanes(at), self.last_query)
            code.store(result, self.row(logsumexp, at), inside)
        self.unpack(self.sums, self.variant.value_width, output, first, self.factors)
