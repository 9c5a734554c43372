"""Transposed reads in tiles: every size around a tile, other dtypes and machines, against the loop interpreter."""

import nests
import numpy as np
import pytest
from native_nests import run_native
from test_codegen import check, random_inputs

import euler_ir as ei
from euler_ir.backends.cpu import codegen, jit, widths
from euler_ir.dtypes import bf16, bool_, f16, f32, f64, i64, u8
from euler_ir.index import Axis, Index
from euler_ir.loops.kernel import Buffer, Compute, Load, Nest, Store

LANES = jit.vector_bytes() // 4


def transpose(batch, rows, columns, dtype=f32):
    """``y[b, i, j] = x[b, j, i] + x2[b, j, i] + z[b, i, j]``, columns j in lanes."""
    b, i, j = Axis("b", batch), Axis("i", rows), Axis("j", columns)
    size = batch * rows * columns
    turned = (Index.of(b) * columns + j) * rows + i
    inputs = (Buffer(name, dtype, size, "input") for name in ("x", "x2", "z"))
    body = (
        Load("a", dtype, "x", turned),
        Load("a2", dtype, "x2", turned),
        Load("c", dtype, "z", nests.at(b, i, j)),
        Compute("d", dtype, "maximum", ("a", "a2")),
        Compute("e", dtype, "maximum", ("d", "c")),
        Store("y", nests.at(b, i, j), "e"),
    )
    return Nest((*inputs, Buffer("y", dtype, size, "output")), (b, i, j), body, vector=True)


SIZES = [(1, 16, 16), (2, 17, 16), (1, 16, 17), (3, 33, 50), (1, 15, 40), (1, 40, 15), (2, 64, 1100), (1, 100, 3)]


@pytest.mark.parametrize("batch, rows, columns", SIZES)
def test_sizes(batch, rows, columns):
    check(transpose(batch, rows, columns))


@pytest.mark.parametrize("dtype", [f64, f16, bf16, i64, u8, bool_], ids=str)
def test_dtypes(dtype):
    check(transpose(1, 67, 70, dtype))


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_other_machines(monkeypatch, vector_bytes):
    monkeypatch.setattr(widths, "vector_bytes", lambda: vector_bytes)
    nest = transpose(2, 35, 37)
    assert widths.tile_of(nest).name == "i" and widths.nest_width(nest) == vector_bytes // 4
    check(nest)


def test_a_tile_needs_no_gather():
    assert "gather" not in codegen.emit_nest(transpose(1, 64, 64), "f").text
    assert widths.task_count(transpose(1, 4 * LANES, 64)) == 4


def test_rows_that_are_read_under_a_condition_are_no_tile():
    assert widths.tile_of(nests.pad(40, 40, 1)) is None
    assert widths.tile_of(nests.column_sum(40, 40)) is None


@pytest.mark.parametrize("shape, axes", [((40, 50), (1, 0)), ((5, 40, 33), (0, 2, 1)), ((20, 30, 40), (2, 1, 0))])
def test_transposes_of_arrays(shape, axes):
    with ei.Graph() as graph:
        ei.output(y=ei.input("x", shape).transpose(*axes) * 2)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for threads in (1, 2):
        np.testing.assert_array_equal(ei.compile(graph, threads=threads)(x=x)["y"], x.transpose(axes) * 2)


def test_what_a_tile_does_not_change_is_read_once():
    """A row's factor and a column's, beside a transposed read."""
    i, j = Axis("i", 37), Axis("j", 45)
    buffers = (
        Buffer("x", f32, 37 * 45, "input"), Buffer("r", f32, 37, "input"), Buffer("c", f32, 45, "input"),
        Buffer("y", f32, 37 * 45, "output"),
    )  # fmt: skip
    body = (
        Load("a", f32, "x", nests.at(j, i)),
        Load("row", f32, "r", Index.of(i)),
        Load("column", f32, "c", Index.of(j)),
        Compute("b", f32, "multiply", ("a", "row")),
        Compute("d", f32, "subtract", ("b", "column")),
        Store("y", nests.at(i, j), "d"),
    )
    nest = Nest(buffers, (i, j), body, vector=True)
    x, r, c = random_inputs(nest)
    (y,), _ = run_native(nest, x, r, c)
    np.testing.assert_array_equal(y.reshape(37, 45), x.reshape(45, 37).T * r[:, None] - c)
