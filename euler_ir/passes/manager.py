"""What a pass is, the table of all passes, and how a list of them runs."""

from __future__ import annotations

import dataclasses
import inspect
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from euler_ir.errors import EulerError, LoweringError, PassError
from euler_ir.graph import Graph
from euler_ir.passes.instruments import Instrument, is_allowed, watching
from euler_ir.passes.numerics import NUMERICS
from euler_ir.passes.options import format_option

if TYPE_CHECKING:
    from euler_ir.passes.groups import FusedGraph
    from euler_ir.shapes import TensorType

PASSES: dict[str, type[Pass]] = {}
"""Every pass by name: defining a subclass of Pass adds it."""


@dataclass(frozen=True)
class Pass(ABC):
    """Base of all passes: a frozen dataclass whose fields are its options and whose docstring begins with one line.

    Defining one, with a ``name`` of its own, is enough to use it by that name in a pipeline's text. ``run`` leaves the
    graph alone and gives a new one, or the same when there is nothing to do. ``numerics`` is one of NUMERICS, ``level``
    what ``run`` makes: 'graph', or 'fused' for the last pass of all. ``str`` gives the name with the options that are
    not the defaults: ``fold{byte_limit=1024}``. Raises PassError at the definition of a pass without name or docstring
    and of a second one under a name.
    """

    name: ClassVar[str]
    numerics: ClassVar[str] = "exact"
    level: ClassVar[str] = "graph"

    def __init_subclass__(cls, **keywords) -> None:
        super().__init_subclass__(**keywords)
        if "run" not in vars(cls):
            return  # a base of other passes
        name = vars(cls).get("name")
        if not isinstance(name, str) or not name:
            raise PassError(f"pass {cls.__qualname__} has no name", hint='write `name = "my-pass"` into the class')
        if not (vars(cls).get("__doc__") or "").strip():
            raise PassError(
                f"pass {name!r} has no docstring", hint="its first line is what `euler-ir passes` says of it"
            )
        numerics = vars(cls).get("numerics", "exact")
        if isinstance(numerics, str) and numerics not in NUMERICS:
            raise PassError(f"pass {name!r}: {numerics!r} is not one of {', '.join(NUMERICS)}")
        other = PASSES.get(name)
        if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise PassError(f"pass {name!r} is defined already, by {other.__module__}.{other.__qualname__}")
        PASSES[name] = cls

    @abstractmethod
    def run(self, graph: Graph) -> Graph | FusedGraph:
        """A graph with the same leaves, outputs and updates."""

    @classmethod
    def summary(cls) -> str:
        """The first line of the docstring."""
        return inspect.getdoc(cls).split("\n")[0]

    def __str__(self) -> str:
        values = {option.name: getattr(self, option.name) for option in dataclasses.fields(self)}
        changed = [
            f"{option.name}={format_option(values[option.name])}"
            for option in dataclasses.fields(self)
            if values[option.name] != option.default
        ]
        return f"{self.name}{{{','.join(changed)}}}" if changed else self.name


@dataclass(frozen=True)
class PassManager:
    """Runs ``passes`` in order under ``instruments``, and those that ``watching`` has made active outside."""

    passes: Sequence[Pass]
    instruments: Iterable[Instrument] = ()

    def run(self, graph: Graph) -> Graph | FusedGraph:
        """The graph after all passes.

        An error of a pass names it and carries in ``reproducer`` the text that shows it again, but for LoweringError,
        which speaks of the graph. What is no EulerError becomes a PassError.
        """
        with watching(*self.instruments) as instruments:
            for each in self.passes:
                if not is_allowed(each):
                    continue
                for instrument in instruments:
                    instrument.before_pass(each, graph)
                graph = _run_one(each, graph, instruments)
        return graph


def _run_one(each: Pass, before: Graph, instruments: Iterable[Instrument]) -> Graph | FusedGraph:
    wanted, start = _results(before), time.perf_counter()
    try:
        after = each.run(before)
        seconds = time.perf_counter() - start
        _check_results(each, wanted, after)
        for instrument in instruments:
            instrument.after_pass(each, before, after, seconds)
    except EulerError as error:
        if str(each) not in error.message:
            error.message = f"in pass {each}: {error.message}"
        if not isinstance(error, LoweringError):
            error.reproducer = reproducer(each, before)
        raise
    except (Exception, SystemExit) as error:
        raised = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        failure = PassError(f"pass {each} raised {raised}", details=_innermost_line(error))
        failure.reproducer = reproducer(each, before)
        raise failure from error
    return after


def _results(graph: Graph) -> dict[str, TensorType]:
    """What a graph gives, by what it is, and the types of it."""
    outputs = {f"output {name!r}": value.type for name, value in graph.outputs.items()}
    return outputs | {f"update {name!r}": value.type for name, value in graph.updates.items()}


def _check_results(each: Pass, wanted: dict[str, TensorType], after) -> None:
    """Raise PassError unless ``after`` is of the level that ``each`` says, with the results that are ``wanted``."""
    graph = after if each.level == "graph" else getattr(after, "graph", None)
    if not isinstance(graph, Graph):
        what = "None" if after is None else f"an object of type {type(after).__name__!r}"
        raise PassError(f"pass {each} gives {what}, not a graph", hint="`run` returns the new graph, or the old one")
    found = _results(graph)
    for name in wanted | found:
        if wanted.get(name) == found.get(name):
            continue
        if name in wanted and name in found:
            raise PassError(f"pass {each} makes {name} {found[name]}, which was {wanted[name]}")
        raise PassError(f"pass {each} {'drops' if name in wanted else 'adds'} {name}")


def reproducer(each: Pass, graph: Graph) -> str:
    """The text of ``graph``, and in its first line the pipeline that fails on it."""
    return f"// RUN: {each}\n{graph}"


def _innermost_line(error: BaseException) -> tuple[str, ...]:
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    return (f"at {last.filename}:{last.lineno} in {last.name}", f"    {last.line}")
