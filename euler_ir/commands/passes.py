"""``euler-ir passes``: the passes, presets and rules that a pipeline may name."""

from __future__ import annotations

import argparse

from euler_ir.commands.common import add_json, add_load, print_json, table
from euler_ir.inspect import catalogue
from euler_ir.inspect.user_graph import load_files
from euler_ir.passes import NUMERICS


def configure(parser: argparse.ArgumentParser) -> None:
    width = max(map(len, NUMERICS))
    labels = "\n".join(f"  {label:{width}}  {meaning}" for label, meaning in NUMERICS.items())
    parser.description = "List the passes with their options, the presets, and with --rules the rules."
    parser.epilog = f"what a pass or rule may do to the numbers:\n{labels}"
    parser.add_argument("--rules", action="store_true", help="list the rewrite rules instead")
    add_load(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    load_files(options.load)
    if options.rules:
        rules = catalogue.rules()
        if options.json:
            print_json([rule.record() for rule in rules])
        else:
            print(table([("rule", "numerics", "meaning"), *((rule.name, rule.numerics, rule.doc) for rule in rules)]))
        return 0
    passes, presets = catalogue.passes(), catalogue.presets()
    if options.json:
        print_json({"passes": [each.record() for each in passes], "presets": presets})
        return 0
    rows = [(each.name, each.level, each.numerics, each.doc) for each in passes]
    print(table([("pass", "makes", "numerics", "meaning"), *rows]))
    taken = [(each.name, str(option), option.type) for each in passes for option in each.options]
    print("\n" + table([("pass", "option", "type"), *taken]))
    print("\n" + table([("preset", "passes"), *presets.items()]))
    return 0
