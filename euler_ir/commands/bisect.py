"""``euler-ir bisect``: the one rewrite, or kernel, that makes a result wrong."""

from __future__ import annotations

import argparse

from euler_ir.commands.common import (
    add_arrays, add_backend, add_json, add_pipeline, add_target, add_threads, print_json,
)  # fmt: skip
from euler_ir.inspect.given_arrays import given_arrays
from euler_ir.inspect.numerics.bisect import VERDICTS, bisect
from euler_ir.inspect.user_graph import UserGraphError, load_files, load_function, load_graph


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Find the one application of a pass or rule that makes the graph wrong, by halving their number; when all are "
        "right, the kernel. The exit code is 1 when something is wrong."
    )
    width = max(map(len, VERDICTS))
    parser.epilog = "verdicts:\n" + "\n".join(f"  {name:{width}}  {meaning}" for name, meaning in VERDICTS.items())
    add_target(parser)
    add_arrays(parser)
    add_backend(parser, "whose program")
    add_threads(parser)
    add_pipeline(parser, default=None)
    parser.add_argument(
        "--predicate",
        metavar="FILE.py:function",
        help="say by this function of a graph, instead of by its numbers, whether it is right; passes alone are judged",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    load_files(options.load)
    graph = load_graph(options.target)
    arrays = given_arrays(graph, options.inputs, options.state, options.seed)
    is_right = load_function(options.predicate) if options.predicate is not None else None
    try:
        found = bisect(graph, arrays, options.passes, is_right, options.backend, options.threads)
    except ValueError as error:
        raise UserGraphError(str(error)) from None
    if options.json:
        print_json({"graph": graph.name, "arrays": str(arrays), **found.record()})
    else:
        print(f"{graph.name}: {arrays}\n{found}")
    return 0 if found.is_right else 1
