"""The meaning of a graph in real numbers: every float computed with many digits, by mpmath, and never rounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from euler_ir.dtypes import DType
from euler_ir.graph import Graph, Op
from euler_ir.passes.decompose import Decompose
from euler_ir.passes.patterns import same_number

DIGITS = {8: 350, 4: 70, 2: 70}
"""Decimal digits that are kept, by the bytes of the result: 1 + x must keep those of the least x that there is."""


def real_results(graph: Graph, leaves: Mapping[str, np.ndarray], numbers: Sequence[float] = ()) -> np.ndarray | None:
    """The output "result" of ``graph`` as an array of mpmath's numbers, NaN where there is none.

    A constant that its dtype rounded from one of ``numbers`` is taken for that number. None when an operator is met
    that is not known here. Needs mpmath, which comes with the extra ``test``.
    """
    import mpmath

    with mpmath.workdps(DIGITS[graph.outputs["result"].dtype.itemsize]):
        return _Run(mpmath.mp, numbers).run(Decompose().run(graph), leaves)


class _Run:
    def __init__(self, mp, numbers: Sequence[float]) -> None:
        self.mp = mp
        self.numbers = numbers
        self.functions = _functions(mp)

    def run(self, graph: Graph, leaves: Mapping[str, np.ndarray]) -> np.ndarray | None:
        arrays: dict = {}
        for op in graph.ops:
            found = self.result(op, [arrays[operand] for operand in op.operands], leaves)
            if found is None:
                return None
            arrays[op.result] = found
        return arrays[graph.outputs["result"]]

    def result(self, op: Op, operands: list[np.ndarray], leaves: Mapping[str, np.ndarray]) -> np.ndarray | None:
        attributes = op.attributes
        if op.definition.has_identity:
            return self.exact(leaves[attributes["name"]], op.result.dtype)
        match op.name:
            case "constant":
                return self.constant(attributes["value"], op.result.dtype)
            case "cast" if op.result.dtype.is_float and op.operands[0].dtype.is_float:
                return operands[0]
            case "sum":
                return np.asarray(np.sum(operands[0], axis=attributes["axes"]), object)
            case "max" if operands[0].size:
                return np.asarray(np.max(operands[0], axis=attributes["axes"]), object)
            case "broadcast" | "reshape" | "transpose" | "flip" | "slice":
                return np.asarray(op.definition.evaluate(attributes, *operands))
            case _ if op.name in self.functions:
                return self.each(self.functions[op.name], *operands)
        return None

    def each(self, function, *operands: np.ndarray) -> np.ndarray:
        def guarded(*numbers):
            try:
                found = function(*numbers)
            except (ZeroDivisionError, ValueError, OverflowError):
                return self.mp.nan
            return found if not isinstance(found, self.mp.mpc) else self.mp.nan

        results = [guarded(*numbers) for numbers in zip(*(operand.reshape(-1) for operand in operands))]
        return _objects(results, operands[0].shape)

    def exact(self, array: np.ndarray, dtype: DType) -> np.ndarray:
        made = (lambda number: self.mp.mpf(float(number))) if dtype.is_float else (lambda number: number)
        return _objects([made(number) for number in np.asarray(array).reshape(-1)], np.shape(array))

    def constant(self, array: np.ndarray, dtype: DType) -> np.ndarray:
        if dtype.is_float and array.size == 1:
            held = float(array.reshape(-1)[0])
            meant = next((number for number in self.numbers if same_number(held, number, dtype)), held)
            array = np.full(array.shape, meant)
        return self.exact(array, dtype)


def _objects(values: list, shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)


def _functions(mp) -> dict:
    """By operator: what it does to real numbers."""
    gate = lambda x: mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3)  # noqa: E731
    return {
        "negative": lambda x: -x,
        "absolute": abs,
        "add": lambda x, y: x + y,
        "subtract": lambda x, y: x - y,
        "multiply": lambda x, y: x * y,
        "divide": lambda x, y: x / y,
        "power": lambda x, y: x**y,
        "exp": mp.exp,
        "log": mp.log,
        "sqrt": mp.sqrt,
        "rsqrt": lambda x: 1 / mp.sqrt(x),
        "sin": mp.sin,
        "cos": mp.cos,
        "tanh": mp.tanh,
        "erf": mp.erf,
        "erfc": mp.erfc,
        "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
        "normal_cdf": mp.ncdf,
        "normal_pdf": mp.npdf,
        "normal_cdf_tanh": lambda x: 1 / (1 + mp.exp(-2 * gate(x))),
        "equal": lambda x, y: x == y,
        "where": lambda condition, x, y: x if condition else y,
    }
