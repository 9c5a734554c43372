"""``euler-ir ops``: every operator of the graph."""

from __future__ import annotations

import argparse

from euler_ir.commands.common import add_json, print_json
from euler_ir.errors import GraphError, did_you_mean
from euler_ir.inspect.catalogue import OperatorEntry, operators
from euler_ir.ops.definition import FAMILIES


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "List the operators of the graph: what each reads, its attributes, and what it means."
    parser.epilog = (
        "families: " + ", ".join(FAMILIES) + "\n"
        "what decomposes is made of others, by the pass of that name, unless the backend wants it whole"
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="only this operator, or this family")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    found = [each for each in operators() if options.name in (None, each.name, each.family)]
    if not found:
        hint = did_you_mean(options.name, (*FAMILIES, *(each.name for each in operators())))
        raise GraphError(f"there is no operator or family {options.name!r}", hint=hint)
    if options.json:
        print_json([each.record() for each in found])
        return 0
    for family in dict.fromkeys(each.family for each in found):
        print(f"{family}:")
        for each in found:
            if each.family == family:
                print("\n".join(_lines(each)))
    return 0


def _lines(entry: OperatorEntry) -> list[str]:
    attributes = ", ".join(f"{name}: {kind}" for name, kind in entry.attributes.items())
    call = f"{entry.name} {', '.join(entry.operands)}".rstrip() + (f" {{{attributes}}}" if attributes else "")
    marks = {"no gradient": not entry.has_gradient, "decomposes": entry.has_decomposition}
    said = ", ".join(mark for mark, holds in marks.items() if holds)
    return [f"  {call}" + (f"  ({said})" if said else ""), f"      {entry.doc}"]
