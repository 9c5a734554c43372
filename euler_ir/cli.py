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
    printing.add_argument(
        "target", metavar="FILE.py:function", help="a function without arguments that returns a Graph"
    )
    printing.add_argument("--stage", choices=STAGES, required=True, help="what to print, see below")
    printing.add_argument("-o", "--out", metavar="OUT", type=Path, help="write to this file instead")
    printing.add_argument("--locations", action="store_true", help="say the line of your model beside each operator")
    printing.set_defaults(command=_dump, refuse=printing.error)
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
