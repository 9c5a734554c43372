"""``euler-ir explain``: everything about one value, or in short about those of a line or a module."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from euler_ir.commands.common import add_json, add_target, add_top, most_of, print_json, rest_lines
from euler_ir.errors import GraphError
from euler_ir.inspect.explain import Explainer, Explanation
from euler_ir.inspect.find import ops_of_line, ops_of_scope, place_of, short
from euler_ir.inspect.fusion import Edge
from euler_ir.inspect.user_graph import load_graph
from euler_ir.plan.footprint import readable


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Say everything about one value: the line it comes from, what made it and what became of it in each pass, "
        "which loops or call compute it, where it lies in memory and how long, and what it costs."
    )
    parser.add_argument("what", metavar="%VALUE", help="a value by its name, FILE:LINE, or a module such as h.0")
    add_target(parser)
    add_top(parser, 8)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    explainer = Explainer(load_graph(options.target))
    most = most_of(options)
    found = _found(explainer, options.what)
    if options.json:
        print_json(found.record() if isinstance(found, Explanation) else [each.record() for each in found])
    elif isinstance(found, Explanation):
        print("\n".join(_explanation(found, most)))
    else:
        print("\n".join(_overview(found, options.what, most)))
    return 0


def _found(explainer: Explainer, what: str) -> Explanation | tuple[Explanation, ...]:
    place = place_of(what)
    if place is not None:
        return explainer.ops(ops_of_line(explainer.optimized, *place))
    try:
        return explainer.value(what)
    except GraphError:
        if what.startswith("%"):
            raise
        try:
            return explainer.ops(ops_of_scope(explainer.optimized, what))
        except GraphError:
            pass
        raise


def _overview(found: Sequence[Explanation], what: str, most: int | None) -> list[str]:
    """A line for each value, the ones that move most first."""
    nbytes, flops = (sum(getattr(each.cost, name) for each in found) for name in ("nbytes", "flops"))
    share = sum(each.cost.share for each in found)
    lines = [
        f"{what}: {len(found)} values, {flops:,} operations, {readable(nbytes)} moved ({100 * share:.1f} % of the step)"
    ]
    ordered = sorted(found, key=lambda each: -each.cost.nbytes)
    for each in ordered[:most]:
        groups = ", ".join(str(computation.group) for computation in each.computed) or "none"
        place = f"{each.place} {readable(each.cost.nbytes)}" if each.place is not None else "registers"
        via = f"  via {', '.join(each.via)}" if each.via else ""
        lines.append(f"  {each.name}: {each.type}  groups {groups}, {place}{via}")
    return lines + rest_lines(found, most)


def _explanation(found: Explanation, most: int | None) -> list[str]:
    lines = [f"{found.name}: {found.type}", f"  {found.text}"]
    if found.location is not None:
        scope = f", module {found.scope}" if found.scope else ""
        lines += [f"from {found.location}{scope}", f"    {found.location.source_line()}"]
    lines.append(f"made by {', then '.join(found.via)}" if found.via else "made by your program")
    lines += _history(found)
    if found.gone:
        return lines
    lines += _computed(found) + _memory(found)
    lines += _edges("reads", found.operands, lambda edge: edge.value, most)
    lines += _edges("read by", found.readers, lambda edge: f"{edge.operator} {edge.reader}", most)
    lines += [f"is the {result}" for result in found.results]
    cost = found.cost
    lines.append(
        f"costs {cost.flops:,} operations and {readable(cost.nbytes)} of loads and stores a step "
        f"({100 * cost.share:.2f} % of the bytes)"
    )
    return lines


def _history(found: Explanation) -> list[str]:
    if not found.events:
        return [f"kept as it is by all {found.passes} passes"]
    lines = [f"in the {found.passes} passes:"]
    for event in found.events:
        rules = f" by {', '.join(event.by)}" if event.by else ""
        now = {"made": f": {event.now}", "changed": f": {event.now}", "replaced": f": its readers read {event.now}"}
        lines.append(f"  {event.number} {event.pass_}: {event.fate}{rules}{now.get(event.fate, '')}")
    return lines


def _computed(found: Explanation) -> list[str]:
    if not found.computed:
        return ["in memory from the start"] if found.place is not None else ["computed nowhere: no result needs it"]
    times = f" in {len(found.computed)} places" if len(found.computed) > 1 else ""
    lines = [f"computed{times}:"]
    for each in found.computed:
        root = f", at [{each.root}]" if each.root else ", again" if each.again else ""
        lines.append(f"  group {each.group} {each.name}, phase {each.phase}, {each.runs}{root}")
    return lines


def _memory(found: Explanation) -> list[str]:
    if found.place is None:
        return ["lies nowhere in memory: registers alone"]
    life = found.life
    where = f"buffer {found.buffer}, {found.place}"
    if life is not None:
        where += f" + {life.offset}, {readable(life.nbytes)}, phases {life.first} to {life.last}, for {life.held_for}"
    lines = [f"lies in {where}"]
    decision = found.in_place
    if decision is not None and decision.refusal is None:
        lines.append(f"  in the memory of {decision.source}")
    elif decision is not None:
        over = f" over {decision.source}" if decision.source else " over another tensor"
        lines.append(f"  not{over}, {decision.refusal.code}: {decision.refusal.why}")
    return lines


def _edges(title: str, edges: Sequence[Edge], name, most: int | None) -> list[str]:
    if not edges:
        return []
    lines = [f"{title}:"]
    for edge in edges[:most]:
        cost = f", {readable(edge.nbytes)}" if edge.nbytes else ""
        reason = f", {edge.refusal.code}: {edge.refusal.why}" if edge.refusal is not None else ""
        lines.append(f"  {name(edge)}  {short(edge.location)}: {edge.verdict}{cost}{reason}")
    return lines + rest_lines(edges, most)
