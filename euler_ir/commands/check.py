"""``euler-ir check``: the gradient of every operator beside finite differences."""

from __future__ import annotations

import argparse

from euler_ir.gradient_check import check_operators, report


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Compare the gradient of every operator, compiled and interpreted, with finite differences in f64."


def run(options: argparse.Namespace) -> int:
    return 0 if report("operator", check_operators()) else 1
