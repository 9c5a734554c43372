"""Nests written by hand, as the lowering would make them, for the tests of the Loop IR."""

from euler_ir.dtypes import f32, i64
from euler_ir.index import Axis, Bound, Dynamic, Index, linearize
from euler_ir.loops.kernel import (
    Buffer,
    Carry,
    CheckIndex,
    Compute,
    Constant,
    Load,
    Loop,
    Nest,
    Reduction,
    Store,
)


def at(*axes):
    """The place in a contiguous tensor of the element at ``axes``."""
    return linearize(tuple(map(Index.of, axes)), tuple(axis.extent for axis in axes))


def compute(result, operation, *operands, dtype=f32):
    return Compute(result, dtype, operation, operands)


def softmax(rows, columns):
    """A softmax of each row: a running maximum, a sum of exponentials kept in scratch, a division."""
    i, j = Axis("i", rows), Axis("j", columns)
    x, y = Buffer("x", f32, rows * columns, "input"), Buffer("y", f32, rows * columns, "output")
    scratch = Buffer("powers", f32, columns, "local")
    largest = Loop((j,), (Load("x0", f32, "x", at(i, j)),), True, (Reduction("largest", f32, "max", "x0"),))
    powers = Loop(
        (j,),
        (
            Load("x1", f32, "x", at(i, j)),
            compute("shifted", "subtract", "x1", "largest"),
            compute("power", "exp", "shifted"),
            Store("powers", Index.of(j), "power"),
        ),
        True,
        (Reduction("total", f32, "sum", "power"),),
    )
    shares = Loop(
        (j,),
        (
            Load("p", f32, "powers", Index.of(j)),
            compute("share", "divide", "p", "total"),
            Store("y", at(i, j), "share"),
        ),
        True,
    )
    return Nest((x, y), (i,), (largest, powers, shares), locals=(scratch,))


def layer_norm(rows, columns):
    """Each row less its mean, over its deviation, times a weight."""
    i, j = Axis("i", rows), Axis("j", columns)
    x, w = Buffer("x", f32, rows * columns, "input"), Buffer("w", f32, columns, "input")
    y = Buffer("y", f32, rows * columns, "output")
    head = (
        Constant("count", f32, float(columns)),
        Constant("epsilon", f32, 0.0),
        Loop((j,), (Load("x0", f32, "x", at(i, j)),), True, (Reduction("sum", f32, "sum", "x0"),)),
        compute("mean", "divide", "sum", "count"),
        Loop(
            (j,),
            (
                Load("x1", f32, "x", at(i, j)),
                compute("d1", "subtract", "x1", "mean"),
                compute("square", "multiply", "d1", "d1"),
            ),
            True,
            (Reduction("squares", f32, "sum", "square"),),
        ),
        compute("variance", "divide", "squares", "count"),
        compute("safe", "add", "variance", "epsilon"),
        compute("scale", "rsqrt", "safe"),
    )
    tail = Loop(
        (j,),
        (
            Load("x2", f32, "x", at(i, j)),
            Load("weight", f32, "w", Index.of(j)),
            compute("d2", "subtract", "x2", "mean"),
            compute("normal", "multiply", "d2", "scale"),
            compute("scaled", "multiply", "normal", "weight"),
            Store("y", at(i, j), "scaled"),
        ),
        True,
    )
    return Nest((x, w, y), (i,), (*head, tail))


def column_sum(rows, columns):
    """Sums over rows, with neighbouring columns in lanes."""
    r, c = Axis("r", rows), Axis("c", columns)
    x, y = Buffer("x", f32, rows * columns, "input"), Buffer("y", f32, columns, "output")
    total = Loop((r,), (Load("v", f32, "x", at(r, c)),), reductions=(Reduction("total", f32, "sum", "v"),))
    return Nest((x, y), (c,), (total, Store("y", Index.of(c), "total")), vector=True)


def gather(count, table, width):
    """Rows of a table by number; a number outside of it is fault 7."""
    t, d = Axis("t", count), Axis("d", width)
    buffers = (
        Buffer("rows", i64, count, "input"),
        Buffer("table", f32, table * width, "input"),
        Buffer("y", f32, count * width, "output"),
    )
    place = Index.of(Dynamic("row", table)) * width + d
    copy = Loop((d,), (Load("v", f32, "table", place), Store("y", at(t, d), "v")), True)
    return Nest(buffers, (t,), (Load("number", i64, "rows", Index.of(t)), CheckIndex("row", "number", table, 7), copy))


def scatter_add(count, table, width):
    """Adds row ``t`` of ``x`` to row ``rows[t]`` of zeros. Points are columns, so rows may repeat."""
    t, k, d = Axis("t", count), Axis("k", table), Axis("d", width)
    buffers = (
        Buffer("rows", i64, count, "input"),
        Buffer("x", f32, count * width, "input"),
        Buffer("y", f32, table * width, "output"),
    )
    clear = Loop((k,), (Store("y", at(k, d), "zero"),))
    add = Loop(
        (t,),
        (
            Load("number", i64, "rows", Index.of(t)),
            CheckIndex("row", "number", table, 3),
            Load("v", f32, "x", at(t, d)),
            Store("y", Index.of(Dynamic("row", table)) * width + d, "v", accumulate=True),
        ),
    )
    return Nest(buffers, (d,), (Constant("zero", f32, 0.0), clear, add), vector=True)


def scan(rows, columns):
    """Running sums along each row."""
    i, j = Axis("i", rows), Axis("j", columns)
    x, y = Buffer("x", f32, rows * columns, "input"), Buffer("y", f32, rows * columns, "output")
    body = (
        Load("v", f32, "x", at(i, j)),
        compute("after", "add", "before", "v"),
        Store("y", at(i, j), "after"),
    )
    return Nest((x, y), (i,), (Loop((j,), body, carries=(Carry("before", f32, 0.0, "after"),)),))


def pad(rows, columns, width):
    """``width`` more elements on every side, all 0."""
    i, j = Axis("i", rows + 2 * width), Axis("j", columns + 2 * width)
    x, y = Buffer("x", f32, rows * columns, "input"), Buffer("y", f32, i.extent * j.extent, "output")
    row, column = Index.of(i) - width, Index.of(j) - width
    inside = (Bound(row, 0, rows), Bound(column, 0, columns))
    body = (Load("v", f32, "x", row * columns + column, inside), Store("y", at(i, j), "v"))
    return Nest((x, y), (i, j), body, vector=True)


def write_rows(count, table, width):
    """Puts ``x`` into the rows of ``y`` from ``start`` on, whose other rows stay; a bad start is fault 2."""
    t, d = Axis("t", count), Axis("d", width)
    buffers = (
        Buffer("start", i64, 1, "input"),
        Buffer("x", f32, count * width, "input"),
        Buffer("y", f32, table * width, "inout"),
    )
    first = Dynamic("first", table - count + 1)
    body = (
        Load("number", i64, "start", Index()),
        CheckIndex("first", "number", first.extent, 2),
        Load("v", f32, "x", at(t, d)),
        Store("y", Index.of(first) * width + at(t, d), "v"),
    )
    return Nest(buffers, (t, d), body, vector=True)
