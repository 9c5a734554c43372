"""Every access of a nest to its buffers, as the interpreter of Loop IR makes them: what reports are compared with."""

from dataclasses import dataclass

import numpy as np

from euler_ir.loops import interpreter
from euler_ir.loops.kernel import Load, Nest, Store


@dataclass(frozen=True)
class Access:
    """What a statement of a nest loaded or stored: ``elements`` of ``buffer``, at ``points`` of the axes in scope."""

    statement: Load | Store
    buffer: str
    axes: tuple
    points: np.ndarray  # i64[accesses, axes]
    elements: np.ndarray  # i64[accesses]


def record(nest: Nest, arrays) -> list[Access]:
    """Run ``nest`` on ``arrays`` and give all its accesses."""
    accesses = []

    class Recording(interpreter._Evaluation):
        def _note(self, statement, index, guard):
            shape = tuple(len(values) for _, values in self._axes)
            index, guard = (np.broadcast_to(self._deep(np.asarray(x)), shape) for x in (index, guard))
            grid = np.meshgrid(*(values for _, values in self._axes), indexing="ij") if self._axes else []
            points = np.stack([axis[guard] for axis in grid], 1) if grid else np.zeros((int(guard.sum()), 0), int)
            axes = tuple(axis for axis, _ in self._axes)
            accesses.append(Access(statement, statement.buffer, axes, points, index[guard]))

        def _load(self, load):
            self._note(load, self._index(load.index), self._holds(load.conditions))
            return super()._load(load)

        def _store(self, store):
            self._note(store, self._index(store.index), np.array(True))
            super()._store(store)

    original, interpreter._Evaluation = interpreter._Evaluation, Recording
    try:
        interpreter.run_nest(nest, arrays)
    finally:
        interpreter._Evaluation = original
    return accesses


def random_arrays(nest: Nest, seed: int = 0):
    """An array for each parameter of ``nest``: small whole numbers, which are good indices too."""
    random = np.random.default_rng(seed)
    return [random.integers(0, 2, buffer.size).astype(buffer.dtype.numpy) for buffer in nest.parameters]
