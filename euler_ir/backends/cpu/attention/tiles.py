"""Register tiles: small products of matrices in generated code, lanes along one operand's rows, and transposed blocks.

A product reads one operand element by element, wherever it lies, and spreads each over the lanes; the other is read as
vectors. So neither is packed: rows of a strided view serve as they are. Rows beyond the last are the last row again:
what is computed for them is the same, bit for bit, and may be stored over it.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence

from euler_ir.backends.cpu.gemm.tile import Tile
from euler_ir.backends.cpu.jit import vector_bytes
from euler_ir.backends.cpu.writer import Code, Register, constant, first_lanes
from euler_ir.dtypes import DType


def unpacked_tile(dtype: DType) -> Tile:
    """The tile for products that are not packed: twice as many sums as hide the latency of an addition, where there are
    registers for them, in rows that divide the usual widths of heads.
    """
    many_registers = vector_bytes() == 64 or platform.machine() == "aarch64"
    return Tile(dtype, 8 if many_registers else 6, 2, vector_bytes() // dtype.itemsize)


def number(value: int) -> Register:
    """A count or place, i64."""
    return constant(value, "i64")


def step(code: Code, pointer: Register, element: str, *counts: Register | int) -> Register:
    """``pointer`` moved by the sum of ``counts`` elements."""
    for count in counts:
        count = number(count) if isinstance(count, int) else count
        if count.text != "0":
            pointer = code.emit(f"getelementptr inbounds {element}, {pointer.typed}, {count.typed}", "ptr")
    return pointer


def product(
    code: Code,
    tile: Tile,
    rows: Sequence[Register],
    row_step: Register,
    vectors: Sequence[tuple[Register, Register | None]],
    vector_step: Register,
    depth: Register,
) -> list[list[Register]]:
    """The sums over k below ``depth``, at least 1, of ``rows[r][k row_step] * vectors[v][k vector_step]``.

    ``rows`` are pointers to elements, ``vectors`` pointers to vectors, each with the mask of its lanes that are there.
    """
    zero = code.splat(constant(0, tile.element), tile.lanes)
    sums = [[code.slot(zero) for _ in vectors] for _ in rows]
    with code.loop(number(0), depth, 1, nonempty=True) as k:
        at = code.binary("mul", k, vector_step)
        loaded = [code.load(step(code, p, tile.element, at), tile.element, tile.lanes, mask) for p, mask in vectors]
        at = code.binary("mul", k, row_step)
        for pointer, row in zip(rows, sums):
            scalar = code.load(step(code, pointer, tile.element, at), tile.element)
            for vector, total in zip(loaded, row):
                total.set(code.intrinsic("fma", scalar, vector, total.get()))
    return [[total.get() for total in row] for row in sums]


def masks(columns: int, lanes: int) -> list[Register | None]:
    """For each vector that ``columns`` elements take the mask of its lanes, None for all."""
    full, rest = divmod(columns, lanes)
    return [None] * full + [first_lanes(rest, lanes)] * (rest > 0)


def transposed(code: Code, block: list[Register]) -> list[Register]:
    """The square ``block`` of as many vectors as they have lanes, rows and columns exchanged.

    Interleaving each vector with that half of the block further on, log2(lanes) times, is a transposition.
    """
    lanes, half = len(block), len(block) // 2
    orders = [[start + lane // 2 + lane % 2 * lanes for lane in range(lanes)] for start in (0, half)]
    for _ in range(lanes.bit_length() - 1):
        block = [code.shuffle(block[i], block[i + half], order) for i in range(half) for order in orders]
    return block
