"""The command ``euler-ir``: finds the command that is meant and says what went wrong in one message."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from euler_ir.commands import COMMANDS
from euler_ir.errors import EulerError
from euler_ir.inspect.user_graph import UserGraphError, defining_files
from euler_ir.text.resources import write_text

INTERRUPTED, READER_GONE = 130, 141
"""Exit codes, as a shell gives them for SIGINT and SIGPIPE. All others come from the commands: 0, 1 and 2."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``euler-ir`` on ``arguments`` (by default the process's own) and give its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a character is no reason to say nothing
            stream.reconfigure(errors="backslashreplace")
    loaded, target = (), ""
    try:
        options = _parser(arguments[:1]).parse_args(arguments)
        loaded, target = getattr(options, "load", ()), getattr(options, "target", "")
        code = options.run(options)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("euler-ir: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _say_no_more()
        return READER_GONE
    except (UserGraphError, EulerError, OSError) as error:
        print(f"euler-ir: {error}", file=sys.stderr)
        if isinstance(error, OSError):
            _say_no_more()  # it may have been stdout that took no more
        elif isinstance(error, EulerError) and error.reproducer is not None:
            print(_keep_reproducer(error.reproducer, defining_files(loaded, target)), file=sys.stderr)
        return 2
    except (MemoryError, RecursionError) as error:
        print(f"euler-ir: {type(error).__name__}: {error}".removesuffix(": "), file=sys.stderr)
        return 2


def _say_no_more() -> None:
    """Whatever still waits to be written to stdout is dropped: Python tries once more at exit, which must not fail."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _keep_reproducer(text: str, loaded: Sequence[str]) -> str:
    """Write the graph on which a pass failed to a file of the working directory; gives the command that fails again."""
    pipeline = text.split("\n", 1)[0].removeprefix("// RUN: ")
    path = Path(f"failed_{pipeline.split('{')[0]}.eir")
    write_text(path, text)
    load = [word for file in loaded for word in ("--load", file)]
    command = ["euler-ir", "opt", str(path), "-p", pipeline, "--verify-each", *load]
    return f"to see it again: {shlex.join(command)}"


def _parser(wanted: Sequence[str]) -> argparse.ArgumentParser:
    """All commands by name and help; only one that is ``wanted`` is imported and says its options."""
    parser = argparse.ArgumentParser(prog="euler-ir", description="Look into the graph compiler euler_ir.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, meaning in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=meaning,
            description=f"{meaning[0].upper()}{meaning[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in wanted:
            module = importlib.import_module(f"euler_ir.commands.{name.replace('-', '_')}")
            module.configure(command)
            command.description = textwrap.fill(command.description, shutil.get_terminal_size().columns - 2)
            command.set_defaults(run=module.run)
    return parser
