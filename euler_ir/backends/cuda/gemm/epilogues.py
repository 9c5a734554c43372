"""Which of the library's epilogues does what the nest after a product does, or why none.

The nest rounds the product to its type, and often what it makes of it as well, before it goes on; the library rounds
once, in the end. So results of half types differ by a few units in their last place, and are the closer ones. What
cuBLASLt calls GELU is the form with tanh. Its ReLU is not used: it does not promise that a NaN stays one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from euler_ir.backends.cuda.gemm.api import Epilogue
from euler_ir.backends.cuda.gemm.polynomials import Applied, Loaded, Polynomial, Polynomials
from euler_ir.backends.cuda.gemm.reasons import Declined
from euler_ir.index import Index, linearize
from euler_ir.loops.kernel import Nest, Store
from euler_ir.plan.plan import MatmulStep, Plan


@dataclass(frozen=True)
class Matched:
    """``result = kind(alpha left @ right + beta addend + bias)``, with numbers of the plan's buffers.

    ``auxiliary`` is stored or read beside the result: what GELU is taken of.
    """

    result: int
    kind: Epilogue = Epilogue.NONE
    alpha: float = 1.0
    beta: float = 0.0
    addend: int | None = None
    bias: int | None = None
    auxiliary: int | None = None


GELU = frozenset((Epilogue.GELU, Epilogue.GELU_BIAS, Epilogue.GELU_AUX, Epilogue.GELU_AUX_BIAS, Epilogue.DGELU))
"""The kinds that compute GELU or its derivative."""

_SAVING = (Epilogue.GELU_AUX, Epilogue.GELU_AUX_BIAS)
_WITH_BIAS = {
    Epilogue.NONE: Epilogue.BIAS,
    Epilogue.GELU: Epilogue.GELU_BIAS,
    Epilogue.GELU_AUX: Epilogue.GELU_AUX_BIAS,
}
_GATE = "f32 normal_cdf_tanh"
_INNER, _CUBIC = math.sqrt(2 / math.pi), 0.044715  # arXiv:1606.08415, section 2
_TOLERANCE = 1e-6
"""What a constant may be off, relative, that was rounded to f32."""


def match_epilogue(step: MatmulStep, plan: Plan) -> Matched | Declined:
    """The library's epilogue that means what ``step.epilogue`` does, or why there is none."""
    if step.epilogue is None:
        return Matched(step.result.buffer)
    if step.dtype.name == "f64":
        return Declined("epilogue-f64")
    (nest,) = step.epilogue.kernel.nests
    return _Matching(step, nest, plan).run()


class _Matching:
    def __init__(self, step: MatmulStep, nest: Nest, plan: Plan) -> None:
        self.step, self.nest, self.plan = step, nest, plan
        self.numbers = dict(zip((each.name for each in nest.parameters), step.epilogue.arguments[0]))
        ours = (each for each in nest.parameters if self.numbers[each.name] == step.result.buffer)
        product = next(each.name for each in ours if each.role == "input")
        self.here = linearize(tuple(map(Index.of, nest.axes)), tuple(axis.extent for axis in nest.axes))
        self.column = Index.of(nest.axes[-1])
        self.polynomials = Polynomials()
        self.product = self.polynomials.atom(Loaded(product, self.here))

    def run(self) -> Matched | Declined:
        other = Declined("epilogue-other", (", ".join(self.step.epilogue.origins[0].operators),))
        written: dict[str, Polynomial] = {}
        for statement in self.nest.body:
            if isinstance(statement, Store):
                written[statement.buffer] = self.polynomials.scalars[statement.value]
                if statement.accumulate or statement.index != self.here:
                    return other
            elif not self.polynomials.add(statement):
                return other
        for atom in self.polynomials.atoms:
            if isinstance(atom, Loaded) and atom.index not in (self.here, self.column):
                return Declined("epilogue-reads", (self.plan.buffers[self.numbers[atom.name]].name,))
        for name in written:
            others = {other: polynomial for other, polynomial in written.items() if other != name}
            matched = self._matched(written[name], others)
            if matched is not None:
                matched = replace(matched, result=self.numbers[name])
                return self._obstacle(matched) or matched
        return Declined("epilogue-outputs", (len(written),)) if len(written) > 1 else other

    def _matched(self, polynomial: Polynomial, others: dict[str, Polynomial]) -> Matched | None:
        """How the library makes ``polynomial``, and of what ``others`` there is what GELU is taken of."""
        matched = self._sum(polynomial, Epilogue.NONE) or self._gelu(polynomial, others) or self._gradient(polynomial)
        return matched if matched and len(others) == (matched.kind in _SAVING) else None

    def _sum(self, polynomial: Polynomial, kind: Epilogue) -> Matched | None:
        """``polynomial`` as a multiple of the product, one of another matrix, and a bias."""
        alpha, beta, addend, bias = 0.0, 0.0, None, None
        for atoms, factor in polynomial.terms:
            atom = self.polynomials.atoms[atoms[0]] if len(atoms) == 1 else None
            if not isinstance(atom, Loaded):
                return None
            if Polynomial.atom(atoms[0]) == self.product:
                alpha = factor
            elif atom.index == self.here and addend is None:
                addend, beta = self.numbers[atom.name], factor
            elif atom.index == self.column and bias is None and factor == 1:
                bias = self.numbers[atom.name]
            else:
                return None
        kind = kind if bias is None else _WITH_BIAS[kind]
        return Matched(self.step.result.buffer, kind, alpha, beta, addend, bias) if alpha else None

    def _gelu(self, polynomial: Polynomial, others: dict[str, Polynomial]) -> Matched | None:
        for gate, operand in self._gates():
            if polynomial == operand * gate:
                saved = next((name for name, each in others.items() if each == operand), None)
                matched = self._sum(operand, Epilogue.GELU if saved is None else Epilogue.GELU_AUX)
                return matched and replace(matched, auxiliary=self.numbers.get(saved))
        return None

    def _gradient(self, polynomial: Polynomial) -> Matched | None:
        """The product times the derivative of GELU at another matrix."""
        for gate, operand in self._gates():
            opposite = self.polynomials.atom(Applied(_GATE, (-operand,)))
            by_operand = Polynomial.constant(2 * _INNER) + Polynomial.constant(6 * _INNER * _CUBIC) * operand * operand
            slope = gate + operand * gate * opposite * by_operand
            matrix = self._matrix(operand)
            if matrix is not None and polynomial.is_close(self.product * slope, _TOLERANCE):
                return Matched(self.step.result.buffer, Epilogue.DGELU, auxiliary=matrix)
        return None

    def _gates(self) -> Iterator[tuple[Polynomial, Polynomial]]:
        """Each gate of GELU, and what it is taken of."""
        for number, atom in list(enumerate(self.polynomials.atoms)):
            if isinstance(atom, Applied) and atom.name == _GATE:
                yield Polynomial.atom(number), atom.operands[0]

    def _matrix(self, polynomial: Polynomial) -> int | None:
        """The number of the matrix whose own element ``polynomial`` is, if it is not the product."""
        for number, atom in enumerate(self.polynomials.atoms):
            if Polynomial.atom(number) == polynomial != self.product:
                return self.numbers[atom.name] if isinstance(atom, Loaded) and atom.index == self.here else None
        return None

    def _obstacle(self, matched: Matched) -> Declined | None:
        """What about the tensors the library cannot do. A bias is cast to the product's type when it is not of it."""
        dtype, (shared,) = self.step.dtype, self.step.epilogue.shared
        if matched.kind in GELU and not dtype.is_half:
            return Declined("epilogue-gelu-f32")
        for number in (matched.addend, matched.auxiliary, matched.result):
            if number is not None and self.plan.buffers[number].type.dtype != dtype:
                buffer = self.plan.buffers[number]
                return Declined("epilogue-type", (buffer.name, buffer.type.dtype, dtype))
        if matched.auxiliary is not None and self.step.columns % 8:
            return Declined("epilogue-alignment", (self.step.columns, dtype))
        for place in shared:
            if (number := self.step.epilogue.arguments[0][place]) != self.step.result.buffer:
                return Declined("epilogue-in-place", (self.plan.buffers[number].name,))
        return None
