"""What can be said of the CUDA backend without a GPU: `python -m cuda_check`.

All kernels of the models here and of random graphs are compiled for real GPUs, and must be within their limits; every
operator, and gradients of whole models, are run by the emulator and compared with the interpreter; faults are planted
that its tests must find. The exit code is 1 when anything is wrong.
"""

import argparse
import json
import sys
import time

from rich.console import Console

from benchmarks.arguments import count
from cuda_check import accuracy, faults, kernels, roofline
from cuda_check.tables import tables
from cuda_check.zoo import ZOO
from euler_ir.backends.cuda.limits import limits_of
from euler_ir.errors import EulerError

PARTS = ("kernels", "roofline", "operators", "models", "faults")


def main(arguments=None):
    """Check what the command line names; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cuda_check", description=__doc__.split("\n")[0])
    for option, read, known in (("--only", _parts, PARTS), ("--models", _models, ZOO)):
        listed = f"of {', '.join(known)} (default: all)"
        parser.add_argument(option, type=read, default=known, metavar="A,B", help=listed)
    parser.add_argument(
        "--arch", type=_architectures, default=("sm_80", "sm_90"), metavar="A,B", help="GPUs (default: sm_80,sm_90)"
    )
    parser.add_argument("--random", type=count, default=20, help="random graphs to compile (default: %(default)s)")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print JSON for programs instead of tables")
    shown.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    options = parser.parse_args(arguments)
    record = {}
    for part in options.only:
        start = time.perf_counter()
        record[part] = _check(part, options)
        print(f"{part}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    wrong = wrong_of(record)
    if options.json:
        print(json.dumps({"wrong": wrong, **record}, indent=1))
    elif options.markdown:
        print("\n\n".join(table.markdown() for table in tables(record)))
    else:
        console = Console(width=None if sys.stdout.isatty() else 240, highlight=False)
        for table in tables(record):
            table.print(console)
    print("\n".join(wrong) if wrong else "nothing is wrong", file=sys.stderr)
    return 1 if wrong else 0


def _check(part, options):
    match part:
        case "kernels":
            of_models = kernels.check_models(options.models, options.arch)
            return of_models + kernels.check_random_graphs(options.random, options.arch)
        case "roofline":
            return roofline.check_models(options.models)
        case "operators":
            return [each.record() for each in accuracy.check_operators()]
        case "models":
            return [each.record() for each in accuracy.check_models()]
        case "faults":
            return faults.check_faults()


def wrong_of(record):
    """All that is wrong in a record of parts, in words."""
    said = [each.get("wrong") for found in record.values() for each in found]
    return [text for each in said if each for text in ([each] if isinstance(each, str) else each)]


def _names(text, known, kind):
    names = tuple(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"there is no {kind} {name!r}: choose of {', '.join(known)}")
    return names


def _parts(text):
    return _names(text, PARTS, "part")


def _models(text):
    return {name: ZOO[name] for name in _names(text, ZOO, "model")}


def _architectures(text):
    for architecture in text.split(","):
        try:
            limits_of(architecture)
        except EulerError as error:
            raise argparse.ArgumentTypeError(error.message) from None
    return tuple(text.split(","))


if __name__ == "__main__":
    sys.exit(main())
