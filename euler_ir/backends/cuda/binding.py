"""A program and a State, bound: every call's addresses are known, and the whole step becomes one CUDA graph."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from euler_ir.backends.cuda.calls import (
    Argument,
    BufferPointer,
    Copy,
    FaultPointer,
    Fill,
    Launch,
    Number,
    Pointer,
    Table,
)
from euler_ir.backends.cuda.device import Graph
from euler_ir.backends.cuda.runtime import Block
from euler_ir.backends.cuda.slot import Outputs
from euler_ir.backends.cuda.step import FAULT_BYTES, Call
from euler_ir.errors import LoweringError
from euler_ir.residence import Kept

if TYPE_CHECKING:
    from euler_ir.backends.cuda.program import CudaProgram

_FORMATS = {"i32": "<i", "i64": "<q", "f32": "<f", "f64": "<d"}


class Binding:
    """Calls ``program`` on ``kept``, the parameters and state by number.

    The first call enqueues one piece of work after the other, in which libraries load what they need; the second
    captures them as a graph, which it and all later ones replay.
    """

    def __init__(self, program: CudaProgram, kept: Mapping[int, Kept]) -> None:
        self.kept = frozenset(kept.values())
        self._program, self._runtime = program, program.runtime
        self._residents = [(each, self._runtime.resident(each)) for each in kept.values()]
        places = {number: resident for number, (_, resident) in zip(kept, self._residents)}
        self._updated = [resident for number, resident in places.items() if number in program.written]
        self._addresses = program.addresses | {number: resident.address for number, resident in places.items()}
        self._table_offsets: dict[Table, int] = {}
        self._tables = self._make_tables()
        self._work = tuple(map(self._resolved, program.calls.calls))
        self._is_warm = False
        self._graph: Graph | None = None

    def __call__(self, arrays: Mapping[int, np.ndarray]) -> Outputs:
        while (outputs := self._started(arrays)) is None:
            # Another device has something. It is asked between our turns: it may be waiting for one.
            for kept, resident in self._residents:
                if kept.away is not resident:
                    kept.at_home()
        return outputs

    def _started(self, arrays: Mapping[int, np.ndarray]) -> Outputs | None:
        """Enqueue a run, unless another device owns what it needs."""
        runtime, program = self._runtime, self._program
        compute, uploads = runtime.compute, runtime.uploads
        with runtime.turn():
            taken = [(kept, resident) for kept, resident in self._residents if kept.away is not resident]
            if any(kept.away is not None for kept, _ in taken):
                return None
            slot = program.next_slot()
            for number, view in slot.inputs.items():
                view[...] = arrays[number]
            uploads.upload(slot.landing.address, slot.staged_inputs)
            uploads.record(slot.arrived)
            for kept, resident in taken:
                resident.take(kept)
            for resident in self._updated:
                resident.is_newer = True
            compute.wait(slot.arrived)
            compute.copy(program.inputs.address, slot.landing.address, slot.staged_inputs.nbytes)
            self._run()
            compute.download(slot.staged_results, program.results.address)
            compute.record(slot.finished)
            return slot.take_off(self)

    def _run(self) -> None:
        compute = self._runtime.compute
        if not self._is_warm:
            self._enqueue()
            self._is_warm = True
            return
        if self._graph is None:
            self._graph = compute.capture(self._enqueue)
        compute.replay(self._graph)

    def _enqueue(self) -> None:
        for work in self._work:
            work()

    # -- addresses -----------------------------------------------------------------------------------------------------

    def _resolved(self, call: Call) -> Callable[[], None]:
        """What puts ``call`` into the queue."""
        stream = self._runtime.compute
        if isinstance(call, Launch):
            arguments = tuple(map(self._bytes, call.arguments))
            module = self._runtime.module(call.source)
            launch = (module, call.kernel, call.blocks, call.threads, call.shared_bytes, arguments)
            return functools.partial(stream.launch, *launch)
        if isinstance(call, Copy):
            return functools.partial(stream.copy, self._address(call.target), self._address(call.source), call.nbytes)
        if isinstance(call, Fill):
            return functools.partial(stream.fill, self._address(call.target), call.nbytes, call.byte)
        addresses = tuple(map(self._address, call.pointers))
        enqueue = call.prepare(self._runtime.device.cublaslt, addresses, self._program.workspace.address)
        return functools.partial(stream.call, enqueue)

    def _address(self, pointer: Pointer) -> int:
        if isinstance(pointer, BufferPointer):
            return self._addresses[pointer.number] + pointer.offset
        if isinstance(pointer, FaultPointer):
            return self._program.results.address + pointer.number * FAULT_BYTES
        return self._program.scratch.address + pointer.offset

    def _bytes(self, argument: Argument) -> bytes:
        """``argument`` as a kernel takes it. Raises LoweringError for a number that its kind does not hold."""
        if isinstance(argument, Table):
            return struct.pack("<Q", self._tables.address + self._table_offsets[argument])
        if not isinstance(argument, Number):
            return struct.pack("<Q", self._address(argument))
        try:
            return struct.pack(_FORMATS[argument.kind], argument.value)
        except (struct.error, OverflowError):
            raise LoweringError(f"{argument.value!r} is no {argument.kind}") from None

    def _make_tables(self) -> Block:
        """All tables in one block, each where its first argument finds it."""
        addresses: list[int] = []
        for call in self._program.calls.launches():
            for table in call.arguments:
                if isinstance(table, Table) and table not in self._table_offsets:
                    self._table_offsets[table] = 8 * len(addresses)
                    addresses += map(self._address, table.pointers)
        block = self._runtime.block(8 * len(addresses))
        if addresses:
            self._runtime.compute.upload(block.address, np.array(addresses, np.uint64))
            self._runtime.compute.synchronize()
        return block
