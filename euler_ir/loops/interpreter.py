"""The meaning of the Loop IR in numpy, and a check on who touches which element.

All points of a nest are evaluated at once: a scalar is an array with one dimension for each axis around it, of size 1
where it does not depend on the axis. A loop adds dimensions and its reductions take them away again. A loop whose
iterations see each other, by carries or through memory, runs one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from euler_ir.dtypes import DType, f64
from euler_ir.errors import ExecutionError, VerifyError
from euler_ir.index import Condition, Index
from euler_ir.loops.bounds import holds
from euler_ir.loops.kernel import (
    Buffer,
    CheckIndex,
    Compute,
    Constant,
    IndexValue,
    Kernel,
    Load,
    Loop,
    Nest,
    Reduction,
    Statement,
    Store,
)
from euler_ir.ops import OPS
from euler_ir.ops.random import philox

_MOST_AT_ONCE = 1 << 21
"""How many points, loops included, are evaluated together."""

_COMBINE = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def run_kernel(kernel: Kernel, arrays: Sequence[Sequence[np.ndarray]]) -> list[int]:
    """Run every nest on its arrays and give the fault numbers that came up. Raises as ``run_nest`` does."""
    if len(arrays) != len(kernel.nests):
        raise ExecutionError(f"kernel {kernel.name!r} has {len(kernel.nests)} nests, not {len(arrays)}")
    faults = set[int]()
    for nest, nest_arrays in zip(kernel.nests, arrays):
        faults.update(run_nest(nest, nest_arrays))
    return sorted(faults)


def run_nest(nest: Nest, arrays: Sequence[np.ndarray]) -> list[int]:
    """Run ``nest`` on a flat array for each parameter, write its outputs in place, and give the fault numbers.

    Raises ExecutionError for arrays that are not those of the parameters. Raises VerifyError for an index outside of
    its buffer, a load of what this point has not written, an element that two points or two lanes write, and an element
    of an output that nobody writes.
    """
    _expect_arrays(nest, arrays)
    memories = {buffer.name: _Memory.of(buffer, array) for buffer, array in zip(nest.parameters, arrays)}
    faults = set[int]()
    with np.errstate(all="ignore"):
        for first in _chunks(nest):
            _Evaluation(nest, first, memories, faults).run()
    for memory in memories.values():
        memory.expect_written()
    return sorted(faults)


def _expect_arrays(nest: Nest, arrays: Sequence[np.ndarray]) -> None:
    if len(arrays) != len(nest.parameters):
        raise ExecutionError(f"the nest has {len(nest.parameters)} parameters, not {len(arrays)}")
    for buffer, array in zip(nest.parameters, arrays):
        if array.shape != (buffer.size,) or array.dtype != buffer.dtype.numpy:
            raise ExecutionError(
                f"parameter {buffer.name!r} is {buffer.dtype}[{buffer.size}], not {array.dtype}{list(array.shape)}"
            )


def _chunks(nest: Nest) -> Iterator[range]:
    """Ranges of the first axis, so that no more than about ``_MOST_AT_ONCE`` values are alive for a scalar."""
    if nest.points == 0:
        return
    if not nest.axes:
        yield range(1)
        return
    extent = nest.axes[0].extent
    width = max(_width(nest.body), sum(buffer.size for buffer in nest.locals), 1)
    step = max(_MOST_AT_ONCE // (nest.points // extent * width), 1)
    for start in range(0, extent, step):
        yield range(start, min(start + step, extent))


def _width(body: tuple[Statement, ...]) -> int:
    """The most iterations that the loops in ``body`` make for one run of it."""
    loops = [statement for statement in body if isinstance(statement, Loop)]
    return max((loop.iterations * _width(loop.body) for loop in loops), default=1)


@dataclass
class _Memory:
    """The elements of a buffer, and the number of the point that wrote each: -1 before, and None for inputs.

    Of a local there is a copy for each point, one after the other; ``points`` has the number of each point's copy.
    """

    buffer: Buffer
    elements: np.ndarray
    writers: np.ndarray | None
    copies: np.ndarray | int = 0

    @staticmethod
    def of(buffer: Buffer, array: np.ndarray) -> _Memory:
        return _Memory(buffer, array, None if buffer.role == "input" else np.full(buffer.size, -1, np.int64))

    @staticmethod
    def scratch(buffer: Buffer, points: np.ndarray) -> _Memory:
        size = buffer.size * points.size
        elements, writers = np.zeros(size, buffer.dtype.numpy), np.full(size, -1, np.int64)
        return _Memory(buffer, elements, writers, np.arange(points.size).reshape(points.shape))

    def expect_written(self) -> None:
        if self.buffer.role == "output" and np.any(self.writers < 0):
            raise VerifyError(f"element {int(np.argmin(self.writers))} of output %{self.buffer.name} is never written")


class _Evaluation:
    """One run over some of the points: ``first`` is the range of the first axis.

    ``_axes`` pairs each axis in scope with the values it has at present: all of them, or one. ``_lanes`` is the
    position of the last axis of the vector loop that runs, if one does; the lanes of a nest are points like any others.
    """

    def __init__(self, nest: Nest, first: range, memories: dict[str, _Memory], faults: set[int]) -> None:
        self._nest = nest
        ranges = [first, *(range(axis.extent) for axis in nest.axes[1:])]
        self._axes = [(axis, np.asarray(values, np.int64)) for axis, values in zip(nest.axes, ranges)]
        self._lanes: int | None = None
        self._scalars: dict[str, np.ndarray] = {}
        self._faults = faults
        numbers = np.arange(nest.points).reshape(tuple(axis.extent for axis in nest.axes))
        self._points = numbers[first.start : first.stop] if nest.axes else numbers
        self._memories = memories | {local.name: _Memory.scratch(local, self._points) for local in nest.locals}

    def run(self) -> None:
        self._body(self._nest.body)

    # -- scalars -------------------------------------------------------------------------------------------------------

    def _scalar(self, name: str) -> np.ndarray:
        return self._deep(self._scalars[name])

    def _deep(self, value: np.ndarray) -> np.ndarray:
        """``value`` with a dimension for each axis in scope."""
        return value.reshape(value.shape + (1,) * (len(self._axes) - value.ndim))

    def _full(self, value: np.ndarray) -> np.ndarray:
        """``value`` with an element for each value of the axes in scope."""
        return np.broadcast_to(self._deep(value), tuple(len(values) for _, values in self._axes))

    def _values(self, indices: Sequence[Index]) -> dict:
        """The axes and dynamic indices of ``indices``, as ``Index.evaluate`` takes them."""
        depth = len(self._axes)
        values = {
            axis: present.reshape((1,) * place + (-1,) + (1,) * (depth - place - 1))
            for place, (axis, present) in enumerate(self._axes)
        }
        for index in indices:
            values |= {dynamic: self._scalar(dynamic.name) for dynamic in index.dynamics()}
        return values

    def _index(self, index: Index) -> np.ndarray:
        return self._deep(np.asarray(index.evaluate(self._values((index,))), np.int64))

    def _holds(self, conditions: tuple[Condition, ...]) -> np.ndarray:
        values = self._values([condition.index for condition in conditions])
        return self._deep(np.asarray(holds(conditions, values), bool))

    # -- statements ----------------------------------------------------------------------------------------------------

    def _body(self, body: tuple[Statement, ...]) -> None:
        for statement in body:
            match statement:
                case Constant(result, dtype, value):
                    self._scalars[result] = np.full((1,) * len(self._axes), value, dtype.numpy)
                case IndexValue(result, dtype, index):
                    self._scalars[result] = self._index(index).astype(dtype.numpy)
                case CheckIndex():
                    self._scalars[statement.result] = self._check_index(statement)
                case Compute():
                    self._scalars[statement.result] = self._compute(statement)
                case Load():
                    self._scalars[statement.result] = self._load(statement)
                case Store():
                    self._store(statement)
                case Loop():
                    self._loop(statement)

    def _check_index(self, check: CheckIndex) -> np.ndarray:
        value = self._scalar(check.value).astype(np.int64)
        outside = (value < 0) | (value >= check.extent)
        if np.any(outside & self._holds(check.conditions)):
            self._faults.add(check.fault)
        return np.where(outside, 0, value)

    def _compute(self, compute: Compute) -> np.ndarray:
        operands = [self._scalar(operand) for operand in compute.operands]
        if compute.operation == "philox":
            return _uniform(compute.dtype, compute.stream, *operands)
        attributes = {"dtype": compute.dtype} if compute.operation == "cast" else {}
        return OPS[compute.operation].evaluate(attributes, *operands)

    def _load(self, load: Load) -> np.ndarray:
        memory, guard = self._memories[load.buffer], self._holds(load.conditions)
        index, points = self._index(load.index), self._deep(self._points)
        per_point = memory.writers is not None
        index, guard, *points = np.broadcast_arrays(index, guard, *((points,) if per_point else ()))
        self._expect_inside(memory, load, index, guard)
        result = np.zeros(index.shape, memory.elements.dtype)
        places = self._places(memory, index)[guard]
        if per_point:
            unwritten = np.zeros(index.shape, bool)
            unwritten[guard] = memory.writers[places] != points[0][guard]
            self._expect_none(unwritten, memory, load, index, "loaded by a point that did not write it")
        result[guard] = memory.elements[places]
        return result

    def _store(self, store: Store) -> None:
        memory = self._memories[store.buffer]
        index, value, points = map(self._full, (self._index(store.index), self._scalars[store.value], self._points))
        self._expect_inside(memory, store, index, np.ones_like(index, bool))
        places = self._places(memory, index)
        before = memory.writers[places]
        if store.accumulate:
            unwritten = (before < 0) & (memory.buffer.role != "inout")
            self._expect_none(unwritten, memory, store, index, "added to before it is written")
            np.add.at(memory.elements, places, value)
        else:
            memory.elements[places.ravel()] = value.ravel()
        self._expect_none((before >= 0) & (before != points), memory, store, index, "written by two points")
        memory.writers[places] = points
        self._expect_none(memory.writers[places] != points, memory, store, index, "written by two points")
        self._expect_lanes_apart(memory, store, index, places)

    def _expect_lanes_apart(self, memory: _Memory, store: Store, index: np.ndarray, places: np.ndarray) -> None:
        if self._lanes is None:
            return
        order = np.argsort(places, axis=self._lanes, kind="stable")
        sorted_places = np.take_along_axis(places, order, self._lanes)
        repeats = np.zeros(places.shape, bool)
        along = np.diff(sorted_places, axis=self._lanes, prepend=-1) == 0
        np.put_along_axis(repeats, order, along, self._lanes)
        self._expect_none(repeats, memory, store, index, "written by two lanes")

    # -- memory --------------------------------------------------------------------------------------------------------

    def _places(self, memory: _Memory, index: np.ndarray) -> np.ndarray:
        copies = self._deep(np.asarray(memory.copies)) if memory.buffer.role == "local" else 0
        return index + copies * memory.buffer.size

    def _expect_inside(self, memory: _Memory, access: Load | Store, index: np.ndarray, guard: np.ndarray) -> None:
        outside = guard & ((index < 0) | (index >= memory.buffer.size))
        self._expect_none(outside, memory, access, index, f"outside of its {memory.buffer.size} elements")

    def _expect_none(self, wrong: np.ndarray, memory: _Memory, access, index: np.ndarray, what: str) -> None:
        if not np.any(wrong):
            return
        place = tuple(int(position) for position in np.argwhere(wrong)[0])
        point = ", ".join(f"{axis}={values[position]}" for (axis, values), position in zip(self._axes, place))
        raise VerifyError(
            f"{memory.buffer.role} %{memory.buffer.name}[{access.index}]: element {index[place]} is {what}",
            details=(f"at {point or 'the only point'}: {access}",),
        )

    # -- loops ---------------------------------------------------------------------------------------------------------

    def _loop(self, loop: Loop) -> None:
        depth, lanes = len(self._axes), self._lanes
        carried = {c.name: np.full((1,) * (depth + len(loop.axes)), c.initial, c.dtype.numpy) for c in loop.carries}
        parts: dict[str, list[np.ndarray]] = {reduction.result: [] for reduction in loop.reductions}
        self._lanes = depth + len(loop.axes) - 1 if loop.vector else lanes
        for ranges in _iterations(loop):
            self._axes[depth:] = zip(loop.axes, ranges)
            self._scalars.update(carried)
            self._body(loop.body)
            carried = {carry.name: self._scalar(carry.update) for carry in loop.carries}
            for reduction in loop.reductions:
                parts[reduction.result].append(self._reduced(reduction, depth))
        del self._axes[depth:]
        self._lanes = lanes
        for reduction in loop.reductions:
            self._scalars[reduction.result] = _combined(reduction, parts[reduction.result], depth)

    def _reduced(self, reduction: Reduction, depth: int) -> np.ndarray:
        """The value combined over the axes after the first ``depth``."""
        value = self._scalar(reduction.value)
        extents = tuple(len(values) for _, values in self._axes[depth:])
        wide = np.broadcast_to(value, value.shape[:depth] + extents)
        return _combine(reduction, wide.reshape(value.shape[:depth] + (-1,)))


def _iterations(loop: Loop) -> Iterator[tuple[np.ndarray, ...]]:
    """The values of the axes of ``loop`` for each run of its body: all at once if no iteration sees another."""
    ranges = tuple(np.arange(axis.extent) for axis in loop.axes)
    if loop.carries or _meets_itself(loop):
        for point in itertools.product(*ranges):
            yield tuple(np.array([value]) for value in point)
    else:
        yield ranges


def _meets_itself(loop: Loop) -> bool:
    """Whether an iteration may read or overwrite what another one stored."""
    accesses: list[str] = []
    stores: set[str] = set()
    pending = list(loop.body)
    while pending:
        statement = pending.pop()
        if isinstance(statement, Loop):
            pending.extend(statement.body)
        elif isinstance(statement, (Load, Store)):
            accesses.append(statement.buffer)
        if isinstance(statement, Store):
            stores.add(statement.buffer)
    return any(accesses.count(buffer) > 1 for buffer in stores)


def _combined(reduction: Reduction, parts: list[np.ndarray], depth: int) -> np.ndarray:
    if not parts:
        return np.full((1,) * depth, _identity(reduction), reduction.dtype.numpy)
    return _combine(reduction, np.stack(np.broadcast_arrays(*parts), axis=-1))


def _combine(reduction: Reduction, values: np.ndarray) -> np.ndarray:
    """``values`` reduced over the last axis."""
    identity = _identity(reduction)
    return _COMBINE[reduction.combine].reduce(values, axis=-1, dtype=reduction.dtype.numpy, initial=identity)


def _identity(reduction: Reduction) -> bool | int | float:
    return {"sum": 0, "prod": 1, "max": reduction.dtype.lowest, "min": reduction.dtype.highest}[reduction.combine]


def _uniform(dtype: DType, stream: int, seed: np.ndarray, step: np.ndarray, index: np.ndarray) -> np.ndarray:
    """The numbers in [0, 1) that ``euler_ir.ops.random`` describes, at any index."""
    low, shift = np.uint64(2**32 - 1), np.uint64(32)
    seed, step, index = np.broadcast_arrays(*(word.astype(np.uint64) for word in (seed, step, index)))
    counter = (index & low, index >> shift, step & low, np.full_like(index, stream))
    words = philox(counter, (seed & low, seed >> shift))
    if dtype == f64:
        return (((words[0] >> np.uint64(11)) << shift) | words[1]).astype(np.float64) * 2.0**-53
    return (words[0] >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)
