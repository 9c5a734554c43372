"""Mixed precision: products in a half type, everything whose digits matter in f32, and visible casts in between.

Micikevicius et al., "Mixed Precision Training" (arXiv:1710.03740), on the whole graph of a step: what is stored for a
product is of the half type, and sums, statistics, loss, optimiser and the weights that it updates are f32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from euler_ir import tensor as T
from euler_ir.dtypes import DTYPES, DType, f32
from euler_ir.errors import PassError, did_you_mean
from euler_ir.graph import Graph, Op, Value
from euler_ir.ops.definition import OPS
from euler_ir.passes.manager import Pass
from euler_ir.rebuild import Rebuild

POLICY = {
    "matmul": "half",
    "attention": "half",
    "attention_gradient": "half",
    "gelu": "follow",
    "take": "follow",
    "elementwise": "follow",
    "movement": "follow",
}
"""What happens to operators on f32, by their name or else their family; all others stay f32.

'half' operators read and make the half type; backends sum up in f32. 'follow' ones do arithmetic in f32, and what they
make is rounded where a product or a GELU reads it, if nothing that they read has more digits than the half type:
a residual stream, a normalised row or a softmax stays f32, and only what a product reads of it is rounded.
"""

_STATISTICS = {"attention_gradient": ("logsumexp", "delta")}
"""Operands of 'half' operators that are f32 all the same."""


@dataclass(frozen=True)
class MixedPrecision(Pass):
    """Compute products and attention in bf16 or f16, and all else in f32; a weight is cast once a step.

    POLICY says which operators do what. Inputs, outputs, parameters, states and updates keep their types. ``keep``
    names operators that stay f32, and ``keep_scopes`` modules all of whose operators do, gradients too, such as
    ``h.3.mlp``; 'optim' is the optimiser. The pass stands before all others, when composites are whole. Raises
    PassError for an unknown operator in ``keep``.
    """

    name = "mixed-precision"
    numerics = "approximate"
    compute: Literal["bf16", "f16"] = "bf16"
    keep: frozenset[str] = frozenset()
    keep_scopes: frozenset[str] = frozenset(("optim",))

    def __post_init__(self) -> None:
        for name in sorted(self.keep - OPS.keys()):
            hint = did_you_mean(name, OPS) or "`euler-ir ops` lists them all"
            raise PassError(f"keep names {name!r}, which is no operator", hint=hint)

    def run(self, graph: Graph) -> Graph:
        return _Casting(graph, self).run()

    def role(self, op: Op) -> str:
        """'half', 'follow' or 'f32': what the policy and the options say of ``op``."""
        kept = any(f"{op.scope}.".startswith(f"{scope}.") for scope in self.keep_scopes)
        if kept or op.name in self.keep:
            return "f32"
        return POLICY.get(op.name) or POLICY.get(op.definition.family, "f32")


class _Casting:
    """What each f32 value of a graph is made and read as.

    ``digits`` says of each what rounding it to the half type loses: 'half' for nothing that was not lost before, 'f32'
    for digits, and 'any' for parameters and constants, which go along with what they meet. Values ``in_half`` are
    stored in the half type alone. ``half_read`` and ``wide_read`` are those that something reads as such.
    """

    def __init__(self, graph: Graph, options: MixedPrecision) -> None:
        self.graph = graph
        self.half: DType = DTYPES[options.compute]
        self.roles = {op: options.role(op) for op in graph.ops}
        self.results = set(graph.results())
        self.digits: dict[Value, str] = {}
        self.in_half: set[Value] = set()
        self.half_ops: set[Op] = set()
        self.half_read: set[Value] = set()
        self.wide_read: set[Value] = set()

    def run(self) -> Graph:
        self._find_digits()
        self._choose_stored(self._wanted_by_products())
        self._find_readers()
        return self._rebuilt()

    # -- decisions, each in one walk over the graph --------------------------------------------------------------------

    def _find_digits(self) -> None:
        for op in self.graph.ops:
            for value in op.results:
                if value.dtype == self.half:
                    self.digits[value] = "half"
                elif value.dtype == f32:
                    self.digits[value] = self._digits_of(op, value)

    def _digits_of(self, op: Op, value: Value) -> str:
        if op.name in ("parameter", "constant"):
            return "any"
        if op.name == "cast" and not op.operands[0].dtype.is_float:
            return "any"
        role = self.roles[op]
        if role == "half" and self._halved(op):
            return "half" if self._type_in_half(op, value) == self.half else "f32"
        if role == "f32":
            return "f32"
        found = {self.digits.get(operand, "f32") for operand in op.operands if operand.dtype.is_float}
        if "f32" in found or (op.name == "take" and "half" not in found):
            return "f32"
        return "half" if "half" in found else "any"

    def _halved(self, op: Op) -> tuple[Value, ...]:
        """The operands that ``op``, of the role 'half', reads in the half type instead of f32."""
        statistics = _STATISTICS.get(op.name, ())
        return tuple(
            operand
            for name, operand in zip(op.definition.operand_names, op.operands)
            if operand.dtype == f32 and name not in statistics
        )

    def _type_in_half(self, op: Op, value: Value) -> DType:
        halved = set(self._halved(op))
        types = tuple(type(v.type)(self.half, v.shape) if v in halved else v.type for v in op.operands)
        return op.definition.infer(types, op.attributes)[value.index].dtype

    def _wanted_by_products(self) -> set[Value]:
        """What products and GELUs read, moved or not."""
        wanted: set[Value] = set()
        for op in reversed(self.graph.ops):
            if self.roles[op] == "half":
                wanted.update(self._halved(op))
            elif op.name == "gelu" or (self._moves(op) and op.result in wanted):
                wanted.update(op.operands)
        return wanted

    def _choose_stored(self, wanted: set[Value]) -> None:
        """Find the values in the half type, and the operators that compute in it from end to end."""
        of_parameters: set[Value] = set()
        for op in self.graph.ops:
            value, floats = op.result, [operand for operand in op.operands if operand.dtype.is_float]
            if op.name == "parameter" or (self._moves(op) and of_parameters.issuperset(floats)):
                of_parameters.add(value)
            if self.roles[op] == "half" and self._halved(op):
                self.half_ops.add(op)
                self.in_half.update(each for each in op.results if self.digits.get(each) == "half")
            if self.digits.get(value) != "half" or value.dtype != f32 or self.roles[op] != "follow":
                continue
            if self._moves(op) or self._widens(op):
                if all(self._is_in_half(operand) for operand in floats):
                    self.in_half.add(value)
            elif value in wanted and value not in self.results:
                self.in_half.add(value)
                # f32 arithmetic on halves, rounded, is what the operator does in the half type.
                if all(self._is_in_half(operand) or operand in of_parameters for operand in floats):
                    self.half_ops.add(op)

    def _is_in_half(self, value: Value) -> bool:
        return value in self.in_half or value.dtype == self.half

    def _find_readers(self) -> None:
        self.wide_read.update(self.results)
        for op in reversed(self.graph.ops):
            if op in self.half_ops:
                halved = self._halved(op) if self.roles[op] == "half" else op.operands
                self.half_read.update(halved)
                self.wide_read.update(operand for operand in op.operands if operand not in halved)
            elif not self._moves(op):
                self.wide_read.update(op.operands)
            else:
                in_half, in_f32 = self._moved_as(op)
                self.half_read.update(op.operands if in_half else ())
                self.wide_read.update(op.operands if in_f32 else ())

    def _moves(self, op: Op) -> bool:
        return (op.definition.family == "movement" or op.name == "take") and self.roles[op] == "follow"

    def _widens(self, op: Op) -> bool:
        """Whether ``op`` is the user's cast from the half type to f32."""
        return op.name == "cast" and op.operands[0].dtype == self.half and op.result.dtype == f32

    def _moved_as(self, op: Op) -> tuple[bool, bool]:
        """Whether ``op``, which only moves, is done on halves, and whether on f32.

        What is stored in f32 is rounded before it is repeated, and after something is cut out of it.
        """
        value, is_half = op.result, op.result in self.in_half
        grows = sum(operand.size for operand in op.operands) <= value.size
        in_half = value in self.half_read and value.dtype == f32 and (is_half or grows)
        return in_half, not in_half or (value in self.wide_read and not is_half)

    # -- the graph with casts ------------------------------------------------------------------------------------------

    def _rebuilt(self) -> Graph:
        rebuild = Rebuild(self.graph, MixedPrecision.name)
        halves: dict[Value, Value] = {}

        def emit(op: Op, in_half: bool) -> tuple[Value, ...]:
            wide = self._halved(op) if self.roles[op] == "half" else op.operands
            operands = [halves[v] if in_half and v in halves and v in wide else rebuild.values[v] for v in op.operands]
            made = rebuild.target.emit(op.name, operands, **op.attributes)
            return made if isinstance(made, tuple) else (made,)

        for op in rebuild:
            if op in self.half_ops:
                rebuild.replace(op, emit(op, in_half=True))
            elif self._moves(op):
                in_half, in_f32 = self._moved_as(op)
                if in_f32:
                    rebuild.copy(op)
                if in_half:
                    moved = emit(op, in_half=True)
                    halves[op.result] = moved[0]
                    if not in_f32:
                        rebuild.replace(op, moved)
            elif self._widens(op):
                rebuild.copy(op)
                halves[op.result] = rebuild.values[op.operands[0]]
            elif op.result in self.in_half:
                (value,) = emit(op, in_half=False)
                rebuild.replace(op, (T.cast(value, self.half),))
            else:
                rebuild.copy(op)
            for value in op.results:
                made = rebuild.values[value]
                if value.dtype == f32 and made.dtype == self.half:
                    halves[value] = made
                    if value in self.wide_read:
                        rebuild.values[value] = T.cast(made, f32)
                elif value in self.half_read and value.dtype == f32 and value not in halves:
                    halves[value] = T.cast(made, self.half)
        return rebuild.finish()
