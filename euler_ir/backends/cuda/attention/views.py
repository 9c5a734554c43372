"""The views of a step of attention as parameters and arguments of a kernel, in one place for all kernels.

Each view, in the operator's order, operands before results, is five parameters: a pointer to its first element, and the
steps along two batch axes of keys, along the heads that share them, and between rows, in elements (``views.cuh``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from euler_ir.backends.cuda.calls import Argument, BufferPointer, Number
from euler_ir.dtypes import DType, accumulation_dtype, i64
from euler_ir.plan.plan import AttentionStep, PlannedView

MOST_ROWS = 2**30
"""Of queries, and of keys, so that sums of two such numbers are below 2^31."""

C_TYPES = {"f16": "eir::f16", "bf16": "eir::bf16", "f32": "float", "f64": "double", "i64": "long long"}

WIDEST_ACCESS = 16
"""Bytes that a thread reads at once at most. Every buffer begins at a multiple of them."""

_OPERANDS = {
    "attention": ("query", "key", "value", "visible_from"),
    "attention_gradient": ("query", "key", "value", "logsumexp", "d_output", "delta", "visible_from"),
}
_RESULTS = {"attention": ("output", "logsumexp"), "attention_gradient": ("d_query", "d_key", "d_value")}
_VECTORS = ("logsumexp", "delta", "visible_from")


@dataclass(frozen=True)
class NamedView:
    """One of the views of a step, with the operator's name for it; ``rows`` of ``columns`` elements of ``dtype``."""

    name: str
    view: PlannedView
    dtype: DType
    is_result: bool
    rows: int
    columns: int

    @property
    def c_type(self) -> str:
        return ("" if self.is_result else "const ") + C_TYPES[self.dtype.name]

    @property
    def is_matrix(self) -> bool:
        """Whether it has rows of elements, not one for each query."""
        return self.name not in _VECTORS

    @property
    def alignment(self) -> int:
        """Bytes of which the beginning of every row is a multiple: a power of two, at most WIDEST_ACCESS."""
        steps = (self.view.offset, *self.view.batch_strides, self.view.leading if self.rows > 1 else 0)
        return math.gcd(WIDEST_ACCESS, *(step * self.dtype.itemsize for step in steps))

    def arguments(self, step: AttentionStep) -> tuple[Argument, ...]:
        """The five of this view, one of ``step``."""
        axes = len(step.key_batch)
        outer, inner = (0, 0, *self.view.batch_strides[:axes])[-2:]
        within_group = sum(self.view.batch_strides[axes:])
        strides = (outer, inner, within_group, self.view.leading)
        pointer = BufferPointer(self.view.buffer, self.view.offset * self.dtype.itemsize)
        return pointer, *(Number("i64", stride) for stride in strides)


def named_views(step: AttentionStep, chosen: Collection[str] | None = None) -> dict[str, NamedView]:
    """The views of ``step`` by name, operands before results: all, or those ``chosen`` that it has."""
    operands, results = step.extents()
    named = [
        *zip(_OPERANDS[step.operator], step.operands, operands, (False,) * len(operands)),
        *zip(_RESULTS[step.operator], step.results, results, (True,) * len(results)),
    ]
    return {
        name: NamedView(name, view, _dtype(step, name), is_result, *extent)
        for name, view, extent, is_result in named
        if chosen is None or name in chosen
    }


@dataclass(frozen=True)
class Sizes:
    """What a kernel takes besides its views: ``parameters``, and what is ``passed`` on, in C++."""

    parameters: str
    passed: str


def kernel_in_c(
    name: str, bounds: tuple[int, int], function: str, types: Mapping[str, str], order: Sequence[str], sizes: Sizes
) -> str:
    """A kernel called ``name``, launched within ``bounds`` (threads of a block, and blocks that a multiprocessor holds
    at least), that calls ``function`` with its ``sizes`` and its views.

    Its parameters are views of these ``types`` in C++ by name. The function takes those of ``order``: an empty view for
    the one that may be absent.
    """
    parameters = (f"EIR_VIEW({c_type}, {name})" for name, c_type in types.items())
    passed = (
        f"EIR_VIEW_OF({types[name]}, {name})" if name in types else "eir::View<const long long>{}" for name in order
    )
    return (
        f'extern "C" __global__ void __launch_bounds__({bounds[0]}, {bounds[1]}) {name}(\n'
        f"    {_joined(parameters, 4)},\n    {sizes.parameters}) {{\n"
        f"    {function}(\n"
        f"        {sizes.passed},\n        {_joined(passed, 8)});\n}}\n"
    )


def _joined(items: Iterable[str], indent: int) -> str:
    return f",\n{' ' * indent}".join(items)


def inner_heads(step: AttentionStep) -> int:
    """The extent of the last batch axis of keys: the number of a head is divided by it to find its place."""
    return (1, *step.key_batch)[-1]


def _dtype(step: AttentionStep, name: str) -> DType:
    if name == "visible_from":
        return i64
    return accumulation_dtype(step.dtype) if name in _VECTORS else step.dtype
