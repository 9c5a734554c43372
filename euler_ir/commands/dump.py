"""``euler-ir dump``: one stage of a graph as text."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from euler_ir.commands.common import add_architecture, add_json, add_pipeline, add_target, print_json
from euler_ir.inspect.dump import STAGES, WITH_LOCATIONS, dump
from euler_ir.inspect.user_graph import load_files, load_graph
from euler_ir.text.resources import write_text


def configure(parser: argparse.ArgumentParser) -> None:
    width = max(map(len, STAGES))
    stages = "\n".join(f"  {stage:{width}}  {meaning}" for stage, meaning in STAGES.items())
    parser.epilog = f"stages, from your model downwards:\n{stages}"
    add_target(parser)
    parser.add_argument("--stage", choices=STAGES, required=True, help="what to print, see below")
    parser.add_argument(
        "-o",
        "--out",
        metavar="OUT",
        type=Path,
        help="write to this file instead; data of large constants go beside an OUT that ends in .eir",
    )
    parser.add_argument("--locations", action="store_true", help="say the line of your model beside each operator")
    add_pipeline(parser, default=None)
    add_architecture(parser)
    add_json(parser)
    parser.set_defaults(refuse=parser.error)


def run(options: argparse.Namespace) -> int:
    if options.locations and options.stage not in WITH_LOCATIONS:
        options.refuse(f"--locations goes with the stages {', '.join(WITH_LOCATIONS)}")
    load_files(options.load)
    graph = load_graph(options.target)
    text = dump(graph, options.stage, options.locations, options.passes, options.arch)
    if options.out is not None:
        write_text(options.out, text)
    elif options.json:
        print_json({"stage": options.stage, "text": text})
    else:
        sys.stdout.write(text)
        sys.stdout.flush()
    return 0
