"""What commands share: the graph that they are about, numbers, and answers as JSON."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Collection, Sequence
from pathlib import Path

from euler_ir.backends.cuda.limits import ARCHITECTURE


def add_target(parser: argparse.ArgumentParser) -> None:
    """The positional argument that ``inspect.user_graph.load_graph`` takes."""
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="FILE.py:function, a function without arguments that returns a Graph; or FILE.eir; or - for text on stdin",
    )


def add_program(parser: argparse.ArgumentParser) -> None:
    """The positional argument that ``inspect.program_file.load_program`` takes."""
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="FILE.eir of any level; or FILE.py:function, a function without arguments that returns a Graph; or -",
    )


def add_substitute(parser: argparse.ArgumentParser) -> None:
    """The option that ``inspect.kernel.read_substitutes`` takes."""
    parser.add_argument(
        "--substitute",
        metavar="K=FILE",
        action="append",
        default=[],
        help="run kernel K, by name or number, as a file of Loop IR (.eir), LLVM IR (.ll) or CUDA (.cu) says; "
        "may be repeated",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """The flag of every command that prints an answer."""
    parser.add_argument("--json", action="store_true", help="print JSON for programs instead of text")


def add_arrays(parser: argparse.ArgumentParser) -> None:
    """What a program is run on: the flags that ``inspect.given_arrays.given_arrays`` takes for a graph."""
    parser.add_argument("--inputs", metavar="IN.safetensors", type=Path, help="arrays for inputs, by name")
    parser.add_argument(
        "--state", metavar="STATE.safetensors", type=Path, help="parameters and state, by name: a checkpoint, for one"
    )
    parser.add_argument("--seed", type=count_or_zero, default=0, help="of all that is not given (default: %(default)s)")


def add_threads(parser: argparse.ArgumentParser) -> None:
    """The number of worker threads of the CPU backend."""
    parser.add_argument("--threads", type=count, help="worker threads of the backend cpu (default: all cores)")


def add_architecture(parser: argparse.ArgumentParser) -> None:
    """The GPU that what is printed of the backend cuda is compiled for."""
    help = "GPU of the levels cuda, ptx and sass (default: %(default)s)"
    parser.add_argument("--arch", default=ARCHITECTURE, metavar="sm_NN", help=help)


def add_backend(parser: argparse.ArgumentParser, what: str, default: str = "cpu", others: Sequence[str] = ()) -> None:
    """The backend of a program: one of the compiler's, or of ``others``."""
    from euler_ir.compiler import BACKENDS, pipeline_of  # most commands need no compiler

    names = tuple(dict.fromkeys((default, *BACKENDS, *others)))

    def backend(text: str) -> str:
        if text not in names:
            try:
                pipeline_of(text)  # cuda:1 is the backend of another device
            except ValueError:
                hint = f"unknown backend {text!r}: use one of {', '.join(names)}, or cuda:1 for a second GPU"
                raise argparse.ArgumentTypeError(hint) from None
        return text

    metavar, help = "{" + ",".join(names) + "}", f"{what} (default: %(default)s)"
    parser.add_argument("--backend", metavar=metavar, type=backend, default=default, help=help)


def add_pipeline(
    parser: argparse.ArgumentParser, what: str = "the passes to run", default: str | None = "default"
) -> None:
    """``-p`` for a pipeline's text, None for the backend's own; ``--load`` for files that define passes and rules."""
    otherwise = default or "the backend's own"
    parser.add_argument(
        "-p", "--passes", metavar="PIPELINE", default=default, help=f"{what}, as text (default: {otherwise})"
    )
    add_load(parser)


def add_load(parser: argparse.ArgumentParser) -> None:
    """``--load`` for files that define passes and rules; ``inspect.user_graph.load_files`` imports them."""
    parser.add_argument(
        "--load", metavar="FILE.py", action="append", default=[], help="import passes and rules from this file first"
    )


def add_top(parser: argparse.ArgumentParser, entries: int) -> None:
    """How much of a long list is printed: see `most_of`."""
    parser.add_argument(
        "--top", type=count, default=entries, metavar="N", help="entries of each list (default: %(default)s)"
    )
    parser.add_argument("--all", action="store_true", help="print all entries")


def most_of(options: argparse.Namespace) -> int | None:
    """The number of entries to print, None for all, as the flags of `add_top` say."""
    return None if options.all else options.top


def rest_lines(entries: Sequence, most: int | None, indent: int = 2) -> list[str]:
    """The line below a list of which ``most`` entries are printed that says how many are not; none when all are."""
    rest = len(entries) - len(entries[:most])
    return [f"{'':{indent}}{rest} more: --all prints them"] if rest else []


def counted(number: int, noun: str, ending: str = "s") -> str:
    """``1 edge`` or ``2 edges``: a number of things, whose plural has ``ending``."""
    return f"{number:,} {noun}{'' if number == 1 else ending}"


def count(text: str) -> int:
    """An argument that is a number of 1 or more."""
    number = _whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


def count_or_zero(text: str) -> int:
    """An argument that is a number of 0 or more, such as a seed."""
    number = _whole(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"must be 0 or more, not {number}")
    return number


def tolerance(text: str) -> float:
    """An argument that is a finite number of 0 or more, such as an error that is allowed."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of 0 or more, not {text!r}")
    return number


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None


def print_json(record) -> None:
    """``record``, made of what JSON knows, on stdout."""
    print(json.dumps(record, indent=1))


def table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """``rows`` in aligned columns, those numbered in ``right`` to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    aligned = [str.rjust if n in right else str.ljust for n in range(len(widths))]
    lines = ("  ".join(align(*cell) for align, *cell in zip(aligned, row, widths)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
