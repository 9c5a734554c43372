"""``euler-ir explore``: a whole step laid open on one page."""

from __future__ import annotations

import argparse
from pathlib import Path

from euler_ir.commands.common import add_json, add_target, print_json
from euler_ir.files import write_file
from euler_ir.inspect.explorer.collect import explore
from euler_ir.inspect.given_arrays import given_arrays
from euler_ir.inspect.numerics.compare import compare
from euler_ir.inspect.profile import profile
from euler_ir.inspect.user_graph import load_graph


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write one HTML file in which the step is laid open: your source with the cost of each line, the layers, every "
        "stage and what each pass and rule changed, fusion and memory with their reasons, the code of each kernel. It "
        "needs no server and nothing of the network."
    )
    add_target(parser)
    parser.add_argument("-o", "--out", metavar="OUT.html", type=Path, help="the file to write")
    parser.add_argument("--profile", action="store_true", help="run the step and show where its time goes, too")
    parser.add_argument("--numerics", action="store_true", help="compute every value in f64, too, and show its error")
    add_json(parser)
    parser.set_defaults(refuse=parser.error)


def run(options: argparse.Namespace) -> int:
    if options.out is None and not options.json:
        options.refuse("say where to write the page, with -o OUT.html, or ask for --json")
    graph = load_graph(options.target)
    measured = profile(graph) if options.profile else None
    compared = compare(graph, given_arrays(graph)) if options.numerics else None
    exploration = explore(graph, options.target, measured, compared)
    if options.out is not None:
        from euler_ir.inspect.explorer.page import page

        text = page(exploration)
        write_file(options.out, text)
        if not options.json:
            print(f"wrote {options.out}, {len(text.encode('utf-8')) / 1e6:.1f} MB")
    if options.json:
        print_json(exploration.record())
    return 0
