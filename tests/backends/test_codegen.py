"""Generated code of whole nests against the interpreter of the Loop IR, on vectors that are full and that are not."""

import ctypes

import nests
import numpy as np
import pytest
from native_nests import run_native

from euler_ir.backends.cpu import codegen, jit, prefetch, widths, writer
from euler_ir.dtypes import DTYPES, bool_, f16, f32, f64, i8, i32, i64, u8
from euler_ir.errors import LoweringError
from euler_ir.index import Axis, Bound, Dynamic, Index, Multiple
from euler_ir.loops.interpreter import run_nest
from euler_ir.loops.kernel import (
    Buffer,
    Carry,
    CheckIndex,
    Compute,
    Constant,
    IndexValue,
    Load,
    Loop,
    Nest,
    Reduction,
    Store,
)

LANES = jit.vector_bytes() // 4


def random_inputs(nest, seed=0, high=5):
    """Normal floats, integers in 0..high-1."""
    generator = np.random.default_rng(seed)
    inputs = []
    for buffer in nest.parameters:
        if buffer.role == "input":
            floats = generator.standard_normal(buffer.size)
            integers = generator.integers(0, 2 if buffer.dtype == bool_ else high, buffer.size)
            inputs.append((floats if buffer.dtype.is_float else integers).astype(buffer.dtype.numpy))
    return inputs


def check(nest, *inputs, relative=0.0, in_place=frozenset()):
    """Native results against interpreted ones; exact unless ``relative`` to the largest value."""
    inputs = inputs or random_inputs(nest)
    outputs, fault = run_native(nest, *inputs, in_place=in_place)
    remaining, arrays = list(inputs), []
    for buffer in nest.parameters:
        array = np.ravel(remaining.pop(0)) if buffer.role == "input" else np.zeros(buffer.size, buffer.dtype.numpy)
        arrays.append(array)
    faults = run_nest(nest, arrays)
    assert (fault in faults) if faults else fault == 0
    expected = [array for buffer, array in zip(nest.parameters, arrays) if buffer.role == "output"]
    for ours, theirs in zip(outputs, expected, strict=True):
        if relative:
            scale = np.max(np.abs(theirs), initial=1e-30)
            np.testing.assert_allclose(ours / scale, theirs / scale, rtol=0, atol=relative)
        else:
            np.testing.assert_array_equal(ours, theirs)
    return outputs, fault


def elementwise(inputs, body, result, size, dtype=f32):
    """``result`` for each of ``size`` elements of the inputs, a list of dtypes; they are loaded as 'x0', 'x1' ..."""
    v = Axis("v", size)
    buffers = [Buffer(f"a{number}", kind, size, "input") for number, kind in enumerate(inputs)]
    reads = [Load(f"x{number}", kind, f"a{number}", Index.of(v)) for number, kind in enumerate(inputs)]
    output = Buffer("y", dtype, size, "output")
    return Nest((*buffers, output), (v,), (*reads, *body, Store("y", Index.of(v), result)), vector=True)


# -- nests as the lowering makes them ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rows, columns", [(1, 1), (3, 5), (2, 16), (5, 64), (4, 77), (2, 1100)])
def test_kernels_of_a_transformer(rows, columns):
    check(nests.softmax(rows, columns), relative=1e-6)
    check(nests.layer_norm(rows, columns), relative=1e-4 if columns == 1 else 2e-6)
    check(nests.column_sum(rows, columns), relative=1e-6)
    check(nests.column_sum(columns, rows), relative=1e-6)
    check(nests.scan(rows, columns), relative=1e-5)
    check(nests.pad(rows, columns, 3))


@pytest.mark.parametrize("width", [1, 3, 16, 50, 130])
def test_gather_and_scatter(width):
    check(nests.gather(9, 5, width))
    check(nests.scatter_add(9, 5, width), relative=1e-6)


@pytest.mark.parametrize("row, bad", [(0, -1), (3, 5), (8, 2**40)])
def test_index_out_of_range_is_reported_and_read_as_0(row, bad):
    nest = nests.gather(9, 5, 20)
    rows, table = random_inputs(nest)
    rows[row] = bad
    _, fault = check(nest, rows, table)
    assert fault == 7


def test_vector_of_dynamic_indices():
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
    rows, table = random_inputs(nest, high=size)
    rows[0] = 99
    assert check(nest, rows, table)[1] == 0
    rows[n - 1] = 99
    assert check(nest, rows, table)[1] == 4


def test_lanes_beyond_the_end_report_no_fault():
    v = Axis("v", LANES + 3)
    body = (
        Constant("one", i64, 1),
        Compute("number", i64, "subtract", ("x0", "one")),
        CheckIndex("row", "number", 9, 4),
        IndexValue("r", i64, Index.of(Dynamic("row", 9)) * 2),
    )
    nest = elementwise([i64], body, "r", v.extent, i64)
    assert check(nest, np.arange(v.extent) % 9 + 1)[1] == 0


# -- vectors and their tails -------------------------------------------------------------------------------------------


def test_every_tail_gives_the_bits_of_a_full_vector():
    operations = (("e", "exp", "x0"), ("s", "normal_cdf", "e"), ("t", "tanh", "s"), ("r", "divide", "t", "x1"))
    body = tuple(Compute(result, f32, operation, tuple(operands)) for result, operation, *operands in operations)
    inputs = random_inputs(elementwise([f32, f32], body, "r", 128))
    (expected,), _ = run_native(elementwise([f32, f32], body, "r", 128), *inputs)
    for size in range(1, 71):
        (ours,), _ = run_native(elementwise([f32, f32], body, "r", size), *(array[-size:] for array in inputs))
        assert ours.tobytes() == expected[-size:].tobytes()


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_vectors_of_other_machines(monkeypatch, vector_bytes):
    monkeypatch.setattr(widths, "vector_bytes", lambda: vector_bytes)
    for nest in (nests.softmax(3, 77), nests.layer_norm(3, 77), nests.column_sum(77, 130), nests.scatter_add(9, 5, 50)):
        check(nest, relative=2e-6)


def test_blocks_of_a_long_axis():
    size = 3 * 64 * 2 * LANES + 5
    nest = elementwise([f32, f32], (Compute("r", f32, "add", ("x0", "x1")),), "r", size)
    assert widths.task_count(nest) == 4
    check(nest)


@pytest.mark.parametrize("columns", [1, 7, 64, 200])
def test_broadcast_stride_and_transpose(columns):
    i, j, rows = Axis("i", 6), Axis("j", columns), 6
    size = rows * columns
    buffers = (
        Buffer("row", f32, columns, "input"),
        Buffer("column", f32, rows, "input"),
        Buffer("strided", f32, 3 * size, "input"),
        Buffer("transposed", f32, size, "input"),
        Buffer("y", f32, size, "output"),
        Buffer("z", f32, size, "output"),
    )
    body = (
        Load("a", f32, "row", Index.of(j)),
        Load("b", f32, "column", Index.of(i)),
        Load("c", f32, "strided", (Index.of(i) * columns + j) * 3 + 1),
        Load("d", f32, "transposed", Index.of(j) * rows + i),
        Compute("ab", f32, "add", ("a", "b")),
        Compute("cd", f32, "multiply", ("c", "d")),
        Compute("all", f32, "subtract", ("ab", "cd")),
        Store("y", Index.of(i) * columns + j, "all"),
        Store("z", Index((), columns - 1) - Index.of(j) + Index.of(i) * columns, "ab"),
    )
    check(Nest(buffers, (i, j), body, vector=True))
    check(Nest(buffers, (i, j), body))


@pytest.mark.parametrize("heads, head", [(2, 16), (3, 5), (2, 64), (12, 8)])
def test_reshaped_and_flipped_reads(heads, head):
    """Quotients and remainders along the vector axis, aligned with it and not, of positive and negative numbers."""
    tokens = 4
    t, v = Axis("t", tokens), Axis("v", heads * head)
    place = (Index.of(v) // head * tokens + t) * head + Index.of(v) % head
    shifted = (Index.of(v) - 7) % v.extent + Index.of(t) * v.extent
    buffers = tuple(Buffer(name, f32, tokens * v.extent, "input") for name in "ab") + (
        Buffer("y", f32, tokens * v.extent, "output"),
    )
    body = (
        Load("x", f32, "a", place),
        Load("s", f32, "b", shifted),
        IndexValue("n", f32, (Index.of(t) * 3 - v) // 7),
        Compute("p", f32, "multiply", ("x", "n")),
        Compute("q", f32, "add", ("p", "s")),
        Store("y", Index.of(t) * v.extent + v, "q"),
    )
    check(Nest(buffers, (t, v), body, vector=True))


@pytest.mark.parametrize("head", [LANES, 3 * LANES, 8 * LANES])
def test_aligned_remainders_need_no_gather(head):
    v = Axis("v", 12 * head)
    place = Index.of(v) // head * 1000 + Index.of(v) % head
    nest = Nest(
        (Buffer("a", f32, 12000, "input"), Buffer("y", f32, v.extent, "output")),
        (v,),
        (Load("x", f32, "a", place), Store("y", Index.of(v), "x")),
        vector=True,
    )
    assert "gather" not in codegen.emit_nest(nest, "f").text
    check(nest)


def test_conditions_guard_memory():
    """Conditions that are uniform, differ from lane to lane, and hold nowhere; interior padding by Multiple."""
    i, v = Axis("i", 3), Axis("v", 40)
    spread = (Multiple(Index.of(v), 3), Bound(Index.of(i), 1, 3))
    body = (
        Load("a", f32, "x", Index.of(v) // 3 + (Index.of(i) - 1) * 14, spread),
        Load("b", f32, "x", Index.of(i) - 1, (Bound(Index.of(i) - 1, 0, 2),)),
        Load("c", f32, "x", Index.of(i), (Bound(Index.of(v), 5, 7),)),
        Load("d", f32, "x", Index.of(v) * 10**6, (Bound(Index.of(v), 50, 60),)),
        Compute("e", f32, "add", ("a", "b")),
        Compute("f", f32, "add", ("c", "d")),
        Compute("g", f32, "add", ("e", "f")),
        Store("y", Index.of(i) * 40 + v, "g"),
    )
    buffers = (Buffer("x", f32, 28, "input"), Buffer("y", f32, 120, "output"))
    x = np.arange(1, 29, dtype=np.float32)
    for vector in (True, False):
        (y,), _ = run_native(Nest(buffers, (i, v), body, vector=vector), x)
        rows, columns = np.arange(3)[:, None], np.arange(40)[None]
        a = np.where((columns % 3 == 0) & (rows >= 1), x[np.clip(columns // 3 + (rows - 1) * 14, 0, 27)], 0)
        b = np.where(rows >= 1, x[np.clip(rows - 1, 0, 27)], 0)
        c = np.where((columns >= 5) & (columns < 7), x[rows], 0)
        np.testing.assert_array_equal(y.reshape(3, 40), a + b + c)


def test_scratch_of_each_lane():
    """A local buffer of a vector nest, filled by one loop and read backwards by the next."""
    v, k = Axis("v", 21), Axis("k", 4)
    nest = Nest(
        (Buffer("x", f32, 84, "input"), Buffer("y", f32, 84, "output")),
        (v,),
        (
            Loop((k,), (Load("a", f32, "x", Index.of(k) * 21 + v), Store("s", Index.of(k), "a"))),
            Loop((k,), (Load("b", f32, "s", Index((), 3) - Index.of(k)), Store("y", Index.of(k) * 21 + v, "b"))),
            Load("c", f32, "s", Index.of(v) % 4),
            Compute("d", f32, "multiply", ("c", "c")),
            Store("y", Index.of(v), "d", accumulate=True),
        ),
        vector=True,
        locals=(Buffer("s", f32, 4, "local"),),
    )
    check(nest)


def test_scan_of_many_columns_at_once():
    v, t = Axis("v", 37), Axis("t", 9)
    body = (
        Load("x", f64, "x", Index.of(t) * 37 + v),
        Compute("next", f64, "add", ("before", "x")),
        Compute("swap", f64, "multiply", ("other", "x")),
        Compute("sum", f64, "add", ("next", "swap")),
        Store("y", Index.of(t) * 37 + v, "sum"),
    )
    carries = (Carry("before", f64, 0.5, "other"), Carry("other", f64, 1.0, "next"))
    buffers = (Buffer("x", f64, 333, "input"), Buffer("y", f64, 333, "output"))
    check(Nest(buffers, (v,), (Loop((t,), body, carries=carries),), vector=True))
    check(Nest(buffers, (v,), (Loop((t,), body, carries=carries),)))


def test_update_in_place():
    """The output is the input's memory: each element is read before it is written."""
    size = 5 * LANES + 3
    nest = elementwise([f32, f32], (Compute("r", f32, "add", ("x0", "x1")),), "r", size)
    text = codegen.emit_nest(nest, "f", frozenset({0, 2})).text
    assert "ptr %b0, ptr noalias %b1, ptr %b2" in text
    modules = codegen.NestModules()
    symbol = modules.add(nest, frozenset({0, 2}))
    code = jit.LoadedCode([jit.compile_object(modules.texts[symbol])], [symbol])
    x, y = np.arange(size, dtype=np.float32), np.ones(size, np.float32)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 2, *[ctypes.c_void_p] * 4)(code.address(symbol))
    function(0, widths.task_count(nest), None, x.ctypes.data, y.ctypes.data, x.ctypes.data)
    np.testing.assert_array_equal(x, np.arange(size) + 1)


def test_uniform_store_of_a_vector_is_refused():
    v = Axis("v", 32)
    body = (Constant("c", f32, 1.0), Store("y", Index(), "c"))
    nest = Nest((Buffer("y", f32, 1, "output"),), (v,), body, vector=True)
    with pytest.raises(LoweringError, match="one element"):
        codegen.emit_nest(nest, "f")


# -- loops in loops ----------------------------------------------------------------------------------------------------


def test_what_a_loop_changes_stays_in_it():
    """A value read back from memory that the loop writes, and one made of the reduction of a loop inside."""
    i, j, k = Axis("i", 3), Axis("j", 5), Axis("k", 20)
    place = (Index.of(i) * 5 + j) * 20 + k
    inner = Loop((k,), (Load("a", f32, "x", place),), True, (Reduction("row", f32, "sum", "a"),))
    outer = Loop(
        (j,),
        (
            inner,
            Compute("square", f32, "multiply", ("row", "row")),
            Load("before", f32, "y", Index.of(i)),
            Compute("after", f32, "add", ("before", "square")),
            Store("y", Index.of(i), "after"),
        ),
    )
    buffers = (Buffer("x", f32, 300, "input"), Buffer("y", f32, 3, "output"))
    check(Nest(buffers, (i,), (Constant("zero", f32, 0.0), Store("y", Index.of(i), "zero"), outer)), relative=1e-5)


# -- reductions --------------------------------------------------------------------------------------------------------


def reduction(combine, dtype, extents, vector):
    axes = tuple(Axis(f"k{number}", extent) for number, extent in enumerate(extents))
    place = Index()
    for axis in axes:
        place = place * axis.extent + axis
    size = int(np.prod(extents))
    body = (Load("x", dtype, "x", place),)
    loop = Loop(axes, body, vector, (Reduction("r", dtype, combine, "x"),))
    buffers = (Buffer("x", dtype, size, "input"), Buffer("y", dtype, 1, "output"))
    return Nest(buffers, (), (loop, Store("y", Index(), "r")))


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if not d.is_half], ids=str)
@pytest.mark.parametrize("combine", ["sum", "prod", "max", "min"])
def test_reductions(combine, dtype):
    relative = 5e-6 if dtype.is_float and combine in ("sum", "prod") else 0
    for extents in ((1,), (13,), (3, 70), (129,), (5, 0), (0, 5), ()):
        for vector in (True, False) if extents else (False,):
            check(reduction(combine, dtype, extents, vector), relative=relative)


@pytest.mark.parametrize("vector", [True, False])
@pytest.mark.parametrize("size", [5, 100, 100_000])
def test_special_values_in_reductions(vector, size):
    for value, sign in ((np.nan, 1), (np.inf, 1), (np.inf, -1)):
        for place in (0, size // 2, size - 1):
            x = np.ones(size, np.float32)
            x[place] = value * sign
            for combine, function in (("sum", np.sum), ("max", np.max), ("min", np.min)):
                (y,), _ = run_native(reduction(combine, f32, (size,), vector), x)
                np.testing.assert_array_equal(y[0], function(x))


@pytest.mark.parametrize("vector", [True, False])
def test_long_sums_stay_accurate(vector):
    x = np.full(10_000_000, 0.1, np.float32)
    (y,), _ = run_native(reduction("sum", f32, (10_000_000,), vector), x)
    assert abs(y[0] / (1e7 * float(np.float32(0.1))) - 1) < 1e-6


def test_long_sums_of_columns_stay_accurate():
    nest = nests.column_sum(100_000, 20)
    (y,), _ = run_native(nest, np.full(2_000_000, 0.1, np.float32))
    assert np.max(np.abs(y / (1e5 * float(np.float32(0.1))) - 1)) < 1e-6


def test_no_points():
    for rows, columns in ((0, 5), (5, 0)):
        i, j = Axis("i", rows), Axis("j", columns)
        body = (Load("a", f32, "x", nests.at(i, j)), Store("y", nests.at(i, j), "a"))
        for vector in (True, False):
            nest = Nest((Buffer("x", f32, 0, "input"), Buffer("y", f32, 0, "output")), (i, j), body, vector)
            assert widths.task_count(nest) == 0
            check(nest)


def test_the_next_row_is_fetched_while_a_row_is_in_cache(monkeypatch):
    small, large = nests.layer_norm(5, 200), nests.layer_norm(2000, 200)
    assert "llvm.prefetch" not in codegen.emit_nest(small, "f").text
    lines = codegen.emit_nest(large, "f").text.count("call void @llvm.prefetch")
    assert lines == -(-4 * widths.loop_width(large.body[4]) // 64)
    monkeypatch.setattr(prefetch, "SMALLEST_BUFFER", 0)
    for nest in (small, nests.softmax(3, 333)):
        assert "llvm.prefetch" in codegen.emit_nest(nest, "f").text
        check(nest, relative=2e-6)


# -- modules -----------------------------------------------------------------------------------------------------------


def test_equal_nests_share_a_function_whatever_their_names():
    def named(buffer, axis, scalar):
        v = Axis(axis, 100)
        body = (Load(scalar, f32, buffer, Index.of(v)), Store("y", Index.of(v), scalar))
        return Nest((Buffer(buffer, f32, 100, "input"), Buffer("y", f32, 100, "output")), (v,), body, vector=True)

    modules = codegen.NestModules()
    first = modules.add(named("a", "v", "x"))
    assert modules.add(named("b", "w", "z")) == first
    assert modules.add(named("a", "v", "x"), frozenset({0, 1})) != first
    assert len(modules.texts) == 2
    jit.LoadedCode(map(jit.compile_object, modules.texts.values()), modules.texts)


def test_math_functions_beyond_a_few_are_called(monkeypatch):
    """LLVM gets code that grows with the number of their calls, not with all of their instructions; the same bits."""
    size, count = 5 * LANES + 3, 40
    names = ["x0", *(f"p{number}" for number in range(count))]
    body = tuple(Compute(names[n + 1], f32, ("exp", "tanh", "sin")[n % 3], (names[n],)) for n in range(count))
    nest = elementwise([f32], body, names[-1], size)
    x = np.linspace(-2, 2, size, dtype=np.float32)
    (called,), _ = run_native(nest, x)
    (text,) = module_texts(nest)
    monkeypatch.setattr(writer, "MAX_INLINED", 2 * count)
    (inlined,), _ = run_native(nest, x)
    (inlined_text,) = module_texts(nest)
    np.testing.assert_array_equal(called, inlined)
    assert len(jit.compile_object(text)) < len(jit.compile_object(inlined_text)) / 2


def module_texts(nest):
    modules = codegen.NestModules()
    modules.add(nest)
    return modules.texts.values()


@pytest.mark.parametrize(
    "dtypes, registers", [([f32], 2), ([f32, u8], 2), ([f32, i64], 2), ([f64, f32], 1), ([f16], 2), ([bool_, i8], 8)]
)
def test_lanes_follow_the_widest_element(dtypes, registers):
    nest = elementwise(dtypes, (), "x0", 10_000, dtypes[0])
    assert widths.nest_width(nest) == LANES * registers
    check(nest)


@pytest.mark.parametrize("extent, lanes", [(1, 1), (3, 4), (LANES, LANES), (LANES + 1, LANES), (8 * LANES, 2 * LANES)])
def test_short_axes_take_narrow_vectors(extent, lanes):
    nest = elementwise([f32], (), "x0", extent)
    assert widths.nest_width(nest) == lanes
    check(nest)


def test_sums_of_many_columns_take_long_pieces_of_rows():
    few, many = nests.column_sum(50, 64 * LANES), nests.column_sum(50, 128 * LANES + 3)
    assert widths.nest_width(few) == 4 * LANES and widths.nest_width(many) == 8 * LANES
    check(many, relative=1e-6)


def test_index_values_of_every_dtype():
    v = Axis("v", 40)
    for dtype in (i32, i64, f32, f64, u8, i8, f16):
        body = (IndexValue("n", dtype, Index.of(v) * 3 - 7), Store("y", Index.of(v), "n"))
        nest = Nest((Buffer("y", dtype, 40, "output"),), (v,), body, vector=True)
        (y,), _ = run_native(nest)
        np.testing.assert_array_equal(y, (np.arange(40) * 3 - 7).astype(dtype.numpy))
