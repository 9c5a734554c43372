"""The text of kernels, and the key that tells apart nests that need different code."""

from dataclasses import replace

import pytest
from nests import column_sum, gather, layer_norm, pad, scan, scatter_add, softmax, write_rows

from euler_ir.dtypes import f32, i32, i64
from euler_ir.index import Axis, Bound, Dynamic, Index, Multiple
from euler_ir.loops.kernel import (
    Buffer,
    Carry,
    CheckIndex,
    Compute,
    Constant,
    IndexValue,
    Kernel,
    Load,
    Loop,
    Nest,
    Reduction,
    Store,
)
from euler_ir.loops.printer import print_kernel, structural_key


def everything():
    """A nest with every statement and every field in use."""
    i, j, k = Axis("i", 4), Axis("j", 3), Axis("k", 2)
    conditions = (Bound(Index.of(j) - 1, 0, 2), Multiple(Index.of(j) + k, 2))
    inner = Loop(
        (j, k),
        (
            Load("v", f32, "x", Index.of(i) * 4 + j, conditions),
            CheckIndex("row", "number", 5, 9, conditions),
            Compute("after", f32, "add", ("before", "v")),
            Store("scratch", Index.of(Dynamic("row", 5)), "after", accumulate=True),
        ),
        reductions=(Reduction("total", f32, "sum", "v"), Reduction("most", f32, "max", "after")),
        carries=(Carry("before", f32, 0.5, "after"), Carry("again", f32, -0.0, "v")),
    )
    body = (
        IndexValue("number", i64, Index.of(i) // 2),
        Constant("seed", i64, 3),
        Constant("flag", f32, 1),
        Compute("u", f32, "philox", ("seed", "seed", "number"), stream=6),
        Loop((k,), (Store("scratch", Index.of(k), "u"),), vector=True),
        inner,
        Store("y", Index.of(i), "total"),
    )
    buffers = (Buffer("x", f32, 16, "input"), Buffer("y", f32, 4, "output"))
    return Nest(buffers, (i,), body, True, (Buffer("scratch", f32, 5, "local"),))


def test_text_shows_everything():
    assert print_kernel(Kernel("all", (everything(), column_sum(2, 2)))) == """\
eir 1
kernel @all {
  nest (input %x: f32[16], output %y: f32[4]) for i in 4 vector {
    local %scratch: f32[5]
    %number: i64 = index i floordiv 2
    %seed: i64 = constant 3
    %flag: f32 = constant 1.0
    %u: f32 = philox %seed, %seed, %number stream 6
    loop k in 2 vector {
      store %scratch[k] = %u
    }
    loop j in 3, k in 2 carry %before: f32 = 0.5, %again: f32 = -0.0 {
      %v: f32 = load %x[4 i + j] if 0 <= j - 1 < 2 and (j + k) mod 2 == 0
      %row = check %number in 5 fault 9 if 0 <= j - 1 < 2 and (j + k) mod 2 == 0
      %after: f32 = add %before, %v
      store %scratch[%row] += %after
    } next %before = %after, next %again = %v, sum %total: f32 = %v, max %most: f32 = %after
    store %y[i] = %total
  }
  nest (input %x: f32[4], output %y: f32[2]) for c in 2 vector {
    loop r in 2 {
      %v: f32 = load %x[c + 2 r]
    } sum %total: f32 = %v
    store %y[c] = %total
  }
}
"""


def renamed(item):
    """``item`` with another name for every buffer, axis and scalar, by way of its fields."""
    if isinstance(item, Axis):
        return Axis(f"{item.name}_other", item.extent)
    if isinstance(item, Dynamic):
        return Dynamic(f"other.{item.name}", item.extent)
    if isinstance(item, tuple):
        return tuple(renamed(part) for part in item)
    if not hasattr(item, "__dataclass_fields__") or item in (f32, i32, i64):
        return item
    names = {"name", "result", "buffer", "update", "operands"}
    if not isinstance(item, Constant):
        names.add("value")
    fields = {}
    for field in item.__dataclass_fields__:
        value = getattr(item, field)
        if field in names:
            fields[field] = tuple(f"other.{n}" for n in value) if isinstance(value, tuple) else f"other.{value}"
        else:
            fields[field] = renamed(value)
    return replace(item, **fields)


NESTS = (
    everything(),
    softmax(4, 3),
    layer_norm(4, 3),
    column_sum(4, 3),
    gather(4, 3, 2),
    scatter_add(4, 3, 2),
    scan(4, 3),
    pad(4, 3, 1),
    write_rows(2, 4, 3),
)


@pytest.mark.parametrize("nest", NESTS)
def test_the_key_does_not_see_names(nest):
    assert renamed(nest) != nest
    assert structural_key(renamed(nest)) == structural_key(nest)


def test_nests_have_different_keys():
    assert len({structural_key(nest) for nest in NESTS}) == len(NESTS)


def test_loops_side_by_side_may_share_an_axis():
    shared = softmax(4, 3)
    axes = (Axis("a", 3), Axis("b", 3), Axis("c", 3))
    apart = replace(shared, body=tuple(_over(loop, axis) for loop, axis in zip(shared.body, axes)))
    assert structural_key(apart) == structural_key(shared)


def _over(loop, axis):
    places = {loop.axes[0]: Index.of(axis)}
    body = tuple(
        replace(statement, index=statement.index.substitute(places)) if hasattr(statement, "index") else statement
        for statement in loop.body
    )
    return replace(loop, axes=(axis,), body=body)


def changed(nest, position, **fields):
    """``nest`` with other fields in the statement at ``position`` of its body."""
    body = list(nest.body)
    body[position] = replace(body[position], **fields)
    return replace(nest, body=tuple(body))


LOOP = everything().body[5]


@pytest.mark.parametrize(
    "other",
    [
        replace(everything(), vector=False),
        replace(everything(), locals=(Buffer("scratch", f32, 6, "local"),)),
        replace(everything(), parameters=(Buffer("x", f32, 16, "input"), Buffer("y", f32, 5, "output"))),
        changed(everything(), 0, dtype=i32),
        changed(everything(), 0, index=Index.of(Axis("i", 4)) // 3),
        changed(everything(), 1, value=4),
        changed(everything(), 3, stream=7),
        changed(everything(), 3, operands=("seed", "number", "seed")),
        changed(everything(), 4, vector=False),
        changed(everything(), 5, reductions=LOOP.reductions[:1]),
        changed(everything(), 5, reductions=(replace(LOOP.reductions[0], combine="prod"), LOOP.reductions[1])),
        changed(everything(), 5, carries=(replace(LOOP.carries[0], initial=0.25), LOOP.carries[1])),
        changed(everything(), 5, carries=(replace(LOOP.carries[0], update="v"), LOOP.carries[1])),
        changed(everything(), 5, carries=(LOOP.carries[0], replace(LOOP.carries[1], initial=0.0))),
        changed(everything(), 5, body=(replace(LOOP.body[0], conditions=()), *LOOP.body[1:])),
        changed(everything(), 5, body=(replace(LOOP.body[0], index=Index.of(LOOP.axes[0]) * 5), *LOOP.body[1:])),
        changed(everything(), 4, axes=(Axis("k", 2), Axis("m", 3))),
        changed(everything(), 5, body=(LOOP.body[0], replace(LOOP.body[1], fault=8), *LOOP.body[2:])),
        changed(everything(), 5, body=(LOOP.body[0], replace(LOOP.body[1], conditions=()), *LOOP.body[2:])),
        changed(everything(), 5, body=(*LOOP.body[:3], replace(LOOP.body[3], accumulate=False))),
        changed(everything(), 6, buffer="scratch"),
    ],
)
def test_the_key_sees_every_change(other):
    assert structural_key(other) != structural_key(everything())


def test_the_key_sees_which_axis_an_index_uses():
    i, j = Axis("i", 4), Axis("j", 4)
    keys = {structural_key(Nest((), (i, j), (IndexValue("n", i64, Index.of(axis)),))) for axis in (i, j)}
    assert len(keys) == 2


def test_the_key_does_not_see_how_names_sort():
    """The terms of an index are printed in the order of their names, which differs between these two."""
    first, second = (
        Nest((), axes, (IndexValue("n", i64, Index.of(axes[0]) * 4 + axes[1]),))
        for axes in ((Axis("a", 3), Axis("b", 4)), (Axis("z", 3), Axis("y", 4)))
    )
    assert structural_key(first) == structural_key(second)


def test_equal_constants_have_one_key():
    """1 and 1.0 are the same number of f32."""
    assert structural_key(changed(everything(), 2, value=1.0)) == structural_key(everything())
