"""Where an element lies, and everything in a step that touches it: loops at which indices, calls, threads and lanes."""

from __future__ import annotations

from dataclasses import dataclass

from euler_ir.compiler import Executable, lower, pipeline_of
from euler_ir.graph import Graph
from euler_ir.inspect.element import Element, find_element
from euler_ir.inspect.touches import Machine, Touch, Trace
from euler_ir.plan.plan import Plan
from euler_ir.state import State
from euler_ir.verify import verify


@dataclass(frozen=True)
class Where:
    """An element, its ``address`` in a live process or None, and what touches it in a step, in order."""

    graph: str
    element: Element
    address: int | None
    threads: int
    touches: tuple[Touch, ...]

    def record(self) -> dict:
        return {
            "graph": self.graph,
            **self.element.record(),
            "address": self.address,
            "workers": self.threads,
            "touches": [touch.record() for touch in self.touches],
        }


def where(
    target: Graph | Executable,
    element: str,
    state: State | None = None,
    threads: int | None = None,
    backend: str = "cpu",
) -> Where:
    """Trace ``element``, such as ``h.0.attn.c_attn.weight[3,1024]``, through a step of ``target``.

    ``backend`` is 'cpu' or 'cuda', for which no GPU is needed; of an executable it is its own.

    The name is that of a parameter, state, input or output, or of any value in memory (``%name`` in the graph after all
    passes). A graph is compiled as far as the plan, for ``threads`` workers, by default as many as `compile` takes. Of
    an executable the address is given too: in its memory for intermediates, or in ``state``. Raises GraphError for what
    is no element.
    """
    if isinstance(target, Executable):
        graph, stages, program = target.graph, target.stages, target.program
        threads = program.pool.threads if hasattr(program, "pool") else threads
        backend = "cuda" if hasattr(program, "device") else "cpu"
    else:
        verify(target)
        graph, stages, program = target, lower(target, pipeline_of(backend)), None
    found = find_element(graph, stages, element)
    machine = _machine(stages.plan, backend, threads)
    touches = tuple(Trace(stages, found, machine).touches())
    return Where(graph.name, found, _address(found, program, state), machine.threads, touches)


def _machine(plan: Plan, backend: str, threads: int | None) -> Machine:
    # Backends are imported where they are asked: what the CPU's says of lanes depends on this machine's vectors.
    if backend == "cuda":
        from euler_ir.inspect.cuda.machine import CudaMachine

        return CudaMachine(plan)
    from euler_ir.inspect.cpu_machine import CpuMachine

    return CpuMachine(plan, threads)


def _address(element: Element, program, state: State | None) -> int | None:
    if element.place in ("parameter", "state") and state is not None:
        return state[element.name].ctypes.data + element.byte if element.name in state else None
    if element.place == "arena" and hasattr(program, "device"):
        return program.addresses[element.buffer] + element.byte
    if element.place == "arena" and program is not None:
        return program.arena.ctypes.data + element.arena_byte
    return None
