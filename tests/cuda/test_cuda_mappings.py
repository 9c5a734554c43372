"""Nests that need more than a thread a point: their shapes at and around what blocks and warps hold, against numpy."""

import re
from dataclasses import replace

import numpy as np
import pytest
from nest_launches import check, emulate, outputs, random_run, step_of

from euler_ir.backends.cuda import nvrtc
from euler_ir.backends.cuda.codegen import kernel_calls
from euler_ir.loops.parser import parse_kernel

COLUMNS = """eir 1
kernel @columns {{
  nest (input %x: {dtype}[{size}], input %s: {dtype}[{rows}],
        output %a: {dtype}[{columns}], output %b: {dtype}[{columns}]) for k in {columns} vector {{
    loop j in {rows} {{
      %a: {dtype} = load %x[{columns} j + k]
      %b: {dtype} = load %s[j]
      %c: {dtype} = multiply %a, %b
    }} sum %t: {dtype} = %c, max %m: {dtype} = %a
    store %a[k] = %t
    store %b[k] = %m
  }}
}}
"""


def nest_of(text, **sizes):
    (nest,) = parse_kernel(text.format(**sizes)).nests
    return nest


def columns_of(rows, columns, dtype="f32"):
    return nest_of(COLUMNS, rows=rows, columns=columns, size=rows * columns, dtype=dtype)


COLUMN_SIZES = [
    *((33, 1, "f32"), (64, 31, "i32"), (127, 33, "f64")),
    *((1000, 64, "f32"), (4096, 5, "f32"), (2049, 768, "f32")),
]


def in_every_order(runs, contract=True):
    """The results of ``runs``, launched together, which no order of threads changes."""
    found = []
    for order in ("ascending", "descending", 3):
        emulate(runs, order, contract)
        found.append([[array.tobytes() for array in outputs(run)] for run in runs])
    assert found[0] == found[1] == found[2]
    return [outputs(run) for run in runs]


@pytest.mark.parametrize("contract", [True, False])
def test_columns_are_reduced_by_whole_blocks(contract):
    runs = [random_run(columns_of(*sizes), seed=sizes[0]) for sizes in COLUMN_SIZES]
    for (rows, columns, _), run, (total, top) in zip(COLUMN_SIZES, runs, in_every_order(runs, contract)):
        x, s = run.arrays[0].reshape(rows, columns).astype(np.float64), run.arrays[1].astype(np.float64)
        np.testing.assert_allclose(total, s @ x, rtol=0, atol=3e-7 * np.abs(s[:, None] * x).sum(0).max())
        np.testing.assert_array_equal(top, x.max(0))


def test_long_columns_are_dealt_to_several_blocks():
    for (rows, columns, dtype), blocks in zip(COLUMN_SIZES, [(1,), (1,), (1 * 2,), (2 * 15, 1), (64, 1), (24 * 32, 3)]):
        calls = kernel_calls(step_of([random_run(columns_of(rows, columns, dtype))]))
        assert tuple(launch.blocks for launch in calls.calls) == blocks, (rows, columns)


STORED = """eir 1
kernel @stored {{
  nest (input %x: f32[{size}], output %y: f32[{size}], output %a: f32[{columns}]) for k in {columns} vector {{
    {before}
    loop j in {rows} {{
      %b: f32 = load %x[{columns} j + k]
      %c: f32 = multiply %b, %b
      store %y[{columns} j + k] = %c
    }} sum %t: f32 = %c
    %e: f32 = add %t, %s
    store %a[k] = %e
  }}
}}
"""
"""Columns that are summed, and stored element by element in the same loop, after a number that stands before it."""


def stored_of(rows, columns, before="%s: f32 = constant 2.0", shares=None):
    nest = nest_of(STORED, rows=rows, columns=columns, size=rows * columns, before=before)
    return replace(random_run(nest), shares=shares or {})


def test_blocks_that_share_a_column_store_its_elements():
    """The gradient of a GELU and that of the bias before it: one loop, over as many blocks as a sum alone."""
    runs = [stored_of(300, 40), stored_of(300, 40, shares={1: 0}), stored_of(2049, 768)]
    for run, (y, a) in zip(runs, in_every_order(runs)):
        x, columns = run.arrays[0], run.nest.axes[0].extent
        np.testing.assert_array_equal(y, x * x)
        np.testing.assert_allclose(a, (x.reshape(-1, columns).astype(np.float64) ** 2).sum(0) + 2, rtol=1e-6)
    blocks = [[launch.blocks for launch in kernel_calls(step_of([run])).calls] for run in runs]
    assert blocks == [[2 * 4, 1], [2 * 4, 1], [24 * 32, 3]]


@pytest.mark.parametrize("shares, launches", [({}, 2), ({1: 0}, 1)])
def test_what_stands_before_a_loop_that_stores_over_it_is_read_once(shares, launches):
    """Where a result takes the memory of ``x``, another block may have stored it before the second stage reads it."""
    run = stored_of(300, 40, "%s: f32 = load %x[k]", shares)
    assert len(kernel_calls(step_of([run])).calls) == launches
    x = run.arrays[0].reshape(300, 40)
    ((_, a),) = in_every_order([run])
    np.testing.assert_allclose(a, (x.astype(np.float64) ** 2).sum(0) + x[0], rtol=1e-5)


SCATTER = """eir 1
kernel @scatter {{
  nest (input %at: i32[{updates}], input %new: f32[{size}], {role} %y: f32[{total}]) for k in {width} vector {{
    {zeros}
    loop j in {updates} {{
      %v1: i32 = load %at[j]
      %v2: i64 = cast %v1
      %v3 = check %v2 in {places} fault 1
      %v4: f32 = load %new[{width} j + k]
      store %y[k + {width} %v3] += %v4
    }}
  }}
}}
"""
ZEROS = """loop t in {places} {{
      %v0: f32 = constant 0.0
      store %y[k + {width} t] = %v0
    }}"""


def scatter_of(updates, places, width, is_new):
    sizes = {"updates": updates, "places": places, "width": width}
    zeros = ZEROS.format(**sizes) if is_new else ""
    role = "output" if is_new else "inout"
    return nest_of(SCATTER, zeros=zeros, role=role, size=updates * width, total=places * width, **sizes)


def test_what_is_scattered_is_added_in_order():
    """Bit for bit: numpy adds one update after the other."""
    sizes = [(33, 5, 7), (300, 3, 257), (513, 700, 32), (400, 9, 1100)]
    cases = [(*each, is_new) for each in sizes for is_new in (True, False)]
    runs = [random_run(scatter_of(*case), seed=number, high=case[1]) for number, case in enumerate(cases)]
    for (updates, places, width, is_new), run, (found,) in zip(cases, runs, in_every_order(runs)):
        at, new, given = run.arrays
        wanted = np.zeros((places, width), np.float32) if is_new else given.reshape(places, width).copy()
        np.add.at(wanted, at, new.reshape(updates, width))
        np.testing.assert_array_equal(found.reshape(places, width), wanted)
    assert len(kernel_calls(step_of(runs)).calls) == 3


def test_an_update_out_of_range_is_reported_and_goes_to_the_first_place():
    run = random_run(scatter_of(40, 6, 3, True), high=6)
    run.arrays[0][7] = 6
    check([run])
    assert run.fault == 1


TRANSPOSED = """eir 1
kernel @transposed {{
  nest (input %x: {dtype}[{size}], input %z: {dtype}[{size}], output %y: {dtype}[{size}], output %t: {dtype}[{size}])
      for b in {batch}, i in {rows}, j in {columns} vector {{
    %a: {dtype} = load %x[{plane} b + {rows} j + i]
    %c: {dtype} = load %z[{plane} b + {columns} i + j] if 1 <= i < {rows}
    %d: {dtype} = add %a, %c
    store %y[{plane} b + {columns} i + j] = %d
    store %t[{plane} b + {rows} j + i] = %c
  }}
}}
"""


def test_tiles_turn_in_shared_memory():
    cases = [(1, 32, 32, "f32"), (2, 33, 8, "i32"), (3, 8, 70, "f64"), (1, 65, 31, "bf16"), (2, 40, 100, "bool")]
    runs = []
    for number, (batch, rows, columns, dtype) in enumerate(cases):
        size = batch * rows * columns
        sizes = {"batch": batch, "rows": rows, "columns": columns, "size": size, "plane": rows * columns}
        nest = nest_of(TRANSPOSED, dtype=dtype, **sizes)
        runs.append(random_run(nest, seed=number))
    for (batch, rows, columns, _), run, (y, t) in zip(cases, runs, in_every_order(runs)):
        x = run.arrays[0].reshape(batch, columns, rows).swapaxes(1, 2)
        z = run.arrays[1].reshape(batch, rows, columns).copy()
        z[:, 0] = 0
        np.testing.assert_array_equal(y.reshape(z.shape), x + z)
        np.testing.assert_array_equal(t.reshape(batch, columns, rows), z.swapaxes(1, 2))
        (launch,) = kernel_calls(step_of([run])).calls
        assert launch.blocks == batch * -(-rows // 32) * -(-columns // 32) and "x_tile" in launch.source.text


def renamed(text, names):
    """``text`` with the values of ``names`` in place of their keys: %buffers and scalars, or axes."""
    for name, other in names.items():
        text = re.sub(rf"(?<![%\w]){name}\b", other, text)
    return text


def test_a_nest_may_use_the_names_of_a_mapping():
    """Buffers, scalars and an axis called as what mappings add are kept apart from it."""
    scatter = renamed(SCATTER, {"%at": "%first", "%new": "%targets", "%y": "%vote", "%v4": "%warp", "%v3": "%tried"})
    columns = renamed(COLUMNS, {"%x": "%parts_0", "%s": "%parts_1", "%t": "%share", "%m": "%iteration"})
    turned = renamed(TRANSPOSED, {"i": "pass", "%x": "%tile_row"})
    sizes = {"updates": 40, "places": 6, "width": 3, "size": 120, "total": 18, "role": "inout", "zeros": ""}
    run = random_run(nest_of(scatter, **sizes), high=6)
    others = [
        nest_of(columns, rows=600, columns=40, size=24_000, dtype="f32"),
        nest_of(turned, batch=1, rows=33, columns=9, size=297, plane=297, dtype="f32"),
    ]
    check([run, *map(random_run, others)], relative=1e-5)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_no_mapping_spills(architecture):
    nests = [columns_of(*sizes) for sizes in COLUMN_SIZES[2:5]] + [scatter_of(513, 700, 300, True)]
    nests.append(nest_of(TRANSPOSED, batch=2, rows=40, columns=100, size=8000, plane=4000, dtype="bf16"))
    for launch in kernel_calls(step_of([random_run(nest) for nest in nests])).calls:
        (found,) = nvrtc.compile_cuda(launch.source.text, architecture).resources.values()
        assert found.spill_stores == found.spill_loads == found.stack == 0 and found.registers <= 128
