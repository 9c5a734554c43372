"""Rows of whole 16 bytes for products: tensor cores are fed by loads of that size, and a vocabulary of 50257 has none.

A product is padded with zeros to such rows, and what follows it row by row is computed over the padding too, so that
loss and gradient are stored in the layout that the next product wants, and nothing is copied. What is in the padding
is never seen: reductions over it and products of it read a neutral element there instead. Inductor's ``pad_mm`` pass
pads products alike: https://github.com/pytorch/pytorch/blob/main/torch/_inductor/fx_passes/pad_mm.py
"""

from __future__ import annotations

from dataclasses import dataclass

from euler_ir import tensor as T
from euler_ir.dtypes import i32
from euler_ir.graph import Graph, Op, Value
from euler_ir.passes.legalize import neutral_element
from euler_ir.passes.manager import Pass
from euler_ir.passes.options import expect_at_least
from euler_ir.rebuild import Rebuild

ALIGNMENT = 16
"""Bytes of which a row is a multiple."""


@dataclass(frozen=True)
class PadProducts(Pass):
    """Pad large products of floats so that all rows of their operands and results are multiples of 16 bytes.

    All three extents of a product are ``smallest`` or more: it grows by less than 3 %, and does far more than to read
    its operands. The pass must come after what makes composites primitive; what it leaves unused, `dce` removes. Raises
    PassError for a ``smallest`` below 1.
    """

    name = "pad-products"
    numerics = "reassociating"
    smallest: int = 256

    def __post_init__(self) -> None:
        expect_at_least(1, smallest=self.smallest)

    def run(self, graph: Graph) -> Graph:
        return _Padding(graph, self).run()


class _Padding:
    """``wide`` has, for values of the old graph, the same padded along the last axis in the new graph, with anything in
    the padding; ``padded`` are those which exist as such alone, because a product makes what they are made of.
    """

    def __init__(self, graph: Graph, options: PadProducts) -> None:
        self.rebuild = Rebuild(graph, PadProducts.name)
        self.smallest = options.smallest
        self.wide: dict[Value, Value] = {}
        self.padded: set[Value] = set()
        self.zeroed: dict[tuple[Value, tuple[int, int]], Value] = {}
        self.masked: dict[tuple[Value, float], Value] = {}
        self.results = set(graph.results())
        products = [sizes_of(op, self.smallest) for op in graph.ops if op.name == "matmul"]
        self.lengths: dict[int, int] = {}
        for (_, _, columns), (_, _, padded) in products:
            if padded != columns:
                self.lengths[columns] = max(padded, self.lengths.get(columns, 0))

    def run(self) -> Graph:
        rules = {
            "matmul": self._product,
            "iota": self._counted,
            "broadcast": self._broadcast,
            "reshape": self._reshape,
        }
        by_family = {"elementwise": self._elementwise, "reduction": self._reduction}
        for op in self.rebuild:
            rule = rules.get(op.name) or by_family.get(op.definition.family)
            if rule is None or not rule(op):
                self.rebuild.copy(op)
        return self.rebuild.finish()

    # -- products ------------------------------------------------------------------------------------------------------

    def _product(self, op: Op) -> bool:
        sizes, (rows, inner, columns) = sizes_of(op, self.smallest)
        if sizes == (rows, inner, columns):
            return False
        left_size = (inner, rows) if op.attributes["transpose_left"] else (rows, inner)
        right_size = (columns, inner) if op.attributes["transpose_right"] else (inner, columns)
        operands = (self._zeroed(each, size) for each, size in zip(op.operands, (left_size, right_size)))
        wide = self.rebuild.target.emit("matmul", tuple(operands), **op.attributes)
        if rows == sizes[0] and columns != sizes[2]:
            self.wide[op.result] = wide
            self.padded.add(op.result)
        self.rebuild.replace(op, (_first(wide, op.result.shape),))
        return True

    def _zeroed(self, value: Value, size: tuple[int, int]) -> Value:
        """``value`` with zeros around its matrices, which become of ``size``; each once."""
        if value.shape[-2:] == size:
            return self.rebuild.values[value]
        if (value, size) not in self.zeroed:
            if value in self.padded and self.wide[value].shape[-2:] == size:
                self.zeroed[value, size] = self._masked(value, 0)
            else:
                self.zeroed[value, size] = _padded_to(self.rebuild.values[value], (*value.shape[:-2], *size))
        return self.zeroed[value, size]

    # -- what follows them ---------------------------------------------------------------------------------------------

    def _counted(self, op: Op) -> bool:
        if op.result.shape[-1] in self.lengths:
            self.wide[op.result] = self.rebuild.target.emit("iota", (), **{**op.attributes, "shape": self._shape(op)})
        return False

    def _broadcast(self, op: Op) -> bool:
        if op.result.shape[-1:] and op.result.shape[-1] in self.lengths and op.operands[0].shape[-1:] in ((), (1,)):
            self.wide[op.result] = T.broadcast_to(self.rebuild.values[op.operands[0]], self._shape(op))
        return False

    def _shape(self, op: Op) -> tuple[int, ...]:
        *outer, length = op.result.shape
        return (*outer, self.lengths[length])

    def _elementwise(self, op: Op) -> bool:
        if not any(operand in self.wide for operand in op.operands):
            return False
        shape = self._shape(op)
        fitting = [each in self.wide and self.wide[each].shape == shape for each in op.operands]
        is_padded = any(each in self.padded and fits for each, fits in zip(op.operands, fitting))
        if not is_padded and not all(fitting):
            return False
        operands = tuple(
            self.wide[each] if fits else _padded_to(self.rebuild.values[each], shape)
            for each, fits in zip(op.operands, fitting)
        )
        self.wide[op.result] = self.rebuild.target.emit(op.name, operands, **op.attributes)
        return is_padded and self._replace(op)

    def _reshape(self, op: Op) -> bool:
        (operand,), shape = op.operands, op.result.shape
        if operand not in self.padded or shape[-1:] != operand.shape[-1:]:
            return False
        self.wide[op.result] = T.reshape(self.wide[operand], (*shape[:-1], self.wide[operand].shape[-1]))
        return self._replace(op)

    def _replace(self, op: Op) -> bool:
        """Let the padded result of ``op`` take its place, unless the graph's caller would have it cut out of that."""
        if op.result in self.results:
            return False
        self.padded.add(op.result)
        self.rebuild.replace(op, (_first(self.wide[op.result], op.result.shape),))
        return True

    def _reduction(self, op: Op) -> bool:
        (operand,) = op.operands
        if operand not in self.padded or len(operand.shape) - 1 not in op.attributes["axes"]:
            return False
        masked = self._masked(operand, neutral_element(op.name, operand.dtype))
        self.rebuild.replace(op, (self.rebuild.target.emit(op.name, (masked,), **op.attributes),))
        return True

    def _masked(self, value: Value, neutral) -> Value:
        """The padded ``value`` with ``neutral`` in the padding; once for all that reshape it."""
        shape = self.wide[value].shape
        while value.op.name == "reshape":
            (value,) = value.op.operands
        if (value, neutral) not in self.masked:
            wide, graph = self.wide[value], self.rebuild.target
            column = graph.emit("iota", (), axis=len(wide.shape) - 1, shape=wide.shape, dtype=i32)
            neutrals = T.constant_like(wide, neutral)
            self.masked[value, neutral] = T.where(T.less(column, value.shape[-1]), wide, neutrals)
        return T.reshape(self.masked[value, neutral], shape)


def sizes_of(product: Op, smallest: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Rows, inner extent and columns of a matmul, and what they are padded to."""
    transpose_left, transpose_right = product.attributes["transpose_left"], product.attributes["transpose_right"]
    *_, rows, columns = product.result.shape
    inner = product.operands[0].shape[-2 if transpose_left else -1]
    sizes, dtype = (rows, inner, columns), product.result.dtype
    if not dtype.is_float or min(sizes) < smallest:
        return sizes, sizes
    elements = ALIGNMENT // dtype.itemsize
    # Which of them are the length of a row of an operand or of the result.
    are_rows = (transpose_left, not transpose_left or transpose_right, True)
    padded = (-(-size // elements) * elements if is_row else size for size, is_row in zip(sizes, are_rows))
    return sizes, tuple(padded)


def _padded_to(value: Value, shape: tuple[int, ...]) -> Value:
    return T.pad(value, [(0, size - own) for own, size in zip(value.shape, shape)])


def _first(value: Value, shape: tuple[int, ...]) -> Value:
    """The first elements of ``value`` along each axis."""
    return value[tuple(slice(size) for size in shape)]
