"""Whole nests as generated CUDA in the emulator: in three orders of threads, contracted or not, they are the
interpreter's, and the order changes no bit.
"""

from dataclasses import replace

import ml_dtypes
import nests
import numpy as np
import pytest
from nest_launches import check, emulate, interpreted, outputs, random_run, run_of, step_of

from euler_ir.backends.cuda.codegen import kernels
from euler_ir.dtypes import DTYPES, bf16, bool_, f16, f32, f64, i8, i32, i64, u8
from euler_ir.index import Axis, Bound, Dynamic, Index
from euler_ir.loops.kernel import (
    Buffer,
    Carry,
    CheckIndex,
    Constant,
    IndexValue,
    Load,
    Loop,
    Nest,
    Reduction,
    Store,
)

SHAPES = [(3, 5), (5, 64), (70, 36), (2, 1100)]
MORE_SHAPES = [(1, 1), (2, 16), (4, 77), (300, 12), (300, 36), (2, 5000), (1, 20_000)]


def nests_of(rows, columns):
    """Those that have an element for each column of each row."""
    yield nests.softmax(rows, columns)
    yield nests.column_sum(rows, columns)
    yield nests.column_sum(columns, rows)
    yield nests.scan(rows, columns)
    yield nests.pad(rows, columns, 3)
    if columns > 1:
        yield nests.layer_norm(rows, columns)


@pytest.mark.parametrize("shapes", [SHAPES, pytest.param(MORE_SHAPES, marks=pytest.mark.slow)], ids=["some", "more"])
def test_nests_as_the_lowering_makes_them(shapes):
    check([random_run(nest) for shape in shapes for nest in nests_of(*shape)], relative=1e-5, contract=(True, False))


def running_sums(rows, columns, dtype, reverse=False, exclusive=False):
    """Of each row, from its end on with ``reverse``, each element itself left out if ``exclusive``."""
    i, j = Axis("i", rows), Axis("j", columns)
    place = Index.of(i) * columns + (Index.of(j) * -1 + (columns - 1) if reverse else Index.of(j))
    stored = "before" if exclusive else "after"
    body = (
        Load("v", dtype, "x", place),
        nests.compute("after", "add", "v", "before", dtype=dtype),
        Store("y", place, stored),
    )
    buffers = Buffer("x", dtype, rows * columns, "input"), Buffer("y", dtype, rows * columns, "output")
    return Nest(buffers, (i,), (Loop((j,), body, carries=(Carry("before", dtype, 0, "after"),)),))


def test_running_sums_of_long_rows():
    runs = [
        random_run(running_sums(rows, columns, dtype, reverse, exclusive))
        for dtype in (f32, f64, i8, i64)
        for rows, columns, reverse, exclusive in ((3, 70, False, False), (2, 256, True, True), (1, 3001, True, False))
    ]
    check(runs, relative=1e-5)
    assert all("before_in_block" in text for text in texts_of(runs))


def texts_of(runs):
    """The source of each run by itself."""
    return [kernels.kernel_calls(step_of([run])).calls[0].source.text for run in runs]


def softmax_of_columns(rows, columns):
    along_rows = nests.softmax(columns, rows)
    i, j = Axis("i", columns), Axis("j", rows)
    turned = {nests.at(i, j): nests.at(j, i)}
    loops = (replace(loop, body=tuple(moved(s, turned) for s in loop.body), vector=False) for loop in along_rows.body)
    return replace(along_rows, body=tuple(loops), vector=True)


def test_locals_of_columns():
    """A softmax down each column keeps powers of its own: few in the thread, many in scratch memory."""
    runs = [random_run(softmax_of_columns(rows, columns)) for rows, columns in ((7, 40), (300, 70))]
    check(runs, relative=1e-6)
    few, many = (kernels.kernel_calls(step_of([run])) for run in runs)
    assert few.scratch_bytes == 0 and many.scratch_bytes >= 4 * 300 * 70


def moved(statement, places):
    """``statement`` with another index, if ``places`` has one for its own."""
    index = getattr(statement, "index", None)
    return replace(statement, index=places[index]) if index in places else statement


def test_gather_scatter_and_write():
    kinds = nests.gather, nests.scatter_add
    runs = [random_run(nest(9, 5, width)) for width in (1, 3, 16, 50, 130) for nest in kinds]
    check([*runs, random_run(nests.write_rows(2, 5, 7), high=3)], relative=1e-6)


def test_an_index_out_of_range_is_reported_and_read_as_0():
    runs = []
    for row, bad in ((0, -1), (3, 5), (8, 2**40)):
        run = random_run(nests.gather(9, 5, 20))
        run.arrays[0][row] = bad
        runs.append(run)
    check(runs)
    assert [run.fault for run in runs] == [7, 7, 7]


def test_vectors_of_dynamic_indices_under_conditions():
    n, size = 37, 11
    t = Axis("t", n)
    outside = (Bound(Index.of(t), 2, n),)
    nest = Nest(
        (Buffer("rows", i64, n, "input"), Buffer("table", f32, size, "input"), Buffer("y", f32, n, "output")),
        (t,),
        (
            Load("number", i64, "rows", Index.of(t)),
            CheckIndex("row", "number", size, 4, outside),
            Load("v", f32, "table", Index.of(Dynamic("row", size)), outside),
            Store("y", Index.of(t), "v"),
        ),
        vector=True,
    )
    runs = [random_run(nest, high=size), random_run(nest, high=size)]
    runs[0].arrays[0][0] = 99
    runs[1].arrays[0][n - 1] = 99
    check(runs)
    assert [run.fault for run in runs] == [0, 4]


# -- reductions --------------------------------------------------------------------------------------------------------


def reduction(combine, dtype, extents, rows=1):
    """Of each of ``rows`` rows of all ``extents``."""
    r, axes = Axis("r", rows), tuple(Axis(f"k{number}", extent) for number, extent in enumerate(extents))
    size = int(np.prod(extents))
    index = nests.at(r, *axes)
    loop = Loop(axes, (Load("v", dtype, "x", index),), True, (Reduction("total", dtype, combine, "v"),))
    buffers = (Buffer("x", dtype, rows * size, "input"), Buffer("y", dtype, rows, "output"))
    return Nest(buffers, (r,), (loop, Store("y", Index.of(r), "total")))


COMBINES = ("sum", "prod", "max", "min")


def test_reductions_of_every_dtype():
    """By parts of warps, warps, blocks, over several axes, and over none."""
    runs = [
        random_run(reduction(combine, dtype, extents, rows_), seed=number)
        for number, dtype in enumerate((f32, f64, i8, u8, i32, i64, bool_))
        for combine in COMBINES
        for extents, rows_ in (((6,), 70), ((7, 30), 5), ((1200,), 2))[number % 3 :]
    ]
    check(runs, relative=1e-5)
    empty = [random_run(reduction(combine, dtype, (0,), 3)) for dtype in (f32, i8, bool_) for combine in COMBINES]
    check(empty)


def test_nan_and_infinities_reach_the_end_of_a_reduction():
    runs = []
    for extent, rows_ in ((6, 70), (40, 300), (3000, 2)):
        for combine in COMBINES:
            for special in (np.nan, np.inf, -np.inf):
                run = random_run(reduction(combine, f32, (extent,), rows_))
                run.arrays[0].reshape(rows_, extent)[:, extent // 2] = special
                runs.append(run)
    check(runs, relative=1e-5)


def test_long_sums_stay_accurate():
    """A million equal numbers, which rounding always carries away in one direction; against their exact sum."""
    extent, each = 1_000_000, np.float32(0.1)
    columns = nests.column_sum(100_000, 20)
    runs = [run_of(reduction("sum", f32, (extent,)), np.full(extent, each)), run_of(columns, np.full(2_000_000, each))]
    emulate(runs)
    for run, count in zip(runs, (extent, 100_000)):
        assert np.max(np.abs(outputs(run)[0].astype(np.float64) / (count * float(each)) - 1)) < 1e-6


# -- memory shared by input and output ---------------------------------------------------------------------------------


def in_place(nest, **shares):
    """A run in which each of the named inputs, with numbers in it, has the memory of an output."""
    names = [buffer.name for buffer in nest.parameters]
    run = random_run(nest)
    for source, target in shares.items():
        run.shares[names.index(target)] = names.index(source)
    return run


def scaled_rows(rows, columns):
    """Each row over its largest element, times what ``z`` has for the row; to that the largest is added."""
    i, j = Axis("i", rows), Axis("j", columns)
    names = ("x", "input", nests.at(i, j)), ("z", "input", Index.of(i)), ("y", "output", nests.at(i, j))
    buffers = tuple(Buffer(name, f32, rows * columns if name != "z" else rows, role) for name, role, _ in names)
    largest = Loop((j,), (Load("a", f32, "x", nests.at(i, j)),), True, (Reduction("m", f32, "max", "a"),))
    body = (
        Load("b", f32, "x", nests.at(i, j)),
        nests.compute("c", "divide", "b", "m"),
        nests.compute("f", "multiply", "c", "d"),
        Store("y", nests.at(i, j), "f"),
    )
    of_row = (Load("d", f32, "z", Index.of(i)), nests.compute("e", "add", "d", "m"), Store("w", Index.of(i), "e"))
    return Nest((*buffers, Buffer("w", f32, rows, "output")), (i,), (largest, *of_row, Loop((j,), body, True)))


def updated(size, dtype):
    """AdamW in small: two inputs each become an output, a third is only read."""
    v = Axis("v", size)
    names = ("weight", "moment", "gradient", "new_weight", "new_moment")
    buffers = tuple(Buffer(name, dtype, size, "output" if name.startswith("new") else "input") for name in names)
    body = (
        *(Load(name[0], dtype, name, Index.of(v)) for name in names[:3]),
        nests.compute("n", "add", "m", "g", dtype=dtype),
        Store("new_moment", Index.of(v), "n"),
        nests.compute("u", "subtract", "w", "n", dtype=dtype),
        Store("new_weight", Index.of(v), "u"),
    )
    return Nest(buffers, (v,), body, vector=True)


def added_column_sums(rows, columns):
    """What ``z`` has for each column, and the sum of the column."""
    r, c = Axis("r", rows), Axis("c", columns)
    total = Loop((r,), (Load("v", f32, "x", nests.at(r, c)),), reductions=(Reduction("total", f32, "sum", "v"),))
    end = (Load("d", f32, "z", Index.of(c)), nests.compute("e", "add", "d", "total"), Store("w", Index.of(c), "e"))
    sizes = (("x", rows * columns, "input"), ("z", columns, "input"), ("w", columns, "output"))
    buffers = tuple(Buffer(name, f32, size, role) for name, size, role in sizes)
    return Nest(buffers, (c,), (total, *end), vector=True)


def added_transpose(rows, columns):
    """``x`` and the transpose of ``z``, read along its rows."""
    i, j = Axis("i", rows), Axis("j", columns)
    body = (
        Load("a", f32, "x", nests.at(j, i)),
        Load("b", f32, "z", nests.at(i, j)),
        nests.compute("c", "add", "a", "b"),
        Store("y", nests.at(j, i), "c"),
    )
    buffers = tuple(Buffer(name, f32, rows * columns, "output" if name == "y" else "input") for name in "xzy")
    return Nest(buffers, (i, j), body, vector=True)


def test_outputs_may_lie_where_inputs_were():
    runs = [in_place(scaled_rows(rows, columns), x="y", z="w") for rows, columns in ((3, 5), (70, 64), (2, 4000))]
    runs += [in_place(added_column_sums(rows, columns), z="w") for rows, columns in ((96, 24), (9000, 40))]
    runs += [in_place(added_transpose(40, 70), x="y"), in_place(running_sums(3, 700, f32), x="y")]
    runs += [in_place(updated(size, dtype), weight="new_weight", moment="new_moment") for size in (7, 4096)
             for dtype in (f32, bf16)]  # fmt: skip
    check(runs, relative=1e-6)


def test_memory_that_is_shared_is_not_restrict():
    names = ("weight", "moment", "gradient", "new_weight", "new_moment")
    step = step_of([in_place(updated(64, f32), weight="new_weight")])
    text = kernels.kernel_calls(step).calls[0].source.text
    shared = [name for name in names if f"float* {name}" in text]
    assert shared == ["weight", "new_weight"]


def all_kinds():
    """Each mapping, with memory that threads share in every way there is."""
    for shape in SHAPES:
        yield from map(random_run, nests_of(*shape))
    yield from (in_place(scaled_rows(rows, columns), x="y", z="w") for rows, columns in ((3, 5), (70, 64), (2, 4000)))
    yield random_run(softmax_of_columns(300, 70))
    yield in_place(added_column_sums(96, 24), z="w")
    yield in_place(added_transpose(40, 70), x="y")
    yield in_place(running_sums(3, 700, f32), x="y")
    yield random_run(running_sums(5, 700, f32))
    yield random_run(nests.gather(9, 5, 20))
    yield random_run(nests.scatter_add(90, 5, 20))
    yield random_run(nests.column_sum(3000, 40))
    yield random_run(reduction("sum", f32, (7, 300), 5))


@pytest.mark.slow
@pytest.mark.parametrize("order", ["ascending", "descending", 5])
def test_nothing_races(order, monkeypatch):
    """Also where a block does several tasks one after the other."""
    emulate(list(all_kinds()), order, sanitize=True)
    monkeypatch.setattr(kernels, "MOST_BLOCKS", 2)
    kernels._source.cache_clear()
    emulate(list(all_kinds()), order, sanitize=True)
    kernels._source.cache_clear()


# -- edges -------------------------------------------------------------------------------------------------------------


def copied(size, dtype, offset=0, extents=None):
    """``size`` elements, from ``offset`` on."""
    axes = (Axis("v", size),) if extents is None else tuple(Axis(f"a{n}", extent) for n, extent in enumerate(extents))
    buffers = (Buffer("x", dtype, size + offset, "input"), Buffer("y", dtype, size, "output"))
    body = (Load("a", dtype, "x", nests.at(*axes) + offset), Store("y", nests.at(*axes), "a"))
    return Nest(buffers, axes, body, vector=bool(axes))


def test_vectors_end_with_their_buffer():
    """Full vectors and those that are not, of every width; a guard page follows each buffer."""
    runs = [
        random_run(copied(size, dtype, offset), high=100)
        for size in (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 1025)
        for dtype in (f32, bf16, i8, f64)
        for offset in (0, 1)
    ]
    runs += [random_run(copied(30, f32, 0, (1, 5, 6))), random_run(copied(64, f16, 0, (2, 4, 8)))]
    check(runs)


def joined(*widths, rows=3, offset=0):
    """Matrices side by side, each read under the condition that a column lies in it, after ``offset`` more columns."""
    i, j = Axis("i", rows), Axis("j", sum(widths))
    buffers, body, begin, value = [], [Constant("none", f32, -1.0)], offset, "none"
    for number, width in enumerate(widths):
        inside = Bound(Index.of(j), begin, begin + width)
        end = min(begin + width, sum(widths))
        buffers.append(Buffer(f"x{number}", f32, rows * width, "input"))
        index = Index.of(i) * width + j - begin
        body += [
            IndexValue(f"j{number}", i64, Index.of(j)),
            Constant(f"low{number}", i64, begin),
            Constant(f"high{number}", i64, end),
            Load(f"v{number}", f32, f"x{number}", index, (inside,)),
            nests.compute(f"above{number}", "less_equal", f"low{number}", f"j{number}", dtype=bool_),
            nests.compute(f"below{number}", "less", f"j{number}", f"high{number}", dtype=bool_),
            nests.compute(f"in{number}", "logical_and", f"above{number}", f"below{number}", dtype=bool_),
            nests.compute(f"w{number}", "where", f"in{number}", f"v{number}", value),
        ]
        begin, value = begin + width, f"w{number}"
    buffers.append(Buffer("y", f32, rows * j.extent, "output"))
    return Nest(tuple(buffers), (i, j), (*body, Store("y", nests.at(i, j), value)), vector=True)


def shown(size, low, high):
    """The elements from ``low`` to ``high``, and 0 for the others."""
    v = Axis("v", size)
    body = (Load("a", f32, "x0", Index.of(v), (Bound(Index.of(v), low, high),)), Store("y", Index.of(v), "a"))
    return Nest((Buffer("x0", f32, size, "input"), Buffer("y", f32, size, "output")), (v,), body, vector=True)


def test_vectors_under_conditions():
    """Whole vectors are in or out where the borders lie between them."""
    runs = [random_run(joined(*case)) for case in ((8, 4), (4, 8, 12), (6, 2), (5, 3, 8))]
    runs += [random_run(joined(8, 8, offset=offset)) for offset in (4, 3)]
    runs += [random_run(shown(32, low, high)) for low, high in ((4, 28), (3, 28), (4, 30))]
    check(runs)
    widths = [text.count("eir::load_if<4>(") for text in texts_of(runs)]
    assert widths == [2, 3, 0, 1, 2, 0, 1, 0, 0]


def test_a_place_for_each_element_of_a_vector():
    """Neighbours whose rows of a table are looked up one by one: they do not lie together."""
    table, width = 6, 16
    d = Axis("d", width)
    place = Index.of(Dynamic("row", table)) * width + d
    start = (Load("number", i64, "rows", Index.of(d)), CheckIndex("row", "number", table, 1))
    sizes = (("rows", i64, width, "input"), ("x", f32, table * width, "input"), ("y", f32, width, "output"))
    picked = Nest(
        tuple(Buffer(*each) for each in sizes),
        (d,),
        (*start, Load("v", f32, "x", place), Store("y", Index.of(d), "v")),
        vector=True,
    )
    sizes = (("rows", i64, width, "input"), ("x", f32, width, "input"), ("y", f32, table * width, "inout"))
    put = Nest(
        tuple(Buffer(*each) for each in sizes),
        (d,),
        (*start, Load("v", f32, "x", Index.of(d)), Store("y", place, "v")),
        vector=True,
    )
    check([random_run(picked), random_run(put)])


def test_constants_and_index_values_of_every_dtype():
    v, runs = Axis("v", 700), []
    for dtype in DTYPES.values():
        values = [0, 1] if dtype == bool_ else [0, 1, 3, dtype.highest, dtype.lowest]
        if dtype.is_float:
            info = ml_dtypes.finfo(dtype.numpy)
            values += [-0.0, -1.5, float("nan"), float(info.max), float(info.smallest_subnormal), float(info.tiny)]
        buffers = [Buffer(f"y{number}", dtype, 700, "output") for number in range(len(values))]
        body = [Constant(f"c{number}", dtype, value) for number, value in enumerate(values)]
        body += [Store(f"y{number}", Index.of(v), f"c{number}") for number in range(len(values))]
        runs.append(random_run(Nest(tuple(buffers), (v,), tuple(body), vector=True)))
        if dtype != bool_:
            counted = (IndexValue("n", dtype, Index.of(v) * -3 + 7), Store("y", Index.of(v), "n"))
            runs.append(random_run(Nest((Buffer("y", dtype, 700, "output"),), (v,), counted, vector=True)))
    check(runs)
    for run in runs:
        for ours, theirs in zip(run.results, interpreted(run)[0]):
            if ours.dtype.kind not in "iub":
                np.testing.assert_array_equal(np.signbit(ours[ours == 0]), np.signbit(theirs[theirs == 0]))


def test_axes_named_like_those_that_count_vectors():
    """The C++ has an axis ``i0`` of its own beside ``i``."""
    axes = tuple(Axis(name, extent) for name, extent in (("i00", 3), ("i0", 2), ("i", 8)))
    body = (Load("a", f32, "x", nests.at(*axes)), Store("y", nests.at(axes[1], axes[0], axes[2]), "a"))
    pointwise = Nest((Buffer("x", f32, 48, "input"), Buffer("y", f32, 48, "output")), axes, body, vector=True)
    i0, i = Axis("i0", 5), Axis("i", 64)
    loop = Loop((i,), (Load("v", f32, "x", nests.at(i0, i)),), True, (Reduction("total", f32, "sum", "v"),))
    buffers = (Buffer("x", f32, 320, "input"), Buffer("y", f32, 5, "output"))
    row_sums = Nest(buffers, (i0,), (loop, Store("y", Index.of(i0), "total")))
    check([random_run(pointwise), random_run(row_sums)], relative=1e-6)


def test_nests_without_axes_or_points():
    zero = copied(1, f32, 0, ())
    nothing = reduction("sum", f32, (4,), 0)
    runs = [random_run(zero), random_run(nothing), random_run(copied(5, f32))]
    check(runs)
    assert outputs(runs[1])[0].size == 0


def test_more_tasks_than_blocks(monkeypatch):
    monkeypatch.setattr(kernels, "MOST_BLOCKS", 2)
    kernels._source.cache_clear()
    made = copied(7000, f32), reduction("sum", f32, (40,), 300), nests.scan(1000, 5), nests.layer_norm(7, 3000)
    runs = [random_run(nest) for nest in made]
    check(runs, relative=1e-5)
    kernels._source.cache_clear()


def test_a_table_of_pointers():
    """More nests than there can be arguments, of two structures in turn, each with its own faults."""
    runs = [random_run(nests.gather(9, 5, 20 + number % 2), seed=number) for number in range(40)]
    runs[17].arrays[0][3] = -1
    check(runs)
    assert [number for number, run in enumerate(runs) if run.fault] == [17]
