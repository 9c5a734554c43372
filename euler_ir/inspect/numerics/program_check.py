"""Whether a compiled program computes what its graph says: every stored value from what is stored around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from euler_ir.compiler import Stages
from euler_ir.dtypes import as_dtype
from euler_ir.graph import Graph, Value
from euler_ir.inspect.given_arrays import GivenArrays
from euler_ir.inspect.numerics.divergence import Divergence, divergence
from euler_ir.inspect.numerics.elements import Operand, operands_read
from euler_ir.inspect.numerics.judge import Difference, Judge
from euler_ir.inspect.numerics.observe import Observed, Writer, observe, run_plan
from euler_ir.rounding import Results


@dataclass(frozen=True)
class ProgramCheck:
    """What the program of ``backend`` stored, the values among it that are ``wrong``, in the order of steps, and the
    first output or update, if any, that it gives otherwise when it uses its memory again and again.
    """

    observed: Observed
    known: Mapping[Value, np.ndarray]
    wrong: Mapping[Value, Difference]
    wrong_result: Divergence | None
    results: int

    @property
    def writer(self) -> Writer | None:
        """What wrote the first wrong value."""
        return next((self.observed.writers[value] for value in self.wrong), None)

    @property
    def divergence(self) -> Divergence | None:
        """The first wrong value."""
        for value, found in self.wrong.items():
            read = _read_by(value, found.place, self.known)
            return divergence(value, found, str(self.observed.writers[value]), read, len(self.wrong) - 1)
        return None


def check_program(
    stages: Stages, arrays: GivenArrays, backend: str = "cpu", threads: int | None = None, tolerance: float = 0.0
) -> ProgramCheck:
    """Run the program of ``stages`` on ``arrays``, with all values kept and as it is, and judge what it stores.

    Raises ExecutionError for an index out of range, LoweringError for what has no code or does not fit into memory.
    """
    graph = stages.optimized
    observed = observe(graph, stages.plan, arrays.arrays, backend, threads)
    known = known_arrays(graph, observed, arrays)
    plain = run_plan(stages.plan, arrays.arrays, backend, threads)
    wrong_result, results = _of_results(graph, known, observed.results, plain)
    return ProgramCheck(observed, known, wrong_values(graph, observed, known, tolerance), wrong_result, results)


def _read_by(value: Value, place: tuple[int, ...], known: Mapping[Value, np.ndarray]) -> tuple[Operand, ...]:
    """What the op of ``value`` reads there, where all of it is known or follows from what is."""
    judge = Judge(value.graph, known)
    arrays = judge.exact(judge.between([value]))
    return operands_read(value.op, [arrays[operand] for operand in value.op.operands], place)


def _of_results(
    graph: Graph, known: Mapping[Value, np.ndarray], kept: Results, plain: Results
) -> tuple[Divergence | None, int]:
    """The first result of the program as it is that has other bits than in the run in which every value had its own
    memory, and how many there are.
    """
    compared, wrong = 0, []
    for label, ends, run, beside in zip(("output", "update"), (graph.outputs, graph.updates), plain, kept):
        for name, value in ends.items():
            compared += 1
            wanted, got = known.get(value, beside[name]), run[name]
            differs = _differ_in_bits(wanted, got)
            if differs.any():
                place = tuple(map(int, np.argwhere(differs)[0]))
                found = Difference(place, got[place], wanted[place], int(differs.sum()))
                wrong.append((value, f"{label} {name}", found))
    if not wrong:
        return None, compared
    value, name, found = wrong[0]
    return divergence(value, found, "memory", (), len(wrong) - 1, name), compared


def _differ_in_bits(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Which elements differ; any NaN is equal to any other."""
    bits = np.dtype(f"u{left.dtype.itemsize}")
    both_nan = np.isnan(left) & np.isnan(right) if as_dtype(left.dtype).is_float else np.zeros(left.shape, bool)
    differ = np.ascontiguousarray(left).view(bits) != np.ascontiguousarray(right).view(bits)
    return differ.reshape(left.shape) & ~both_nan


def wrong_values(
    graph: Graph, observed: Observed, known: Mapping[Value, np.ndarray], tolerance: float = 0.0
) -> dict[Value, Difference]:
    """The stored values that do not follow from what is stored of their operands, in the order of steps."""
    judge = Judge(graph, known, tolerance)
    by_writer: dict[tuple[int, int], list[Value]] = {}
    for value, writer in observed.writers.items():
        by_writer.setdefault((writer.step, writer.nest), []).append(value)
    found: dict[Value, Difference] = {}
    for key in sorted(by_writer):
        found |= judge.differences({value: observed.arrays[value] for value in by_writer[key]})
    return found


def known_arrays(graph: Graph, observed: Observed, arrays: GivenArrays) -> dict[Value, np.ndarray]:
    """All that is known of a run: the leaves that it began with, and what it stored."""
    leaves = (*graph.inputs, *graph.parameters, *graph.states)
    return {**{leaf: arrays.arrays[leaf.op.attributes["name"]] for leaf in leaves}, **observed.arrays}
