"""The plan as text: buffers with their places, then every step with the buffers that it reads and writes."""

from __future__ import annotations

from euler_ir.plan.plan import AttentionStep, CopyStep, KernelStep, MadeOperand, MatmulStep, Plan, PlannedView, Step
from euler_ir.plan.work import work_of


def print_plan(plan: Plan) -> str:
    """A line for each buffer and each step, and the peak: stable, and complete but for the kernels' bodies."""
    lines = [f"plan @{plan.name} {{"]
    for number, buffer in enumerate(plan.buffers):
        place = buffer.place
        if place == "arena":
            place += f" + {buffer.offset}, phases {buffer.first} to {buffer.last}"
        lines.append(f"  buffer {number} {buffer.name}: {buffer.type}, {buffer.type.nbytes} bytes, {place}")
    for number, phase in enumerate(plan.phases):
        if phase:
            lines.append(f"  phase {number}:")
            lines += [f"    {line}" for step in phase for line in _step(plan, step)]
    kernels = plan.kernels()
    matmuls = sum(isinstance(step, MatmulStep) for step in plan.steps())
    attentions = sum(isinstance(step, AttentionStep) for step in plan.steps())
    nests = sum(len(step.kernel.nests) for step in kernels)
    lines.append(f"  {len(kernels)} kernels of {nests} loop nests, {matmuls} matrix products, {attentions} attentions")
    lines.append(f"  arena {plan.arena_bytes} bytes, least possible {plan.lower_bound}")
    lines.append("}")
    return "\n".join(lines) + "\n"


def _step(plan: Plan, step: Step) -> list[str]:
    scopes = ", ".join(dict.fromkeys(origin.scope for origin in step.origins if origin.scope))
    scope = f"  in {scopes}" if scopes else ""
    if isinstance(step, CopyStep):
        return [f"copy {step.source} -> {step.target}, {plan.buffers[step.source].type.nbytes} bytes"]
    if isinstance(step, MatmulStep):
        batch = f"{' x '.join(map(str, step.batch))} of " if step.batch else ""
        sizes = f"{batch}{step.rows} x {step.inner} @ {step.inner} x {step.columns}"
        reads = f"{_view(step.left)} @ {_view(step.right)}"
        added = "" if step.running is None else f"{step.running} + "
        product = f"matmul {step.dtype} {sizes}: {added}{reads} -> {_view(step.result)}{scope}"
        if step.epilogue is None:
            return [product]
        return [product, f"  epilogue {step.epilogue.kernel.name}", *(f"  {line}" for line in _nests(step.epilogue))]
    if isinstance(step, AttentionStep):
        batch = f"{' x '.join(map(str, step.batch))} of " if step.batch else ""
        causal = "causal " if step.causal else ""
        sizes = f"{batch}{step.queries} x {step.width} by {step.keys} x {step.value_width}"
        reads, writes = (", ".join(map(_view, views)) for views in (step.operands, step.results))
        return [f"{causal}{step.operator} {step.dtype} {sizes}: {reads} -> {writes}{scope}"]
    moved = sum(work_of(plan, step, nest).nbytes for nest in range(len(step.kernel.nests)))
    return [f"kernel {step.kernel.name}, {moved} bytes moved{scope}", *_nests(step)]


def _nests(step: KernelStep) -> list[str]:
    lines = []
    for nest, arguments in zip(step.kernel.nests, step.arguments):
        roles = list(zip(nest.parameters, arguments))
        reads = ", ".join(str(number) for parameter, number in roles if parameter.is_read)
        writes = ", ".join(str(number) for parameter, number in roles if parameter.is_written)
        over = " x ".join(str(axis.extent) for axis in nest.axes) or "1"
        lines.append(f"  nest over {over}: {reads} -> {writes}")
    return lines


def _view(view: PlannedView | MadeOperand) -> str:
    if isinstance(view, MadeOperand):
        return f"made of {', '.join(map(str, view.arguments))}{'.T' if view.transposed else ''}"
    steps = [*view.batch_strides, f"ld {view.leading}"]
    offset = f"+{view.offset}" if view.offset else ""
    return f"{view.buffer}{offset}[{', '.join(map(str, steps))}]{'.T' if view.transposed else ''}"
