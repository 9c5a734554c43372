"""Nests that need more than a thread a point: their shapes at and around what blocks and warps hold, against numpy."""

import numpy as np
import pytest
from nest_launches import check, emulate, outputs, random_run, step_of

from euler_ir.backends.cuda.codegen import kernel_calls
from euler_ir.loops.parser import parse_kernel

COLUMNS = """eir 1
kernel @columns {{
  nest (input %x: {dtype}[{size}], input %s: {dtype}[{rows}], output %total: {dtype}[{columns}], output %top: {dtype}[{columns}]) for k in {columns} vector {{
    loop j in {rows} {{
      %a: {dtype} = load %x[{columns} j + k]
      %b: {dtype} = load %s[j]
      %c: {dtype} = multiply %a, %b
    }} sum %t: {dtype} = %c, max %m: {dtype} = %a
    store %total[k] = %t
    store %top[k] = %m
  }}
}}
"""


def nest_of(text, **sizes):
    (nest,) = parse_kernel(text.format(**sizes)).nests
    return nest


def columns_of(rows, columns, dtype="f32"):
    return nest_of(COLUMNS, rows=rows, columns=columns, size=rows * columns, dtype=dtype)


@pytest.mark.parametrize(
    ("rows", "columns", "dtype"),
    [(33, 1, "f32"), (64, 31, "i32"), (127, 33, "f64"), (1000, 64, "f32"), (4096, 5, "f32"), (2049, 768, "f32")],
)
def test_columns_are_summed_by_whole_blocks(rows, columns, dtype):
    run = random_run(columns_of(rows, columns, dtype), seed=rows)
    x, s = run.arrays[0].reshape(rows, columns).astype(np.float64), run.arrays[1].astype(np.float64)
    for contract in (True, False):
        found = []
        for order in ("ascending", "descending", 3):
            emulate([run], order, contract)
            found.append([array.tobytes() for array in outputs(run)])
        assert found[0] == found[1] == found[2]
        total, top = outputs(run)
        np.testing.assert_allclose(total, s @ x, rtol=0, atol=3e-7 * np.abs(s[:, None] * x).sum(0).max())
        np.testing.assert_array_equal(top, x.max(0))
    launches = kernel_calls(step_of([run])).calls
    assert max(launch.blocks for launch in launches) > 1 or columns <= 32
    assert len(launches) == (1 if rows < 128 else 2)
