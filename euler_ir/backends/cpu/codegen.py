"""Loop IR to LLVM IR text: one function a nest, on explicit vectors.

A nest is cut into tasks: its points, runs of neighbours along a vector axis, or tiles of such runs. The function runs
a range of them, so that threads share a nest by sharing its tasks; what a task computes does not depend on who runs it.
The last vector along an axis runs the same code under a mask. Sums of floats are taken lane by lane, in runs of _RUN
that are added up with their rounding errors, the lanes at last pairwise: long sums stay accurate, in one fixed order.

The function depends on the shape of the nest alone, not on names, so equal nests of different layers share their code.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from contextlib import nullcontext

from euler_ir.backends.cpu import indexing, memory, tiles
from euler_ir.backends.cpu.indexing import Scope
from euler_ir.backends.cpu.jit import last_cache_bytes
from euler_ir.backends.cpu.prefetch import rows_ahead
from euler_ir.backends.cpu.reductions import Accumulator
from euler_ir.backends.cpu.scalar_ops import MATH_OPERATIONS, cast, emit_compute
from euler_ir.backends.cpu.widths import loop_width, nest_width, tile_of, vector_count, vectors_per_task
from euler_ir.backends.cpu.writer import (
    Code,
    Definition,
    Register,
    constant,
    first_lanes,
    lane_constants,
    register_element,
)
from euler_ir.dtypes import DTYPES, DType, i64
from euler_ir.index import Axis, Index
from euler_ir.loops.hoist import buffers_loaded, buffers_stored, hoist, split_invariant
from euler_ir.loops.kernel import CheckIndex, Compute, Constant, IndexValue, Load, Loop, Nest, Statement, Store
from euler_ir.loops.printer import structural_key

# Steps of a sum between which its rounding errors are not tracked.
_RUN = 64

_REPORT = """define internal void @eir_report_fault(ptr %faults, i32 %fault) noinline cold nounwind {
  %first = cmpxchg ptr %faults, i32 0, i32 %fault monotonic monotonic
  ret void
}
"""


class NestModules:
    """The modules of nests: a small one for each distinct nest, so that models share compiled code nest by nest."""

    def __init__(self) -> None:
        #: The LLVM IR text of each module by the symbol of the one function it exports.
        self.texts: dict[str, str] = {}
        self._symbols: dict[tuple[str, frozenset[int], bool], str] = {}

    def add(self, nest: Nest, in_place: frozenset[int] = frozenset(), by_parts: bool = False) -> str:
        """The symbol of the function of ``nest``, which says what it does; see `emit_nest`."""
        key = (structural_key(nest), in_place, by_parts)
        if key not in self._symbols:
            function = emit_nest(nest, "nest", in_place, by_parts)
            symbol = f"nest_{hashlib.sha256(function.text.encode()).hexdigest()[:16]}"
            renamed = function.text.replace("@nest(", f"@{symbol}(", 1)
            self.texts[symbol] = Definition(renamed, function.helpers).module()
            self._symbols[key] = symbol
        return self._symbols[key]


def emit_nest(
    nest: Nest, symbol: str, in_place: frozenset[int] = frozenset(), by_parts: bool = False
) -> Definition:
    """``void symbol(i64 begin, i64 end, ptr faults, ptr ...)``: runs tasks begin .. end - 1 of `task_count`.

    With ``by_parts`` it is ``void symbol(i64 row, i64 row_end, i64 column, i64 column_end, ptr faults, ptr ...)``:
    columns are points along the last axis, a vector one, and rows those of the axes before it, counted row-major.

    The last pointers are those of ``nest.parameters``, in order. Those at the positions ``in_place`` may share memory
    with each other, element for element. ``faults`` points to an i32, 0 at first: an index out of range leaves its
    fault number there, the first one stays.
    """
    return _Emitter(nest, in_place).function(symbol, by_parts)


def _streaming(nest: Nest, in_place: frozenset[int]) -> set[int]:
    """The positions of outputs that are larger than the last cache and that ``nest`` does not read.

    Not those of loops that compute functions such as exp: memory is not what these wait for.
    """
    others = buffers_loaded(nest.body) | buffers_stored(nest.body, beside=frozenset(MATH_OPERATIONS))
    return {
        number
        for number, buffer in enumerate(nest.parameters)
        if buffer.role == "output" and number not in in_place and buffer.name not in others
        if 0 < last_cache_bytes() < buffer.size * buffer.dtype.itemsize
    }


class _Emitter:
    """Writes one function, statement by statement, with ``scope`` saying where it stands."""

    def __init__(self, nest: Nest, in_place: frozenset[int]) -> None:
        self.nest = nest
        self.in_place = in_place
        self.code = Code()
        self.scope = Scope(self.code)
        self.width = nest_width(nest)
        self.rows = tile_of(nest)
        self.ahead: tuple[Loop | None, tuple[Load, ...]] = None, ()
        self.dtypes: dict[str, DType] = {}
        self.places: dict[str, memory.Place] = {}

    def function(self, symbol: str, by_parts: bool) -> Definition:
        nest, code = self.nest, self.code
        pointers = []
        streams = set() if by_parts else _streaming(nest, self.in_place)
        for number, buffer in enumerate(nest.parameters):
            place = memory.Place(f"%b{number}", buffer.dtype)
            if number in streams:
                place = memory.streaming_place(code, f"%b{number}", buffer.dtype)
            self.places[buffer.name] = place
            pointers.append(f"ptr {'' if number in self.in_place else 'noalias '}%b{number}")
        for buffer in nest.locals:
            array = code.allocate(memory.memory_element(buffer.dtype), max(buffer.size, 1) * self.width, 64)
            self.places[buffer.name] = memory.Place(array.text, buffer.dtype, self.width)
        if by_parts:
            self.rows = None
            self._part()
            limits = ["i64 %row", "i64 %row_end", "i64 %column", "i64 %column_end"]
        else:
            self._tasks()
            limits = ["i64 %begin", "i64 %end"]
        if streams:
            memory.end_streams(code)
        parameters = ", ".join([*limits, "ptr %faults", *pointers])
        text = f"define void @{symbol}({parameters}) nounwind {{\n{code.body()}\n}}\n"
        return Definition(text, frozenset(code.helpers))

    # -- the nest ------------------------------------------------------------------------------------------------------

    def _tasks(self) -> None:
        nest = self.nest
        shared = {nest.parameters[position].name for position in self.in_place}
        body = hoist(nest.body, shared)
        written = shared | buffers_stored(body)
        before, body = split_invariant(body, nest.axes, written)
        self._statements(before)
        outer = nest.axes[:-1] if self.width > 1 else nest.axes
        blocks = -(-vector_count(nest) // vectors_per_task(nest)) if self.width > 1 else 1
        with self.code.loop(Register("%begin", "i64"), Register("%end", "i64"), 1, nonempty=False) as task:
            block = self._place_axes(outer, blocks, task)
            if self.width == 1:
                self.ahead = rows_ahead(nest, body)
                self._statements(body)
                return
            varying = nest.axes[-1:] if self.rows is None else (self.rows, nest.axes[-1])
            once, each = split_invariant(body, varying, written)
            self._statements(once)
            if self.rows is None:
                self._vectors_of_block(each, block)
            else:
                self._tiles_of_block(each, block)

    def _part(self) -> None:
        """All points of some rows and columns."""
        code, axis, width = self.code, self.nest.axes[-1], self.width
        shared = {self.nest.parameters[position].name for position in self.in_place}
        column, column_end = Register("%column", "i64"), Register("%column_end", "i64")
        rest = code.binary("urem", code.binary("sub", column_end, column), constant(width, "i64"))
        whole_end = code.binary("sub", column_end, rest)
        body = hoist(self.nest.body, shared)
        with code.loop(Register("%row", "i64"), Register("%row_end", "i64"), 1, nonempty=False) as row:
            self._place_axes(self.nest.axes[:-1], 1, row)
            once, each = split_invariant(body, (axis,), shared | buffers_stored(body))
            self._statements(once)
            action = functools.partial(self._statements, each)
            self._steps(axis, width, column, whole_end, False, action)
            if width == 1:
                return
            with code.when(code.compare("icmp ne", rest, constant(0, "i64"))):
                lanes = lane_constants(list(range(width)), "i64")
                self._at(axis, width, whole_end, code.compare("icmp ult", lanes, rest), action)

    def _place_axes(self, outer: tuple[Axis, ...], blocks: int, task: Register) -> Register:
        """Say where ``outer`` stand in ``task``; gives the number of its block along the vector axis."""
        block, rest = self._divided(task, blocks, is_outermost=not outer)
        for number, axis in reversed(list(enumerate(outer))):
            count = -(-axis.extent // self.width) if axis == self.rows else axis.extent
            position, rest = self._divided(rest, count, is_outermost=number == 0)
            if axis == self.rows:
                position = self.code.binary("mul", position, constant(self.width, "i64"))
            self.scope.positions[axis] = position
        return block

    def _divided(self, value: Register, divisor: int, is_outermost: bool) -> tuple[Register, Register]:
        """Remainder and quotient; the outermost axis takes what is left."""
        if divisor == 1:
            return constant(0, "i64"), value
        if is_outermost:
            return value, constant(0, "i64")
        number = constant(divisor, "i64")
        return self.code.binary("urem", value, number), self.code.binary("udiv", value, number)

    def _vectors_of_block(self, body: tuple[Statement, ...], block: Register) -> None:
        start, stop, end = self._ends_of_block(block)
        self._full_vectors(start, stop, end is None, functools.partial(self._statements, body))
        self._last_vector(end, functools.partial(self._statements, body))

    def _ends_of_block(self, block: Register) -> tuple[Register, Register, Register | None]:
        """Where full vectors of ``block`` begin and end, and where the block ends: None if it is the only one."""
        code, axis, size = self.code, self.nest.axes[-1], vectors_per_task(self.nest) * self.width
        whole = axis.extent // self.width * self.width
        if size >= axis.extent:
            return constant(0, "i64"), constant(whole, "i64"), None
        start = code.binary("mul", block, constant(size, "i64"))
        end = code.binary("add", start, constant(size, "i64"))
        return start, code.intrinsic("smin", end, constant(whole, "i64")), end

    def _full_vectors(self, start: Register, stop: Register, nonempty: bool, action: Callable[[], None]) -> None:
        if self.nest.axes[-1].extent >= self.width:
            self._steps(self.nest.axes[-1], self.width, start, stop, nonempty, action)

    def _last_vector(self, end: Register | None, action: Callable[[], None]) -> None:
        code, axis = self.code, self.nest.axes[-1]
        if axis.extent % self.width == 0:
            return
        with code.when(code.compare("icmp sge", end, constant(axis.extent, "i64"))) if end else nullcontext():
            self._masked_step(axis, self.width, action)

    def _tiles_of_block(self, body: tuple[Statement, ...], block: Register) -> None:
        """Tiles of as many rows as there are lanes; what they leave over row by row."""
        code, rows, lanes, width = self.code, self.rows, self.nest.axes[-1], self.width
        start, stop, end = self._ends_of_block(block)
        first = self.scope.positions[rows]
        after = code.binary("add", first, constant(width, "i64"))
        left = code.slot(start)  # where the vectors begin that no tile computes
        is_whole = code.compare("icmp sle", after, constant(rows.extent, "i64")) if rows.extent % width else None
        with code.when(is_whole) if is_whole else nullcontext():
            self._full_vectors(start, stop, end is None, functools.partial(self._tile, body, first))
            left.set(stop)
        if not rows.extent % width and not lanes.extent % width:
            return
        with code.loop(first, code.intrinsic("smin", after, constant(rows.extent, "i64")), 1, nonempty=True) as row:
            self.scope.positions[rows] = row
            action = functools.partial(self._statements, body)
            if rows.extent % width:
                self._full_vectors(left.get(), stop, False, action)
            self._last_vector(end, action)

    def _tile(self, body: tuple[Statement, ...], first: Register) -> None:
        """``body`` for each of ``width`` rows from ``first`` on, its transposed loads made together."""
        loads = [statement for statement in body if tiles.is_transposed(statement, self.rows, self.nest.axes[-1])]
        made = {load.result: tiles.load_tile(self.scope, self.places[load.buffer], load.index) for load in loads}
        for row in range(self.width):
            self.scope.positions[self.rows] = self.code.binary("add", first, constant(row, "i64"))
            for statement in body:
                if statement in loads:
                    self._define(statement.result, statement.dtype, made[statement.result][row])
                else:
                    self._statement(statement)
        self.scope.positions[self.rows] = first

    # -- steps along an axis -------------------------------------------------------------------------------------------

    def _steps(
        self, axis: Axis, width: int, start: Register, stop: Register, nonempty: bool, action: Callable[[], None]
    ) -> None:
        with self.code.loop(start, stop, width, nonempty) as position:
            self._at(axis, width, position, None, action)

    def _masked_step(self, axis: Axis, width: int, action: Callable[[], None]) -> None:
        """The last vector along ``axis``, which is not full."""
        rest = axis.extent % width
        self._at(axis, width, constant(axis.extent - rest, "i64"), first_lanes(rest, width), action)

    def _at(
        self, axis: Axis, width: int, position: Register, mask: Register | None, action: Callable[[], None]
    ) -> None:
        """Do ``action`` with ``axis`` at ``position``, and the ``width`` lanes from there on."""
        scope = self.scope
        scope.positions[axis] = position
        outside = scope.width, scope.axis, scope.mask
        if width > 1:
            scope.width, scope.axis, scope.mask = width, axis, mask
        action()
        scope.width, scope.axis, scope.mask = outside

    # -- statements ----------------------------------------------------------------------------------------------------

    def _statements(self, body: tuple[Statement, ...]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, statement: Statement) -> None:
        code, scope = self.code, self.scope
        match statement:
            case Constant(result, dtype, value):
                self._define(result, dtype, constant(value, register_element(dtype)))
            case IndexValue(result, dtype, index):
                self._define(result, dtype, self._index_value(index, dtype))
            case CheckIndex():
                self._check_index(statement)
            case Compute(result, dtype, _, operands):
                values = [scope.values[operand] for operand in operands]
                dtypes = [self.dtypes[operand] for operand in operands]
                self._define(result, dtype, emit_compute(code, statement, values, dtypes))
            case Load(result, dtype, buffer, index, conditions):
                self._define(result, dtype, memory.load(scope, self.places[buffer], index, conditions))
            case Store(buffer, index, value, accumulate):
                memory.store(scope, self.places[buffer], index, scope.values[value], accumulate)
            case Loop():
                self._loop(statement)

    def _define(self, name: str, dtype: DType, value: Register) -> None:
        self.scope.values[name] = value
        self.dtypes[name] = dtype

    def _index_value(self, index: Index, dtype: DType) -> Register:
        is_uniform = indexing.lane_step(self.scope, index) == 0
        value = (indexing.scalar_index if is_uniform else indexing.vector_index)(self.scope, index)
        return cast(self.code, value, DTYPES[value.element], dtype)

    def _check_index(self, check: CheckIndex) -> None:
        code, scope = self.code, self.scope
        value = cast(code, scope.values[check.value], self.dtypes[check.value], i64)
        # Negative numbers are large unsigned ones.
        outside = code.compare("icmp uge", value, constant(check.extent, "i64"))
        fault = code.both(outside, indexing.condition(scope, check.conditions))
        if fault.lanes > 1:
            fault = code.both(fault, scope.mask)
            fault = code.emit(f"call i1 @llvm.vector.reduce.or.v{fault.lanes}i1({fault.typed})", "i1")
        code.helpers.add(_REPORT)
        with code.when(fault):
            code.line(f"call void @eir_report_fault(ptr %faults, i32 {check.fault})")
        self._define(check.result, i64, code.select(outside, constant(0, "i64"), value))

    # -- loops ---------------------------------------------------------------------------------------------------------

    def _loop(self, loop: Loop) -> None:
        code, scope = self.code, self.scope
        width = loop_width(loop) if loop.vector else 1
        lanes = max(width, scope.width)
        is_long = loop.iterations > _RUN * width
        accumulators = [Accumulator(code, reduction, lanes, is_long) for reduction in loop.reductions]
        initial = [constant(carry.initial, register_element(carry.dtype)) for carry in loop.carries]
        carries = [code.slot(code.splat(value, lanes)) for value in initial]

        def iteration() -> None:
            for carry, slot in zip(loop.carries, carries, strict=True):
                self._define(carry.name, carry.dtype, slot.get())
            if loop is self.ahead[0] and scope.mask is None:
                for load in self.ahead[1]:
                    next_row = load.index + load.index.coefficient(self.nest.axes[-1])
                    memory.prefetch(scope, self.places[load.buffer], next_row)
            self._statements(loop.body)
            for carry, slot in zip(loop.carries, carries, strict=True):
                slot.set(scope.values[carry.update])
            for reduction, accumulator in zip(loop.reductions, accumulators, strict=True):
                accumulator.add(scope.values[reduction.value], scope.mask if loop.vector else None)

        if all(axis.extent for axis in loop.axes):
            self._nested(loop.axes, width, accumulators, iteration)
        for reduction, accumulator in zip(loop.reductions, accumulators, strict=True):
            self._define(reduction.result, reduction.dtype, accumulator.result(across_lanes=loop.vector))

    def _nested(
        self, axes: tuple[Axis, ...], width: int, accumulators: list[Accumulator], iteration: Callable[[], None]
    ) -> None:
        if len(axes) <= 1:
            self._innermost(axes, width, accumulators, iteration)
            return
        inner = functools.partial(self._nested, axes[1:], width, accumulators, iteration)
        self._steps(axes[0], 1, constant(0, "i64"), constant(axes[0].extent, "i64"), True, inner)

    def _innermost(
        self, axes: tuple[Axis, ...], width: int, accumulators: list[Accumulator], iteration: Callable[[], None]
    ) -> None:
        def run(steps: Callable[[], None]) -> None:
            for accumulator in accumulators:
                accumulator.begin_run()
            steps()
            for accumulator in accumulators:
                accumulator.end_run()

        if not axes:
            run(iteration)
            return
        (axis,) = axes
        whole, length = axis.extent // width * width, _RUN * width
        if whole > length and any(accumulator.compensated for accumulator in accumulators):
            with self.code.loop(constant(0, "i64"), constant(whole, "i64"), length, nonempty=True) as first:
                end = self.code.binary("add", first, constant(length, "i64"))
                stop = self.code.intrinsic("smin", end, constant(whole, "i64")) if whole % length else end
                run(lambda: self._steps(axis, width, first, stop, True, iteration))
        elif whole:
            run(lambda: self._steps(axis, width, constant(0, "i64"), constant(whole, "i64"), True, iteration))
        if whole < axis.extent:
            run(lambda: self._masked_step(axis, width, iteration))
