"""``euler-ir nans``: the first NaN of a run."""

from __future__ import annotations

import argparse

from euler_ir.commands.common import add_arrays, add_json, add_target, counted, print_json
from euler_ir.inspect.given_arrays import given_arrays
from euler_ir.inspect.numerics.nans import NanReport, find_nans
from euler_ir.inspect.user_graph import load_graph


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run the graph op by op and say which is the first to make a NaN that a result depends on, of what, why, and "
        "how it came there. The exit code is 1 when an output, update or leaf is bad."
    )
    add_target(parser)
    add_arrays(parser)
    parser.add_argument("--inf", action="store_true", help="look for infinities too, but for those of constants")
    parser.add_argument("--all", action="store_true", help="also print what is masked, so that no result depends on it")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    graph = load_graph(options.target)
    arrays = given_arrays(graph, options.inputs, options.state, options.seed)
    found = find_nans(graph, arrays.arrays, options.inf, str(arrays))
    if options.json:
        print_json(found.record())
    else:
        print("\n".join(_lines(found, options.all)))
    return 0 if found.is_clean else 1


def _lines(found: NanReport, everything: bool) -> list[str]:
    what = "NaN or infinity" if found.counts_infinities else "NaN"
    lines = [f"{found.graph}: {found.arrays}", *map(str, found.leaves)]
    if found.first is not None:
        lines += [f"the first {what} that a result depends on:", *found.first.lines()]
    if found.others:
        lines.append(f"made of what is none by {counted(found.others, 'operator')} more")
    if found.results:
        shown = ", ".join(found.results[:3]) + (", ..." if len(found.results) > 3 else "")
        lines.append(f"{len(found.results):,} of {found.all_results:,} results hold one: {shown}")
    else:
        lines.append(f"none of the {found.all_results:,} results holds a {what}")
    if found.masked:
        lines.append(f"no result depends on what {counted(len(found.masked), 'operator')} made {what} of what is none")
        for each in found.masked if everything else ():
            lines += each.lines()
        if not everything:
            lines[-1] += ": --all prints it"
    return lines
