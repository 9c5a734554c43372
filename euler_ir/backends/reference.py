"""The plan run in numpy by the interpreter of the Loop IR: slow, and independent of every code generator."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from euler_ir.backends.base import Program, Run, raise_fault
from euler_ir.backends.reference_attention import attention
from euler_ir.dtypes import accumulation_dtype
from euler_ir.errors import LoweringError
from euler_ir.loops.interpreter import run_nest
from euler_ir.plan.plan import (
    AttentionStep,
    CopyStep,
    KernelStep,
    MadeOperand,
    MatmulStep,
    Plan,
    PlannedView,
)


class ReferenceProgram(Program):
    """Runs the steps one by one; the arena is an array whose unused bytes are poisoned before each run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.arena = np.empty(plan.arena_bytes, np.uint8)

    def bind(self, kept: Mapping[int, np.ndarray]) -> Run:
        return lambda arrays: self._run({**kept, **arrays})

    def on_plan(self, plan: Plan, code: Mapping[str, str]) -> ReferenceProgram:
        if code:
            raise LoweringError("the reference backend runs Loop IR, no code", hint="use the backend cpu")
        return ReferenceProgram(plan)

    def _run(self, arrays: Mapping[int, np.ndarray]) -> None:
        self.arena.fill(0xFF)
        flat = [self._flat(number, arrays) for number in range(len(self.plan.buffers))]
        for step in self.plan.steps():
            if isinstance(step, CopyStep):
                flat[step.target][...] = flat[step.source]
            elif isinstance(step, MatmulStep):
                _matmul(step, flat)
                if step.epilogue is not None:
                    self._kernel(step.epilogue, flat)
            elif isinstance(step, AttentionStep):
                _attention(step, flat)
            else:
                self._kernel(step, flat)

    def _flat(self, number: int, arrays: Mapping[int, np.ndarray]) -> np.ndarray:
        buffer = self.plan.buffers[number]
        if buffer.place == "arena":
            memory = self.arena[buffer.offset : buffer.offset + buffer.type.nbytes]
            return memory.view(buffer.type.dtype.numpy)
        return np.asarray(self.plan.constants[number] if buffer.place == "constant" else arrays[number]).reshape(-1)

    def _kernel(self, step: KernelStep, flat: list[np.ndarray]) -> None:
        for nest, arguments, first, shared in zip(step.kernel.nests, step.arguments, step.faults, step.shared):
            # The interpreter poisons outputs first, so an input that is overwritten in place is read from a copy.
            roles = [parameter.role for parameter in nest.parameters]
            given = [
                flat[b].copy() if n in shared and roles[n] == "input" else flat[b] for n, b in enumerate(arguments)
            ]
            faults = run_nest(nest, given)
            if faults:
                raise_fault(self.plan, first + faults[0] - 1)


def _matmul(step: MatmulStep, flat: list[np.ndarray]) -> None:
    """Half types are summed in f32 and rounded once."""
    left = _operand(flat, step.left, step.batch, step.rows, step.inner)
    right = _operand(flat, step.right, step.batch, step.inner, step.columns)
    with np.errstate(all="ignore"):
        wide = accumulation_dtype(step.dtype).numpy
        product = np.matmul(left.astype(wide, copy=False), right.astype(wide, copy=False))
        result = _view(flat, step.result, step.batch, step.rows, step.columns)
        result[...] = product if step.running is None else result.astype(wide) + product


def _attention(step: AttentionStep, flat: list[np.ndarray]) -> None:
    arrays = (
        [_view(flat, view, step.batch, *extent) for view, extent in zip(views, extents)]
        for views, extents in zip((step.operands, step.results), step.extents())
    )
    attention(step, *arrays)


def _operand(flat, operand: PlannedView | MadeOperand, batch: tuple[int, ...], rows: int, columns: int) -> np.ndarray:
    if isinstance(operand, PlannedView):
        return _view(flat, operand, batch, rows, columns)
    output = operand.nest.parameters[-1]
    made = np.empty(output.size, output.dtype.numpy)
    run_nest(operand.nest, [*(flat[buffer] for buffer in operand.arguments), made])
    matrix = made.reshape(-1, operand.leading)
    return (matrix.T if operand.transposed else matrix)[:rows, :columns]


def _view(flat: list[np.ndarray], view: PlannedView, batch: tuple[int, ...], rows: int, columns: int) -> np.ndarray:
    array = flat[view.buffer][view.offset :]
    steps = (*view.batch_strides, *((1, view.leading) if view.transposed else (view.leading, 1)))
    return np.lib.stride_tricks.as_strided(
        array, (*batch, rows, columns), tuple(step * array.itemsize for step in steps)
    )
