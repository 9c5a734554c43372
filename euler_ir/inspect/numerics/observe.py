"""Every value that a compiled program puts into memory, as its code really computes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from euler_ir.compiler import new_program
from euler_ir.graph import Graph, Value
from euler_ir.plan.keep import keep_all
from euler_ir.plan.plan import AttentionStep, CopyStep, KernelStep, MatmulStep, Origin, Plan, Step
from euler_ir.rounding import Results


@dataclass(frozen=True)
class Writer:
    """What writes a value: step number ``step`` of the plan, and which of the nests of a kernel."""

    step: int
    nest: int
    kind: str
    origin: Origin

    def __str__(self) -> str:
        return f"step {self.step}, {self.kind} @{self.origin.name}"


@dataclass(frozen=True)
class Observed:
    """What a run left: outputs and updates, the array of each computed value of the graph that lies in memory, but for
    those that were changed in place later on, and what wrote each.
    """

    results: Results
    arrays: dict[Value, np.ndarray]
    writers: dict[Value, Writer]


def observe(
    graph: Graph, plan: Plan, leaves: Mapping[str, np.ndarray], backend: str = "cpu", threads: int | None = None
) -> Observed:
    """Run ``plan``, that of the optimized ``graph``, on ``leaves``, with memory of its own for every value.

    Raises ExecutionError for an index out of range, LoweringError for what has no code or does not fit into memory.
    """
    kept = keep_all(plan)
    program = new_program(kept, backend, threads)
    memory = _memory(kept, leaves)
    program.run(memory)
    arena = program.intermediates()

    def array_of(number: int) -> np.ndarray:
        buffer = kept.buffers[number]
        if buffer.place != "arena":
            return memory[number]
        held = arena[buffer.offset : buffer.offset + buffer.type.nbytes]
        return held.view(buffer.type.dtype.numpy).reshape(buffer.type.shape)

    written, left = _writers(kept), _last_in_memory(graph, kept)
    arrays = {value: array_of(number) for number, value in left.items() if number in written}
    by = {value: written[number] for number, value in left.items() if number in written}
    return Observed(_results(kept, memory), arrays, by)


def run_plan(
    plan: Plan, leaves: Mapping[str, np.ndarray], backend: str = "cpu", threads: int | None = None
) -> Results:
    """Outputs and updates of one run of ``plan`` as it is. Raises as `observe` does."""
    memory = _memory(plan, leaves)
    new_program(plan, backend, threads).run(memory)
    return _results(plan, memory)


def _memory(plan: Plan, leaves: Mapping[str, np.ndarray]) -> dict[int, np.ndarray]:
    """What a program is run on: copies of ``leaves``, and memory for outputs."""
    memory: dict[int, np.ndarray] = {}
    for number, buffer in enumerate(plan.buffers):
        if buffer.place in ("input", "parameter", "state"):
            memory[number] = np.array(leaves[buffer.name], order="C")
        elif buffer.place == "output":
            memory[number] = np.empty(buffer.type.shape, buffer.type.dtype.numpy)
    return memory


def _results(plan: Plan, memory: Mapping[int, np.ndarray]) -> Results:
    """The outputs, and all parameters and state, updated or not."""
    outputs = {name: memory[number] for name, number in plan.outputs.items()}
    kept = {b.name: memory[n] for n, b in enumerate(plan.buffers) if b.place in ("parameter", "state")}
    return outputs, kept


def _last_in_memory(graph: Graph, plan: Plan) -> dict[int, Value]:
    """What each buffer holds at the end: of those that are changed in place, or added to, the last value."""
    buffers = plan.decisions.buffers
    added_to = {step.running for step in plan.steps() if isinstance(step, MatmulStep) and step.running is not None}
    computed = [op for op in graph.ops if not op.definition.has_identity]
    values = [value for op in computed for value in op.results if value in buffers]
    return {buffers[value]: value for value in values if buffers[value] not in added_to}


def _writers(plan: Plan) -> dict[int, Writer]:
    """For each buffer what writes it last; copies to and from outputs and leaves are left out."""
    found: dict[int, Writer] = {}
    for number, step in enumerate(plan.steps()):
        if isinstance(step, KernelStep):
            for nest, (parameters, arguments) in enumerate(zip(step.kernel.nests, step.arguments)):
                for parameter, buffer in zip(parameters.parameters, arguments):
                    if parameter.is_written:
                        found[buffer] = Writer(number, nest, "kernel", step.origins[nest])
        elif not isinstance(step, CopyStep):
            for buffer in step.writes():
                found[buffer] = Writer(number, 0, _kind(step), step.origins[0])
    return found


def _kind(step: Step) -> str:
    if isinstance(step, AttentionStep):
        return step.operator
    assert isinstance(step, MatmulStep)
    return "product" if step.epilogue is None else "product with epilogue"
