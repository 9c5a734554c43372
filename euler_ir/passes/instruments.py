"""Instruments: what watches passes and rules at work, and may hold them back.

The manager makes its instruments the active ones while it runs, so that rules inside of passes reach them too. What is
active is known by thread and task: two that compile at once do not hear of each other.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from euler_ir.errors import VerifyError
from euler_ir.graph import Graph, Op, Value
from euler_ir.passes.cost import Cost, cost
from euler_ir.verify import verify

if TYPE_CHECKING:
    from euler_ir.passes.groups import FusedGraph
    from euler_ir.passes.manager import Pass
    from euler_ir.passes.rewriting import Rule


class Instrument:
    """Base of all instruments; each hook does nothing unless it is overridden.

    ``before`` and ``after`` are graphs, but for the last pass of a pipeline that ends in ``fuse``: that makes a
    FusedGraph. What a hook raises ends the run.
    """

    def before_pass(self, pass_: Pass, graph: Graph) -> None:
        """``pass_`` is about to run on ``graph``."""

    def after_pass(self, pass_: Pass, before: Graph, after: Graph | FusedGraph, seconds: float) -> None:
        """``pass_`` made ``after``, perhaps ``before`` itself, in ``seconds``."""

    def on_rule(self, rule: Rule, op: Op, value: Value) -> None:
        """``rule`` put ``value``, of the graph that is being made, in the place of ``op``, of the one before."""

    def allows(self, what: Pass | Rule, op: Op | None) -> bool:
        """Whether the pass (then ``op`` is None) or the rule may be applied. When one instrument says no, it is not."""
        return True


_active: contextvars.ContextVar[tuple[Instrument, ...]] = contextvars.ContextVar("euler_ir_instruments", default=())


@contextlib.contextmanager
def watching(*instruments: Instrument) -> Iterator[tuple[Instrument, ...]]:
    """Inside, ``instruments`` watch every manager and rule that runs, beside those that did before; gives all."""
    token = _active.set((*_active.get(), *instruments))
    try:
        yield _active.get()
    finally:
        _active.reset(token)


def is_allowed(what: Pass | Rule, op: Op | None = None) -> bool:
    """Whether all active instruments let ``what`` be applied to ``op``."""
    return all(instrument.allows(what, op) for instrument in _active.get())


def report_rule(rule: Rule, op: Op, value: Value) -> None:
    """Tell the active instruments that ``rule`` was applied."""
    for instrument in _active.get():
        instrument.on_rule(rule, op, value)


# -- instruments that come with euler_ir -------------------------------------------------------------------------------


class Verify(Instrument):
    """Checks the graph before the first pass and after each one. Raises VerifyError, naming the pass."""

    def __init__(self) -> None:
        self._verified: Graph | None = None

    def before_pass(self, pass_, graph):
        if graph is not self._verified:
            verify(graph)

    def after_pass(self, pass_, before, after, seconds):
        if not isinstance(after, Graph):
            return
        try:
            verify(after)
        except VerifyError as error:
            error.message = f"after pass {pass_}: {error.message}"
            raise
        self._verified = after


class Timing(Instrument):
    """The seconds of each pass in order, in ``passes``; ``str`` is a table."""

    def __init__(self) -> None:
        self.passes: list[tuple[Pass, float]] = []

    def after_pass(self, pass_, before, after, seconds):
        self.passes.append((pass_, seconds))

    @property
    def total(self) -> float:
        return sum(seconds for _, seconds in self.passes)

    def __str__(self) -> str:
        lines = [f"{seconds * 1e3:9.2f} ms  {pass_}" for pass_, seconds in self.passes]
        return "\n".join([*lines, f"{self.total * 1e3:9.2f} ms  in all"])


class Dump(Instrument):
    """Writes what each pass made to ``folder``, where it differs from before: ``003_simplify.eir`` for the third pass.

    ``000_start.eir`` is the graph before the first one. The folder is made; files of that name are overwritten.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._number = 0
        self._text: str | None = None

    def before_pass(self, pass_, graph):
        if self._text is None:
            self._write("start", str(graph))

    def after_pass(self, pass_, before, after, seconds):
        self._number += 1
        text = str(after)
        if text != self._text:
            self._write(pass_.name, text)

    def _write(self, name: str, text: str) -> None:
        from euler_ir.text.resources import write_text  # where it is used: importing euler_ir needs no text form

        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / f"{self._number:03}_{name}.eir", text)
        self._text = text


class Count(Instrument):
    """Operators, bytes and FLOPs before the first pass and after each, in ``costs`` (see ``cost``)."""

    def __init__(self) -> None:
        self.costs: list[tuple[Pass | None, Cost]] = []

    def before_pass(self, pass_, graph):
        if not self.costs:
            self.costs.append((None, cost(graph)))

    def after_pass(self, pass_, before, after, seconds):
        changed = after is not before and isinstance(after, Graph)
        self.costs.append((pass_, cost(after) if changed else self.costs[-1][1]))


@dataclass(frozen=True)
class Application:
    """``rule`` put ``value`` in the place of ``op``; ``value`` may have been rewritten again since."""

    rule: Rule
    op: Op
    value: Value


@dataclass(frozen=True)
class Snapshot:
    """What a pass did: the graph before and after, the seconds, and the rules that it applied, in order."""

    pass_: Pass
    before: Graph
    after: Graph | FusedGraph
    seconds: float
    applications: tuple[Application, ...]


@dataclass
class Snapshots(Instrument):
    """Keeps every graph on the way and every application of a rule, in ``steps``."""

    steps: list[Snapshot] = field(default_factory=list)
    _applications: list[Application] = field(default_factory=list, repr=False)

    def before_pass(self, pass_, graph):
        self._applications = []

    def on_rule(self, rule, op, value):
        self._applications.append(Application(rule, op, value))

    def after_pass(self, pass_, before, after, seconds):
        self.steps.append(Snapshot(pass_, before, after, seconds, tuple(self._applications)))


class Limit(Instrument):
    """Allows the first ``most`` applications of passes and rules, in the order of a run, and none after them.

    ``used`` counts them, and ``last`` is the last one that was allowed: the pass or rule, and the op of a rule. A run
    without a limit, ``Limit(None)``, says how many there are.
    """

    def __init__(self, most: int | None) -> None:
        self.most = most
        self.used = 0
        self.last: tuple[Pass | Rule, Op | None] | None = None

    def allows(self, what, op):
        if self.most is not None and self.used >= self.most:
            return False
        self.used += 1
        self.last = what, op
        return True
