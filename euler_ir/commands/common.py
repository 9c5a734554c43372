"""What commands share: the graph that they are about, numbers, and answers as JSON."""

from __future__ import annotations

import argparse
import json


def add_target(parser: argparse.ArgumentParser) -> None:
    """The positional argument that ``inspect.user_graph.load_graph`` takes."""
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="FILE.py:function, a function without arguments that returns a Graph; or FILE.eir; or - for text on stdin",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """The flag of every command that prints an answer."""
    parser.add_argument("--json", action="store_true", help="print JSON for programs instead of text")


def count(text: str) -> int:
    """An argument that is a number of 1 or more."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


def print_json(record) -> None:
    """``record``, made of what JSON knows, on stdout."""
    print(json.dumps(record, indent=1))
