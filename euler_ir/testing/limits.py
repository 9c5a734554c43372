"""Limits of the compiler, set so low that small graphs meet every one of them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

from euler_ir import compiler
from euler_ir.loops import lower
from euler_ir.passes import Fuse, legalize, parallelism
from euler_ir.plan import schedule

TIGHT = {
    parallelism: dict(SMALL_FRAME=4, LANES=2),
    legalize: dict(LANES=2),
    compiler: dict(Fuse=functools.partial(Fuse, max_ops=7, max_inline_size=3, max_repeated=5)),
    lower: dict(MAX_LOCAL_BYTES=32),
    schedule: dict(WINDOW=2),
}
"""By module: what each limit is."""


@contextlib.contextmanager
def tight_limits() -> Iterator[None]:
    """The limits of TIGHT, until the block ends. For tests in one thread: the limits are those of the modules."""
    before = {module: {name: getattr(module, name) for name in limits} for module, limits in TIGHT.items()}
    try:
        _set(TIGHT)
        yield
    finally:
        _set(before)


def _set(limits: dict) -> None:
    for module, numbers in limits.items():
        vars(module).update(numbers)
