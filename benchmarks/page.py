"""The documentation's page of results, made of the JSON that is kept beside it."""

import json
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


class PageError(RuntimeError):
    """There is nothing to make a page of."""


def markdown(records, tables_of):
    """The text of the page. ``tables_of`` maps the name of a table to the function that makes Tables of its results."""
    parts = [_INTRODUCTION]
    for record in records:
        parts += [f"## {record['table']}", _circumstances(record)]
        parts += [table.markdown() for table in tables_of[record["table"]](record["results"], record["ceilings"])]
    return "\n\n".join(parts) + "\n"


def write(tables_of, docs=DOCS):
    """Write ``docs/benchmarks.md`` from ``docs/benchmarks/TABLE.json``. Raises PageError when there are none."""
    files = [docs / "benchmarks" / f"{name}.json" for name in tables_of]
    records = [json.loads(file.read_text()) for file in files if file.exists()]
    if not records:
        raise PageError(f"There are no results in {docs / 'benchmarks'}. Write some there with --json.")
    page = docs / "benchmarks.md"
    page.write_text(markdown(records, tables_of))
    return page


def _circumstances(record):
    environment, ceilings = record["environment"], record["ceilings"]
    machine, one = environment["machine"], ceilings["one_thread"]
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    variables = ", ".join(f"{name}={value}" for name, value in environment["variables"].items())
    return (
        f"{environment['date']}, {environment['threads']} threads of {machine['cores']} cores of {machine['cpu']} "
        f"(family {machine['family']}; {machine['vectors']}; {', '.join(machine['caches'])} a core), "
        f"{machine['memory_gib']} GiB; Python {environment['python']}, {versions}"
        f"{'; ' + variables if variables else ''}. Load average at the start: {environment['load_at_start']:.2f}.\n\n"
        f"Measured ceilings: f32 multiply-adds {ceilings['fma']:.0f} GFLOP/s ({one['fma']:.0f} on one thread); memory "
        f"read {ceilings['read']:.1f} GB/s ({one['read']:.1f}), triad {ceilings['triad']:.1f} GB/s "
        f"({one['triad']:.1f}).\n\n"
        f"    python -m benchmarks {record['table']} {record['command']}"
    )


_INTRODUCTION = """\
# Benchmarks

Each table is one command, which measures euler_ir and its peers in the same run: every peer in a process of its own, in
turns, so that what slows the machine slows all. Times are medians [least, most]; ratios are medians over the rounds
of the ratio within a round. Peers are optional; one that is not installed is left out, and named with the command that
installs it. GFLOP/s and GB/s are of the operations and bytes that the task needs at least, whatever was done; ceilings
are measured before and after each run (GB/s above the ceiling: the data stayed in a cache).

A kernel of euler_ir is a graph whose operands and results are state, called as a user calls it, so that a call
allocates nothing and its cost in Python counts. torch writes into memory that is there already where it takes an `out`;
the others allocate their results, as they do in use.

This page is written by `python -m benchmarks page` from the files in `docs/benchmarks/`, which
`python -m benchmarks TABLE --json docs/benchmarks/TABLE.json` writes."""
