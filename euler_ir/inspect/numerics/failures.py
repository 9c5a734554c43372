"""Ways to fail, and how a case that fails is written down so that anybody can see it fail."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from euler_ir.compiler import lower, pipeline_of
from euler_ir.errors import EulerError
from euler_ir.inspect.given_arrays import GivenArrays
from euler_ir.inspect.numerics.cases import Case
from euler_ir.inspect.numerics.compare import compare
from euler_ir.inspect.numerics.observe import run_plan
from euler_ir.inspect.tensor_file import write_tensors
from euler_ir.passes.pipeline import parse_pipeline
from euler_ir.text.printer import print_graph
from euler_ir.text.resources import write_text

CHECKS = {
    "compare": "`euler-ir compare` finds a wrong value in the same stage",
    "raises TEXT": "compiling or running raises an error whose type or message holds TEXT",
    "command CMD": "CMD fails with the same exit code; {} in it is the graph's file, {inputs} that of its arrays",
}
"""What can be checked, with what it means."""

_SECONDS = 120
"""After which a command is taken to hang; a hang is an exit code of its own."""


@dataclass
class Failure(ABC):
    """Called with a case, says whether it fails as the first one did that it was called with.

    ``suspect`` is then the name of a value that was wrong in that one, if it is known. ``loaded`` are the Python files
    that define passes of ``pipeline``.
    """

    text: str
    pipeline: str
    backend: str
    threads: int | None
    loaded: Sequence[str] = ()
    wanted: str | None = field(default=None, init=False)
    suspect: str | None = field(default=None, init=False)

    def __call__(self, case: Case) -> bool:
        way = self.way(case)
        if self.wanted is None:
            self.wanted = way
        return way is not None and way == self.wanted

    @abstractmethod
    def way(self, case: Case) -> str | None:
        """How ``case`` fails, or None."""

    def reproduce(self, graph: Path, arrays: Path | None) -> str:
        """The command that shows it."""
        return f"euler-ir compare {graph}{'' if arrays is None else f' --inputs {arrays}'}{self.options()}"

    def options(self) -> str:
        """The flags that differ from their defaults, each after a space."""
        words = []
        if self.pipeline != pipeline_of(self.backend):
            words += ["--passes", shlex.quote(self.pipeline)]
            words += [word for file in self.loaded for word in ("--load", shlex.quote(file))]
        words += [] if self.backend == "cpu" else ["--backend", self.backend]
        words += [] if self.threads is None else ["--threads", str(self.threads)]
        return "".join(f" {word}" for word in words)


class WrongValue(Failure):
    def way(self, case):
        arrays = GivenArrays(dict(case.arrays), (), 0)
        try:
            backend = self.backend if self.wanted in (None, self.backend, "results") else None  # a pass alone is wrong
            found = compare(case.graph, arrays, self.pipeline, backend, self.threads)
        except EulerError:
            return None
        wrong = next((stage for stage in found.stages if stage.divergence is not None), None)
        if wrong is None:
            return None
        self.suspect = self.suspect or wrong.divergence.value.removeprefix("%")
        return wrong.name


class Raised(Failure):
    def way(self, case):
        try:
            stages = lower(case.graph, self.pipeline)
            run_plan(stages.plan, case.arrays, self.backend, self.threads)
        except Exception as error:
            return self.text if self.text in f"{type(error).__name__}: {error}" else None
        return None


class CommandFailed(Failure):
    def way(self, case):
        with tempfile.TemporaryDirectory() as folder:
            graph, arrays = Path(folder, "case.eir"), Path(folder, "case.arrays.safetensors")
            write_case(graph, arrays, case, "")
            return self.exit_code(graph, arrays)

    def exit_code(self, graph: Path, arrays: Path) -> str | None:
        try:
            ended = subprocess.run(self.command(graph, arrays), shell=True, capture_output=True, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            return "hangs"
        return str(ended.returncode) if ended.returncode else None

    def command(self, graph: Path, arrays: Path) -> str:
        return self.text.replace("{inputs}", shlex.quote(str(arrays))).replace("{}", shlex.quote(str(graph)))

    def reproduce(self, graph, arrays):
        return self.command(graph, arrays or Path("arrays.safetensors"))


def failure(
    check: str,
    pipeline: str | None = None,
    backend: str = "cpu",
    threads: int | None = None,
    loaded: Sequence[str] = (),
) -> Failure:
    """The failure that ``check`` speaks of, as CHECKS says, with the passes of ``backend`` unless others are given.

    Raises ValueError for another text, ParseError for a wrong pipeline.
    """
    pipeline = pipeline_of(backend) if pipeline is None else pipeline
    parse_pipeline(pipeline)
    kind, _, text = check.partition(" ")
    kinds = {"compare": WrongValue, "raises": Raised, "command": CommandFailed}
    if kind not in kinds or bool(text) == (kind == "compare"):
        raise ValueError(f"{check!r} is no check: use one of {', '.join(CHECKS)}")
    if kind == "command" and "{}" not in text:
        raise ValueError(f"{check!r} has no {{}} where the file of the graph goes")
    return kinds[kind](text, pipeline, backend, threads, loaded)


def save_case(path: Path, case: Case, check: Failure, drawn: bool) -> Sequence[Path]:
    """Write ``case`` to ``path``, its arrays beside it unless they are ``drawn`` by seed 0, and how it is seen to fail.

    Gives the files. Raises OSError.
    """
    arrays = path.with_suffix(".arrays.safetensors")  # large constants go beside the text as path.safetensors
    write_case(path, None if drawn else arrays, case, f"// RUN: {check.reproduce(path, None if drawn else arrays)}\n")
    return (path,) if drawn else (path, arrays)


def write_case(path: Path, arrays: Path | None, case: Case, first: str) -> None:
    """The text of the graph after the line ``first``, and its arrays."""
    write_text(path, first + print_graph(case.graph))
    if arrays is not None:
        write_tensors(arrays, case.arrays)
