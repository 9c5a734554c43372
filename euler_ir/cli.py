"""The command ``euler-ir``: finds the command that is meant and says what went wrong in one message."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from euler_ir.commands import COMMANDS
from euler_ir.errors import EulerError
from euler_ir.inspect.user_graph import UserGraphError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``euler-ir`` on ``arguments`` (by default the process's own) and give its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser(arguments[:1]).parse_args(arguments)
    try:
        return options.run(options)
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough. Python flushes stdout once more at exit, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (UserGraphError, EulerError, OSError) as error:
        print(f"euler-ir: {error}", file=sys.stderr)
        return 2


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
            command.set_defaults(run=module.run)
    return parser
