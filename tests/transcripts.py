"""Transcripts in the docs: what a page says that a command prints, run again and compared.

A transcript is a fenced block of the language ``console``: each line that begins with ``$ `` is a command, the lines
below it are what it prints, to stdout and stderr. A command goes on over lines that begin with ``> ``. A line ``...``
stands for any lines. The commands of a page run in order in one folder, which has a copy of ``examples/``.

A comment on the line above a block changes how it is compared:

    <!-- figures vary -->       numbers may be any numbers, and the widths of columns follow them
    <!-- not run: REASON -->    the block is left alone
"""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from euler_ir import cache
from euler_ir.threads import THREADS_VARIABLE
from euler_ir.cli import main
from euler_ir.passes import PASSES, RULES, Pass, Rule

ROOT = Path(__file__).parents[1]
ANY_LINES = "..."

_BLOCK = re.compile(r"(?:<!-- (?P<remark>[^\n]*) -->\n)?```console\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_SHELL = re.compile(r"[|&;<>()$`*?#~]")
_VARIES = (
    re.compile(r"\b\d[\d,.]*(e[+-]?\d+)?(?=\s?(ns|us|µs|ms|s|seconds?)\b)"),
    re.compile(r"\b0x[0-9a-f]{6,}\b"),
)
_FIGURE = re.compile(r"[+-]?\d[\d,.]*(e[+-]?\d+)?")
_FILL = re.compile(r"[ ─━-]{2,}")


@dataclass(frozen=True)
class Command:
    """A command of a transcript and the lines that the page says it prints."""

    text: str
    output: tuple[str, ...]

    def arguments(self) -> list[str] | None:
        """The arguments of a plain ``euler-ir`` command; None for anything that needs a shell."""
        if not self.text.startswith("euler-ir ") or _SHELL.search(self.text) or "\n" in self.text:
            return None
        return shlex.split(self.text)[1:]


@dataclass(frozen=True)
class Transcript:
    """A block of a page. ``start`` and ``end`` are the places of its body in the text; ``line`` is for messages."""

    line: int
    start: int
    end: int
    commands: tuple[Command, ...]
    figures_vary: bool
    not_run: str | None


def transcripts(page: str) -> list[Transcript]:
    """All blocks of the text of a page. Raises ValueError for one that is not as the docstring of this module says."""
    found = []
    for block in _BLOCK.finditer(page):
        line, remark = page.count("\n", 0, block.start("body")), block["remark"] or ""
        not_run = remark.removeprefix("not run:").strip() if remark.startswith("not run:") else None
        if not_run == "":
            raise ValueError(f"line {line}: say why the block is not run")
        commands = tuple(_commands(block["body"], line))
        found.append(Transcript(line, *block.span("body"), commands, remark == "figures vary", not_run))
    return found


def _commands(body: str, line: int) -> Iterator[Command]:
    text, output = None, []
    for each in body.splitlines():
        if each.startswith("$ "):
            if text is not None:
                yield Command(text, _without_empty_end(output))
            text, output = each[2:], []
        elif text is None:
            raise ValueError(f"line {line}: the block does not begin with '$ '")
        elif (each == ">" or each.startswith("> ")) and not output:
            text += "\n" + each[2:]
        else:
            output.append(each)
    if text is None:
        raise ValueError(f"line {line}: the block is empty")
    yield Command(text, _without_empty_end(output))


def _without_empty_end(lines: list[str]) -> tuple[str, ...]:
    while lines and not lines[-1]:
        lines = lines[:-1]
    return tuple(lines)


# -- running -----------------------------------------------------------------------------------------------------------


class Session:
    """A folder in which the commands of a page run, one after another."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        """``environment`` is changed in place, and must become that of this process. What is compiled is kept in the
        folder that it names, or in one of the session's own.
        """
        self.folder, self.cache = folder / "work", environment.get(cache.FOLDER_VARIABLE, str(folder / "cache"))
        shutil.copytree(ROOT / "examples", self.folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        scripts = folder / "scripts"
        scripts.mkdir()
        for name, arguments in (("euler-ir", "-m euler_ir "), ("pytest", "-m pytest "), ("python", "")):
            (scripts / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments}"$@"\n')
            (scripts / name).chmod(0o755)
        # With any of these pytest and rich print other lines; on a CI, pytest shortens none.
        for name in ("CI", "BUILD_NUMBER", "FORCE_COLOR", "PY_COLORS", "NO_COLOR"):
            environment.pop(name, None)
        environment |= {
            "PATH": f"{scripts}{os.pathsep}{environment['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "120",
            # Whether or not the package is installed together with its plugin.
            "PYTEST_PLUGINS": "pytest_euler_ir",
            "PYTEST_ADDOPTS": "-p no:cacheprovider",
            cache.FOLDER_VARIABLE: self.cache,
            THREADS_VARIABLE: "2",
        }

    def run(self, command: Command) -> list[str]:
        """The lines that ``command`` prints, with the folder left out of paths."""
        arguments = command.arguments()
        printed = self._in_process(arguments) if arguments is not None else self._in_shell(command.text)
        for path, shown in ((f"{self.folder}/", ""), (self.cache, "~/.cache/euler_ir"), (f"{ROOT}/", "")):
            printed = printed.replace(path, shown)
        return list(_without_empty_end([line.rstrip() for line in printed.splitlines()]))

    def _in_process(self, arguments: list[str]) -> str:
        linecache.checkcache()
        raw = io.BytesIO()
        with io.TextIOWrapper(raw, encoding="utf-8", write_through=True) as out, contextlib.chdir(self.folder):
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), contextlib.suppress(SystemExit):
                with self._as_in_a_new_process():
                    main(arguments)
            return raw.getvalue().decode()

    @contextlib.contextmanager
    def _as_in_a_new_process(self):
        """A command knows what euler_ir defines and it loads itself, not what tests or other commands have loaded."""
        tables, modules = [(table, dict(table)) for table in (PASSES, RULES)], set(sys.modules)
        for table, known in tables:
            for name, made in known.items():
                if not _of_euler_ir(made):
                    del table[name]
        try:
            yield
        finally:
            for table, known in tables:
                table.clear()
                table.update(known)
            for name in sys.modules.keys() - modules:
                if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(self.folder)):
                    del sys.modules[name]

    def _in_shell(self, text: str) -> str:
        finished = subprocess.run(
            ["bash", "-c", text],
            cwd=self.folder,
            env=_of_a_user(os.environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )
        return finished.stdout


def _of_euler_ir(made: type[Pass] | Rule) -> bool:
    origin = made.__module__ if isinstance(made, type) else made.location and made.location.file
    return not origin or origin.startswith(("euler_ir.", str(ROOT / "euler_ir")))


def _of_a_user(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` without what pytest tells the processes that it starts: a pytest below would take itself for one
    of its workers.
    """
    own = ("PYTEST_XDIST_", "PYTEST_CURRENT_TEST")
    return {name: text for name, text in environment.items() if not name.startswith(own)}


# -- comparing ---------------------------------------------------------------------------------------------------------


def matches(wanted: list[str], found: list[str], figures_vary: bool = False) -> bool:
    """Whether ``found`` is what a page says, where ``...`` stands for any lines and what varies is not compared."""
    # A time in a table moves the columns of all of its lines.
    widths_vary = figures_vary or any(_VARIES[0].search(line) for line in found)
    wanted = [ANY_LINES if line.strip() == ANY_LINES else masked(line, figures_vary, widths_vary) for line in wanted]
    found = [masked(line, figures_vary, widths_vary) for line in found]
    # The places in ``found`` that may come next after each wanted line.
    places = {0}
    for line in wanted:
        if line == ANY_LINES:
            places = set(range(min(places), len(found) + 1))
        else:
            places = {place + 1 for place in places if place < len(found) and found[place] == line}
        if not places:
            return False
    return len(found) in places


def masked(line: str, figures_vary: bool, widths_vary: bool) -> str:
    """``line`` with times and addresses, or with all figures, replaced by ``#``; and with one blank for what fills."""
    line = line.rstrip()
    for varies in _VARIES:
        line = varies.sub("#", line)
    line = _FIGURE.sub("#", line) if figures_vary else line
    return _FILL.sub(" ", line).strip() if widths_vary else line


def shortened(wanted: list[str], found: list[str]) -> list[str]:
    """``found`` with lines left out where ``wanted`` leaves lines out, as well as that can be told.

    The first and the last lines that are shown stay as many; those between two ``...`` are the ones most alike.
    """
    parts = [[]]
    for line in wanted:
        if line.strip() == ANY_LINES:
            parts.append([])
        else:
            parts[-1].append(line)
    if len(parts) == 1:
        return found
    lines, place, last = [], 0, max(0, len(found) - len(parts[-1]))
    for part in parts[:-1]:
        if part is not parts[0]:
            starts = range(place, max(place, last - len(part)) + 1)
            place = max(starts, key=lambda start: (_likeness(part, found[start : start + len(part)]), -start))
        lines += [*found[place : place + len(part)], ANY_LINES]
        place += len(part)
    return [*lines, *found[max(place, last) :]]


def _likeness(some: list[str], others: list[str]) -> int:
    """How many words two texts have in common."""
    return sum((Counter(" ".join(some).split()) & Counter(" ".join(others).split())).values())


def rewritten(page: str, session: Session) -> str:
    """The text of ``page`` with the output of each command as it is now; what matches is left as it is."""
    parts, end = [], 0
    for block in transcripts(page):
        if block.not_run is not None:
            continue
        lines = []
        for command in block.commands:
            found, wanted = session.run(command), list(command.output)
            lines += ["$ " + command.text.replace("\n", "\n> ").replace("> \n", ">\n")]
            lines += wanted if matches(wanted, found, block.figures_vary) else shortened(wanted, found)
        parts += [page[end : block.start], *(line + "\n" for line in lines)]
        end = block.end
    return "".join([*parts, page[end:]])
