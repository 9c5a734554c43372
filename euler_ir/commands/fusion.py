"""``euler-ir fusion``: what was fused, and why the rest was not."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from euler_ir.commands.common import add_json, add_target, add_top, counted, most_of, print_json
from euler_ir.inspect.find import short
from euler_ir.inspect.fusion import VERDICTS, Edge, Fusion, fusion
from euler_ir.inspect.user_graph import load_graph
from euler_ir.plan.footprint import readable


KINDS = 4
"""Kinds of edges of one line that are printed."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Say for every edge, from a value to an operator that reads it, whether the value goes through memory, why, "
        "what that costs, and what would lift it."
    )
    parser.epilog = "verdicts:\n" + "\n".join(f"  {verdict:10}{meaning}" for verdict, meaning in VERDICTS.items())
    add_target(parser)
    parser.add_argument("--refused", action="store_true", help="with --by edge: only edges that go through memory")
    parser.add_argument("--by", choices=("line", "edge"), default="line", help="what an entry is (default: line)")
    add_top(parser, 5)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    report = fusion(load_graph(options.target))
    if options.json:
        print_json(report.record())
        return 0
    print("\n".join(_summary(report)))
    edges = [edge for edge in report.edges if edge.verdict == "unfused" or not options.refused]
    entries = report.by_line() if options.by == "line" else edges
    shown = entries[: most_of(options)]
    for entry in shown:
        print()
        if options.by == "edge":
            print("\n".join(_edge(entry, where=True)))
            continue
        edges_here = counted(len(entry.edges), "edge")
        print(f"{short(entry.location)}: {edges_here}, {readable(entry.nbytes)} a step")
        if entry.location is not None and entry.location.source_line():
            print(f"    {entry.location.source_line()}")
        print("\n".join(_alike(entry.edges, None if options.all else KINDS)))
    if len(shown) < len(entries):
        what = "lines" if options.by == "line" else "edges"
        print(f"\n{len(entries) - len(shown)} more {what}: --all prints them")
    return 0


def _summary(report: Fusion) -> list[str]:
    counts = ", ".join(f"{count} {verdict}" for verdict, count in report.counts().items())
    part = 100 * report.nbytes / report.moved if report.moved else 0
    return [
        f"{report.graph}: {len(report.edges)} edges in {report.groups} groups: {counts or 'none'}",
        f"what is not fused moves {readable(report.nbytes)} of the {readable(report.moved)} a step ({part:.0f} %)",
    ]


def _alike(edges: Sequence[Edge], most: int | None) -> list[str]:
    """Edges with the same operators and reasons, as in every layer, as one: the ``most`` costliest kinds first."""
    kinds: dict[tuple, list[Edge]] = {}
    for edge in edges:
        kinds.setdefault((edge.operator, edge.refusal, edge.again, edge.nbytes), []).append(edge)
    ordered = sorted(kinds.values(), key=lambda alike: -sum(edge.nbytes for edge in alike))
    lines = []
    for alike in ordered[:most]:
        lines += _edge(alike[0], where=False, more=len(alike) - 1)
    rest = sum(map(len, ordered[len(ordered[:most]) :]))
    return [*lines, f"  and {rest} edges that cost less: --all prints them"] if rest else lines


def _edge(edge: Edge, where: bool, more: int = 0) -> list[str]:
    place = f"  {short(edge.location)}" if where else ""
    others = f" and {more} alike" if more else ""
    cost = f"{readable(edge.nbytes)}  " if edge.nbytes else ""
    lines = [f"  {cost}{edge.value} -> {edge.operator} {edge.reader}{others}: {edge.verdict}{place}"]
    if edge.refusal is not None:
        lines.append(f"      {edge.refusal.code}: {edge.refusal.why}")
        if edge.again is not None:
            prefix = "" if edge.again.code == "reads-to-repeat" else "not computed again, "
            lines.append(f"      {prefix}{edge.again.code}: {edge.again.why}")
        lines.append(f"      to lift it: {edge.refusal.hint}")
    return lines
