"""Passes judged without rounding: a graph on its way is a set of equations, and each must hold for the same numbers.

A pass keeps the names of values. So ``%name`` means the same tensor in every stage, and each op of a stage states an
equation: these names are this operator of those names. A name is computed once, in f64, by the first stage that states
an equation for it; each other equation that any later stage states for it is then computed from the same names, and
has to give the same numbers. What a pass leaves as it was costs nothing, and a wrong rewrite shows at the very op.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from euler_ir.dtypes import DType, f64
from euler_ir.graph import Graph, Op, Value
from euler_ir.graph_equality import attributes_key
from euler_ir.inspect.numerics.elements import Operand, operands_read
from euler_ir.inspect.numerics.exact import apply_exactly, widen_array
from euler_ir.inspect.numerics.measure import root_mean_square
from euler_ir.interpreter import leaf
from euler_ir.rounding import SUMS, perturb

NEGLIGIBLE = 2.0**-36
"""Beside an element, or the median one: a difference in f64 that needs no look at what rounding may do."""
SAFETY = 16
"""Times the move in a perturbed run that a difference may be: as far as rounding explains."""
_WORST = 64
"""Elements of a difference that are looked at closely, the largest."""
_FOLDED = 8
"""By how many roundoffs of its type a number that a pass computed, a new constant, may be off."""

Name = str


@dataclass(frozen=True, eq=False)
class Equation:
    """What stage number ``stage`` says: ``gives`` are the results of ``op`` on ``reads``. Those of ``gives`` that are
    ``new`` have no other meaning yet.

    With ``is_end`` an output or update, under its own name, is the one name that is read, which ``op`` makes.
    """

    stage: int
    op: Op
    reads: tuple[Name, ...]
    gives: tuple[Name, ...]
    new: tuple[bool, ...]
    is_end: bool = False

    def value(self, position: int) -> Value:
        """The value that the name at ``position`` of ``gives`` stands for in this stage."""
        if not self.is_end:
            return self.op.results[position]
        return next(value for value in self.op.results if value.name == self.reads[0])


class Visitor:
    """What is told of a run; each method does nothing unless it is overridden."""

    def named(self, name: Name, equation: Equation, array: np.ndarray) -> None:
        """``equation``, the first to say so, makes ``array`` what ``name`` stands for; floats are in f64."""

    def stated(self, name: Name, equation: Equation, array: np.ndarray, held: np.ndarray, read: Sequence) -> None:
        """``equation`` gives ``array`` for a name that stands for ``held`` already; ``read`` are its operands."""


class Equations:
    """All that ``stages``, a graph as it was built and after each pass, say: each equation once, in ``every``.

    ``born`` says in which stage a name was first given a meaning.
    """

    def __init__(self, stages: Sequence[Graph]) -> None:
        self.every: list[Equation] = []
        self.born: dict[Name, int] = {}
        seen: set[Hashable] = set()
        keys: dict[int, Hashable] = {}  # by the identity of attributes, which copies of an op share
        for number, graph in enumerate(stages):
            for op in graph.ops:
                attributes = keys.get(id(op.attributes))
                if attributes is None:
                    attributes = keys[id(op.attributes)] = attributes_key(op.attributes)
                reads, gives = _names(op.operands), _names(op.results)
                self._add(number, op, reads, gives, (op.name, attributes, reads, gives), seen)
            for label, ends in (("output", graph.outputs), ("update", graph.updates)):
                for name, value in ends.items():
                    reads, gives = (value.name,), (f"{label} {name}",)
                    self._add(number, value.op, reads, gives, (reads, gives), seen, is_end=True)

    def _add(self, stage, op, reads, gives, key: Hashable, seen: set[Hashable], is_end: bool = False) -> None:
        if key in seen:
            return
        seen.add(key)
        new = tuple(name not in self.born for name in gives)
        self.every.append(Equation(stage, op, reads, gives, new, is_end))
        for name in gives:
            self.born.setdefault(name, stage)

    def run(self, leaves: Mapping[str, np.ndarray], visitor: Visitor, seed: int | None = None) -> None:
        """Compute each name from ``leaves``, and tell ``visitor`` of it and of each further equation.

        With ``seed`` each result is moved by its error bound, in its own type. Arrays are forgotten after their last
        use. Raises ExecutionError for a missing leaf, or an index out of range.
        """
        _Run(self, leaves, visitor, seed).run()


class _Run:
    """One computation of all equations: those of the first stage in order, each other when what it needs is there."""

    def __init__(
        self, equations: Equations, leaves: Mapping[str, np.ndarray], visitor: Visitor, seed: int | None
    ) -> None:
        self.equations = equations.every
        self.leaves = leaves
        self.visitor = visitor
        self.random = None if seed is None else np.random.default_rng(seed)
        self.arrays: dict[Name, np.ndarray] = {}
        self.uses: dict[Name, int] = {}
        self.waiting: dict[Name, list[Equation]] = {}
        self.missing: dict[Equation, int] = {}
        for equation in self.equations:
            needed = _needed(equation)
            for name in needed:
                self.uses[name] = self.uses.get(name, 0) + 1
            if equation.stage > 0:
                self.missing[equation] = len(needed)
                for name in needed:
                    self.waiting.setdefault(name, []).append(equation)

    def run(self) -> None:
        ready = [equation for equation in self.equations if equation.stage > 0 and not self.missing[equation]]
        self.run_ready(ready)
        for equation in self.equations:
            if equation.stage == 0:
                self.run_ready([equation])

    def run_ready(self, ready: list[Equation]) -> None:
        """Compute ``ready``, and all that can be computed then."""
        while ready:
            equation = ready.pop()
            for name in self.compute(equation):
                for waiting in self.waiting.pop(name, ()):
                    self.missing[waiting] -= 1
                    if not self.missing[waiting]:
                        ready.append(waiting)
                self.forget(name, 0)
            for name in _needed(equation):
                self.forget(name, 1)

    def compute(self, equation: Equation) -> list[Name]:
        """The names that ``equation`` gives a meaning."""
        op = equation.op
        read = [widen_array(self.arrays[name]) for name in equation.reads]
        if equation.is_end:
            results = tuple(read)
        elif op.definition.has_identity:
            results = leaf(op, self.leaves)
        else:
            results = apply_exactly(op, read)
            if self.random is not None:
                with np.errstate(all="ignore"):
                    results = tuple(
                        perturb(value, array, read, True, self.random) for value, array in zip(op.results, results)
                    )
        named = []
        for name, array, is_new in zip(equation.gives, results, equation.new):
            if is_new:
                named.append(name)
                self.arrays[name] = array
                self.visitor.named(name, equation, widen_array(array))
            else:
                self.visitor.stated(name, equation, array, widen_array(self.arrays[name]), read)
        return named

    def forget(self, name: Name, used: int) -> None:
        self.uses[name] = self.uses.get(name, 0) - used
        if not self.uses[name]:
            self.arrays.pop(name, None)


def _needed(equation: Equation) -> tuple[Name, ...]:
    """The names that must have a meaning before ``equation`` is computed."""
    return (*equation.reads, *(name for name, is_new in zip(equation.gives, equation.new) if not is_new))


def _names(values: Sequence[Value]) -> tuple[Name, ...]:
    return tuple([value.name for value in values])


# -- what is wrong -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Violation:
    """``equation`` does not hold: at ``place`` of ``name`` it gives ``got`` where the name stands for ``wanted``.

    ``read`` says what its operands hold there; ``wrong`` elements of the name differ by more than is negligible.
    """

    equation: Equation
    name: Name
    place: tuple[int, ...]
    got: np.generic
    wanted: np.generic
    wrong: int
    read: tuple[Operand, ...]


def violations(
    equations: Equations, leaves: Mapping[str, np.ndarray], visitor: Visitor = Visitor(), tolerance: float = 0.0
) -> list[Violation]:
    """The equations that do not hold, in the order of stages; ``visitor`` watches the exact run. A difference within
    ``tolerance``, beside the root mean square of the value, is none.

    Raises ExecutionError as `Equations.run` does.
    """
    suspicion = _Suspicion(visitor, tolerance)
    equations.run(leaves, suspicion)
    if not suspicion.found:
        return []
    moved = _Moved(suspicion.found)
    equations.run(leaves, moved, seed=0)
    order = {equation: position for position, equation in enumerate(equations.every)}
    broken = [suspect.violation for key, suspect in suspicion.found.items() if not _explains(key, suspect, moved)]
    return sorted(broken, key=lambda violation: order[violation.equation])


@dataclass(frozen=True)
class _Suspect:
    """A violation, perhaps; ``places`` are the flat positions of its worst elements, and what they are in both ways."""

    violation: Violation
    places: np.ndarray
    got: np.ndarray
    held: np.ndarray


class _Suspicion(Visitor):
    """Finds the differences that are not negligible."""

    def __init__(self, visitor: Visitor, tolerance: float) -> None:
        self.visitor = visitor
        self.tolerance = tolerance
        self.rounded: set[Name] = set()  # new numbers of passes, which they have rounded, and what is made of them
        self.found: dict[tuple[Equation, Name], _Suspect] = {}

    def named(self, name, equation, array):
        if equation.stage > 0 and self.is_rounded(equation):
            self.rounded.add(name)
        self.visitor.named(name, equation, array)

    def stated(self, name, equation, array, held, read):
        self.visitor.stated(name, equation, array, held, read)
        excess = self.excess(array, held, equation.op.result.dtype if self.is_rounded(equation) else f64)
        if equation.op.name in SUMS and array.dtype.kind == "f":
            excess = np.where(np.isfinite(array) | np.isfinite(held), excess, 0)  # what overflows is NaN in some order
        wrong = int(np.count_nonzero(excess))
        if not wrong:
            return
        flat = excess.reshape(-1)
        worst = np.argsort(-flat, kind="stable")[: min(wrong, _WORST)]
        place = tuple(map(int, np.unravel_index(worst[0], array.shape)))
        operands = () if equation.is_end else operands_read(equation.op, read, place)
        violation = Violation(equation, name, place, array[place], held[place], wrong, operands)
        got, wanted = (each.reshape(-1)[worst] for each in (array, held))
        self.found[equation, name] = _Suspect(violation, worst, got, wanted)

    def is_rounded(self, equation: Equation) -> bool:
        return equation.op.name == "constant" or not self.rounded.isdisjoint(equation.reads)

    def excess(self, array: np.ndarray, held: np.ndarray, dtype: DType) -> np.ndarray:
        """By how much each element differs, beside its size; 0 where that is negligible among numbers of ``dtype``."""
        if array.dtype.kind != "f":
            return np.asarray(array != held, np.float64)
        info = ml_dtypes.finfo(dtype.numpy if dtype.is_float else np.float64)
        unit, step = NEGLIGIBLE, 0.0
        if dtype != f64:
            unit, step = _FOLDED * float(info.eps) / 2, float(info.smallest_subnormal)
        with np.errstate(all="ignore"):
            size, distance = np.abs(held), np.abs(array - held)
            right = (distance <= unit * size + step) | (array == held) | (np.isnan(array) & np.isnan(held))
            if right.all():
                return np.zeros(array.shape)
            finite = size[np.isfinite(size)]
            size = np.maximum(size, np.median(finite) if finite.size else 0.0)
            right |= distance <= np.maximum(unit * size, self.tolerance and self.tolerance * root_mean_square(held))
            return np.where(right, 0, np.nan_to_num(distance / (size + np.finfo(float).tiny), nan=np.inf))


class _Moved(Visitor):
    """What the worst elements of suspects are in a perturbed run, in both ways."""

    def __init__(self, suspects: Mapping[tuple[Equation, Name], _Suspect]) -> None:
        self.suspects = suspects
        self.found: dict[tuple[Equation, Name], tuple[np.ndarray, np.ndarray]] = {}

    def stated(self, name, equation, array, held, read):
        suspect = self.suspects.get((equation, name))
        if suspect is not None:
            self.found[equation, name] = tuple(each.reshape(-1)[suspect.places] for each in (array, held))


def _explains(key: tuple[Equation, Name], suspect: _Suspect, moved: _Moved) -> bool:
    """Whether rounding explains each difference: one of the sides moves by as much, or becomes infinite or NaN.

    An element that happens to move little may differ by what others, beside their size, move by.
    """
    reach = np.zeros(suspect.got.shape)
    with np.errstate(all="ignore"):
        for now, before in zip(moved.found[key], (suspect.got, suspect.held)):
            move = np.abs(now.astype(np.float64) - before.astype(np.float64))
            same = (now == before) | ((now != now) & (before != before))
            reach = np.fmax(reach, np.where(same, 0, np.nan_to_num(move, nan=np.inf)))
        distance = np.abs(suspect.got.astype(np.float64) - suspect.held.astype(np.float64))
        size = np.abs(suspect.held.astype(np.float64))
        usual = np.nan_to_num(np.median(reach / size), nan=0.0, posinf=0.0) * size
        return bool(np.all((distance <= SAFETY * np.fmax(reach, usual)) | np.isinf(reach)))
