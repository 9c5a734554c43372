"""``euler-ir run``: a program of any level, once."""

from __future__ import annotations

import argparse
from pathlib import Path

from euler_ir.commands.common import (
    add_arrays, add_backend, add_json, add_program, add_substitute, add_threads, print_json, table,
)  # fmt: skip
from euler_ir.inspect.kernel import read_substitutes
from euler_ir.inspect.program_file import load_program
from euler_ir.inspect.run import Run, run_program
from euler_ir.inspect.tensor_file import read_tensors, write_tensors
from euler_ir.text.resources import side_file

SHOWN_NAMES = 6
"""Of what was drawn or begun: so many names are listed."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run a graph, a fused graph or kernels once and say what came out. Inputs that are not given are drawn, and "
        "parameters and state begun, from the seed."
    )
    add_program(parser)
    add_backend(parser, "what runs it", "interpreter")
    add_arrays(parser)
    add_threads(parser)
    add_substitute(parser)
    parser.add_argument("-o", "--out", metavar="OUT.safetensors", type=Path, help="write the results, bit for bit")
    add_json(parser)
    parser.set_defaults(refuse=parser.error)


def run(options: argparse.Namespace) -> int:
    if options.out is not None and options.target.endswith(".eir") and options.out == side_file(options.target):
        options.refuse(f"{options.out} is where {options.target} has the data of large constants: choose another name")
    program = load_program(options.target)
    if options.substitute and (options.backend == "interpreter" or isinstance(program, tuple)):
        options.refuse("--substitute goes with a graph, and with a --backend that has a plan")
    finished = run_program(
        program,
        options.backend,
        read_tensors(options.inputs) if options.inputs is not None else {},
        read_tensors(options.state) if options.state is not None else {},
        options.seed,
        options.threads,
        read_substitutes(options.substitute),
    )
    if options.out is not None:
        write_tensors(options.out, finished.arrays())
    if options.json:
        print_json(finished.record())
    else:
        print("\n".join(_lines(finished)))
    return 0


def _lines(finished: Run) -> list[str]:
    lines = [f"{finished.level} {finished.name} on {finished.backend}, seed {finished.seed}"]
    for what, names in (("drawn", finished.drawn), ("begun", finished.begun), ("not used", finished.unused)):
        if names:
            more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
            lines.append(f"{what}: {', '.join(names[:SHOWN_NAMES])}{more}")
    rows = [_cells(result.record()) for result in finished.results]
    return [*lines, table((_HEADINGS, *rows))] if rows else lines


_HEADINGS = ("", "name", "type", "min", "max", "mean", "NaN", "first")


def _cells(record: dict) -> tuple[str, ...]:
    numbers = ("" if record[key] is None else _short(record[key]) for key in ("min", "max", "mean"))
    first = ", ".join(map(_short, record["first"]))
    return record["role"], record["name"], record["type"], *numbers, str(record["nan"]), first


def _short(number) -> str:
    return f"{number:.6g}" if isinstance(number, float) else str(number)
