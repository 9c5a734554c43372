"""The attentions of a plan as calls of generated code: which functions they need, and with which arguments."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from euler_ir.backends.cpu.attention.forward import ForwardWriter
from euler_ir.backends.cpu.attention.gradient import GradientWriter
from euler_ir.backends.cpu.attention.blocks import AttentionVariant
from euler_ir.backends.cpu.writer import constant
from euler_ir.plan.plan import AttentionStep, PlannedView

_WRITERS = {"attention": ForwardWriter, "attention_gradient": GradientWriter}


@dataclass(frozen=True)
class AttentionFunction:
    """A function of attention: the module that exports its ``symbol``, and the scratch memory of each thread in bytes.

    A task is ``block`` queries of a head; where that is None, all queries that share a head of keys.
    """

    symbol: str
    declaration: str
    text: str
    scratch: int
    block: int | None

    def tasks(self, step: AttentionStep) -> int:
        if self.block is None:
            return math.prod(step.key_batch)
        return math.prod(step.batch) * -(-step.queries // self.block)


@functools.cache
def attention_function(operator: str, variant: AttentionVariant) -> AttentionFunction:
    """The function of ``operator``, 'attention' or 'attention_gradient', for tensors of this kind and any extents."""
    sizes = f"{variant.dtype}_{variant.width}_{variant.value_width}{'_causal' if variant.causal else ''}"
    sizes += "_visible_from" if variant.visible_from else ""
    symbol = f"eir_{operator}_{sizes}"
    writer = _WRITERS[operator](variant)
    definition = writer.definition(symbol)
    scratch = writer.scratch_elements * variant.dtype.itemsize
    block = writer.block if operator == "attention" else None
    return AttentionFunction(symbol, writer.declaration(symbol), definition.module(), scratch, block)


class AttentionModules:
    """The modules of attentions: one for each function, however many steps call it.

    ``texts`` holds their LLVM IR by the symbol that each exports; ``scratch`` is how many bytes of memory of its own
    each thread needs for any of them.
    """

    def __init__(self) -> None:
        self.scratch = 0
        self.texts: dict[str, str] = {}
        self._declarations: dict[str, None] = {}

    def function(self, step: AttentionStep) -> AttentionFunction:
        """The function that does ``step``, from now on among ``texts``."""
        variant = AttentionVariant(step.dtype, step.width, step.value_width, step.causal, step.has_visible_from)
        function = attention_function(step.operator, variant)
        self.texts[function.symbol] = function.text
        self._declarations[function.declaration] = None
        self.scratch = max(self.scratch, function.scratch)
        return function

    def call(self, step: AttentionStep, begin: str, end: str, pointers: list[str]) -> str:
        """The call of tasks begin to end - 1 of ``step``, as a line of the step function, where ``%scratch`` is this
        thread's own memory; ``pointers`` are those of its operands and results.
        """
        scale = constant(step.scale, {"f32": "float", "f64": "double"}[step.dtype.name])
        views = zip((*step.operands, *step.results), pointers, strict=True)
        arguments = [
            f"i64 {begin}, i64 {end}, ptr %scratch, i64 {(1, *step.key_batch)[-1]}, i64 {step.group}",
            f"i64 {step.queries}, i64 {step.keys}, {scale.typed}",
            *(_view(step, view, pointer) for view, pointer in views),
        ]
        return f"  call void @{self.function(step).symbol}({', '.join(arguments)})"

    def declarations(self) -> str:
        """Of the functions that calls name."""
        return "\n".join(self._declarations)


def _view(step: AttentionStep, view: PlannedView, pointer: str) -> str:
    axes = len(step.key_batch)
    outer, inner = (0, 0, *view.batch_strides[:axes])[-2:]
    within_group = sum(view.batch_strides[axes:])
    return f"ptr {pointer}, i64 {outer}, i64 {inner}, i64 {within_group}, i64 {view.leading}"
