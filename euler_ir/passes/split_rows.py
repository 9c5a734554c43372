"""Cuts a large matrix product, and what is made of each of its rows, into blocks of rows that run one after the other.

Logits are the case in point: a row for every token, a column for every word. Their loss and its gradient need each row
by itself, so a block of rows can be multiplied, turned into its gradient and contracted with weights and features
before the next block begins, and only one block is in memory at a time. Nothing is computed twice, but each block reads
all of the weights and adds to all of their gradient: few large blocks cost less time than many small ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from euler_ir import tensor as T
from euler_ir.dtypes import accumulation_dtype
from euler_ir.graph import Graph, Op, Value
from euler_ir.passes.dce import RemoveDead
from euler_ir.passes.manager import Pass
from euler_ir.passes.options import expect_at_least
from euler_ir.rebuild import Rebuild
from euler_ir.shapes import Shape

MIN_ROWS = 128
"""Rows that a block has at least, so that its products reuse what they have loaded."""
MAX_BLOCKS = 16
"""Blocks of one product: the graph holds the operators of each."""


@dataclass(frozen=True)
class SplitRows(Pass):
    """Compute a large matrix product, such as logits, and what is made of its rows in blocks of rows.

    It applies to a product of more than ``block_bytes`` that is used row by row alone, until products or sums contract
    it, and makes blocks of about as many bytes. Sums over all rows become running sums of sums over blocks: the same
    terms in another order, which has the error bound of any order. All other results keep their bits as far as products
    of fewer rows do.
    """

    name = "split-rows"
    numerics = "reassociating"
    block_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        expect_at_least(1, block_bytes=self.block_bytes)

    def run(self, graph: Graph) -> Graph:
        # From the last to the first: what stands before a product keeps its place when that is split.
        for number in reversed(range(len(self._large(graph)))):
            root = self._large(graph)[number]
            blocks = self._blocks(root.result)
            region = _find_region(graph, root) if len(blocks) > 1 else None
            if region is not None:
                graph = _Split(Rebuild(graph, self.name), region, blocks).run()
        return graph

    def _large(self, graph: Graph) -> list[Op]:
        return [op for op in graph.ops if op.name == "matmul" and op.result.type.nbytes > self.block_bytes]

    def _blocks(self, value: Value) -> list[tuple[int, int]]:
        """The first and last row (excluded) of each block of ``value``: equal ones if some number of them allows it."""
        rows = math.prod(value.shape[:-1])
        wanted = min(-(-value.type.nbytes // self.block_bytes), MAX_BLOCKS, rows // MIN_ROWS)
        even = (count for count in range(wanted, 2 * wanted) if rows % count == 0 and rows // count >= MIN_ROWS)
        length = -(-rows // next(even, wanted)) if wanted else rows
        return [(start, min(start + length, rows)) for start in range(0, rows, length)]


# -- what is split -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Region:
    """``ops`` run once for each block, in order, and but for ``shared`` ones nowhere else. Rows of ``joined`` values
    are put together again; results of ``summed`` ops are sums over all rows. ``ready`` is the position in the graph
    behind everything that the region reads.
    """

    rows: int
    ops: tuple[Op, ...]
    shared: frozenset[Op]
    joined: tuple[Value, ...]
    summed: frozenset[Op]
    ready: int


def _find_region(graph: Graph, root: Op) -> _Region | None:
    """The ops that the rows of ``root`` flow through; None if one of them needs the product whole."""
    rows, large, results = math.prod(root.result.shape[:-1]), root.result.size, set(graph.results())
    if not _is_by_row(root, rows, set()):
        return None
    reached, by_row, summed = {root.result}, [root], []
    for op in graph.ops:
        if op is root or reached.isdisjoint(op.operands):
            continue
        if _is_by_row(op, rows, reached):
            by_row.append(op)
            if op.name != "matmul":  # what a contraction makes is small, and what follows from it another matter
                reached.update(op.results)
        elif _sums_rows(op, rows):
            summed.append(op)
        elif any(value in reached and value.size >= large for value in op.operands):
            return None

    inside: set[Value] = set()
    for op in reversed(by_row):
        if op.result.size >= large or op.result in inside or any(v in reached and v.size >= large for v in op.operands):
            inside.add(op.result)
            inside.update(value for value in op.operands if value in reached)
    summed = [op for op in summed if any(value in inside and value.size >= large for value in op.operands)]
    chosen = {op for op in by_row if op.result in inside} | set(summed)
    shared = _made_on_the_way(graph, chosen, rows, large, reached)
    used = {value for op in graph.ops if op not in chosen for value in op.operands} | results
    joined = tuple(op.result for op in by_row if op in chosen and op.result in used)
    if any(value.size >= large for value in joined):
        return None
    ops = tuple(op for op in graph.ops if op in chosen or op in shared)
    ready = _ready(graph, ops, chosen)
    return None if ready is None else _Region(rows, ops, frozenset(shared), joined, frozenset(summed), ready)


def _row_axes(shape: Shape, rows: int) -> int | None:
    """How many leading axes of ``shape`` count ``rows`` rows; None when none do."""
    count = 1
    for axis, size in enumerate(shape):
        count *= size
        if count == rows:
            return axis + 1
    return None


def _is_by_row(op: Op, rows: int, reached: set[Value]) -> bool:
    """Whether each row of the result of ``op`` needs the same row of what it reads of ``reached``, and nothing else."""
    lead = _row_axes(op.result.shape, rows)
    if lead is None:
        return False
    match op.name:
        case "reshape":
            return _row_axes(op.operands[0].shape, rows) is not None
        case "broadcast":
            by_row = _aligned(op)[:lead] == op.result.shape[:lead]
            return by_row or (set(_aligned(op)[:lead]) == {1} and op.operands[0] not in reached)
        case "sum" | "max" | "min" | "prod":
            same_rows = op.operands[0].shape[:lead] == op.result.shape[:lead]
            return same_rows and min(op.attributes["axes"], default=lead) >= lead
        case "matmul":
            left, right = op.operands
            return (
                lead == len(op.result.shape) - 1 == len(left.shape) - 1
                and not op.attributes["transpose_left"]
                and len(right.shape) == 2
                and right not in reached
            )
    return op.definition.family == "elementwise"


def _sums_rows(op: Op, rows: int) -> bool:
    """Whether ``op`` contracts the rows, and nothing but them, of all that it reads."""
    if op.name == "sum":
        (operand,) = op.operands
        lead = _row_axes(operand.shape, rows)
        return lead is not None and op.attributes["axes"] == tuple(range(lead))
    return (
        op.name == "matmul"
        and op.attributes["transpose_left"]
        and not op.attributes["transpose_right"]
        and all(len(operand.shape) == 2 and operand.shape[0] == rows for operand in op.operands)
    )


def _made_on_the_way(graph: Graph, chosen: set[Op], rows: int, large: int, reached: set[Value]) -> set[Op]:
    """Cheap ops that make large tensors of which ``chosen`` ones use the rows, such as the grid of a one-hot label."""
    found: set[Op] = set()
    wanted = {value for op in chosen for value in op.operands if value.size >= large}
    for op in reversed(graph.ops):
        if op in chosen or op.result not in wanted:
            continue
        grid = op.name == "iota" and op.attributes["axis"] >= (_row_axes(op.result.shape, rows) or rows)
        cheap = op.definition.family in ("elementwise", "movement") and not op.definition.is_expensive
        if grid or (cheap and _is_by_row(op, rows, reached)):
            found.add(op)
            wanted.update(value for value in op.operands if value.size >= large)
    return found


def _ready(graph: Graph, ops: tuple[Op, ...], chosen: set[Op]) -> int | None:
    """The position in the graph behind all that ``ops`` read of others; None if that needs what ``chosen`` make."""
    after: set[Value] = set()
    position_of: dict[Value, int] = {}
    for position, op in enumerate(graph.ops):
        position_of.update(dict.fromkeys(op.results, position))
        if op in chosen or not after.isdisjoint(op.operands):
            after.update(op.results)
    made = {op.result for op in ops}
    read = {operand for op in ops for operand in op.operands} - made
    return None if read & after else max(position_of[value] for value in read) + 1


def _aligned(op: Op) -> Shape:
    """The shape of a broadcast's operand with as many axes as its result."""
    shape = op.operands[0].shape
    return (1,) * (len(op.result.shape) - len(shape)) + shape


# -- splitting ---------------------------------------------------------------------------------------------------------


class _Split:
    def __init__(self, rebuild: Rebuild, region: _Region, blocks: list[tuple[int, int]]) -> None:
        self.rebuild = rebuild
        self.region = region
        self.blocks = blocks

    def run(self) -> Graph:
        """The graph with the region's ops done block by block, and what needs their results behind them."""
        source = self.rebuild.source
        split = set(self.region.ops) - self.region.shared
        needs_blocks: set[Value] = set()
        late: list[Op] = []
        for op in source.ops[: self.region.ready]:
            if op in split or not needs_blocks.isdisjoint(op.operands):
                needs_blocks.update(op.results)
                late.append(op)
            else:
                self.rebuild.copy(op)
        self._emit_blocks()
        for op in (*late, *source.ops[self.region.ready :]):
            if op not in split:
                self.rebuild.copy(op)
        return RemoveDead().run(self.rebuild.finish())

    def _emit_blocks(self) -> None:
        region, rebuild = self.region, self.rebuild
        pieces: dict[Value, list[Value]] = {value: [] for value in region.joined}
        sums: dict[Op, Value] = {}
        for start, stop in self.blocks:
            block = _Block(rebuild, region.rows, start, stop)
            for op in region.ops:
                with rebuild.derived_from(op):
                    if op in region.summed:
                        term = block.sum(op)
                        sums[op] = T.add(sums[op], term) if op in sums else term
                    else:
                        block.made[op.result] = block.emit(op)
            for value, parts in pieces.items():
                parts.append(block.made[value])
        for value, parts in pieces.items():
            with rebuild.derived_from(value.op):
                rebuild.replace(value.op, (T.reshape(T.concatenate(parts, 0), value.shape),))
        for op, total in sums.items():
            with rebuild.derived_from(op):
                rebuild.replace(op, (T.cast(total, op.result.dtype),))


class _Block:
    """Emits ops on the rows ``start`` to ``stop`` (excluded); ``made`` holds what they are for values of the source."""

    def __init__(self, rebuild: Rebuild, rows: int, start: int, stop: int) -> None:
        self.rebuild = rebuild
        self.rows = rows
        self.start = start
        self.stop = stop
        self.made: dict[Value, Value] = {}

    def emit(self, op: Op) -> Value:
        """The block of the result of ``op``, with one axis for the rows."""
        lead = _row_axes(op.result.shape, self.rows)
        shape = (self.stop - self.start, *op.result.shape[lead:])
        emit = self.rebuild.target.emit
        match op.name:
            case "reshape":
                return T.reshape(self._rows(op.operands[0]), shape)
            case "broadcast":
                aligned = _aligned(op)
                if aligned[:lead] == op.result.shape[:lead]:
                    return T.broadcast_to(self._rows(op.operands[0]), shape)
                return T.broadcast_to(T.reshape(self.rebuild.values[op.operands[0]], (1, *aligned[lead:])), shape)
            case "iota":
                return emit("iota", (), **{**op.attributes, "shape": shape, "axis": op.attributes["axis"] - lead + 1})
            case "sum" | "max" | "min" | "prod":
                axes = tuple(axis - lead + 1 for axis in op.attributes["axes"])
                return emit(op.name, (self._rows(op.operands[0]),), axes=axes)
            case "matmul":
                left, right = op.operands
                return emit("matmul", (self._rows(left), self.rebuild.values[right]), **op.attributes)
        return emit(op.name, [self._rows(operand) for operand in op.operands], **op.attributes)

    def sum(self, op: Op) -> Value:
        """What the block adds to a sum over all rows, in the type in which sums are kept."""
        wide, emit = accumulation_dtype(op.result.dtype), self.rebuild.target.emit
        operands = [self._rows(operand) for operand in op.operands]
        if op.name == "matmul":  # a product of halves stays one, which some machines do many times faster
            return T.cast(emit("matmul", operands, **op.attributes), wide)
        return emit("sum", [T.cast(operand, wide) for operand in operands], axes=(0,))

    def _rows(self, value: Value) -> Value:
        """The block of ``value``, cut out if it is made whole."""
        if value not in self.made:
            lead = _row_axes(value.shape, self.rows)
            flat = T.reshape(self.rebuild.values[value], (self.rows, *value.shape[lead:]))
            self.made[value] = flat[self.start : self.stop]
        return self.made[value]
