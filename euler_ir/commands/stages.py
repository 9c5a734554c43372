"""``euler-ir stages``: what each pass takes and makes, down to the plan."""

from __future__ import annotations

import argparse

from euler_ir.commands.common import add_json, add_pipeline, add_target, print_json, table
from euler_ir.inspect.stages import Descent, stages
from euler_ir.inspect.user_graph import load_files, load_graph
from euler_ir.plan.footprint import readable

RULES = 3
"""Rules of a pass that a row names, those first that were applied most often."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Say pass by pass what it takes and makes: time, operators, the bytes that these would move and the FLOPs they "
        "would do if nothing were fused, the rules applied; at the end kernels and memory."
    )
    add_target(parser)
    add_pipeline(parser)
    parser.add_argument("--all", action="store_true", help="name all rules that a pass applied")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    load_files(options.load)
    descent = stages(load_graph(options.target), options.passes)
    if options.json:
        print_json(descent.record())
        return 0
    print(_table(descent, None if options.all else RULES))
    planned = descent.planned
    print(
        f"\nplanned in {planned.seconds * 1e3:.1f} ms: {planned.groups} groups, {planned.launches} kernels "
        f"({planned.distinct_kernels} distinct), {planned.products} matrix products, {planned.attentions} attentions\n"
        f"a call needs {readable(planned.peak_bytes)}, {readable(planned.arena_bytes)} of it for intermediate tensors"
    )
    return 0


def _table(descent: Descent, most: int | None) -> str:
    start = descent.start
    rows = [("pass", "time", "operators", "bytes", "FLOPs", "rules applied")]
    rows.append(("", "", str(start.operators), readable(start.nbytes), _flops(start.flops), ""))
    for stage in descent.stages:
        rules = [f"{name} {count}" for name, count in stage.rules.items()]
        more = f" and {len(rules) - most} more" if most is not None and len(rules) > most else ""
        cost = stage.cost
        rows.append(
            (
                stage.name,
                f"{stage.seconds * 1e3:.1f} ms",
                str(cost.operators) if stage.changed else "=",
                readable(cost.nbytes) if stage.changed else "=",
                _flops(cost.flops) if stage.changed else "=",
                ", ".join(rules[:most]) + more,
            )
        )
    return table(rows, right=(1, 2, 3, 4))


def _flops(count: int) -> str:
    for unit, size in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return str(count)
