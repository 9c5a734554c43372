"""What a pass is, and how a list of them runs."""

from __future__ import annotations

import dataclasses
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from euler_ir.errors import VerifyError
from euler_ir.graph import Graph
from euler_ir.verify import verify


@dataclass(frozen=True)
class Pass(ABC):
    """Base of all passes: a frozen dataclass whose fields are its options and whose docstring begins with one line.

    ``run`` leaves the graph alone and gives a new one, or the same when there is nothing to do. ``str`` gives the name
    with the options that are not the defaults: ``fold{byte_limit=1024}``.
    """

    name: ClassVar[str]

    @abstractmethod
    def run(self, graph: Graph) -> Graph:
        """A graph with the same leaves, outputs and updates."""

    @classmethod
    def summary(cls) -> str:
        """The first line of the docstring."""
        return (cls.__doc__ or "").strip().split("\n")[0]

    def __str__(self) -> str:
        options = []
        for option in dataclasses.fields(self):
            value = getattr(self, option.name)
            if value != option.default:
                shown = "|".join(sorted(value)) if isinstance(value, frozenset) else value
                options.append(f"{option.name}={shown}")
        return f"{self.name}{{{', '.join(options)}}}" if options else self.name


OnPass = Callable[[Pass, Graph, Graph, float], None]
"""Called after each pass with the pass, the graph before, the graph after, and the seconds it took."""


@dataclass(frozen=True)
class PassManager:
    """Runs ``passes`` in order; verifies the graph after each with ``verify_each``; tells ``on_pass`` about each."""

    passes: Sequence[Pass]
    verify_each: bool = False
    on_pass: OnPass | None = None

    def run(self, graph: Graph) -> Graph:
        """The graph after all passes. Raises VerifyError naming the pass after which a rule is broken."""
        if self.verify_each:
            verify(graph)
        for each in self.passes:
            before, start = graph, time.perf_counter()
            graph = each.run(before)
            seconds = time.perf_counter() - start
            if self.verify_each:
                self._verify(graph, each)
            if self.on_pass is not None:
                self.on_pass(each, before, graph, seconds)
        return graph

    def _verify(self, graph: Graph, after: Pass) -> None:
        try:
            verify(graph)
        except VerifyError as error:
            message = f"after pass {after}: {error.message}"
            raise VerifyError(message, details=error.details, location=error.location, hint=error.hint) from None
