"""``euler-ir profile``: where the time of a step goes."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from euler_ir.commands.common import add_json, add_target, add_threads, count, print_json
from euler_ir.files import write_file
from euler_ir.inspect.profile import GROUPINGS, profile
from euler_ir.inspect.user_graph import load_graph


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Run the graph on random inputs and say where the time goes."
    parser.epilog = "groupings:\n" + "\n".join(f"  {name:8}{meaning}" for name, meaning in GROUPINGS.items())
    add_target(parser)
    parser.add_argument("--by", choices=GROUPINGS, default="kernel", help="what a row is (default: %(default)s)")
    parser.add_argument("--steps", type=count, default=10, help="calls to time (default: %(default)s)")
    add_threads(parser)
    add_json(parser)
    parser.add_argument("--trace", metavar="OUT.json", type=Path, help="write the fastest call for Chrome's viewer")


def run(options: argparse.Namespace) -> int:
    from rich.console import Console

    from euler_ir.inspect import profile_report

    measured = profile(load_graph(options.target), threads=options.threads, steps=options.steps)
    if options.trace is not None:
        write_file(options.trace, json.dumps(profile_report.trace(measured)))
    if options.json:
        print_json(profile_report.record(measured, options.by))
        return 0
    # In a file or a pipe a row is a line, however long.
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(profile_report.summary(measured), highlight=False)
    console.print(profile_report.table(measured, options.by))
    return 0
