"""What a training run needs of memory, known before its first step, and how to make it need less."""

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

import euler_ir as ei

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
# Of what is free, the rest is for Python, the libraries and the compiled code.
USED_OF_FREE = 0.9


@dataclass(frozen=True)
class Needs:
    """Bytes that training takes, by what they are for.

    `state` is that of parameters, moments and sums, `tensors` all that the graphs keep while they run, `saving` what
    writing a checkpoint copies. `largest` are the labels of the largest tensors of a step, each with its bytes.
    """

    state: int
    tensors: int
    saving: int
    largest: tuple[tuple[str, int], ...] = ()

    @property
    def total(self):
        return self.state + self.tensors + self.saving

    def __str__(self):
        return (
            f"{in_units(self.total)} ({in_units(self.state)} of parameters and moments, {in_units(self.tensors)} of "
            f"tensors, {in_units(self.saving)} to write a checkpoint)"
        )


def needs_of(step, others=()):
    """The Needs of the Executables of a step, and of `others` that use the same State."""
    leaves, tensors = {}, 0
    for executable in (*step, *others):
        memory = executable.memory
        tensors += memory.arena + memory.inputs + memory.outputs + memory.constants + memory.scratch
        for leaf in (*executable.graph.parameters, *executable.graph.states):
            leaves[leaf.op.attributes["name"]] = leaf.type.nbytes
    saved = sum(size for name, size in leaves.items() if not name.startswith("accumulator."))
    largest = tuple((owner.label, owner.nbytes) for owner in step[0].memory.owners)
    # safetensors makes bytes of each array, and then one block of all bytes.
    return Needs(sum(leaves.values()), tensors, 2 * saved, largest)


def fitting(make_task, settings, budget):
    """The task `make_task(settings)` of the largest batch that fits into `budget` bytes; steps stay what they are.

    A step's windows are split into more and smaller batches; where a batch of one does not fit, its graphs compute
    values again instead of keeping them. Raises ValueError, with what needs most, when nothing fits.
    """
    windows, batch_size = settings.batch_size * settings.accumulate, settings.batch_size
    while True:
        task = make_task(replace(settings, batch_size=batch_size, accumulate=windows // batch_size))
        needs = task.needs()
        if needs.total <= budget:
            return task
        if batch_size == 1:
            break
        # Tensors are nearly proportional to the batch, the rest does not depend on it.
        likely = batch_size * max(0, budget - needs.state - needs.saving) / needs.tensors
        smaller = [size for size in range(1, batch_size) if windows % size == 0]
        batch_size = max((size for size in smaller if size <= likely), default=1)
    rest = budget - (needs.total - max(executable.memory.total for executable in task.compiled()))
    try:
        if rest > 0:
            task = make_task(replace(task.settings, memory_budget=rest))
            if task.needs().total <= budget:
                return task
    except ei.LoweringError:
        pass
    label, size = needs.largest[0]
    raise ValueError(
        f"One window of {settings.context} tokens at a time needs {needs}, which is more than {in_units(budget)}. "
        f"The largest tensor of a step is {label}, {in_units(size)}. Use a shorter --context, a smaller --preset "
        "or more memory."
    )


def parse_size(text):
    """Bytes of '2GB', '512 MiB' or 'auto', which is nearly all that is free. Raises ValueError for anything else."""
    if text == "auto":
        free = free_memory()
        if free is None:
            raise ValueError("How much memory is free cannot be found out here. Say a size, such as 2GB.")
        return int(free * USED_OF_FREE)
    match = re.fullmatch(r"(\d{1,18}(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if not match or match[2].upper() not in UNITS or not float(match[1]):
        raise ValueError(f"{text!r} is no amount of memory. Say 'auto' or a size such as 512MB or 2GiB.")
    return math.ceil(float(match[1]) * UNITS[match[2].upper()])


def free_memory():
    """Bytes that this process may still take, or None where the system does not say."""
    free, whole_machine = [], Path("/proc/meminfo")
    if whole_machine.exists() and (match := re.search(r"MemAvailable:\s+(\d+) kB", whole_machine.read_text())):
        free.append(int(match[1]) * 1024)
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and (most := limit.read_text().strip()).isdigit():
        free.append(max(0, int(most) - int(used.read_text())))
    return min(free, default=None)


def in_units(nbytes):
    """'1.5 GiB', '93.0 MiB' or '12.0 KiB'."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes / 2**10:.1f} KiB"
