"""A plan as the calls that do it on a device: each step by the part of the backend that knows its kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

from euler_ir.backends.cuda.attention import attention_calls
from euler_ir.backends.cuda.calls import (
    BufferPointer,
    Calls,
    Copy,
    FaultPointer,
    Fill,
    Launch,
    Number,
    Pointer,
    ScratchPointer,
    Source,
)
from euler_ir.backends.cuda.codegen import kernel_calls
from euler_ir.backends.cuda.gemm import Product, ProductOptions, product_calls
from euler_ir.errors import LoweringError
from euler_ir.plan.kernels import find_kernel
from euler_ir.plan.plan import AttentionStep, CopyStep, MatmulStep, Origin, Plan, Step

Call = Launch | Copy | Fill | Product

FAULT_BYTES = 4
"""Of the number that a FaultPointer points to."""


def calls_of(step: Step, plan: Plan, architecture: str, products: ProductOptions) -> Calls:
    """What does ``step`` of ``plan`` on a device of ``architecture``. Raises LoweringError for what has no code."""
    if isinstance(step, CopyStep):
        nbytes = plan.buffers[step.source].type.nbytes
        copies = [Copy(BufferPointer(step.target), BufferPointer(step.source), nbytes, step.origins)] if nbytes else []
        return Calls(tuple(copies))
    if isinstance(step, MatmulStep):
        return product_calls(step, plan, products)
    if isinstance(step, AttentionStep):
        return attention_calls(step, architecture)
    return kernel_calls(step)


@dataclass(frozen=True)
class PlannedCalls:
    """All calls of a plan, in order. ``scratch_bytes`` are what one of its steps needs at most: they share them."""

    plan: Plan
    calls: tuple[Call, ...]
    scratch_bytes: int

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """Each unit of code once, in the order of the first launches."""
        return tuple({call.source.code: call.source for call in self.launches()}.values())

    def launches(self) -> Iterator[Launch]:
        return (call for call in self.calls if isinstance(call, Launch))

    def products(self) -> Iterator[Product]:
        return (call for call in self.calls if isinstance(call, Product))

    def __str__(self) -> str:
        """One line for each call, with the model's operators, below the numbers of all."""
        kinds = Counter(type(call).__name__.lower() for call in self.calls)
        numbers = ", ".join(f"{kinds[kind]} {words}" for kind, words in _KINDS.items())
        head = f"cuda {self.plan.name!r}: {numbers}, {len(self.sources)} sources, {self.scratch_bytes} bytes of scratch"
        return "\n".join([head, *(f"  {_line(call, self.plan)}" for call in self.calls)]) + "\n"


_KINDS = {"launch": "launches", "product": "products", "copy": "copies", "fill": "fills"}


def planned_calls(
    plan: Plan,
    architecture: str,
    code: Mapping[str, str] = MappingProxyType({}),
    products: ProductOptions = ProductOptions(),
) -> PlannedCalls:
    """The calls of ``plan`` on ``architecture``, with ``products`` as it says.

    ``code`` is CUDA C++ that takes the place of what is generated for kernels, called by name or number: a unit that
    compiles alone, with kernels of the same names. Raises LoweringError for what has no code, or code without them.
    """
    done = [(step, calls_of(step, plan, architecture, products)) for step in plan.steps()]
    given = {id(step): text for name, text in code.items() for step in find_kernel(plan, name).launches}
    calls: list[Call] = [Fill(FaultPointer(0), FAULT_BYTES * len(plan.faults), 0)] if plan.faults else []
    calls += [call for step, each in done for call in _with_code(each.calls, given.get(id(step)))]
    return PlannedCalls(plan, tuple(calls), max((each.scratch_bytes for _, each in done), default=0))


def _with_code(calls: tuple[Call, ...], text: str | None) -> Iterator[Call]:
    for call in calls:
        if text is not None and isinstance(call, Launch):
            if call.kernel not in text:
                raise LoweringError(
                    f"the code given has no kernel {call.kernel!r}", hint="`dump --stage cuda` shows what it replaces"
                )
            call = replace(call, source=Source(call.source.name, text, call.source.kernels))
        yield call


# -- as text -----------------------------------------------------------------------------------------------------------


def _line(call: Call, plan: Plan) -> str:
    if isinstance(call, Copy):
        text = f"copy {pointer_text(call.target, plan)} = {pointer_text(call.source, plan)}, {call.nbytes} bytes"
    elif isinstance(call, Fill):
        return f"fill {pointer_text(call.target, plan)} = {call.byte}, {call.nbytes} bytes"
    elif isinstance(call, Launch):
        sizes = f"{call.blocks} x {call.threads}" + (f", {call.shared_bytes} shared" if call.shared_bytes else "")
        pointers = ", ".join(pointer_text(each, plan) for each in call.pointers())
        numbers = sum(isinstance(each, Number) for each in call.arguments)
        text = f"launch {call.kernel} <{sizes}> ({pointers}{f'; {numbers} sizes and strides' if numbers else ''})"
    else:
        pointers = ", ".join(dict.fromkeys(pointer_text(each, plan) for each in call.pointers))
        text = f"product {call} ({pointers})"
        if call.declined is not None:
            text += f", then a kernel: {call.declined.why}"
    return f"{text}{_comment(call.origins)}"


def pointer_text(pointer: Pointer, plan: Plan) -> str:
    """What ``pointer`` points to, by its name in ``plan``."""
    if isinstance(pointer, FaultPointer):
        return f"fault {pointer.number}"
    name = "scratch" if isinstance(pointer, ScratchPointer) else f"%{plan.buffers[pointer.number].name}"
    return f"{name} + {pointer.offset}" if pointer.offset else name


def _comment(origins: tuple[Origin, ...]) -> str:
    """The model's operators, and the modules that they are in."""
    operators = _few(operator for origin in origins for operator in origin.operators)
    scopes = _few(origin.scope for origin in origins if origin.scope)
    return f"  # {operators}{' in ' * bool(scopes)}{scopes}" if operators else ""


def _few(names: Iterable[str]) -> str:
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more
