"""Every value of every stage beside f64: which stage is the first to change a number by more than rounding does.

The graph as it was built, in its own types, has the errors that rounding has there. Passes are judged in f64, where
they have next to none (see ``equations``). Each value that the compiled program puts into memory is judged by what the
program itself has stored of its operands (see ``judge``); its error from the leaves on is given beside it. At last the
program is run as it is, with its memory used again and again, and must give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from euler_ir.compiler import lower, pipeline_of
from euler_ir.dtypes import f64
from euler_ir.errors import Location
from euler_ir.graph import Graph, Op, Value
from euler_ir.inspect.find import location_record
from euler_ir.inspect.given_arrays import GivenArrays
from euler_ir.inspect.numerics.divergence import Divergence, of_violations
from euler_ir.inspect.numerics.equations import Equations, Visitor, violations
from euler_ir.inspect.numerics.measure import Error, error_of
from euler_ir.inspect.numerics.program_check import ProgramCheck, check_program
from euler_ir.interpreter import apply, leaf
from euler_ir.passes.instruments import Snapshots
from euler_ir.passes.manager import Pass
from euler_ir.passes.pipeline import optimize
from euler_ir.verify import verify


@dataclass(frozen=True)
class ValueNumbers:
    """The error of a value in its own type beside the same computation in f64."""

    name: str
    type: str
    operator: str
    scope: str
    location: Location | None
    error: Error

    def record(self) -> dict:
        """All of it as JSON has it."""
        return {
            "name": f"%{self.name}",
            "type": self.type,
            "operator": self.operator,
            "scope": self.scope,
            "location": location_record(self.location),
            **self.error.record(),
        }


@dataclass(frozen=True)
class StageNumbers:
    """What was found in a stage: of ``values`` so many were ``compared``, and ``largest`` has the largest error."""

    name: str
    values: int
    compared: int
    largest: ValueNumbers | None
    divergence: Divergence | None

    def record(self) -> dict:
        """All of it as JSON has it."""
        return {
            "stage": self.name,
            "values": self.values,
            "compared": self.compared,
            "largest": None if self.largest is None else self.largest.record(),
            "divergence": None if self.divergence is None else self.divergence.record(),
        }


@dataclass(frozen=True)
class Comparison:
    """All stages of ``graph`` in their order. ``values`` are those of the graph as built in its own types, ``stored``
    those that the program of ``backend`` puts into memory, each beside f64.
    """

    graph: str
    backend: str
    arrays: str
    stages: tuple[StageNumbers, ...]
    values: tuple[ValueNumbers, ...]
    stored: tuple[ValueNumbers, ...]

    @property
    def first(self) -> Divergence | None:
        """The divergence of the first stage that has one."""
        return next((stage.divergence for stage in self.stages if stage.divergence is not None), None)

    def record(self) -> dict:
        """All of it as JSON has it."""
        return {
            "graph": self.graph,
            "backend": self.backend,
            "arrays": self.arrays,
            "stages": [stage.record() for stage in self.stages],
            "values": [value.record() for value in self.values],
            "stored": [value.record() for value in self.stored],
        }


def compare(
    graph: Graph,
    arrays: GivenArrays,
    passes: str | Sequence[Pass] | None = None,
    backend: str | None = "cpu",
    threads: int | None = None,
    tolerance: float = 0.0,
) -> Comparison:
    """Compare every stage of ``graph`` on ``arrays``; with no ``backend`` the graph and the passes alone, which are by
    default those of the backend.

    An error within ``tolerance``, beside the root mean square of a value, is no divergence.

    Raises VerifyError for a malformed graph, ExecutionError for an index out of range, LoweringError for what has no
    code.
    """
    verify(graph)
    passes = pipeline_of(backend or "cpu") if passes is None else passes
    snapshots = Snapshots()
    program = None
    if backend is None:
        optimize(graph, passes, (snapshots,))
    else:
        stages = lower(graph, passes, (snapshots,))
        program = check_program(stages, arrays, backend, threads, tolerance)
    made = [step for step in snapshots.steps if isinstance(step.after, Graph)]
    numbers = _Numbers(graph, arrays.arrays, program)
    broken = violations(Equations([graph, *(step.after for step in made)]), arrays.arrays, numbers, tolerance)
    found = [StageNumbers("as built", _count(graph), len(numbers.values), _largest(numbers.values), None)]
    for number, step in enumerate(made, start=1):
        name, compared = str(step.pass_), numbers.by_stage.get(number, [])
        mine = [each for each in broken if each.equation.stage == number]
        divergence = of_violations(mine, f"pass {number}, {name}")
        found.append(StageNumbers(name, _count(step.after), len(compared), _largest(compared), divergence))
    if program is not None:
        stored = len(program.observed.arrays)
        found.append(
            StageNumbers(backend, _count(stages.optimized), stored, _largest(numbers.stored), program.divergence)
        )
        found.append(StageNumbers("results", program.results, program.results, None, program.wrong_result))
    return Comparison(
        graph.name, backend or "none", str(arrays), tuple(found), tuple(numbers.values), tuple(numbers.stored)
    )


def _count(graph: Graph) -> int:
    return sum(len(op.results) for op in graph.ops)


class _Numbers(Visitor):
    """Errors, while the equations are computed: of the graph in its own types, of passes, and of stored values."""

    def __init__(self, graph: Graph, leaves: Mapping[str, np.ndarray], program: ProgramCheck | None) -> None:
        self.values: list[ValueNumbers] = []
        self.stored: list[ValueNumbers] = []
        self.by_stage: dict[int, list[ValueNumbers]] = {}
        self._leaves = leaves
        self._plain: dict[Value, np.ndarray] = {}
        self._remaining = {value: len(ops) for value, ops in graph.uses().items()}
        stored = {} if program is None else program.observed.arrays
        self._stored = {value.name: (value, array) for value, array in stored.items()}

    def named(self, name, equation, array):
        if equation.is_end:
            return
        value = equation.op.results[equation.gives.index(name)]
        if equation.stage == 0:
            own = self._own(value)
            if value.op.definition.family not in ("leaf", "movement"):  # these have no error of their own
                self.values.append(_numbers(value, own, array))
        if name in self._stored:
            self.stored.append(_numbers(*self._stored[name], array))

    def stated(self, name, equation, array, held, read):
        if equation.is_end:
            return
        value = equation.op.results[equation.gives.index(name)]
        error = error_of(array, held, f64 if value.dtype.is_float else value.dtype)
        # Units in the last place of f64 would say nothing of the value's own type.
        self.by_stage.setdefault(equation.stage, []).append(_described(value, replace(error, ulps=0.0)))

    def _own(self, value: Value) -> np.ndarray:
        """``value`` of the first stage in its own type; they are asked for in order."""
        op = value.op
        if value.index == 0:
            results = leaf(op, self._leaves) if op.definition.has_identity else self._applied(op)
            self._plain.update(zip(op.results, results))
        array = self._plain[value]
        if not self._remaining.get(value):
            del self._plain[value]
        return array

    def _applied(self, op: Op) -> tuple[np.ndarray, ...]:
        results = apply(op, [self._plain[operand] for operand in op.operands])
        for operand in op.operands:
            self._remaining[operand] -= 1
            if not self._remaining[operand]:
                self._plain.pop(operand, None)
        return results


def _numbers(value: Value, got: np.ndarray, exact: np.ndarray) -> ValueNumbers:
    return _described(value, error_of(got, exact, value.dtype))


def _described(value: Value, error: Error) -> ValueNumbers:
    op = value.op
    return ValueNumbers(value.name, str(value.type), op.name, op.scope, op.location, error)


def _largest(values: Iterable[ValueNumbers]) -> ValueNumbers | None:
    return max((each for each in values if each.error.relative), key=lambda each: each.error.relative, default=None)
