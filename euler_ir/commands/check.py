"""``euler-ir check``: the gradient of every operator beside finite differences."""

from __future__ import annotations

import argparse

from euler_ir import gradient_check
from euler_ir.commands.common import add_json, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compare the gradient of every operator, compiled and interpreted, with finite differences in f64."
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    errors = gradient_check.check_operators()
    if not options.json:
        return 0 if gradient_check.report("operator", errors) else 1
    print_json({"limit": gradient_check.LIMIT, "operators": [error.record() for error in errors]})
    return 0 if all(error.passes() for error in errors) else 1
