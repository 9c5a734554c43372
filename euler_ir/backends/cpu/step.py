"""A plan as one LLVM function, entered once by every worker thread and run to the end of the step.

    void @eir_step(i32 thread, i32 threads, ptr argument, ptr barrier)

``argument`` is an array of pointers: the arena, the faults, the times, the scratch memory of all threads, then every
buffer outside of the arena. Phases are parted by barriers; the tasks of a phase are dealt to the threads in contiguous
shares, so that neighbouring threads work on neighbouring memory. A timed step also has each thread read the clock at
every `Mark`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from euler_ir.backends.cpu import openblas
from euler_ir.backends.cpu.attention.calls import AttentionModules
from euler_ir.backends.cpu.codegen import NestModules
from euler_ir.backends.cpu.gemm.calls import ProductModules
from euler_ir.backends.cpu.widths import task_count
from euler_ir.backends.cpu.worker_pool import BARRIER_DECLARATION
from euler_ir.index import Index
from euler_ir.loops.kernel import Nest, Statement, Store
from euler_ir.plan.plan import AttentionStep, CopyStep, KernelStep, MadeOperand, MatmulStep, Plan, Step

STEP_SYMBOL = "eir_step"

HEADER = 4  # pointers before those of the buffers
_TURNS = 1 << 16
_TIMESPEC = "[2 x i64]"  # seconds and nanoseconds

_SHARE = """
define internal i64 @eir_share(i64 %tasks, i32 %part, i32 %parts) alwaysinline {
  %wide.part = zext i32 %part to i64
  %wide.parts = zext i32 %parts to i64
  %scaled = mul i64 %tasks, %wide.part
  %share = udiv i64 %scaled, %wide.parts
  ret i64 %share
}
"""


def share(tasks: int, part: int, parts: int) -> int:
    """Where the share of ``part`` begins when ``tasks`` are dealt to ``parts``: what ``eir_share`` computes."""
    return tasks * part // parts


def owner_of(task: int, tasks: int, turn: int, threads: int) -> int:
    """The thread that runs ``task`` of the ``tasks`` of a step whose turn is ``turn``."""
    part = next(part for part in range(threads) if task < share(tasks, part + 1, threads))
    return (part - turn % _TURNS) % threads


@dataclass(frozen=True)
class Mark:
    """What a thread has done since it last read the clock: nest number ``nest`` of a kernel, or all of another step;
    with no step, waiting at the barrier that ``phase`` ends with.
    """

    phase: int
    step: Step | None = None
    nest: int = 0


class StepWriter:
    """Writes the step function of ``plan``. ``nests``, ``products`` and ``attentions`` hold the modules that it calls.

    ``for_openblas`` says which products OpenBLAS does; the others are generated, for ``threads`` threads.
    With ``timed`` each thread writes the monotonic clock as a struct timespec at its start and at each of ``marks``:
    those of thread t stand from ``t * (1 + len(marks))`` on.
    """

    def __init__(
        self, plan: Plan, threads: int, for_openblas: Callable[[MatmulStep], bool], timed: bool = False
    ) -> None:
        self.plan = plan
        self.threads = threads
        self.for_openblas = for_openblas
        self.timed = timed
        self.marks: list[Mark] = []
        #: The turn of each step, by its ``id``, and number of its nest: with it `owner_of` says who runs a task.
        self.turns: dict[tuple[int, int], int] = {}
        self.nests = NestModules()
        self.products = ProductModules(threads)
        self.attentions = AttentionModules()
        self.lines: list[str] = []
        self.parameters: dict[str, str] = {}
        self.functions: list[str] = []
        self.counter = 0
        outside = [n for n, buffer in enumerate(plan.buffers) if buffer.place != "arena"]
        self.slots = {number: position + HEADER for position, number in enumerate(outside)}

    def step_module(self) -> str:
        """The module that holds the step function; it declares what it calls of other modules."""
        if self.timed:
            self._read_clock(0)
        phases = [(number, phase) for number, phase in enumerate(self.plan.phases) if phase]
        for number, phase in phases:
            turn = 0
            for step in phase:
                turn = self._step(number, step, turn)
            if number != phases[-1][0]:
                self.lines.append("  call void @eir_barrier(ptr %barrier, i32 %threads)")
                self._mark(Mark(number))
        declarations = [f"declare void @{symbol}({kinds})" for symbol, kinds in self.parameters.items()]
        pointers = self._load_slots((*range(HEADER), *self.slots.values()))
        own = [
            "  %wide.thread = zext i32 %thread to i64",
            f"  %scratch = getelementptr [{self.scratch_bytes} x i8], ptr %p3, i64 %wide.thread",
        ]
        times = [
            f"  %times = getelementptr [{1 + len(self.marks)} x {_TIMESPEC}], ptr %p2, i64 %wide.thread",
        ]
        body = "\n".join([*pointers, *own, *(times if self.timed else ()), *self.lines])
        return (
            "\n".join(declarations)
            + f"\n{BARRIER_DECLARATION}\n"
            + "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"
            + "declare i32 @clock_gettime(i32, ptr)\n"
            + _SHARE
            + self.products.declarations()
            + "\n"
            + self.attentions.declarations()
            + "\n"
            + openblas.gemm_ir()
            + "".join(self.functions)
            + f"define void @{STEP_SYMBOL}(i32 %thread, i32 %threads, ptr %argument, ptr %barrier) nounwind {{\n"
            + f"entry:\n{body}\n  ret void\n}}\n"
        )

    @property
    def scratch_bytes(self) -> int:
        """Memory that each thread needs for itself, of whole cache lines."""
        return -(-max(self.products.scratch, self.attentions.scratch) // 64) * 64

    def _mark(self, mark: Mark) -> None:
        if self.timed:
            self.marks.append(mark)
            self._read_clock(len(self.marks))

    def _read_clock(self, number: int) -> None:
        place, error = self._name("time"), self._name("clock")
        self.lines += [
            f"  {place} = getelementptr {_TIMESPEC}, ptr %times, i64 {number}",
            f"  {error} = call i32 @clock_gettime(i32 {time.CLOCK_MONOTONIC}, ptr {place})",
        ]

    def _name(self, stem: str) -> str:
        self.counter += 1
        return f"%{stem}{self.counter}"

    def _slot(self, buffer: int) -> int:
        """Which pointer of the argument a buffer is reached by."""
        return 0 if self.plan.buffers[buffer].place == "arena" else self.slots[buffer]

    def _load_slots(self, slots: Iterable[int]) -> list[str]:
        """Load pointers of the argument, each once."""
        return [
            f"  %slot{slot} = getelementptr ptr, ptr %argument, i64 {slot}\n  %p{slot} = load ptr, ptr %slot{slot}"
            for slot in slots
        ]

    def _pointer(self, buffer: int, offset: int = 0) -> str:
        """A register that points ``offset`` bytes into a buffer."""
        planned = self.plan.buffers[buffer]
        base = f"%p{self._slot(buffer)}"
        offset += planned.offset
        if not offset:
            return base
        name = self._name("a")
        self.lines.append(f"  {name} = getelementptr i8, ptr {base}, i64 {offset}")
        return name

    def _step(self, phase: int, step: Step, turn: int) -> int:
        """Write one step; ``turn`` rotates the threads so that small pieces of work do not all fall to the first."""
        if isinstance(step, KernelStep):
            for nest in range(len(step.kernel.nests)):
                turn = self._nest(step, nest, turn)
                self._mark(Mark(phase, step, nest))
            return turn
        if isinstance(step, AttentionStep):
            turn = self._attention(step, turn)
        elif isinstance(step, MatmulStep):
            self._matmul(step)
        else:
            self._copy(step)
        self._mark(Mark(phase, step))
        return turn

    def _nest(self, step: KernelStep, position: int, turn: int) -> int:
        nest = step.kernel.nests[position]
        tasks = task_count(nest)
        if not tasks:
            return turn
        self.turns[id(step), position] = turn
        symbol = self.nests.add(nest, step.shared[position])
        self.parameters[symbol] = "i64, i64" + ", ptr" * (1 + len(nest.parameters))
        begin, end = self._share(tasks, turn)
        fault = self._name("fault")
        self.lines.append(f"  {fault} = getelementptr i32, ptr %p1, i64 {step.faults[position]}")
        pointers = "".join(f", ptr {self._pointer(buffer)}" for buffer in step.arguments[position])
        self.lines.append(f"  call void @{symbol}(i64 {begin}, i64 {end}, ptr {fault}{pointers})")
        return turn + tasks

    def _share(self, tasks: int, turn: int) -> tuple[str, str]:
        """Registers with the first and the last (excluded) of ``tasks`` for this thread, counted from ``turn``."""
        shifted, part, after, begin, end = (self._name(stem) for stem in ("s", "part", "after", "begin", "end"))
        self.lines += [
            f"  {shifted} = add i32 %thread, {turn % _TURNS}",
            f"  {part} = urem i32 {shifted}, %threads",
            f"  {after} = add i32 {part}, 1",
            f"  {begin} = call i64 @eir_share(i64 {tasks}, i32 {part}, i32 %threads)",
            f"  {end} = call i64 @eir_share(i64 {tasks}, i32 {after}, i32 %threads)",
        ]
        return begin, end

    def _matmul(self, step: MatmulStep) -> None:
        pointers = [
            "null"
            if isinstance(view, MadeOperand)
            else self._pointer(view.buffer, view.offset * step.dtype.itemsize)
            for view in (step.left, step.right, step.result)
        ]
        if self.for_openblas(step):
            self.lines.append(openblas.call(step, *pointers))
            return
        cut = self.products.cut(step)
        named = dict(zip(("left", "right", "result"), pointers))
        for side, operand in (("left", step.left), ("right", step.right)):
            named[f"make_{side}"] = "null"
            if isinstance(operand, MadeOperand):
                leading = cut.made_leading(side, operand.transposed)
                named[f"make_{side}"] = self._by_parts(operand.nest, operand.arguments, frozenset(), leading)
        named["epilogue"] = "null"
        if step.epilogue is not None:
            (nest,), (arguments,), (shared,) = step.epilogue.kernel.nests, step.epilogue.arguments, step.epilogue.shared
            named["epilogue"] = self._by_parts(nest, arguments, shared)
        self.lines.append(self.products.call(step, cut, named))

    def _by_parts(
        self, nest: Nest, arguments: Sequence[int], shared: frozenset[int], leading: int | None = None
    ) -> str:
        """A function that runs ``nest`` on buffers for some rows and columns.

        With ``leading`` its last parameter is a pointer to where the part's first element goes, in rows of so many
        columns: the last one of the nest.
        """
        if leading is not None:
            nest = _with_leading(nest, leading)
        symbol = self.nests.add(nest, shared, by_parts=True)
        self.parameters[symbol] = "i64, i64, i64, i64" + ", ptr" * (1 + len(nest.parameters))
        function = f"@part{len(self.functions)}"
        outside, self.lines = self.lines, []
        slots = {self._slot(buffer) for buffer in arguments}
        pointers = "".join(f", ptr {self._pointer(buffer)}" for buffer in arguments)
        lines = [*self._load_slots(sorted(slots)), *self.lines]
        self.lines = outside
        limits = "i64 %row, i64 %row_end, i64 %column, i64 %column_end"
        target = ""
        if leading is not None:
            size = nest.parameters[-1].dtype.itemsize
            lines += [
                f"  %rows.before = mul i64 %row, {leading}",
                "  %before = add i64 %rows.before, %column",
                f"  %bytes.before = mul i64 %before, {-size}",
                "  %whole = getelementptr i8, ptr %target, i64 %bytes.before",
            ]
            pointers, target = pointers + ", ptr %whole", ", ptr %target"
        self.functions.append(
            f"define internal void {function}(ptr %argument, {limits}{target}) nounwind {{\n"
            + "\n".join(lines)
            + f"\n  call void @{symbol}({limits}, ptr null{pointers})\n  ret void\n}}\n"
        )
        return function

    def _attention(self, step: AttentionStep, turn: int) -> int:
        self.turns[id(step), 0] = turn
        tasks = self.attentions.function(step).tasks(step)
        begin, end = self._share(tasks, turn)
        views = (*step.operands, *step.results)
        pointers = [
            self._pointer(view.buffer, view.offset * self.plan.buffers[view.buffer].type.dtype.itemsize)
            for view in views
        ]
        self.lines.append(self.attentions.call(step, begin, end, pointers))
        return turn + tasks

    def _copy(self, step: CopyStep) -> None:
        """Each thread copies a contiguous share."""
        nbytes = self.plan.buffers[step.source].type.nbytes
        if not nbytes:
            return
        begin, end = self._share(nbytes, 0)
        length, source, target = (self._name(stem) for stem in ("length", "source", "target"))
        self.lines += [
            f"  {length} = sub i64 {end}, {begin}",
            f"  {source} = getelementptr i8, ptr {self._pointer(step.source)}, i64 {begin}",
            f"  {target} = getelementptr i8, ptr {self._pointer(step.target)}, i64 {begin}",
            f"  call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {length}, i1 false)",
        ]


def _with_leading(nest: Nest, leading: int) -> Nest:
    """``nest``, elementwise over rows and a last axis of columns, with ``leading`` elements from row to row of its last
    parameter instead of as many as there are columns.
    """
    columns, output = nest.axes[-1], nest.parameters[-1].name

    def moved(statement: Statement) -> Statement:
        if not isinstance(statement, Store) or statement.buffer != output:
            return statement
        rows = Index.of(columns)
        for axis in nest.axes[:-1]:
            rows = rows + Index.of(axis) * (statement.index.coefficient(axis) // columns.extent * leading)
        return replace(statement, index=rows)

    return replace(nest, body=tuple(map(moved, nest.body)))
