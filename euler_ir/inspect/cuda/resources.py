"""What each kernel of a step takes of a GPU, and how much it moves: compiled and counted, nothing is run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from euler_ir.backends.cuda.calls import Launch
from euler_ir.backends.cuda.limits import ARCHITECTURE, limits_of, occupancy, resident_blocks
from euler_ir.backends.cuda.nvrtc import Compiled, compile_cuda
from euler_ir.backends.cuda.sass import disassemble, tensor_core_instructions
from euler_ir.inspect.cuda.step_calls import StepCalls, step_calls
from euler_ir.plan.plan import KernelStep, Plan
from euler_ir.plan.work import passes_of, traffic_of


@dataclass(frozen=True)
class KernelResources:
    """A kernel of a step. Of its ``launches`` the one with the most blocks has ``blocks`` of ``threads`` threads.

    A thread has ``registers``, and stores and loads ``spilled`` bytes because there are no more; a block has ``shared``
    bytes, static and dynamic. A multiprocessor holds ``resident`` blocks at once, which are the part ``occupancy`` of
    its warps. ``tensor_cores`` counts instructions for them. The steps that begin with it move ``moved`` bytes when
    nothing stays in a cache between two loops or two launches, and ``least`` when each element is moved once.
    """

    name: str
    launches: int
    blocks: int
    threads: int
    registers: int
    spilled: int
    shared: int
    resident: int
    occupancy: float
    tensor_cores: int
    moved: int
    least: int

    def record(self) -> dict:
        return asdict(self)


@dataclass(frozen=True)
class StepResources:
    """The step of a plan on ``architecture``: its ``kernels``, and how many ``calls`` of each kind it makes, by the
    kind's name. ``shared_limit`` is what a block may have of shared memory.
    """

    architecture: str
    kernels: tuple[KernelResources, ...]
    calls: dict[str, int]
    shared_limit: int

    @property
    def launches(self) -> int:
        """Everything that is put into a queue for one step."""
        return sum(self.calls.values())

    def excesses(self) -> list[str]:
        """What no device of the architecture can run, in words."""
        return [
            f"{kernel.name} cannot be launched on {self.architecture}: {kernel.threads} threads of {kernel.registers} "
            f"registers with {kernel.shared} bytes of shared memory"
            for kernel in self.kernels
            if kernel.resident == 0
        ]

    def record(self) -> dict:
        return {
            "architecture": self.architecture,
            "calls": self.calls,
            "kernels": [kernel.record() for kernel in self.kernels],
        }


def resources(plan: Plan, architecture: str = ARCHITECTURE) -> StepResources:
    """Compile all kernels of ``plan``, which comes from the passes for CUDA, and say what they take, in their order.

    Raises LoweringError for what has no code or does not compile, an unknown architecture, or a tool that is missing.
    """
    limits, calls = limits_of(architecture), step_calls(plan, architecture)
    compiled: dict[str, Compiled] = {}
    kernels = []
    for pairs in _by_kernel(calls).values():
        source = pairs[0][0].source
        if source.code not in compiled:
            compiled[source.code] = compile_cuda(source.code, architecture, source.name)
        launches = [launch for launch, _ in pairs]
        kernels.append(_kernel(architecture, launches, _bytes(plan, pairs), compiled[source.code]))
    return StepResources(architecture, tuple(kernels), _counted(calls), limits.shared_of_block)


def _by_kernel(calls: Iterable[StepCalls]) -> dict[str, list[tuple[Launch, StepCalls | None]]]:
    """By the name of a kernel its launches, each with the step that begins with it, None where none does."""
    found: dict[str, list[tuple[Launch, StepCalls | None]]] = {}
    for each in calls:
        launches = [call for call in each.calls.calls if isinstance(call, Launch)]
        for launch in launches:
            begun = each if launch is launches[0] else None
            found.setdefault(launch.kernel, []).append((launch, begun))
    return found


def _bytes(plan: Plan, pairs: Iterable[tuple[Launch, StepCalls | None]]) -> tuple[int, int]:
    """Bytes moved without caches, and the least, of the steps in ``pairs``.

    What a step leaves in scratch memory for its own later launches is written and read.
    """
    moved = least = 0
    for _, begun in pairs:
        if begun is not None:
            nests = range(len(begun.step.kernel.nests)) if isinstance(begun.step, KernelStep) else (0,)
            moved += 2 * begun.calls.scratch_bytes + sum(passes_of(plan, begun.step, nest) for nest in nests)
            least += sum(traffic_of(plan, begun.step, nest).moved for nest in nests)
    return moved, least


def _kernel(
    architecture: str, launches: list[Launch], moved_and_least: tuple[int, int], compiled: Compiled
) -> KernelResources:
    largest = max(launches, key=lambda launch: launch.blocks)
    found = compiled.resources[largest.kernel]
    shared = found.shared + max(launch.shared_bytes for launch in launches)
    taken = architecture, largest.threads, found.registers, shared
    moved, least = moved_and_least
    return KernelResources(
        largest.kernel,
        len(launches),
        largest.blocks,
        largest.threads,
        found.registers,
        found.spill_stores + found.spill_loads,
        shared,
        resident_blocks(*taken),
        occupancy(*taken),
        # Few kernels have any, and to read machine code back takes longer than to look at what it was made of.
        tensor_core_instructions(disassemble(compiled.cubin)[largest.kernel]) if "mma" in compiled.ptx else 0,
        moved,
        least,
    )


def _counted(calls: Iterable[StepCalls]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for each in calls:
        for call in each.calls.calls:
            kind = type(call).__name__.lower()
            counts[kind] = counts.get(kind, 0) + 1
    return counts
