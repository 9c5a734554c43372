"""Buffers of more than 2^31 elements, nests of more than 2^31 points: 64 bits where the whole expression needs them."""

import re
import struct

import nests
import numpy as np
import pytest
from test_cuda_codegen import launches

from euler_ir.backends.cuda import nvrtc
from euler_ir.backends.cuda.codegen import indexing, kernels
from euler_ir.backends.cuda.emulator import build, memory
from euler_ir.dtypes import f32, i8, i64
from euler_ir.errors import ExecutionError
from euler_ir.index import Axis, Dynamic, Index
from euler_ir.loops.kernel import Buffer, CheckIndex, Load, Loop, Nest, Reduction, Store

FAR = 1 << 30


def sparse_copy(rows=4, columns=8):
    """``columns`` elements of each of ``rows`` rows that lie 2^30 apart."""
    i, j = Axis("i", rows), Axis("j", columns)
    x = Buffer("x", i8, FAR * (rows - 1) + columns, "input")
    body = (Load("a", i8, "x", Index.of(i) * FAR + j), Store("y", nests.at(i, j), "a"))
    return Nest((x, Buffer("y", i8, rows * columns, "output")), (i, j), body, vector=True)


def sparse_rows(rows=4, columns=40):
    """The largest of each of ``rows`` rows, which lie 2^30 apart."""
    i, j = Axis("i", rows), Axis("j", columns)
    x = Buffer("x", i8, FAR * (rows - 1) + columns, "input")
    load = Load("a", i8, "x", Index.of(i) * FAR + j)
    body = (Loop((j,), (load,), True, (Reduction("m", i8, "max", "a"),)), Store("y", Index.of(i), "m"))
    return Nest((x, Buffer("y", i8, rows, "output")), (i,), body)


def sparse_gather(count=5, table=4, width=6):
    """Rows of a table, which lie 2^30 apart, by number."""
    t, d = Axis("t", count), Axis("d", width)
    x = Buffer("x", i8, FAR * (table - 1) + width, "input")
    buffers = (x, Buffer("rows", i64, count, "input"), Buffer("y", i8, count * width, "output"))
    check = (Load("number", i64, "rows", Index.of(t)), CheckIndex("row", "number", table, 1))
    body = (*check, Load("a", i8, "x", Index.of(Dynamic("row", table)) * FAR + d), Store("y", nests.at(t, d), "a"))
    return Nest(buffers, (t, d), body, vector=True)


def run_sparse(nest, rows, columns, *others):
    """``nest`` on rows of numbers in a first buffer of which only these exist; gives the last buffer."""
    (launch,) = launches(nest)
    numbers = np.random.default_rng(0).integers(-100, 100, (rows, columns)).astype(np.int8)
    x = memory.allocate(nest.parameters[0].size, "x", poison=False)
    last = nest.parameters[-1]
    output, fault = np.zeros(last.size, last.dtype.numpy), np.zeros(1, np.int32)
    rest = [memory.from_array(array) for array in (*others, output, fault)]
    try:
        for row in range(rows):
            memory.upload(x + row * FAR, numbers[row])
        arguments = [struct.pack("<Q", address) for address in (x, *rest)][: len(launch.arguments)]
        build.load(launch.source).launch(launch.kernel, launch.blocks, launch.threads, launch.shared_bytes, arguments)
        memory.download(rest[-2], output)
    finally:
        for address in (x, *rest):
            memory.free(address)
    return numbers, output


def all_sparse():
    nests_ = sparse_copy(), sparse_rows(), sparse_gather()
    build.load_many([launch.source for nest in nests_ for launch in launches(nest)])
    numbers, copied = run_sparse(sparse_copy(), 4, 8)
    np.testing.assert_array_equal(copied, numbers.ravel())
    numbers, largest = run_sparse(sparse_rows(), 4, 40)
    np.testing.assert_array_equal(largest, numbers.max(1))
    picks = np.array([2, 0, 1, 3, 3], np.int64)
    numbers, gathered = run_sparse(sparse_gather(), 4, 6, picks)
    np.testing.assert_array_equal(gathered, numbers[picks].ravel())


def test_elements_beyond_31_bits_are_found():
    all_sparse()


def test_an_offset_of_32_bits_would_be_seen(monkeypatch):
    monkeypatch.setattr(indexing, "_MOST", 2**63)
    kernels._mapped.cache_clear()
    with pytest.raises((ExecutionError, AssertionError)):
        all_sparse()
    kernels._mapped.cache_clear()


def large_copy(*extents):
    axes = tuple(Axis(f"a{number}", extent) for number, extent in enumerate(extents))
    size = int(np.prod(extents))
    body = (Load("v", i8, "x", nests.at(*axes)), Store("y", nests.at(*axes), "v"))
    return Nest((Buffer("x", i8, size, "input"), Buffer("y", i8, size, "output")), axes, body, vector=True)


def large_sum(rows, columns):
    r, c = Axis("r", rows), Axis("c", columns)
    loop = Loop((c,), (Load("v", f32, "x", nests.at(r, c)),), True, (Reduction("s", f32, "sum", "v"),))
    buffers = (Buffer("x", f32, rows * columns, "input"), Buffer("y", f32, rows, "output"))
    return Nest(buffers, (r,), (loop, Store("y", Index.of(r), "s")))


@pytest.mark.parametrize("nest", [large_copy(2**33), large_copy(3, 2**31 + 4), large_copy(2**16 + 1, 2**16 + 3)])
def test_more_than_2_to_the_31_points(nest):
    """Blocks stay few, and what counts so far has 64 bits; what does not reach so far, at most, has 32."""
    (launch,) = launches(nest)
    text = launch.source.text[launch.source.text.index("static __device__") :]
    assert launch.blocks <= 2**16
    assert re.search(r"\[[^]]*long long|load<\d+>\(x \+ [^;]*long long", text)
    nvrtc.compile_cuda(launch.source.text, "sm_90")


def test_sums_of_rows_beyond_31_bits():
    (long,), (many,) = launches(large_sum(1, 2**32)), launches(large_sum(2**31 + 64, 4))
    for launch in (long, many):
        assert "long long" in launch.source.text[launch.source.text.index("static __device__") :]
        nvrtc.compile_cuda(launch.source.text, "sm_90")


def test_the_beginning_of_more_than_2_to_the_31_elements():
    """Far from an end that is not whole, as many are left as 32 bits do not count."""
    (launch,) = launches(large_copy(2**31 + 5003))
    numbers = np.arange(4096).astype(np.int8)
    x, y = (memory.allocate(2**31 + 5003, name, poison=False) for name in "xy")
    try:
        memory.upload(x, numbers)
        arguments = [struct.pack("<Q", address) for address in (x, y)]
        build.load(launch.source).launch(launch.kernel, 1, launch.threads, launch.shared_bytes, arguments)
        copied = np.zeros_like(numbers)
        memory.download(y, copied)
    finally:
        memory.free(x), memory.free(y)
    np.testing.assert_array_equal(copied, numbers)
