"""The Loop IR interpreter against plain numpy, and the accesses that it must refuse."""

from dataclasses import replace

import numpy as np
import pytest
from nests import at, column_sum, compute, gather, layer_norm, pad, scan, scatter_add, softmax, write_rows

from euler_ir.dtypes import bf16, f16, f32, f64, i32, i64
from euler_ir.errors import ExecutionError, VerifyError
from euler_ir.index import Axis, Bound, Dynamic, Index, Multiple
from euler_ir.loops import interpreter
from euler_ir.loops.interpreter import run_kernel, run_nest
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
from euler_ir.ops.random import uniform_array

RNG = np.random.default_rng(0)
I = Axis("i", 4)
J = Axis("j", 3)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def run(nest, *inputs, faults=()):
    """The outputs of ``nest``, each in one dimension."""
    given = iter(inputs)
    arrays = [
        next(given).flatten() if buffer.role == "input" else np.full(buffer.size, 77, buffer.dtype.numpy)
        for buffer in nest.parameters
    ]
    assert run_nest(nest, arrays) == list(faults)
    outputs = [array for buffer, array in zip(nest.parameters, arrays) if buffer.role == "output"]
    return outputs[0] if len(outputs) == 1 else outputs


def output(size, dtype=f32):
    return Buffer("y", dtype, size, "output")


# -- meaning -----------------------------------------------------------------------------------------------------------


def test_softmax():
    x = normal(5, 7)
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    expected = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(run(softmax(5, 7), x).reshape(5, 7), expected, rtol=1e-6)


def test_layer_norm():
    x, w = normal(5, 8), normal(8)
    expected = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True) * w
    np.testing.assert_allclose(run(layer_norm(5, 8), x, w).reshape(5, 8), expected, rtol=1e-5, atol=1e-6)


def test_column_sum():
    x = normal(9, 4)
    np.testing.assert_allclose(run(column_sum(9, 4), x), x.sum(axis=0), rtol=1e-6)


def test_a_store_after_a_vector_loop():
    body = (Load("v", f32, "x", at(I, J)),)
    total = Loop((J,), body, True, (Reduction("s", f32, "sum", "v"),))
    x = normal(4, 3)
    found = run(Nest((Buffer("x", f32, 12, "input"), output(4)), (I,), (total, Store("y", Index.of(I), "s"))), x)
    np.testing.assert_allclose(found, x.sum(axis=1), rtol=1e-6)


def test_sum_over_no_rows_is_zero():
    np.testing.assert_array_equal(run(column_sum(0, 4), normal(0, 4)), np.zeros(4))


def test_nest_without_points():
    assert run(column_sum(4, 0), normal(4, 0)).size == 0


def test_gather_reports_faults_and_goes_on_with_row_zero():
    rows, table = np.array([2, 0, 9, -1]), normal(3, 2)
    expected = table[[2, 0, 0, 0]].ravel()
    np.testing.assert_array_equal(run(gather(4, 3, 2), rows, table, faults=[7]), expected)
    assert np.array_equal(run(gather(2, 3, 2), rows[:2], table), expected[:4])


def test_faults_only_where_conditions_hold():
    nest = gather(4, 3, 2)
    load, check, copy = nest.body
    guarded = replace(nest, body=(load, replace(check, conditions=(Bound(Index.of(nest.axes[0]), 0, 2),)), copy))
    run(guarded, np.array([1, 2, 9, 9]), normal(3, 2))
    run(guarded, np.array([1, 9, 2, 2]), normal(3, 2), faults=[7])


def test_scatter_adds_repeated_rows():
    rows, x = np.array([2, 0, 2, 2, 1]), normal(5, 3)
    expected = np.zeros((4, 3), np.float32)
    np.add.at(expected, rows, x)
    np.testing.assert_allclose(run(scatter_add(5, 4, 3), rows, x).reshape(4, 3), expected, rtol=1e-6)


def test_rows_that_are_not_written_stay():
    x, table = normal(2, 3), normal(5, 3)
    y = table.copy()
    assert run_nest(write_rows(2, 5, 3), [np.array([3]), x.reshape(-1), y.reshape(-1)]) == []
    np.testing.assert_array_equal(y, np.concatenate([table[:3], x]))
    assert run_nest(write_rows(2, 5, 3), [np.array([4]), x.reshape(-1), y.reshape(-1)]) == [2]


def test_scan():
    x = normal(3, 6)
    np.testing.assert_allclose(run(scan(3, 6), x).reshape(3, 6), np.cumsum(x, axis=1), rtol=1e-6)


def test_carries_change_together():
    fibonacci = Loop(
        (Axis("n", 10),),
        (compute("sum", "add", "a", "b", dtype=i64),),
        carries=(Carry("a", i64, 0, "b"), Carry("b", i64, 1, "sum")),
        reductions=(Reduction("last", i64, "max", "a"),),
    )
    assert run(Nest((output(1, i64),), (), (fibonacci, Store("y", Index(), "last")))) == [34]


def test_pad():
    x = normal(3, 2)
    np.testing.assert_array_equal(run(pad(3, 2, 2), x).reshape(7, 6), np.pad(x, 2))


def test_interior_padding():
    spread = Axis("s", 7)
    conditions = (Multiple(Index.of(spread), 3),)
    load = Load("v", f32, "x", Index.of(spread) // 3, conditions)
    nest = Nest((Buffer("x", f32, 3, "input"), output(7)), (spread,), (load, Store("y", Index.of(spread), "v")))
    np.testing.assert_array_equal(run(nest, np.array([1, 2, 3], np.float32)), [1, 0, 0, 2, 0, 0, 3])


@pytest.mark.parametrize(
    "combine, expected", [("sum", 0), ("prod", 1), ("max", np.iinfo(np.int32).min), ("min", np.iinfo(np.int32).max)]
)
@pytest.mark.parametrize("carries", [(), (Carry("c", i32, 0, "c"),)])
def test_reductions_over_nothing_are_identities(combine, expected, carries):
    result = Reduction("r", i32, combine, "one")
    loop = Loop((Axis("n", 0),), (Constant("one", i32, 5),), reductions=(result,), carries=carries)
    assert run(Nest((output(1, i32),), (), (loop, Store("y", Index(), "r")))) == [expected]


@pytest.mark.parametrize("combine", ["max", "min"])
def test_extrema_propagate_nan(combine):
    body = (Load("v", f32, "x", Index.of(I)),)
    loop = Loop((I,), body, reductions=(Reduction("r", f32, combine, "v"),))
    nest = Nest((Buffer("x", f32, 4, "input"), output(1)), (), (loop, Store("y", Index(), "r")))
    assert np.isnan(run(nest, np.array([1, np.nan, 3, 2], np.float32))).all()


def test_a_constant_counts_once_for_each_iteration():
    loop = Loop((I, J), (Constant("one", f32, 1.0),), reductions=(Reduction("n", f32, "sum", "one"),))
    assert run(Nest((output(1),), (), (loop, Store("y", Index(), "n")))) == [12]


@pytest.mark.parametrize("dtype", [f16, bf16])
def test_half_types_round_once_for_each_operation(dtype):
    x = normal(4).astype(dtype.numpy)
    body = (
        Load("v", dtype, "x", Index.of(I)),
        compute("w", "multiply", "v", "v", dtype=dtype),
        Store("y", Index.of(I), "w"),
    )
    nest = Nest((Buffer("x", dtype, 4, "input"), output(4, dtype)), (I,), body)
    found = run(nest, x)
    assert found.dtype == dtype.numpy
    np.testing.assert_array_equal(found, (x.astype(np.float32) ** 2).astype(dtype.numpy))


@pytest.mark.parametrize("dtype", [f32, f64])
def test_philox_gives_the_numbers_of_random_uniform(dtype):
    n = Axis("n", 50)
    body = (
        Load("seed", i64, "words", Index()),
        Load("step", i64, "words", Index.of(1)),
        IndexValue("at", i64, Index.of(n)),
        Compute("u", dtype, "philox", ("seed", "step", "at"), stream=5),
        Store("y", Index.of(n), "u"),
    )
    nest = Nest((Buffer("words", i64, 2, "input"), output(50, dtype)), (n,), body)
    expected = uniform_array((50,), dtype.numpy, 5, -3, 2**40 + 1)
    np.testing.assert_array_equal(run(nest, np.array([-3, 2**40 + 1])), expected)


def test_each_lane_of_a_nest_has_its_own_scratch():
    body = (
        Load("v", f32, "x", Index.of(I)),
        Store("cell", Index(), "v"),
        Load("back", f32, "cell", Index()),
        Store("y", Index.of(I), "back"),
    )
    buffers, cell, x = (Buffer("x", f32, 4, "input"), output(4)), Buffer("cell", f32, 1, "local"), normal(4)
    np.testing.assert_array_equal(run(Nest(buffers, (I,), body, vector=True, locals=(cell,)), x), x)


@pytest.mark.parametrize("nested", [False, True])
def test_iterations_that_meet_in_scratch_run_in_order(nested):
    """Fills one element again and again, and reads it back in the same iteration."""
    read = (Load("back", f32, "cell", Index()), Store("y", at(I, J), "back"))
    body = (Loop((Axis("once", 1),), read),) if nested else read
    loop = Loop((J,), (Load("v", f32, "x", at(I, J)), Store("cell", Index(), "v"), *body))
    buffers, cell = (Buffer("x", f32, 12, "input"), output(12)), Buffer("cell", f32, 1, "local")
    x = normal(4, 3)
    np.testing.assert_array_equal(run(Nest(buffers, (I,), (loop,), locals=(cell,)), x), x.ravel())


def test_an_output_may_be_its_input():
    x = np.arange(4, dtype=np.float32)
    body = (Load("v", f32, "x", Index.of(I)), compute("w", "add", "v", "v"), Store("y", Index.of(I), "w"))
    assert run_nest(Nest((Buffer("x", f32, 4, "input"), output(4)), (I,), body), [x, x]) == []
    np.testing.assert_array_equal(x, [0, 2, 4, 6])


@pytest.mark.parametrize("most", [1, 20, 1000])
def test_results_do_not_depend_on_the_chunks(monkeypatch, most):
    x = normal(6, 7)
    whole = run(softmax(6, 7), x)
    monkeypatch.setattr(interpreter, "_MOST_AT_ONCE", most)
    np.testing.assert_array_equal(run(softmax(6, 7), x), whole)


def test_kernel_runs_each_nest_and_joins_faults():
    kernel = Kernel("two", (gather(2, 3, 1), column_sum(2, 2)))
    y, z = np.zeros(2, np.float32), np.zeros(2, np.float32)
    table, x = normal(3), normal(4)
    assert run_kernel(kernel, [[np.array([5, 1]), table, y], [x, z]]) == [7]
    np.testing.assert_array_equal(y, table[[0, 1]])
    np.testing.assert_allclose(z, x[:2] + x[2:], rtol=1e-6)


# -- refusals ----------------------------------------------------------------------------------------------------------


def storing(index, size, *before, axes=(I,), vector=False, accumulate=False):
    body = (*before, Constant("v", f32, 1.0), Store("y", index, "v", accumulate))
    return Nest((output(size),), axes, body, vector)


def loading(index, conditions=()):
    body = (Load("v", f32, "x", index, conditions), Store("y", at(I, J), "v"))
    return Nest((Buffer("x", f32, 4, "input"), output(12)), (I, J), body)


def test_a_load_outside_names_buffer_index_and_point():
    with pytest.raises(VerifyError, match=r"%x\[i \+ j\]: element 4 is outside of its 4 elements\n +at i=2, j=2"):
        run(loading(Index.of(I) + J), normal(4))


def test_a_load_before_the_first_element():
    with pytest.raises(VerifyError, match="element -1 is outside"):
        run(loading(Index.of(I) - 1), normal(4))


def test_a_load_outside_is_fine_where_conditions_do_not_hold():
    run(loading(Index.of(I) + J, (Bound(Index.of(I) + J, 0, 4),)), normal(4))
    with pytest.raises(VerifyError, match="element 4 is outside"):
        run(loading(Index.of(I) + J, (Bound(Index.of(I) + J, 0, 5),)), normal(4))


def test_a_store_outside():
    with pytest.raises(VerifyError, match="element 4 is outside"):
        run(storing(Index.of(I) + 1, 4))


def test_an_element_that_two_points_write():
    with pytest.raises(VerifyError, match="element 1 is written by two points"):
        run(storing((Index.of(I) + 1) // 2, 3))


def test_an_element_that_points_of_two_chunks_write(monkeypatch):
    monkeypatch.setattr(interpreter, "_MOST_AT_ONCE", 1)
    with pytest.raises(VerifyError, match="written by two points"):
        run(storing(Index.of(I) // 2, 2))


def test_an_element_that_two_lanes_write():
    loop = Loop((J,), (Constant("v", f32, 1.0), Store("y", Index.of(J) // 2, "v")), vector=True)
    with pytest.raises(VerifyError, match="element 0 is written by two lanes"):
        run(Nest((output(2),), (), (loop,)))
    run(Nest((output(2),), (), (replace(loop, vector=False),)))


def test_an_element_that_nobody_writes():
    with pytest.raises(VerifyError, match="element 1 of output %y is never written"):
        run(storing(Index.of(I) * 2, 7))


def test_adding_to_an_element_before_it_is_written():
    with pytest.raises(VerifyError, match="added to before it is written"):
        run(storing(Index.of(I), 4, accumulate=True))


def test_loading_what_another_point_wrote():
    body = (
        Constant("v", f32, 1.0),
        Store("y", Index.of(I), "v"),
        Load("next", f32, "y", (Index.of(I) + 1) % 4),
    )
    with pytest.raises(VerifyError, match="loaded by a point that did not write it"):
        run(Nest((output(4),), (I,), body))


def test_loading_scratch_that_is_not_written():
    nest = storing(Index.of(I), 4, Load("u", f32, "t", Index()))
    with pytest.raises(VerifyError, match="local %t.*loaded by a point that did not write it"):
        run(replace(nest, locals=(Buffer("t", f32, 1, "local"),)))


def test_scatter_whose_points_collide():
    body = (
        Load("n", i64, "rows", Index.of(I)),
        CheckIndex("row", "n", 4, 0),
        Constant("v", f32, 1.0),
        Store("y", Index.of(Dynamic("row", 4)), "v"),
    )
    nest = Nest((Buffer("rows", i64, 4, "input"), output(4)), (I,), body)
    np.testing.assert_array_equal(run(nest, np.array([3, 1, 0, 2])), np.ones(4))
    with pytest.raises(VerifyError, match="element 1 is written by two points"):
        run(nest, np.array([3, 1, 1, 2]))


def test_wrong_arrays():
    nest = column_sum(2, 2)
    with pytest.raises(ExecutionError, match="2 parameters, not 1"):
        run_nest(nest, [normal(4)])
    with pytest.raises(ExecutionError, match=r"'y' is f32\[2\], not float32\[3\]"):
        run_nest(nest, [normal(4), normal(3)])
    with pytest.raises(ExecutionError, match=r"'x' is f32\[4\], not float64\[4\]"):
        run_nest(nest, [np.zeros(4), normal(2)])
    with pytest.raises(ExecutionError, match="1 nests, not 0"):
        run_kernel(Kernel("k", (nest,)), [])
