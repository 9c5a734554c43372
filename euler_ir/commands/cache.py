"""``euler-ir cache``: what is kept on disk."""

from __future__ import annotations

import argparse

from euler_ir import cache
from euler_ir.commands.common import add_json, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        f"Say where compiled code is kept and how much of it, or remove it. {cache.FOLDER_VARIABLE} names another "
        "folder; 'off' keeps nothing."
    )
    parser.add_argument("action", nargs="?", choices=("clear",), help="remove all entries")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    folder = cache.folder()
    usage = cache.clear() if options.action == "clear" else cache.usage()
    if options.json:
        place = None if folder is None else str(folder)
        print_json({"folder": place, "entries": usage.entries, "bytes": usage.bytes, "limit": cache.LIMIT_BYTES})
    elif folder is None:
        print("the cache is switched off")
    elif options.action == "clear":
        print(f"removed {usage.entries:,} entries, {usage.bytes:,} bytes, from {folder}")
    else:
        print(f"{usage.entries:,} entries, {usage.bytes:,} bytes of at most {cache.LIMIT_BYTES:,}, in {folder}")
    return 0
