"""The kernels of a plan: each distinct one once, found by name or number, and replaced by another."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from euler_ir.errors import LoweringError, did_you_mean
from euler_ir.loops.kernel import Buffer, CheckIndex, Kernel, Loop, Nest, Statement
from euler_ir.loops.printer import print_part, structural_key
from euler_ir.loops.verify import verify_kernel
from euler_ir.plan.in_place import Accesses
from euler_ir.plan.plan import Fault, KernelStep, Origin, Plan, PlannedBuffer
from euler_ir.shapes import TensorType


@dataclass(frozen=True)
class DistinctKernel:
    """A kernel that differs from the others of its plan in more than names, with all its launches.

    ``name`` is that of the kernel, with ``#2``, ``#3`` ... where others have it already.
    """

    number: int
    name: str
    kernel: Kernel
    launches: tuple[KernelStep, ...]


def distinct_kernels(plan: Plan) -> list[DistinctKernel]:
    """Every kernel of ``plan`` once, in the order of the first launches and under the name of the first."""
    launches: dict[tuple[str, ...], list[KernelStep]] = {}
    for step in plan.kernels():
        launches.setdefault(_key(step.kernel), []).append(step)
    found: dict[str, DistinctKernel] = {}
    for number, steps in enumerate(launches.values()):
        base = name = steps[0].kernel.name
        repeats = 1
        while name in found:
            repeats += 1
            name = f"{base}#{repeats}"
        found[name] = DistinctKernel(number, name, replace(steps[0].kernel, name=name), tuple(steps))
    return list(found.values())


def find_kernel(plan: Plan, wanted: str) -> DistinctKernel:
    """The kernel of the name or number ``wanted``. Raises LoweringError, with the nearest name, when there is none."""
    kernels = distinct_kernels(plan)
    for each in kernels:
        if wanted in (each.name, str(each.number)):
            return each
    names = [each.name for each in kernels]
    listed = ", ".join(f"{each.number} {each.name}" for each in kernels) or "none"
    hint = did_you_mean(wanted, names) or f"its kernels are {listed}"
    raise LoweringError(f"{plan.name!r} has no kernel {wanted!r}", hint=hint)


def with_kernels(plan: Plan, replacements: Mapping[str, Kernel]) -> Plan:
    """``plan`` with kernels, each called by name or number, replaced in all of their launches.

    Raises LoweringError when there is no such kernel, when the new one has other parameters, reports other faults, or
    reads what its launch overwrites in place; VerifyError when it breaks a rule of the Loop IR.
    """
    new_steps: dict[int, KernelStep] = {}
    for name, kernel in replacements.items():
        old = find_kernel(plan, name)
        verify_kernel(kernel)
        _expect_same_parameters(old, kernel)
        for step in old.launches:
            _expect_in_place(plan, old, kernel, step)
            new_steps[id(step)] = replace(step, kernel=kernel)
    phases = tuple(tuple(new_steps.get(id(step), step) for step in phase) for phase in plan.phases)
    return replace(plan, phases=phases)


def plan_of_kernels(name: str, kernels: tuple[Kernel, ...]) -> Plan:
    """A plan that launches ``kernels`` one after the other, each nest on buffers of its own.

    A buffer is called ``b0``; ``1.b0`` in nest 1 of several; ``add.b0`` in kernel ``add`` of several.
    """
    buffers: list[PlannedBuffer] = []
    faults: list[Fault] = []
    steps = []
    for kernel in kernels:
        arguments, first_faults = [], []
        for number, nest in enumerate(kernel.nests):
            label = [kernel.name] * (len(kernels) > 1) + [str(number)] * (len(kernel.nests) > 1)
            arguments.append(tuple(range(len(buffers), len(buffers) + len(nest.parameters))))
            buffers += [_own_buffer(".".join([*label, buffer.name]), buffer) for buffer in nest.parameters]
            first_faults.append(len(faults))
            extents = {check.fault: check.extent for check in checks(nest.body)}
            faults += [Fault("check", extents.get(n, 1), None) for n in range(1, max(extents, default=0) + 1)]
        none = (frozenset[int](),) * len(kernel.nests)
        origins = (Origin(kernel.name, (), "", ()),) * len(kernel.nests)
        steps.append(KernelStep(kernel, tuple(arguments), tuple(first_faults), none, origins))
    outputs = {buffer.name: number for number, buffer in enumerate(buffers) if buffer.place == "output"}
    return Plan(name, tuple(buffers), tuple((step,) for step in steps), outputs, {}, tuple(faults), 0, 0)


def _own_buffer(name: str, buffer: Buffer) -> PlannedBuffer:
    place = {"input": "input", "output": "output", "inout": "state"}[buffer.role]
    return PlannedBuffer(name, TensorType(buffer.dtype, (buffer.size,)), place)


def _key(kernel: Kernel) -> tuple[str, ...]:
    return tuple(structural_key(nest) for nest in kernel.nests)


def _expect_same_parameters(old: DistinctKernel, new: Kernel) -> None:
    """Names are free: parameters go by their places."""
    if len(new.nests) != len(old.kernel.nests):
        raise _unfit(old, f"it has {_count(len(old.kernel.nests), 'nest')}, the new one {len(new.nests)}")
    for number, (held, given) in enumerate(zip(old.kernel.nests, new.nests)):
        where = f"nest {number}: " if len(new.nests) > 1 else ""
        if len(given.parameters) != len(held.parameters):
            count = _count(len(held.parameters), "parameter")
            raise _unfit(old, f"{where}it has {count}, the new one {len(given.parameters)}", held, given)
        for position, (mine, other) in enumerate(zip(held.parameters, given.parameters)):
            if (mine.dtype, mine.size, mine.role) != (other.dtype, other.size, other.role):
                what = f"{where}parameter {position} is {print_part(mine)}, in the new one {print_part(other)}"
                raise _unfit(old, what, held, given)
        known = {check.fault for check in checks(held.body)}
        for check in checks(given.body):
            if check.fault not in known:
                listed = ", ".join(map(str, sorted(known))) or "none"
                raise _unfit(old, f"{where}it reports the faults {listed}, the new one also {check.fault}")


def _expect_in_place(plan: Plan, old: DistinctKernel, new: Kernel, step: KernelStep) -> None:
    """The memory of an input that an output overwrites is read only where, and before, it is written."""
    for nest, arguments, shared in zip(new.nests, step.arguments, step.shared):
        accesses = Accesses(nest)
        places = {position: _memory(plan, arguments[position]) for position in sorted(shared)}
        for source, target in itertools.permutations(places, 2):
            read, written = nest.parameters[source], nest.parameters[target]
            if places[source] != places[target] or read.role != "input" or not written.is_written:
                continue
            if not accesses.can_overwrite(read.name, written.name):
                what = f"a launch has %{written.name} in the memory of %{read.name}, which the new one reads elsewhere"
                hint = f"read each element of %{read.name} where %{written.name} is stored, and before"
                raise _unfit(old, what, hint=hint)


def _memory(plan: Plan, number: int) -> tuple[str, int]:
    buffer = plan.buffers[number]
    return ("arena", buffer.offset) if buffer.place == "arena" else ("buffer", number)


def _unfit(
    old: DistinctKernel, what: str, held: Nest | None = None, given: Nest | None = None, hint: str | None = None
) -> LoweringError:
    details = ()
    if held is not None and given is not None:
        details = (f"it:          {print_part(held)}", f"the new one: {print_part(given)}")
    return LoweringError(f"kernel {old.name!r} cannot be replaced: {what}", details=details, hint=hint)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def checks(body: tuple[Statement, ...]) -> Iterator[CheckIndex]:
    """The checks of indices in ``body``, also in its loops."""
    for statement in body:
        if isinstance(statement, CheckIndex):
            yield statement
        elif isinstance(statement, Loop):
            yield from checks(statement.body)
