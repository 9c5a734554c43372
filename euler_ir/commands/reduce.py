"""``euler-ir reduce``: a small graph that fails as a large one does."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from euler_ir.commands.common import (
    add_arrays, add_backend, add_json, add_pipeline, add_target, add_threads, count, print_json,
)  # fmt: skip
from euler_ir.inspect.given_arrays import given_arrays
from euler_ir.inspect.numerics.cases import Case
from euler_ir.inspect.numerics.failures import CHECKS, failure, save_case
from euler_ir.inspect.numerics.reduce import MOST_RUNS, reduce
from euler_ir.inspect.user_graph import UserGraphError, defining_files, load_files, load_graph


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Shrink a graph that fails to one that fails in the same way with as few operators as can be found. An "
        "interrupt ends the search and keeps the best so far."
    )
    parser.epilog = "checks:\n" + "\n".join(f"  {check:14}{meaning}" for check, meaning in CHECKS.items())
    add_target(parser)
    parser.add_argument("--check", required=True, metavar="CHECK", help="what failing means, see below")
    add_arrays(parser)
    add_backend(parser, "whose program")
    add_threads(parser)
    add_pipeline(parser, default=None)
    parser.add_argument("--runs", type=count, default=MOST_RUNS, help="cases to try, at most (default: %(default)s)")
    parser.add_argument("-o", "--out", metavar="OUT.eir", type=Path, default=Path("reduced.eir"), help="where it goes")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    load_files(options.load)
    graph = load_graph(options.target)
    arrays = given_arrays(graph, options.inputs, options.state, options.seed)
    told = (lambda progress: None) if options.json else (lambda progress: print(progress, file=sys.stderr))
    loaded = defining_files(options.load, options.target)
    try:
        check = failure(options.check, options.passes, options.backend, options.threads, loaded)
        found = reduce(Case(graph, arrays.arrays), check, options.runs, told, lambda: check.suspect)
    except ValueError as error:
        raise UserGraphError(f"{options.target}, --check {options.check!r}: {error}") from None
    written = save_case(options.out, found.case, check, found.drawn)
    if options.json:
        print_json({**found.record(), "files": [str(path) for path in written]})
        return 0
    (before, _, elements), (after, _, fewer) = found.before.size, found.case.size
    print(f"{before:,} operators with {elements:,} elements became {after:,} with {fewer:,}, in {found.runs:,} runs")
    if found.interrupted:
        print("stopped before the end: it may become smaller yet")
    print(f"written: {', '.join(map(str, written))}")
    return 0
