"""How many threads to use."""

from __future__ import annotations

import os

from euler_ir.errors import ExecutionError

THREADS_VARIABLE = "EULER_IR_THREADS"


def default_threads() -> int:
    """The value of EULER_IR_THREADS, else the number of cores this process may use. Raises ExecutionError if bad."""
    text = os.environ.get(THREADS_VARIABLE)
    if text is None:
        return available_cores()
    if not text.strip().isdecimal() or int(text) < 1:
        raise ExecutionError(f"{THREADS_VARIABLE} is '{text}'", hint="set it to a number of threads, 1 or more")
    return int(text)


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0))
