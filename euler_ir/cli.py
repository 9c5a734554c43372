"""The command ``euler-ir``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from euler_ir import cache
from euler_ir.errors import EulerError
from euler_ir.inspect.dump import STAGES, WITH_LOCATIONS, dump
from euler_ir.inspect.profile import GROUPINGS, profile
from euler_ir.inspect.user_graph import UserGraphError, load_graph


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``euler-ir`` on ``arguments`` (by default the process's own) and give its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough. Python flushes stdout once more at exit, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (UserGraphError, EulerError, OSError) as error:
        print(f"euler-ir: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="euler-ir", description="Look into the graph compiler euler_ir.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    width = max(map(len, STAGES))
    stages = "\n".join(f"  {stage:{width}}  {meaning}" for stage, meaning in STAGES.items())
    printing = commands.add_parser(
        "dump",
        help="print what the compiler makes of a model, stage by stage",
        description="Print one stage of the graph that a function of your file returns.",
        epilog=f"stages, from your model downwards:\n{stages}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_target(printing)
    printing.add_argument("--stage", choices=STAGES, required=True, help="what to print, see below")
    printing.add_argument("-o", "--out", metavar="OUT", type=Path, help="write to this file instead")
    printing.add_argument("--locations", action="store_true", help="say the line of your model beside each operator")
    printing.set_defaults(command=_dump, refuse=printing.error)
    timing = commands.add_parser(
        "profile",
        help="time every kernel and product of a step, beside what the machine could do",
        description="Run the graph that a function of your file returns on random inputs and say where the time goes.",
        epilog="groupings:\n" + "\n".join(f"  {name:8}{meaning}" for name, meaning in GROUPINGS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_target(timing)
    timing.add_argument("--by", choices=GROUPINGS, default="kernel", help="what a row is (default: %(default)s)")
    timing.add_argument("--steps", type=_count, default=10, help="calls to time (default: %(default)s)")
    timing.add_argument("--threads", type=_count, help="worker threads (default: all cores)")
    timing.add_argument("--json", action="store_true", help="print JSON instead of the table")
    timing.add_argument("--trace", metavar="OUT.json", type=Path, help="write the fastest call for Chrome's viewer")
    timing.set_defaults(command=_profile)
    checking = commands.add_parser(
        "check",
        help="compare the gradient of every operator with finite differences",
        description="Compare the gradient of every operator, compiled and interpreted, with finite differences in f64.",
    )
    checking.set_defaults(command=_check)
    caching = commands.add_parser(
        "cache",
        help="say what is kept on disk, or remove it",
        description=f"Say where compiled code is kept and how much of it, or remove it. {cache.FOLDER_VARIABLE} names "
        "another folder; 'off' keeps nothing.",
    )
    caching.add_argument("action", nargs="?", choices=("clear",), help="remove all entries")
    caching.add_argument("--json", action="store_true", help="print a JSON object")
    caching.set_defaults(command=_cache)
    return parser


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="FILE.py:function", help="a function without arguments that returns a Graph")


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


def _dump(options: argparse.Namespace) -> int:
    if options.locations and options.stage not in WITH_LOCATIONS:
        options.refuse(f"--locations goes with the stages {', '.join(WITH_LOCATIONS)}")
    text = dump(load_graph(options.target), options.stage, options.locations)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")
        return 0
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0


def _profile(options: argparse.Namespace) -> int:
    from rich.console import Console

    from euler_ir.inspect import profile_report

    measured = profile(load_graph(options.target), threads=options.threads, steps=options.steps)
    if options.trace is not None:
        options.trace.write_text(json.dumps(profile_report.trace(measured)), encoding="utf-8")
    if options.json:
        print(json.dumps(profile_report.record(measured, options.by), indent=1))
        return 0
    # In a file or a pipe a row is a line, however long.
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(profile_report.summary(measured), highlight=False)
    console.print(profile_report.table(measured, options.by))
    return 0


def _check(options: argparse.Namespace) -> int:
    from euler_ir.gradient_check import check_operators, report

    return 0 if report("operator", check_operators()) else 1


def _cache(options: argparse.Namespace) -> int:
    folder = cache.folder()
    usage = cache.clear() if options.action == "clear" else cache.usage()
    if options.json:
        place = None if folder is None else str(folder)
        print(json.dumps({"folder": place, "entries": usage.entries, "bytes": usage.bytes, "limit": cache.LIMIT_BYTES}))
    elif folder is None:
        print("the cache is switched off")
    elif options.action == "clear":
        print(f"removed {usage.entries:,} entries, {usage.bytes:,} bytes, from {folder}")
    else:
        print(f"{usage.entries:,} entries, {usage.bytes:,} bytes of at most {cache.LIMIT_BYTES:,}, in {folder}")
    return 0
