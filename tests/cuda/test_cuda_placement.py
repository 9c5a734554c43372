"""Who computes a point, as `place_of` says it: the emulator names the thread that reads where there is no memory."""

import re

import numpy as np
import pytest
from nest_launches import Run, emulate, poisoned, step_of

from euler_ir.backends.cuda.codegen import place_of
from euler_ir.backends.cuda.codegen.mappings import mapping_of
from euler_ir.dtypes import f32, i32
from euler_ir.errors import ExecutionError
from euler_ir.index import Axis, Dynamic, Index, linearize
from euler_ir.loops.kernel import Buffer, CheckIndex, Load, Loop, Nest, Reduction, Store

TABLE = 1 << 13  # so few that all of them lie in the guard after what is there, whatever else is mapped
PRESENT = 16


def at(axes, order=None):
    chosen = axes if order is None else tuple(axes[place] for place in order)
    return linearize(tuple(map(Index.of, chosen)), tuple(axis.extent for axis in chosen))


def look_up(axes):
    """``v``: what the table has at the number of this point."""
    number = Load("number", i32, "numbers", at(axes))
    check = CheckIndex("place", "number", TABLE, 1)
    return number, check, Load("v", f32, "table", Index.of(Dynamic("place", TABLE)))


def nest_over(extents, looped=(), order=None, vector=True):
    """A point for each of ``extents``, and inside a sum over ``looped``, of elements of a table."""
    axes, inner = (
        tuple(Axis(f"{name}{n}", extent) for n, extent in enumerate(of)) for name, of in (("a", extents), ("k", looped))
    )
    size, total = int(np.prod(extents)), int(np.prod((*extents, *looped)))
    buffers = (
        Buffer("numbers", i32, total, "input"), Buffer("table", f32, TABLE, "input"), Buffer("y", f32, size, "output")
    )  # fmt: skip
    everything = (*inner, *axes) if vector else (*axes, *inner)
    body = look_up(everything)
    if looped:
        body = (Loop(inner, body, not vector, (Reduction("s", f32, "sum", "v"),)),)
    return Nest(buffers, axes, (*body, Store("y", at(axes, order), "s" if looped else "v")), vector=vector)


def everything_of(nest):
    loops = [statement for statement in nest.body if isinstance(statement, Loop)]
    inner = loops[0].axes if loops else ()
    return (*inner, *nest.axes) if nest.vector else (*nest.axes, *inner)


CASES = {
    "pointwise": [nest_over((700,)), nest_over((30, 44)), nest_over((1029,))],
    "rows": [nest_over((70,), (12,), vector=False), nest_over((9,), (100,), vector=False),
             nest_over((2,), (2000,), vector=False), nest_over((3, 5), (4, 36), vector=False)],
    "columns": [nest_over((70,), (100,)), nest_over((40,), (9000,))],
    "points": [nest_over((70,), (3,))],
    "transposed": [nest_over((40, 70), order=(1, 0))],
}  # fmt: skip
NESTS = [(mapping, nest) for mapping, nests in CASES.items() for nest in nests]


@pytest.mark.parametrize("number", range(len(NESTS)), ids=[mapping for mapping, _ in NESTS])
def test_the_thread_that_computes_a_point(number):
    """All nests are in one launch, and one of them has a number of which the table has no element."""
    mapping, nest = NESTS[number]
    assert mapping_of(nest).__name__.endswith(mapping)
    random, axes = np.random.default_rng(number), everything_of(nest)
    for _ in range(5):
        runs = [
            Run(each, [np.zeros(each.parameters[0].size, np.int32), table(), poisoned(each.parameters[2])])
            for _, each in NESTS
        ]
        place = tuple(int(random.integers(axis.extent)) for axis in axes)
        runs[number].arrays[0].reshape([axis.extent for axis in axes])[place] = TABLE - 1
        with pytest.raises(ExecutionError) as caught:
            emulate(runs)
        block, thread = map(int, re.search(r"block \((\d+).*?thread \((\d+)", str(caught.value)).groups())
        found = place_of(step_of(runs), number, dict(zip(axes, place)))
        assert (found.block, found.thread) == (block, thread), place


def table():
    """Its first elements: the others are asked for only where there is a fault."""
    return np.zeros(PRESENT, np.float32)
