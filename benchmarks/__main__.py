"""The command line: `python -m benchmarks train --peers torch,jax`."""

import argparse
import json
import os
import sys
from pathlib import Path

from rich.console import Console

from benchmarks import compile, gpu, infer, kernels, memory, nanogpt, page, text, tokenizer, train
from benchmarks.arguments import count
from benchmarks.machine import environment, with_ceilings
from benchmarks.peers import absence, is_installed
from benchmarks.remote import PeerError

TABLES = {
    table.__name__.removeprefix("benchmarks."): table
    for table in (train, kernels, infer, compile, memory, text, nanogpt, tokenizer, gpu)
}


def main(arguments=None):
    """Run what the command line names; the exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.table == "page":
            print(page.write({name: table.tables for name, table in TABLES.items()}))
            return 0
        return _measure(options, sys.argv[2:] if arguments is None else arguments[1:])
    except (PeerError, page.PageError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


def _measure(options, command):
    table = TABLES[options.table]
    # numpy's idle threads would spin through the next peer's turn; this lets them sleep at once.
    os.environ["OPENBLAS_THREAD_TIMEOUT"] = "4"
    for peer in options.peers:
        if not is_installed(peer):
            print(absence(peer), file=sys.stderr)
    peers = tuple(peer for peer in options.peers if is_installed(peer))
    own = {name: getattr(options, name) for name in getattr(table, "OPTIONS", {})}
    record = {"table": options.table, "command": " ".join(command), "environment": environment(options.threads)}
    record["results"], record["ceilings"] = with_ceilings(
        options.threads, lambda: table.measure(options.only, peers, options.threads, options.rounds, **own)
    )
    # Written before it is shown: what was measured is not lost to a mistake in a table.
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(_short(record), indent=1) + "\n")
    console = Console(width=None if sys.stdout.isatty() else 240)
    for each in table.tables(record["results"], record["ceilings"]):
        each.print(console)
    return 0


def _short(value):
    """``value`` with floats of six digits, which is more than any timing has."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _short(each) for key, each in value.items()}
    return [_short(each) for each in value] if isinstance(value, (list, tuple)) else value


def _parser():
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="TABLE", dest="table")
    for name, table in TABLES.items():
        summary = table.__doc__.split("\n")[0]
        command = commands.add_parser(name, help=summary, description=table.__doc__)
        command.add_argument(
            "--peers",
            type=_names(table.PEERS, "peer"),
            default=table.DEFAULT_PEERS,
            metavar="A,B",
            help=f"of {', '.join(table.PEERS)}, or none (default: {','.join(table.DEFAULT_PEERS)})",
        )
        command.add_argument(
            "--only",
            type=_names(table.PARTS, "part"),
            default=table.PARTS,
            metavar="A,B",
            help=f"parts of the table, of {', '.join(table.PARTS)} (default: all)",
        )
        command.add_argument("--threads", type=count, default=len(os.sched_getaffinity(0)), help="default: all cores")
        command.add_argument("--rounds", type=count, default=table.ROUNDS, help="turns a peer (default: %(default)s)")
        for option, settings in getattr(table, "OPTIONS", {}).items():
            command.add_argument(f"--{option}", **settings)
        command.add_argument("--json", metavar="FILE", type=Path, help="write all that was measured there")
    commands.add_parser("page", help="write docs/benchmarks.md from docs/benchmarks/*.json")
    return parser


def _names(known, kind):
    """A reader of names parted by commas, each one of ``known``; 'none' stands for no name."""

    def read(text):
        names = tuple(dict.fromkeys(text.split(","))) if text != "none" else ()
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"there is no {kind} {name!r}: choose of {', '.join(known)}")
        return names

    return read


if __name__ == "__main__":
    sys.exit(main())
