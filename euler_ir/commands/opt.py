"""``euler-ir opt``: run passes on a graph, all of them or some, and print what comes out."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from euler_ir.commands.common import add_json, add_pipeline, add_target, print_json
from euler_ir.graph import Graph
from euler_ir.inspect.stages import stages_of
from euler_ir.inspect.user_graph import load_files, load_graph
from euler_ir.passes import Count, Dump, Instrument, PassManager, Pipeline, Snapshots, Timing, Verify, parse_pipeline
from euler_ir.passes.fused_printer import print_fused
from euler_ir.passes.pipeline import find_pass
from euler_ir.text import print_graph
from euler_ir.text.resources import write_text


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Run passes on a graph and print what comes out, which every command reads again."
    parser.epilog = "P is a pass of the pipeline by its name, or name#2 for the second of that name."
    add_target(parser)
    add_pipeline(parser)
    parser.add_argument("--stop-after", metavar="P", help="stop behind this pass")
    parser.add_argument("--start-from", metavar="P", help="leave out the passes before this one")
    parser.add_argument("--verify-each", action="store_true", help="check the graph after every pass")
    parser.add_argument(
        "--dump-dir", metavar="DIR", type=Path, help="write the graph there after each pass that changes it"
    )
    parser.add_argument("--print-changed", action="store_true", help="print the graph so on stderr too")
    parser.add_argument("--time", action="store_true", help="print the time of each pass on stderr")
    parser.add_argument("--locations", action="store_true", help="say the line of your model beside each operator")
    parser.add_argument("-o", "--out", metavar="OUT.eir", type=Path, help="write to this file instead")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    load_files(options.load)
    graph = load_graph(options.target)  # first, since a Python file may define passes and rules too
    pipeline = parse_pipeline(options.passes)
    first = find_pass(pipeline, options.start_from) if options.start_from else 0
    end = find_pass(pipeline, options.stop_after) + 1 if options.stop_after else len(pipeline)
    timing, count, snapshots = Timing(), Count(), Snapshots()
    instruments = [timing] if options.time else []
    instruments += [count, snapshots] if options.json else []
    instruments += [Verify()] if options.verify_each else []
    instruments += [Dump(options.dump_dir)] if options.dump_dir else []
    instruments += [_PrintChanged()] if options.print_changed else []
    result = PassManager(pipeline[first:end], instruments).run(graph)
    print_level = print_graph if isinstance(result, Graph) else print_fused
    text = print_level(result, options.locations)
    if options.time:
        print(timing, file=sys.stderr)
    if options.out is not None:
        write_text(options.out, text)
    if options.json:
        passes = [stage.record() for stage in stages_of(snapshots, count)]
        print_json({"pipeline": str(Pipeline(pipeline[first:end])), "passes": passes, "text": text})
    elif options.out is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    return 0


class _PrintChanged(Instrument):
    """Prints on stderr what each pass made, where it differs from before."""

    def after_pass(self, pass_, before, after, seconds):
        text = str(after)
        if text != str(before):
            print(f"// after {pass_}\n{text}", file=sys.stderr)
