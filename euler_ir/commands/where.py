"""``euler-ir where``: one element of a parameter, traced to the machine."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence

from euler_ir.commands.common import add_json, add_target, add_threads, counted, print_json
from euler_ir.inspect.find import short
from euler_ir.inspect.touches import LOOKED_AT, Touch
from euler_ir.inspect.user_graph import load_graph
from euler_ir.inspect.where import Where, where


_AS = {"loops": "by", "matmul": "as", "attention": "as", "copy": "by"}
_LABELS = {
    "head": "head",
    "query_block": "block of queries",
    "block_place": "place",
    "key_tile": "tile of keys",
    "tile_row": "row",
}
"""What is said of a point of attention."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Trace one element of a parameter, state, input, output or any %value in memory: where it lies, and every loop "
        "and call of a step that touches it, at which indices, on which thread, in which vector lane or register tile; "
        "of a GPU, in which block, warp and thread."
    )
    parser.add_argument("element", metavar="NAME[I,J]", help="such as 'h.0.attn.c_attn.weight[3,1024]', in quotes")
    add_target(parser)
    help = "whose program; cuda needs no GPU (default: %(default)s)"
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu", help=help)
    add_threads(parser)
    parser.add_argument("--live", action="store_true", help="compile, begin the state, and give the address in memory")
    add_json(parser)
    parser.set_defaults(refuse=parser.error)


def run(options: argparse.Namespace) -> int:
    if options.live and options.backend != "cpu":
        options.refuse("--live goes with the backend cpu")
    graph = load_graph(options.target)
    if options.live:
        from euler_ir.compiler import compile
        from euler_ir.state import initial_state

        executable = compile(graph, threads=options.threads)
        found = where(executable, options.element, initial_state(graph))
    else:
        found = where(graph, options.element, threads=options.threads, backend=options.backend)
    if options.json:
        print_json(found.record())
        return 0
    print("\n".join(_element(found)))
    for step in _steps(found.touches):
        print()
        print("\n".join(step))
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


def _steps(touches: Sequence[Touch]) -> Iterator[list[str]]:
    """The lines of each step; accesses that happen at the same points, such as a load and a store, share theirs."""
    for (phase, _, half, name), alike in itertools.groupby(touches, lambda t: (t.phase, t.step, t.half, t.name)):
        alike = list(alike)
        at, others = alike[0].locations[:1], len(alike[0].locations) - 1
        place = "".join(f"  {short(location)}" for location in at) + (f" and {others} more" if others > 0 else "")
        scope = f" in {alike[0].scope}" if alike[0].scope else ""
        lines = [f"{half}, phase {phase}: {name}{scope}{place}"]
        for points, together in itertools.groupby(alike, _points):
            lines += [f"  {touch.access} {_AS[touch.kind]} {touch.role}: {touch.code}" for touch in together]
            lines += points
        yield lines


def _points(touch: Touch) -> list[str]:
    """Where in its loops an access happens, on which thread and in which lane."""
    number = f"{'' if touch.complete else 'more than '}{counted(touch.count, 'point')}"
    axes = dict(touch.axes)
    spans = ", ".join(_span(name, span, axes[name]) for name, span in touch.spans.items() if name not in touch.by_data)
    lines = [f"    at {number}" + (f": {spans}" if spans else "")]
    for name in touch.by_data:
        low, high = touch.spans[name]
        lines.append(f"    where the index that is read is {low}" + (f" .. {high}" if high > low else ""))
    if touch.count > 1 and touch.threads:
        looked = f", of {LOOKED_AT} points looked at" if touch.count > LOOKED_AT else ""
        lines.append(f"    thread{'s' * (len(touch.threads) > 1)} {', '.join(map(str, touch.threads))}{looked}")
    for point in touch.points:
        lines += _point(point, touch)
    return lines


def _span(name: str, span: tuple[int, int], extent: int) -> str:
    low, high = span
    if low == high:
        return f"{name} = {low}"
    return f"{name} in {low} .. {high}" + (" (all)" if high - low + 1 == extent else "")


def _point(point: dict, touch: Touch) -> list[str]:
    """The machine's part of one point: which thread, which lane or tile."""
    at = ", ".join(f"{name} = {position}" for name, position in point["at"].items() if name not in touch.by_data)
    where = f"      {at}: " if touch.count > 1 else "    "
    if "library" in point:
        return [f"{where}inside of {point['library']}"]
    if "block" in point:
        which = ("kernel", "block", "warp", "lane", "element")
        return [where + ", ".join(f"{name} {point[name]}" for name in which)]
    if "places" in point:
        return [f"{where}{_place(place)}" for place in point["places"]]
    words = [f"thread {' and '.join(map(str, point['threads']))}"]
    if "task" in point:
        words.append(f"task {point['task']}")
    if "lane" in point:
        words.append(f"lane {point['lane']} of {point['lanes']}" + (", of a vector that is not full" * point["masked"]))
    words += [f"{label} {point[name]}" for name, label in _LABELS.items() if name in point]
    return [where + ", ".join(words)]


def _place(place: dict) -> str:
    rows, columns = (f"{low} .. {high}" for low, high in (place["rows"], place["columns"]))
    piece = f"thread {place['thread']} (rows {rows}, columns {columns})"
    if "panel" in place:
        block = f"block {place['line_block']}, {place['inner_block']} inward"
        panel = f"panel {place['panel']}, step {place['panel_step']}, place {place['panel_place']}"
        return f"{piece}: packed in {block}: {panel}"
    return f"{piece}: register tile row {place['tile_row']}, vector {place['vector']}, lane {place['lane']}"
