"""``euler-ir kernel``: one kernel, as it is or replaced."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from euler_ir.commands.common import (
    add_architecture,
    add_json,
    add_program,
    add_substitute,
    add_threads,
    count_or_zero,
    counted,
    print_json,
)
from euler_ir.files import write_file
from euler_ir.inspect.kernel import EMIT, Comparison, compare_substituted, kernel_list, kernel_text, read_substitutes
from euler_ir.inspect.program_file import load_program
from euler_ir.loops.printer import print_part
from euler_ir.plan.kernels import DistinctKernel


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "List the kernels of a program, show one of them at a level, or run the whole step with edited ones beside the "
        "step as it is."
    )
    width = max(map(len, EMIT))
    parser.epilog = "levels:\n" + "\n".join(f"  {level:{width}}  {meaning}" for level, meaning in EMIT.items())
    add_program(parser)
    parser.add_argument("kernel", metavar="K", nargs="?", help="name or number of a kernel; without it all are listed")
    parser.add_argument("--emit", choices=EMIT, default="loops", help="what to print of it (default: %(default)s)")
    parser.add_argument("-o", "--out", metavar="OUT", type=Path, help="write to this file instead")
    add_substitute(parser)
    parser.add_argument("--seed", type=count_or_zero, default=0, help="of a comparison's inputs (default: %(default)s)")
    add_threads(parser)
    add_architecture(parser)
    add_json(parser)
    parser.set_defaults(refuse=parser.error)


def run(options: argparse.Namespace) -> int:
    program = load_program(options.target)
    if options.substitute:
        if options.kernel is not None or isinstance(program, tuple):
            options.refuse("--substitute compares a whole graph: without K, and not of a file of kernels")
        kernels = read_substitutes(options.substitute)
        compared = compare_substituted(program, kernels, options.seed, options.threads)
        if options.json:
            print_json(compared.record())
        else:
            print("\n".join(_comparison_lines(compared)))
        return 0 if compared.agrees else 1
    if options.kernel is None:
        listed = kernel_list(program, options.emit)
        if options.json:
            print_json([_entry(each) for each in listed])
        else:
            print("\n".join(_list_lines(listed)))
        return 0
    text = kernel_text(program, options.kernel, options.emit, options.arch)
    if options.out is not None:
        write_file(options.out, text)
    elif options.json:
        print_json({"kernel": options.kernel, "level": options.emit, "text": text})
    else:
        sys.stdout.write(text)
        sys.stdout.flush()
    return 0


def _entry(each: DistinctKernel) -> dict:
    return {
        "number": each.number,
        "name": each.name,
        "launches": len(each.launches),
        "nests": [print_part(nest).removesuffix(" {") for nest in each.kernel.nests],
    }


def _list_lines(listed: list[DistinctKernel]) -> list[str]:
    lines = [f"{len(listed)} kernels that differ in more than names:"]
    width = max((len(each.name) for each in listed), default=0)
    for entry in map(_entry, listed):
        times = counted(entry["launches"], "launch", "es")
        lines.append(f"{entry['number']:3}  {entry['name']:{width}}  {times}")
        lines += [f"       {nest}" for nest in entry["nests"]]
    return lines


def _comparison_lines(compared: Comparison) -> list[str]:
    worst = sorted(compared.differences, key=lambda each: (each.agrees, each.same_bits, -each.largest))
    same = sum(each.same_bits for each in worst)
    lines = [f"{same} of {len(worst)} results have the same bits"]
    for each in worst:
        if not each.same_bits:
            verdict = "rounding" if each.agrees else "DIFFERS"
            lines.append(f"  {verdict}  {each.role} {each.name}: at most {each.largest:.3g} of {each.scale:.3g}")
    was, now = 1e3 * compared.seconds, 1e3 * compared.substituted_seconds
    lines.append(f"{now:.3f} ms a call with the substitute, {was:.3f} ms without")
    lines.append("the results agree" if compared.agrees else "the results do NOT agree")
    return lines
