"""What a step costs, divided among the values that it makes: bytes, FLOPs and, where it was timed, seconds.

A task's bytes go to what reads them and to what makes them, buffer by buffer; its FLOPs go to its operators by what
each has on its own; its time goes to them by the least time that each would take for its bytes and FLOPs. So the sums
over all values are those of the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from euler_ir.graph import Op, Value
from euler_ir.inspect.explorer.schedule import Schedule, Task
from euler_ir.passes.cost import op_cost

COLUMNS = ("bytes", "flops", "seconds")


def divided_costs(
    schedule: Schedule, least_seconds: Callable[[float, float], float] | None = None
) -> dict[str, dict[Value, float]]:
    """By each of COLUMNS what a value costs, at its operator's first result; no seconds without ``least_seconds``."""
    costs: dict[str, dict[Value, float]] = {column: {} for column in COLUMNS}
    buffers = schedule.plan.decisions.buffers
    order = {op: number for number, op in enumerate(schedule.stages.optimized.ops)}
    for task in schedule.tasks:
        ops = sorted({op for group in task.groups for op in group.computed()}, key=order.__getitem__)
        if not ops:
            continue
        moved = _moved(task, ops, buffers)
        flops = _scaled({op: op_cost(op).flops for op in ops}, task.work.flops)
        shares = [("bytes", moved), ("flops", flops)]
        if task.seconds is not None and least_seconds is not None:
            least = {op: least_seconds(moved[op], flops[op]) for op in ops}
            shares.append(("seconds", _scaled(least, task.seconds)))
        for column, amounts in shares:
            for op, amount in amounts.items():
                costs[column][op.result] = costs[column].get(op.result, 0) + amount
    return costs


def _moved(task: Task, ops: list[Op], buffers: Mapping[Value, int]) -> dict[Op, float]:
    """Bytes by the operators that load and store them; what none of them does is everyone's."""
    moved = dict.fromkeys(ops, 0.0)
    readers: dict[int, list[Op]] = {}
    writers: dict[int, list[Op]] = {}
    for op in ops:
        for operand in dict.fromkeys(op.operands):
            if operand in buffers:
                readers.setdefault(buffers[operand], []).append(op)
        for result in op.results:
            if result in buffers:
                writers.setdefault(buffers[result], []).append(op)
    for amounts, users in ((task.traffic.read, readers), (task.traffic.written, writers)):
        for buffer, nbytes in amounts.items():
            _share(moved, users.get(buffer, ops), nbytes)
    return moved


def _share(moved: dict[Op, float], among: Iterable[Op], nbytes: float) -> None:
    among = list(among)
    for op in among:
        moved[op] += nbytes / len(among)


def _scaled(amounts: dict[Op, float], total: float) -> dict[Op, float]:
    """``amounts`` in their proportions, with the sum ``total``; alike when all are 0."""
    whole = sum(amounts.values())
    if not whole:
        return dict.fromkeys(amounts, total / len(amounts))
    return {op: amount / whole * total for op, amount in amounts.items()}
