"""Nests as generated CUDA in the emulator, many in one launch, against the interpreter of the Loop IR."""

import struct
from dataclasses import dataclass, field

import numpy as np

from euler_ir.backends.cuda.calls import BufferPointer, FaultPointer, ScratchPointer, Table
from euler_ir.backends.cuda.codegen import kernel_calls
from euler_ir.backends.cuda.emulator import build, memory
from euler_ir.dtypes import bool_
from euler_ir.loops.interpreter import run_nest
from euler_ir.loops.kernel import Kernel, Nest
from euler_ir.plan.plan import KernelStep, Origin

POISON = 0x5A


@dataclass
class Run:
    """``nest`` on ``arrays``, one for each parameter; where ``shares[position]`` is another position, both have the
    memory of that one. ``results`` and ``fault`` are what came out of a launch.
    """

    nest: Nest
    arrays: list[np.ndarray]
    shares: dict[int, int] = field(default_factory=dict)
    results: list[np.ndarray] = field(default_factory=list)
    fault: int = 0

    @property
    def in_place(self):
        return frozenset((*self.shares, *self.shares.values()))


def random_run(nest, seed=0, high=5):
    """``nest`` on normal floats and integers in 0..high-1."""
    generator = np.random.default_rng(seed)
    arrays = []
    for buffer in nest.parameters:
        if buffer.role == "output":
            arrays.append(poisoned(buffer))
            continue
        floats = generator.standard_normal(buffer.size)
        integers = generator.integers(0, 2 if buffer.dtype == bool_ else high, buffer.size)
        arrays.append((floats if buffer.dtype.is_float else integers).astype(buffer.dtype.numpy))
    return Run(nest, arrays)


def run_of(nest, *inputs):
    """``nest`` on the given inputs."""
    given = iter(inputs)
    arrays = [
        poisoned(buffer) if buffer.role == "output" else np.array(next(given), buffer.dtype.numpy).reshape(buffer.size)
        for buffer in nest.parameters
    ]
    return Run(nest, arrays)


def poisoned(buffer):
    return np.full(buffer.size * buffer.dtype.itemsize, POISON, np.uint8).view(buffer.dtype.numpy)


def step_of(runs):
    """A launch of all of ``runs``; memory is numbered through."""
    numbers, arguments = 0, []
    for run in runs:
        places = [numbers + run.shares.get(position, position) for position in range(len(run.arrays))]
        arguments.append(tuple(places))
        numbers += len(run.arrays)
    kernel = Kernel("kernel", tuple(run.nest for run in runs))
    origins = tuple(Origin(f"nest {number}", (), "", ()) for number in range(len(runs)))
    return KernelStep(kernel, tuple(arguments), tuple(range(len(runs))), tuple(r.in_place for r in runs), origins)


def emulate(runs, order="ascending", contract=True, sanitize=False):
    """Launch ``runs`` together, and give each its results; with ``sanitize`` races and strays are found."""
    step = step_of(runs)
    calls = kernel_calls(step)
    owned = {}
    for run, places in zip(runs, step.arguments):
        for array, place in zip(run.arrays, places):
            if place not in owned:
                owned[place] = memory.from_array(array, f"buffer {place}")
    faults = memory.from_array(np.zeros(len(runs), np.int32), "faults")
    scratch = memory.allocate(max(calls.scratch_bytes, 1), "scratch", alignment=256)
    others = [faults, scratch]

    def address(pointer):
        match pointer:
            case BufferPointer(number, offset):
                return owned[number] + offset
            case ScratchPointer(offset):
                return scratch + offset
            case FaultPointer(number):
                return faults + 4 * number
            case Table(pointers):
                others.append(memory.from_array(np.array([address(each) for each in pointers], np.uint64), "table"))
                return others[-1]

    try:
        for launch in calls.calls:
            module = build.load(launch.source, contract=contract, sanitize=sanitize)
            arguments = [struct.pack("<Q", address(argument)) for argument in launch.arguments]
            module.launch(launch.kernel, launch.blocks, launch.threads, launch.shared_bytes, arguments, order=order)
        found = memory.to_array(faults, (len(runs),), np.int32)
        for run, places, fault in zip(runs, step.arguments, found):
            run.fault = int(fault)
            run.results = [memory.to_array(owned[p], a.shape, a.dtype) for p, a in zip(places, run.arrays)]
    finally:
        for each in (*owned.values(), *others):
            memory.free(each)
    return runs


def interpreted(run):
    """What the interpreter makes of ``run``: the arrays afterwards, and the fault numbers."""
    arrays = [array.copy() for array in run.arrays]
    faults = run_nest(run.nest, arrays)
    return arrays, faults


def outputs(run):
    """The results that the nest wrote, in order."""
    return [array for buffer, array in zip(run.nest.parameters, run.results) if buffer.is_written]


def assert_interpreted(run, relative=0.0):
    """Results equal the interpreter's; with ``relative`` they are as near, as a part of the largest value."""
    arrays, faults = interpreted(run)
    assert (run.fault in faults) if faults else run.fault == 0
    for position, (buffer, ours, theirs) in enumerate(zip(run.nest.parameters, run.results, arrays)):
        if position in run.shares.values() and not buffer.is_written:
            continue  # overwritten in place
        if buffer.dtype.is_float:
            ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
        if not relative or not buffer.is_written or not buffer.dtype.is_float:
            np.testing.assert_array_equal(ours, theirs, err_msg=f"%{buffer.name}")
            continue
        scale = np.max(np.abs(theirs[np.isfinite(theirs)]), initial=1e-30)
        np.testing.assert_allclose(ours / scale, theirs / scale, rtol=0, atol=relative, err_msg=f"%{buffer.name}")


def check(runs, relative=0.0, orders=("ascending", "descending", 7), contract=(True,)):
    """The results are the interpreter's, with products and sums contracted or not; of the order of threads no bit
    depends.
    """
    for contracts in contract:
        first = None
        for order in orders if contracts else orders[:1]:
            emulate(runs, order, contracts)
            bits = [array.tobytes() for run in runs for array in run.results]
            assert first is None or bits == first, "the order of threads changes the result"
            first = bits
        for run in runs:
            assert_interpreted(run, relative)
