"""``euler-ir where``: one element of a parameter, traced to the machine."""

from __future__ import annotations

import argparse

from euler_ir.commands.common import add_json, add_target, count, print_json
from euler_ir.inspect.find import short
from euler_ir.inspect.user_graph import load_graph
from euler_ir.inspect.where import LOOKED_AT, Touch, Where, where


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Trace one element of a parameter, state, input, output or any %value in memory: where it lies, and every loop "
        "and call of a step that touches it, at which indices, on which thread, in which vector lane or register tile."
    )
    parser.add_argument("element", metavar="NAME[I,J]", help="such as 'h.0.attn.c_attn.weight[3,1024]', in quotes")
    add_target(parser)
    parser.add_argument("--threads", type=count, help="worker threads (default: all cores)")
    parser.add_argument("--live", action="store_true", help="compile, begin the state, and give the address in memory")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    graph = load_graph(options.target)
    if options.live:
        from euler_ir.compiler import compile
        from euler_ir.state import initial_state

        executable = compile(graph, threads=options.threads)
        found = where(executable, options.element, initial_state(graph))
    else:
        found = where(graph, options.element, threads=options.threads)
    if options.json:
        print_json(found.record())
        return 0
    print("\n".join(_element(found)))
    for touch in found.touches:
        print()
        print("\n".join(_touch(touch)))
    if not found.touches:
        print("\nno loop and no call of the step touches it")
    return 0


def _element(found: Where) -> list[str]:
    element = found.element
    made = f", from {short(element.location)}" if element.location is not None else ""
    lines = [
        f"{element}: {element.type}, {element.place}{made}",
        f"  element {element.flat} of buffer {element.buffer}, byte {element.byte} of {element.nbytes}",
    ]
    if element.block_byte is not None:
        lines.append(f"  byte {element.block_byte} of the block of a State that this graph has begun")
    if element.arena_byte is not None:
        lines.append(f"  byte {element.arena_byte} of the arena")
    if found.address is not None:
        lines.append(f"  address {found.address:#x}")
    return lines


def _touch(touch: Touch) -> list[str]:
    line = f"  {short(touch.locations[0])}" if touch.locations else ""
    more = f" and {len(touch.locations) - 1} more" if len(touch.locations) > 1 else ""
    scope = f" in {touch.scope}" if touch.scope else ""
    lines = [
        f"{touch.half}, phase {touch.phase}: {touch.name}{scope}{line}{more}",
        f"  {touch.access} by {touch.role}: {touch.code}",
    ]
    number = f"{touch.count:,} point{'s' * (touch.count != 1)}" if touch.complete else f"more than {touch.count:,} points"
    spans = ", ".join(_span(name, span, dict(touch.axes)[name]) for name, span in touch.spans.items())
    lines.append(f"  at {number}" + (f": {spans}" if spans else ""))
    if touch.by_data:
        lines.append(f"  {', '.join(touch.by_data)} is read from memory: only where it has this value")
    if touch.threads:
        looked = f", of {LOOKED_AT} points looked at" if touch.count > LOOKED_AT else ""
        lines.append(f"  thread{'s' * (len(touch.threads) > 1)} {', '.join(map(str, touch.threads))}{looked}")
    for point in touch.points if touch.count > 1 else touch.points[:1]:
        lines += _point(point, touch.count > 1)
    return lines


def _span(name: str, span: tuple[int, int], extent: int) -> str:
    low, high = span
    if low == high:
        return f"{name} = {low}"
    return f"{name} in {low} .. {high}" + (" (all)" if high - low + 1 == extent else "")


def _point(point: dict, many: bool) -> list[str]:
    """The machine's part of one point: which thread, which lane or tile."""
    at = ", ".join(f"{name} = {position}" for name, position in point["at"].items())
    where = f"  {at}: " if many else "  "
    if "library" in point:
        return [f"{where}inside of {point['library']}"]
    if "places" in point:
        return [f"{where}{_place(place)}" for place in point["places"]]
    words = [f"thread {' and '.join(map(str, point['threads']))}"]
    if "task" in point:
        words.append(f"task {point['task']}")
    if "lane" in point:
        masked = ", a vector that is not full" if point["masked"] else ""
        words.append(f"lane {point['lane']} of {point['lanes']}{masked}")
    for name, label in (("head", "head"), ("query_block", "block of queries"), ("block_place", "place"),
                        ("key_tile", "tile of keys"), ("tile_row", "row")):  # fmt: skip
        if name in point:
            words.append(f"{label} {point[name]}")
    return [where + ", ".join(words)]


def _place(place: dict) -> str:
    rows, columns = (f"{low} .. {high}" for low, high in (place["rows"], place["columns"]))
    piece = f"thread {place['thread']} (rows {rows}, columns {columns})"
    if "panel" in place:
        block = f"block {place['line_block']}, {place['inner_block']} inward"
        return f"{piece}: packed in {block}: panel {place['panel']}, step {place['panel_step']}, place {place['panel_place']}"
    return f"{piece}: register tile row {place['tile_row']}, vector {place['vector']}, lane {place['lane']}"
