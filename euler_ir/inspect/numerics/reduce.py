"""Shrinks a failing case: as few operators, results, elements and odd values as still fail in the same way.

Every step proposes smaller cases, from bold to timid, and keeps the first that fails too. Nothing is random, so the
same case gives the same result; the number of runs is bounded; an interrupt keeps the best so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from euler_ir.errors import EulerError
from euler_ir.graph import Value
from euler_ir.inspect.given_arrays import given_arrays
from euler_ir.inspect.numerics.cases import (
    Case,
    around,
    ends,
    is_well_formed,
    part,
    resized,
    window,
    with_arrays,
    with_attribute,
)

MOST_RUNS = 1000
"""How many smaller cases are tried, unless another bound is given."""

Fails = Callable[[Case], bool]
"""Whether a case still fails in the way that is looked for."""


@dataclass(frozen=True)
class Progress:
    """After ``runs`` runs, ``step`` has found a case of ``ops`` operators, whose values have ``elements`` elements."""

    step: str
    runs: int
    ops: int
    elements: int

    def __str__(self) -> str:
        return f"{self.step:22}{self.ops:7,} operators {self.elements:13,} elements {self.runs:5,} runs"


@dataclass(frozen=True)
class Reduction:
    """The smallest ``case`` that was found, ``steps`` on the way to it, and whether it fails with ``drawn`` arrays, so
    that it needs none of its own. ``interrupted`` when somebody, or the bound, stopped it before its end.
    """

    before: Case
    case: Case
    drawn: bool
    steps: tuple[Progress, ...]
    runs: int
    interrupted: bool

    def record(self) -> dict:
        """The figures as JSON has them."""
        sizes = {label: case.size for label, case in (("before", self.before), ("after", self.case))}
        return {
            **{label: {"operators": ops, "ends": ends, "elements": n} for label, (ops, ends, n) in sizes.items()},
            "runs": self.runs,
            "needs_arrays": not self.drawn,
            "interrupted": self.interrupted,
            "steps": [
                {"step": each.step, "runs": each.runs, "operators": each.ops, "elements": each.elements}
                for each in self.steps
            ],
        }


def reduce(
    case: Case,
    fails: Fails,
    most_runs: int = MOST_RUNS,
    told: Callable[[Progress], None] = lambda progress: None,
    suspect: Callable[[], str | None] = lambda: None,
) -> Reduction:
    """The smallest case like ``case`` that is found within ``most_runs`` runs of ``fails``; ``told`` hears of progress.

    ``suspect`` may name a value that was wrong in the first run: what is around it is tried first. Raises ValueError
    when ``case`` does not fail itself.
    """
    if not fails(case):
        raise ValueError("the graph does not fail in this way, so there is nothing to reduce")
    return _Reducer(case, fails, most_runs, told, suspect()).run()


class _Spent(Exception):
    """All runs are used up."""


class _Reducer:
    def __init__(
        self, case: Case, fails: Fails, most_runs: int, told: Callable[[Progress], None], suspect: str | None
    ) -> None:
        self.before = self.best = case
        self.fails = fails
        self.most_runs = most_runs
        self.told = told
        self.suspect = suspect
        self.runs = 0
        self.steps: list[Progress] = []

    def run(self) -> Reduction:
        interrupted, drawn = False, False
        try:
            if not self.step("around a wrong value", self.around_suspect):
                self.step("fewer results", self.fewer_results)
                self.step("a window of the graph", self.shorter_window)
            while True:
                size = self.best.size
                self.step("fewer results", self.fewer_results)
                self.step("inputs for operators", self.inputs_for_operators)
                self.step("operands for results", self.operands_for_results)
                self.step("smaller sizes", self.smaller_sizes)
                self.step("plainer attributes", self.plainer_attributes)
                if self.best.size >= size:
                    break
            drawn = self.step("arrays drawn by seed", self.drawn_arrays)
            if not drawn:
                self.step("plainer numbers", self.plainer_numbers)
        except (KeyboardInterrupt, _Spent):
            interrupted = True
        return Reduction(self.before, self.best, drawn, tuple(self.steps), self.runs, interrupted)

    def step(self, name: str, shrink: Callable[[], bool]) -> bool:
        found = shrink()
        if found:
            ops, _, elements = self.best.size
            self.steps.append(Progress(name, self.runs, ops, elements))
            self.told(self.steps[-1])
        return found

    def accepts(self, propose: Callable[[], Case]) -> bool:
        """Whether the proposed case fails too; then it is the best one."""
        try:
            case = propose()
        except EulerError:
            return False  # no types fit
        if not is_well_formed(case):
            return False
        if self.runs >= self.most_runs:
            raise _Spent
        self.runs += 1
        if not self.fails(case):
            return False
        self.best = case
        return True

    # -- steps: each says whether it found something -------------------------------------------------------------------

    def around_suspect(self) -> bool:
        """What makes the suspect, from few operators to many."""
        depths = (1, 2, 4, 8, 16) if self.suspect is not None else ()
        return any(self.accepts(lambda: around(self.best, self.suspect, depth)) for depth in depths)

    def fewer_results(self) -> bool:
        """Half of the outputs and updates as long as that fails, and then without any that can go."""

        def without(names: list[tuple[int, str]]) -> Case:
            outputs, updates = (
                {name: value for name, value in each.items() if (position, name) not in names}
                for position, each in enumerate(ends(self.best))
            )
            return part(self.best, (outputs, updates))

        def all_names() -> list[tuple[int, str]]:
            return [(position, name) for position, each in enumerate(ends(self.best)) for name in each]

        found = False
        while len(names := all_names()) > 1:
            middle = len(names) // 2
            if not any(self.accepts(lambda: without(gone)) for gone in (names[middle:], names[:middle])):
                break
            found = True
        return self.thinned(all_names, without) or found

    def thinned(self, everything: Callable[[], list], without: Callable[[list], Case]) -> bool:
        """Leave out runs of ``everything``, from halves of it down to single things."""
        found, length = False, max(len(everything()) // 2, 1)
        while everything():
            start = 0
            while start < len(everything()):
                gone = everything()[start : start + length]
                if self.accepts(lambda: without(gone)):
                    found = True
                else:
                    start += length
            if length == 1:
                break
            length = max(length // 2, 1)
        return found

    def shorter_window(self) -> bool:
        """The last op that is needed, then the first one, each found by halving."""
        found = False
        low, high = 0, len(self.best.graph.ops)
        whole = self.best
        while high - low > 1:  # the window up to `high` fails
            middle = (low + high) // 2
            if self.accepts(lambda: window(whole, 0, middle)):
                high, found = middle, True
            else:
                low = middle
        last, low, high = high, 0, high
        while high - low > 1:  # the window from `low` on fails
            middle = (low + high) // 2
            if self.accepts(lambda: window(whole, middle, last)):
                low, found = middle, True
            else:
                high = middle
        return found

    def inputs_for_operators(self) -> bool:
        """Inputs in the place of what operators compute: of many at once, then of each."""

        def computed() -> list[str]:
            ops = [op for op in reversed(self.best.graph.ops) if op.definition.family != "leaf"]
            return [value.name for op in ops for value in op.results]

        def given(names: list[str]) -> Case:
            wanted, results = set(names), set(self.best.graph.results())
            swaps = {v: None for op in self.best.graph.ops for v in op.results if v.name in wanted and v not in results}
            if not swaps:
                raise EulerError("results stay")
            return part(self.best, ends(self.best), swaps)

        return self.thinned(computed, given)

    def operands_for_results(self) -> bool:
        """An operand of the same type in the place of a result, and outputs that are what an output is made of."""
        found = False
        for name in [value.name for op in reversed(self.best.graph.ops) for value in op.results]:
            value = _value(self.best, name)
            if value is None:
                continue
            for operand in dict.fromkeys(value.op.operands):
                if operand.type == value.type and self.accepts(lambda: _bypassed(self.best, value, operand)):
                    found = True
                    break
        return found

    def smaller_sizes(self) -> bool:
        """Each size of an axis as 1, 2, or half of it, wherever it occurs."""
        found = False
        for size in sorted(_sizes(self.best), reverse=True):
            for smaller in sorted({1, 2, 3, size // 4, size // 2, size - 1} & set(range(1, size))):
                if self.accepts(lambda: resized(self.best, {size: smaller})):
                    found = True
                    break
        return found

    def plainer_attributes(self) -> bool:
        """False for flags, 1.0 for numbers, where types allow it."""
        found = False
        for number, op in enumerate(self.best.graph.ops):
            for name, kind in op.definition.attributes.items():
                plain = {"bool": False, "float": 1.0}.get(kind)
                now = self.best.graph.ops[number]
                if plain is not None and now.attributes[name] != plain:
                    found |= self.accepts(lambda: with_attribute(self.best, now, name, plain))
        return found

    def drawn_arrays(self) -> bool:
        """Arrays that whoever runs the graph can draw again."""
        return self.accepts(lambda: Case(self.best.graph, given_arrays(self.best.graph).arrays))

    def plainer_numbers(self) -> bool:
        """Ones, zeros, or rounded numbers in each array, as long as that fails too."""
        found = False
        for name in self.best.arrays:
            for plain in _plainer(self.best.arrays[name]):
                if self.accepts(lambda: with_arrays(self.best, {name: plain})):
                    found = True
                    break
        return found


def _value(case: Case, name: str) -> Value | None:
    return next((value for op in case.graph.ops for value in op.results if value.name == name), None)


def _bypassed(case: Case, value: Value, operand: Value) -> Case:
    """``operand`` instead of ``value`` wherever that is used."""
    return part(case, ends(case), {value: operand})


def _sizes(case: Case) -> set[int]:
    return {size for op in case.graph.ops for value in op.results for size in value.shape if size > 1}


def _plainer(array: np.ndarray) -> Iterator[np.ndarray]:
    """Arrays that say less, the plainest first; none that is equal."""
    with np.errstate(all="ignore"):
        rounded = np.round(array.astype(np.float64), 1).astype(array.dtype)
    for plain in (np.zeros_like(array), np.ones_like(array), rounded):
        if plain.tobytes() != array.tobytes():
            yield plain
