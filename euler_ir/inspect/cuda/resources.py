"""What each kernel of a step takes of a GPU, and how much it moves: compiled and counted, nothing is run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from euler_ir.backends.cuda.calls import Launch
from euler_ir.backends.cuda.gemm import Product
from euler_ir.backends.cuda.limits import ARCHITECTURE, limits_of, occupancy, resident_blocks
from euler_ir.backends.cuda.nvrtc import Compiled, compile_cuda
from euler_ir.backends.cuda.sass import disassemble, tensor_core_instructions
from euler_ir.inspect.cuda.step_calls import StepCalls, step_calls
from euler_ir.plan.plan import KernelStep, MatmulStep, Plan, Step
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
    for parts in _by_kernel(calls).values():
        source = parts[0].launch.source
        if source.code not in compiled:
            compiled[source.code] = compile_cuda(source.code, architecture, source.name)
        launches = [part.launch for part in parts]
        kernels.append(_kernel(architecture, launches, _bytes(plan, parts), compiled[source.code]))
    return StepResources(architecture, tuple(kernels), _counted(calls), limits.shared_of_block)


@dataclass(frozen=True)
class _Part:
    """A launch, and what it begins to do: a step of nests or attention, which needs so much ``scratch_bytes`` memory.

    ``step`` is None for a later launch of the same, and for what is made for a product.
    """

    launch: Launch
    step: Step | None
    scratch_bytes: int


def _by_kernel(calls: Iterable[StepCalls]) -> dict[str, list[_Part]]:
    """The parts of each kernel by its name."""
    found: dict[str, list[_Part]] = {}
    for each in calls:
        step: Step | None = None if isinstance(each.step, MatmulStep) else each.step
        for call in each.calls.calls:
            if isinstance(call, Product):
                step = each.step.epilogue  # if a kernel follows, it is what the library does not do
            elif isinstance(call, Launch):
                found.setdefault(call.kernel, []).append(_Part(call, step, each.calls.scratch_bytes))
                step = None
    return found


def _bytes(plan: Plan, parts: Iterable[_Part]) -> tuple[int, int]:
    """Bytes moved without caches, and the least, of the steps that begin with ``parts``.

    What a step leaves in scratch memory for its own later launches is written and read.
    """
    moved = least = 0
    for part in parts:
        if part.step is not None:
            nests = range(len(part.step.kernel.nests)) if isinstance(part.step, KernelStep) else (0,)
            moved += 2 * part.scratch_bytes + sum(passes_of(plan, part.step, nest) for nest in nests)
            least += sum(traffic_of(plan, part.step, nest).moved for nest in nests)
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
