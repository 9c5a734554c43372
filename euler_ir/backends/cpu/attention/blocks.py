"""What the generated functions of attention and of its gradient share: blocks of queries against tiles of keys.

Lanes are queries: a block of queries is kept as its transpose, and so are scores. Keys and values are read one element
at a time where they lie, so that heads inside of a larger tensor need no copy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from euler_ir.backends.cpu.attention.tiles import masks, number, product, step, transposed, unpacked_tile
from euler_ir.backends.cpu.writer import Code, Definition, Register, constant, lane_constants
from euler_ir.dtypes import DType

KEYS_PER_TILE = 48
"""Keys whose scores are kept at a time: a multiple of the rows of every register tile."""

Sums = list[list[Register]]


@dataclass(frozen=True)
class AttentionVariant:
    """What one function is made for: queries and keys of ``width``, values of ``value_width`` elements.

    With ``visible_from`` there is an operand, i64, that says of each query the first key that it may see.
    """

    dtype: DType
    width: int
    value_width: int
    causal: bool
    visible_from: bool = False


@dataclass(frozen=True)
class Rows:
    """Rows of elements in memory: that of number r begins at ``base + r leading``."""

    base: Register
    leading: Register


class AttentionWriter:
    """Writes one function; ``panels`` register tiles of queries side by side make a block."""

    operands: tuple[str, ...]
    results: tuple[str, ...]

    def __init__(self, variant: AttentionVariant, panels: int) -> None:
        self.variant = variant
        self.views = (*self.operands, *(("visible_from",) * variant.visible_from), *self.results)
        self.tile = unpacked_tile(variant.dtype)
        self.element, self.lanes = self.tile.element, self.tile.lanes
        self.block = panels * self.tile.columns
        self.code = Code()
        self.scratch_elements = 0
        if variant.visible_from:
            self.visible_from = self.scratch(self.block * 8 // variant.dtype.itemsize)
        self.queries, self.keys = Register("%queries", "i64"), Register("%keys", "i64")
        self.scale = Register("%scale", self.element)
        # The last query sees the last key: query t sees keys up to t + shift.
        self.shift = self.code.binary("sub", self.keys, self.queries)
        self.last_query = self.code.binary("sub", self.queries, number(1))

    def definition(self, symbol: str) -> Definition:
        """The function once its body is written.

        Its parameters are the tasks to run, begin to end - 1; this thread's scratch memory; the extent of the inner
        batch axis; how many heads of queries share one of keys; how many queries and keys there are; the scale; and for
        each view a pointer, the steps along two batch axes and along the heads that share, and that between rows, in
        elements.
        """
        views = ", ".join(
            f"ptr noalias %{name}, i64 %{name}.batch0, i64 %{name}.batch1, i64 %{name}.group, i64 %{name}.leading"
            for name in self.views
        )
        text = (
            f"define void @{symbol}(i64 %begin, i64 %end, ptr noalias %scratch, i64 %batch.inner, i64 %group, "
            f"i64 %queries, i64 %keys, {self.element} %scale, {views}) nounwind {{\n{self.code.body()}\n}}\n"
        )
        return Definition(text, frozenset(self.code.helpers))

    def declaration(self, symbol: str) -> str:
        """What another module says to call it."""
        views = ", ptr, i64, i64, i64, i64" * len(self.views)
        return f"declare void @{symbol}(i64, i64, ptr, i64, i64, i64, i64, {self.element}{views})"

    def scratch(self, elements: int) -> Register:
        """Memory of this thread that the function may use while it runs, on a cache line."""
        pointer = step(self.code, Register("%scratch", "ptr"), self.element, self.scratch_elements)
        self.scratch_elements += -(-elements // 16) * 16
        return pointer

    # -- where things are ----------------------------------------------------------------------------------------------

    def of_head(self, point: Register, member: Register) -> Iterator[Rows]:
        """Each of ``views`` at a point of the batch, of queries for one of the heads that share those keys."""
        code, inner = self.code, Register("%batch.inner", "i64")
        places = code.binary("udiv", point, inner), code.binary("urem", point, inner), member
        for name in self.views:
            base, leading = Register(f"%{name}", "ptr"), Register(f"%{name}.leading", "i64")
            strides = [Register(f"%{name}.{axis}", "i64") for axis in ("batch0", "batch1", "group")]
            moves = [code.binary("mul", place, stride) for place, stride in zip(places, strides)]
            yield Rows(step(code, base, "i64" if name == "visible_from" else self.element, *moves), leading)

    def row(self, rows: Rows, row: Register) -> Register:
        return step(self.code, rows.base, self.element, self.code.binary("mul", row, rows.leading))

    def rows_up_to(self, last: Register, rows: Rows, first: Register, count: int) -> list[Register]:
        """Pointers to ``count`` rows from ``first`` on; beyond ``last`` they are that of ``last`` again."""
        code = self.code
        numbers = [code.binary("add", first, number(place)) for place in range(count)]
        return [self.row(rows, code.intrinsic("smin", each, last)) for each in numbers]

    def block_row(self, matrix: Register, row: Register | int, column: Register | int = 0) -> Register:
        """A place in a scratch matrix with a column for each query of the block."""
        start = self.code.binary("mul", number(row) if isinstance(row, int) else row, number(self.block))
        return step(self.code, matrix, self.element, start, column)

    def query_lanes(self, first: Register) -> Register:
        """A vector of the numbers of the queries from ``first`` on."""
        return self.code.binary("add", first, lane_constants(list(range(self.lanes)), "i64"))

    def seen(self, first: Register) -> Register:
        """How many keys some query of the block from ``first`` on may see."""
        if not self.variant.causal:
            return self.keys
        end = self.code.binary("add", first, number(self.block))
        return self.code.intrinsic("smin", self.code.binary("add", end, self.shift), self.keys)

    def first_seen(self, visible_from: Rows | None, first: Register) -> Register:
        """The first key of the first tile that some query of the block from ``first`` on may see.

        It keeps what the block's queries may see where ``scores_of`` reads it.
        """
        if visible_from is None:
            return number(0)
        code = self.code
        least, most = (code.slot(number(extreme)) for extreme in (2**63 - 1, -(2**63)))
        with code.loop(number(0), number(self.block), 1, nonempty=True) as place:
            query = code.intrinsic("smin", code.binary("add", first, place), self.last_query)
            value = code.load(step(code, visible_from.base, "i64", query), "i64")
            code.store(value, step(code, self.visible_from, "i64", place))
            least.set(code.intrinsic("smin", least.get(), value))
            most.set(code.intrinsic("smax", most.get(), value))
        self.last_visible_from = most.get()
        within = code.intrinsic("smax", code.intrinsic("smin", least.get(), self.keys), number(0))
        return code.binary("sub", within, code.binary("urem", within, number(KEYS_PER_TILE)))

    # -- loops ---------------------------------------------------------------------------------------------------------

    def tiles(self, begin: Register, seen: Register) -> Iterator[tuple[Register, Register]]:
        """The first key of each tile of those from ``begin`` on and below ``seen``, and how many it has."""
        with self.code.loop(begin, seen, KEYS_PER_TILE, nonempty=False) as start:
            yield start, self.code.intrinsic("smin", self.code.binary("sub", seen, start), number(KEYS_PER_TILE))

    def groups(self, extent: int, size: int) -> Iterator[tuple[Register, int]]:
        """Where groups of ``size`` out of ``extent`` begin, and how many there are in each: the last may have fewer."""
        whole = extent // size * size
        if whole:
            with self.code.loop(number(0), number(whole), size, nonempty=True) as start:
                yield start, size
        if extent > whole:
            yield number(whole), extent - whole

    # -- transposing ---------------------------------------------------------------------------------------------------

    def pack(self, source: Rows, first: Register, width: int, target: Register) -> None:
        """Put the block's rows of ``source`` into ``target`` transposed: one row there is one feature."""
        code = self.code
        with code.loop(number(0), number(self.block), self.lanes, nonempty=True) as lane:
            rows = self.rows_up_to(self.last_query, source, code.binary("add", first, lane), self.lanes)
            for column, count in self.groups(width, self.lanes):
                (mask,) = masks(count, self.lanes)
                pieces = [step(code, row, self.element, column) for row in rows]
                block = [code.load(piece, self.element, self.lanes, mask) for piece in pieces]
                start = self.block_row(target, column, lane)
                for feature, vector in enumerate(transposed(code, block)[:count]):
                    code.store(vector, self.block_row(start, feature))

    def unpack(
        self, source: Register, width: int, target: Rows, first: Register, factors: Register | None = None
    ) -> None:
        """The inverse of ``pack``; each query's row is multiplied by its one of ``factors``."""
        code = self.code
        with code.loop(number(0), number(self.block), self.lanes, nonempty=True) as lane:
            rows = self.rows_up_to(self.last_query, target, code.binary("add", first, lane), self.lanes)
            if factors is not None:
                factor = code.load(step(code, factors, self.element, lane), self.element, self.lanes)
            for column, count in self.groups(width, self.lanes):
                (mask,) = masks(count, self.lanes)
                start = self.block_row(source, column, lane)
                pieces = [self.block_row(start, feature) for feature in range(count)]
                block = [code.load(piece, self.element, self.lanes) for piece in pieces]
                if factors is not None:
                    block = [code.binary("fmul", vector, factor) for vector in block]
                block += block[:1] * (self.lanes - count)
                for row, vector in zip(rows, transposed(code, block)):
                    code.store(vector, step(code, row, self.element, column), mask)

    # -- arithmetic ----------------------------------------------------------------------------------------------------

    def pointers(self, start: Register, vectors: int, element: str | None = None) -> list[Register]:
        return [step(self.code, start, element or self.element, vector * self.lanes) for vector in range(vectors)]

    def fill(self, value: float, matrix: Register, rows: int) -> None:
        """Set all of a scratch matrix of so many rows."""
        filling = self.code.splat(constant(value, self.element), self.lanes)
        with self.code.loop(number(0), number(rows * self.block), self.lanes, nonempty=True) as place:
            self.code.store(filling, step(self.code, matrix, self.element, place))

    def against_keys(
        self,
        source: Rows,
        width: int,
        packed: Register,
        start: Register,
        count: Register,
        target: Register,
        finish: Callable[[Sums, Register, Register], Sums] = lambda sums, first_key, last_key: sums,
    ) -> None:
        """Products of ``count`` rows of ``source`` from ``start`` on with one panel of packed queries, into ``target``.

        ``finish`` makes what is stored of a group of them, given the first of its keys and the last of all. Rows of
        ``target`` after ``count`` that fill a group are the last one again.
        """
        code, tile = self.code, self.tile
        last_key = code.binary("sub", code.binary("add", start, count), number(1))
        with code.loop(number(0), count, tile.rows, nonempty=True) as row:
            first_key = code.binary("add", start, row)
            rows = self.rows_up_to(last_key, source, first_key, tile.rows)
            vectors = [(pointer, None) for pointer in self.pointers(packed, tile.vectors)]
            sums = product(code, tile, rows, number(1), vectors, number(self.block), number(width))
            for position, values in enumerate(finish(sums, first_key, last_key)):
                place = code.binary("add", row, number(position))
                for value, pointer in zip(values, self.pointers(self.block_row(target, place), tile.vectors)):
                    code.store(value, pointer)

    def scores_of(
        self, first: Register, panel: Register, sums: Sums, first_key: Register, last_key: Register
    ) -> Sums:
        """Scaled scores of a panel of queries from ``first`` on, the block's from ``panel`` on; -inf for keys that a
        query must not see.
        """
        code, variant = self.code, self.variant
        scores = [[code.slot(code.binary("fmul", total, self.scale)) for total in row] for row in sums]
        hides = []
        if variant.causal:
            end = code.binary("add", first_key, number(self.tile.rows - 1))
            hides.append(code.compare("icmp sgt", end, code.binary("add", first, self.shift)))
        if variant.visible_from:
            hides.append(code.compare("icmp slt", first_key, self.last_visible_from))
        if hides:
            with code.when(functools.reduce(functools.partial(code.binary, "or"), hides)):
                if variant.causal:
                    self._hide("icmp sgt", self._last_keys(first), scores, first_key, last_key)
                if variant.visible_from:
                    starts = self.pointers(step(code, self.visible_from, "i64", panel), self.tile.vectors, "i64")
                    limits = [code.load(start, "i64", self.lanes) for start in starts]
                    self._hide("icmp slt", limits, scores, first_key, last_key)
        return [[score.get() for score in row] for row in scores]

    def _last_keys(self, first: Register) -> list[Register]:
        """The last key that each query of a panel from ``first`` on sees of causal attention, vector by vector."""
        code, limits = self.code, []
        for vector in range(self.tile.vectors):
            lanes = self.query_lanes(code.binary("add", first, number(vector * self.lanes)))
            limits.append(code.binary("add", code.intrinsic("smin", lanes, self.last_query), self.shift))
        return limits

    def _hide(self, beyond: str, limits: list[Register], scores, first_key: Register, last_key: Register) -> None:
        """Make the scores of keys that are ``beyond`` the limits of their queries -inf."""
        code = self.code
        for position, row in enumerate(scores):
            key = code.intrinsic("smin", code.binary("add", first_key, number(position)), last_key)
            for score, limit in zip(row, limits):
                hidden = code.compare(beyond, key, limit)
                score.set(code.select(hidden, constant(float("-inf"), self.element), score.get()))

    def add_by_query(
        self,
        source: Rows,
        width: int,
        weights: Register,
        start: Register,
        count: Register,
        sums: Register,
        factors: Sequence[Register] | None = None,
    ) -> None:
        """Add to ``sums``, a row for each feature, one panel of weights times ``count`` rows of ``source``.

        What was in ``sums`` is multiplied by ``factors`` first, one for each query.
        """
        code, tile = self.code, self.tile
        rows = self.row(source, start)
        vectors = [(pointer, None) for pointer in self.pointers(weights, tile.vectors)]
        for feature, size in self.groups(width, tile.rows):
            features = [step(code, rows, self.element, feature, row) for row in range(size)]
            results = product(code, tile, features, source.leading, vectors, number(self.block), count)
            for row, values in enumerate(results):
                place = self.block_row(self.block_row(sums, feature), row)
                for vector, (value, pointer) in enumerate(zip(values, self.pointers(place, tile.vectors))):
                    held = code.load(pointer, self.element, self.lanes)
                    if factors is None:
                        total = code.binary("fadd", held, value)
                    else:
                        total = code.intrinsic("fma", held, factors[vector], value)
                    code.store(total, pointer)

    def add_by_key(
        self,
        weights: Register,
        source: Rows,
        width: int,
        first: Register,
        queries: Register,
        target: Rows,
        start: Register,
        count: Register,
    ) -> None:
        """Add to ``count`` rows of ``target`` from ``start`` on: weights of all queries times rows of ``source``."""
        code, tile = self.code, self.tile
        last_key = code.binary("sub", code.binary("add", start, count), number(1))
        with code.loop(number(0), count, tile.rows, nonempty=True) as row:
            targets = self.rows_up_to(last_key, target, code.binary("add", start, row), tile.rows)
            rows = [self.block_row(weights, code.binary("add", row, number(place))) for place in range(tile.rows)]
            for column, size in self.groups(width, tile.columns):
                lanes = masks(size, self.lanes)
                sources = self.pointers(step(code, self.row(source, first), self.element, column), len(lanes))
                results = product(code, tile, rows, number(1), list(zip(sources, lanes)), source.leading, queries)
                places = [self.pointers(step(code, each, self.element, column), len(lanes)) for each in targets]
                # Rows that stand for the last one again read it before any of them writes.
                held = [[code.load(p, self.element, self.lanes, m) for p, m in zip(each, lanes)] for each in places]
                for values, before, pointers in zip(results, held, places):
                    for value, old, pointer, mask in zip(values, before, pointers, lanes):
                        code.store(code.binary("fadd", old, value), pointer, mask)

    def finite_shift(self, top: Register) -> Register:
        """What is subtracted from scores before exp: ``top``, but 0 where that is -inf, so that all weights are 0."""
        is_lowest = self.code.compare("fcmp oeq", top, constant(float("-inf"), self.element))
        return self.code.select(is_lowest, constant(0, self.element), top)
