"""The longest line of a text file, found by a loop that is written in Python and runs as machine code.

    python examples/write_a_native_function.py README.md
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from euler_ir.native import function, i64, pointer, read_only, u8

NEWLINE = ord("\n")


@function(inline=True)
def line_end(text: read_only(u8), start: i64, end: i64) -> i64:
    position = start
    while position < end and text[position] != NEWLINE:
        position += 1
    return position


@function
def longest_line(text: read_only(u8), end: i64, bounds: pointer(i64)) -> i64:
    """Write where the first of the longest lines starts and ends, and return how many lines there are."""
    start, lines = 0, 0
    bounds[0], bounds[1] = 0, 0
    while start < end:
        stop = line_end(text, start, end)
        if stop - start > bounds[1] - bounds[0]:
            bounds[0], bounds[1] = start, stop
        lines += 1
        start = stop + 1
    return lines


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", help="a text file")
    options = parser.parse_args(arguments)
    try:
        text = np.frombuffer(Path(options.file).read_bytes(), np.uint8)
    except OSError as error:
        parser.error(f"{options.file}: {error.strerror}")
    bounds = np.zeros(2, np.int64)
    lines = longest_line(text, len(text), bounds)
    start, stop = bounds.tolist()
    longest = text[start:stop].tobytes().decode("utf-8", "replace")
    print(f"{lines} lines, the longest has {stop - start} bytes: {longest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
