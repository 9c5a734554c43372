"""Check a kernel of a file in several orders of threads, with each access watched; see docs/cuda_emulator.md."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence

import numpy as np

from euler_ir.backends.cuda.emulator import build
from euler_ir.dtypes import DTYPES
from euler_ir.errors import EulerError, ExecutionError

ORDERS = ("ascending", "descending", 0, 1)

_ARRAY = re.compile(r"(?P<dtype>\w+)\[(?P<shape>\d+(?:,\d+)*)\](?:<(?P<limit>\d+))?")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints what each order gives; 1 when one has a fault or other results than the first."""
    options = _parser().parse_intermixed_args(arguments)
    try:
        return _check(options)
    except (EulerError, OSError, MemoryError) as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m euler_ir.backends.cuda.emulator", description=__doc__)
    parser.add_argument("file", help="CUDA C++")
    parser.add_argument("values", nargs="*", help="f32[4,6]: random numbers; i32[6]<10: from 0 to 9; 1.5; null")
    parser.add_argument("--kernel", help="which one, also of a template: 'scale<float>' (default: the only one)")
    parser.add_argument("--blocks", type=_extent, default=(1,), help="of the grid, such as 2,3 (default: 1)")
    parser.add_argument("--threads", type=_extent, default=(32,), help="of a block (default: 32)")
    parser.add_argument("--shared", type=int, default=0, metavar="BYTES", help="dynamic shared memory")
    parser.add_argument("--architecture", default="sm_90", help="whose limits hold (default: sm_90)")
    return parser


def _extent(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"-?\d+(,-?\d+){0,2}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 to 3 numbers, such as 32,8")
    return tuple(int(part) for part in text.split(","))


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split(","))


def _check(options: argparse.Namespace) -> int:
    module = build.load_file(options.file, kernels=[options.kernel] if options.kernel else None, sanitize=True)
    if len(module.kernels) > 1:
        raise ExecutionError("it has several kernels", hint=f"--kernel {' or '.join(module.kernels)}")
    first, failed = None, False
    for order in ORDERS:
        arrays = [_value(value, number) for number, value in enumerate(options.values)]
        found = _outcome(module, arrays, options, order)
        first = found if first is None else first
        if isinstance(found, ExecutionError):
            verdict = str(found)
        else:
            verdict = "ok" if isinstance(first, ExecutionError) or found == first else f"other results than {ORDERS[0]}"
        failed |= verdict != "ok"
        print(f"{order if isinstance(order, str) else f'random, seed {order}'}: {verdict}")
    return int(failed)


def _outcome(module, arguments: list, options: argparse.Namespace, order: str | int) -> list[bytes] | ExecutionError:
    """The bytes of each array after the launch, or what went wrong."""
    try:
        module.run(
            *(module.kernels[0], options.blocks, options.threads, *arguments),
            shared_bytes=options.shared,
            order=order,
            architecture=options.architecture,
        )
    except ExecutionError as error:
        return error
    return [array.tobytes() for array in arguments if isinstance(array, np.ndarray)]


def _value(text: str, number: int) -> np.ndarray | int | float | None:
    """What a word of the command line stands for; the same random numbers for each order."""
    if text == "null":
        return None
    if match := _ARRAY.fullmatch(text):
        if match["dtype"] not in DTYPES:
            raise ExecutionError(f"{text}: no type {match['dtype']}", hint=f"types are {', '.join(DTYPES)}")
        dtype, shape = DTYPES[match["dtype"]], _shape(match["shape"])
        if match["limit"] and int(match["limit"]) == 0:
            raise ExecutionError(f"{text}: no number is from 0 to below 0")
        generator = np.random.default_rng(number)
        if dtype.is_float and not match["limit"]:
            return generator.standard_normal(shape).astype(dtype.numpy)
        return generator.integers(0, int(match["limit"] or 2), shape).astype(dtype.numpy)
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    raise ExecutionError(f"{text!r} is no argument", hint="f32[4,6], i32[6]<10, a number, or null")


if __name__ == "__main__":
    sys.exit(main())
