"""``euler-ir compare``: every value of every stage beside f64."""

from __future__ import annotations

import argparse

from euler_ir.commands.common import (
    add_arrays, add_backend, add_json, add_pipeline, add_target, add_threads, count_or_zero, print_json, table,
    tolerance,
)  # fmt: skip
from euler_ir.inspect.given_arrays import given_arrays
from euler_ir.inspect.numerics.compare import Comparison, StageNumbers, ValueNumbers, compare
from euler_ir.inspect.numerics.elements import place_text
from euler_ir.inspect.user_graph import load_files, load_graph


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compute every value of every stage and say which is the first that rounding does not explain: as built, after "
        "each pass, and as each kernel of the compiled program stores it. The exit code is 1 when there is one."
    )
    add_target(parser)
    add_arrays(parser)
    add_backend(parser, "whose program, none for the passes alone", others=("none",))
    add_threads(parser)
    add_pipeline(parser, default=None)
    parser.add_argument(
        "--tolerance",
        type=tolerance,
        default=0.0,
        help="also allow this error, beside the root mean square of a value (default: rounding alone)",
    )
    parser.add_argument(
        "--values", type=count_or_zero, default=0, metavar="N", help="print the N values with the largest errors"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    load_files(options.load)
    graph = load_graph(options.target)
    arrays = given_arrays(graph, options.inputs, options.state, options.seed)
    backend = None if options.backend == "none" else options.backend
    found = compare(graph, arrays, options.passes, backend, options.threads, options.tolerance)
    if options.json:
        print_json(found.record())
    else:
        print("\n".join(_lines(found, options.values)))
    return 0 if found.first is None else 1


def _lines(found: Comparison, most: int) -> list[str]:
    rows = [("stage", "values", "compared", "largest error")]
    rows += [(stage.name, f"{stage.values:,}", f"{stage.compared:,}", _largest(stage)) for stage in found.stages]
    lines = [f"{found.graph}: {found.arrays}", table(rows, right=(1, 2))]
    if found.first is None:
        lines += ["", "all values are as exact as rounding lets them be"]
    else:
        lines += ["", str(found.first)]
    for title, values in (("as built, in its own types", found.values), ("as stored", found.stored)):
        worst = sorted(values, key=lambda each: -each.error.relative)[:most]
        lines += ["", f"{title}:", *(f"  {_value(each)}" for each in worst)] if worst else []
    return lines


def _largest(stage: StageNumbers) -> str:
    if stage.divergence is not None:
        return f"{stage.divergence.value} is wrong"
    return "" if stage.largest is None else _value(stage.largest)


def _value(value: ValueNumbers) -> str:
    error = value.error
    ulps = f", {error.ulps:.3g} ulp" if error.ulps else ""
    return f"{error.relative:.1e} %{value.name}{place_text(error.place)}{ulps}"
