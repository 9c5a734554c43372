"""``euler-ir memory``: what a step keeps in memory, when, whose it is, and why not less."""

from __future__ import annotations

import argparse
import re

from euler_ir.commands.common import add_json, add_target, add_top, counted, most_of, print_json, rest_lines
from euler_ir.inspect.find import short
from euler_ir.inspect.memory import Decision, Memory, memory
from euler_ir.inspect.user_graph import load_graph
from euler_ir.plan.footprint import readable

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_WIDTH = 60
"""Columns of a chart."""
_INDENT = 14
"""Columns before what stands behind a size."""
_HEIGHT = 8
"""Lines of the chart of the whole arena."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Say what a step needs of memory before it runs: the peak and whose it is, how long each tensor lives, which "
        "are written in place and why the others are not, and what a budget has computed again."
    )
    add_target(parser)
    parser.add_argument("--budget", type=nbytes, metavar="B", help="stay below so many bytes, such as 512M or 2GiB")
    parser.add_argument("--chart", action="store_true", help="draw the arena over the phases of the step")
    add_top(parser, 8)
    add_json(parser)


def nbytes(text: str) -> int:
    """An argument that is a number of bytes, perhaps in units of 2^10, 2^20 or 2^30."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?)(?:i?b)?", text.strip().lower())
    size = int(float(found[1]) * _UNITS[found[2]]) if found else 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes above 0, such as 512M or 2GiB")
    return size


def run(options: argparse.Namespace) -> int:
    report = memory(load_graph(options.target), options.budget)
    if options.json:
        print_json(report.record())
        return 0
    most = most_of(options)
    parts = [_summary(report), _peak(report, most), _holders(report, most)]
    if options.chart:
        parts += [_arena_chart(report), _lives_chart(report, most)]
    parts.append(_decisions(report, most))
    if options.budget is not None:
        parts.append(_budget(report, options.budget, most))
    print("\n\n".join("\n".join(lines) for lines in parts if lines))
    return 0


def _summary(report: Memory) -> list[str]:
    needs = report.footprint
    lines = [f"{report.graph}: {readable(needs.total)} for a call"]
    for name in ("arena", "parameters", "state", "inputs", "outputs", "constants"):
        lines.append(f"  {name:10} {readable(getattr(needs, name)):>12}")
    if needs.arena:
        gaps = needs.arena - report.least
        lines.append(
            f"arena: {len(report.lives)} tensors in {len(report.in_use)} phases, at the peak {readable(report.least)} "
            f"in use, {readable(gaps)} ({100 * gaps / needs.arena:.1f} %) lost in gaps"
        )
    return lines


def _peak(report: Memory, most: int | None) -> list[str]:
    at_peak = report.at_peak()
    if not at_peak:
        return []
    lines = [f"in the arena at the peak, phase {report.peak}:"]
    for life in at_peak[:most]:
        scope = f" in {life.scope}" if life.scope else ""
        lines.append(f"{readable(life.nbytes):>12}  {life.value}: {life.type}  {short(life.location)}{scope}")
        lines.append(f"{'':{_INDENT}}from phase {life.first} to {life.last}, for {life.held_for}")
    return lines + rest_lines(at_peak, most, _INDENT)


def _holders(report: Memory, most: int | None) -> list[str]:
    if not report.holders:
        return []
    lines = ["the peak by line:"]
    for holder in report.holders[:most]:
        scopes = f" in {holder.scopes[0]}" if holder.scopes else ""
        if len(holder.scopes) > 1:
            scopes += f" and {counted(len(holder.scopes) - 1, 'more module')}"
        tensors = counted(holder.buffers, "tensor")
        lines.append(f"{readable(holder.nbytes):>12}  {tensors} of {short(holder.location)}{scopes}")
    return lines + rest_lines(report.holders, most, _INDENT)


def _arena_chart(report: Memory) -> list[str]:
    """The bytes in use over the phases, as columns; a column of several phases is as high as the highest."""
    phases = len(report.in_use)
    if not phases or not report.least:
        return []
    width = min(_WIDTH, phases)
    edges = [number * phases // width for number in range(width + 1)]
    columns = [max(report.in_use[first:last]) for first, last in zip(edges, edges[1:])]
    lines = ["arena in use, phase by phase:"]
    for line in range(_HEIGHT, 0, -1):
        bars = "".join("#" if nbytes * _HEIGHT > (line - 1) * report.least and nbytes else " " for nbytes in columns)
        lines.append(f"{readable(report.least * line // _HEIGHT):>12} |{bars}".rstrip())
    lines.append(f"{'':12} +{'-' * width}")
    return [*lines, f"{'':{_INDENT}}{0:<{max(width - len(str(phases - 1)), 1)}}{phases - 1}"]


def _lives_chart(report: Memory, most: int | None) -> list[str]:
    """A bar for each of the largest tensors, from the phase that makes it to the last that reads it."""
    lives = sorted(report.lives, key=lambda life: (-life.nbytes, life.number))
    if not lives:
        return []
    phases = len(report.in_use)
    width = min(_WIDTH, phases)
    lines = ["lives of the largest, phase by phase:"]
    for life in sorted(lives[:most], key=lambda life: (life.first, life.number)):
        first, last = (phase * width // phases for phase in (life.first, life.last))
        bar = " " * first + "#" * (last - first + 1)
        lines.append(f"{readable(life.nbytes):>12} |{bar:{width}}| {life.value}")
    return lines + rest_lines(lives, most, _INDENT)


def _decisions(report: Memory, most: int | None) -> list[str]:
    if not report.decisions:
        return []
    lines = []
    for kind, placed in (("update", "computed in place"), ("intermediate", "written over a tensor that ends there")):
        decisions = [decision for decision in report.decisions if decision.kind == kind]
        if not decisions:
            continue
        done = [decision for decision in decisions if decision.refusal is None]
        size = readable(sum(decision.nbytes for decision in done))
        lines.append(f"{kind}s: {len(done)} of {len(decisions)} {placed}, {size}")
        lines += _refused([decision for decision in decisions if decision.refusal is not None], most)
    return lines


def _refused(decisions: list[Decision], most: int | None) -> list[str]:
    """The reasons why the others are not, those for the most bytes first, each with the largest example."""
    by_code: dict[str, list[Decision]] = {}
    for decision in sorted(decisions, key=lambda decision: -decision.nbytes):
        by_code.setdefault(decision.refusal.code, []).append(decision)
    ordered = sorted(by_code.items(), key=lambda item: -sum(decision.nbytes for decision in item[1]))
    lines = []
    for code, alike in ordered[:most]:
        first, size = alike[0], readable(sum(decision.nbytes for decision in alike))
        source = f" over {first.source}" if first.source else ""
        tensors = counted(len(alike), "tensor")
        lines.append(f"{size:>12}  {code}: {tensors}, such as {first.value}{source}: {first.refusal.why}")
    return lines + rest_lines(ordered, most, _INDENT)


def _budget(report: Memory, budget: int, most: int | None) -> list[str]:
    done = report.rematerialization
    if done is None:
        return [f"budget {readable(budget)}: met without computing anything again"]
    part = 100 * done.flops_more / done.flops_before if done.flops_before else 0
    lines = [
        f"budget {readable(budget)}: met by {done.way}",
        f"  the arena goes from {readable(done.before)} to {readable(done.after)}, for {done.flops_more:,} operations "
        f"more ({part:.1f} %)",
        "computed a second time, by line:",
    ]
    for each in done.repeated[:most]:
        kinds = ", ".join(f"{times} {name}" for name, times in each.operators[:4])
        others = len(each.operators) - 4
        more = f" and {others} others" if others > 0 else ""
        lines.append(f"{readable(each.nbytes):>12}  {short(each.location)}: {kinds}{more}")
    return lines + rest_lines(done.repeated, most, _INDENT)
