"""Stores around the caches: where they are used, and that they write what others do, aligned or not."""

import ctypes

import nests
import numpy as np
import pytest

from euler_ir.backends.cpu import codegen, jit, widths
from euler_ir.dtypes import f32
from euler_ir.index import Axis, Index
from euler_ir.loops.kernel import Buffer, Load, Nest, Store

LANES = jit.vector_bytes() // 4


@pytest.fixture
def all_outputs_are_large(monkeypatch):
    monkeypatch.setattr(codegen, "last_cache_bytes", lambda: 1)


def text(nest, in_place=frozenset()):
    return codegen.emit_nest(nest, "f", in_place).text


def copy(rows, columns, stride):
    i, j = Axis("i", rows), Axis("j", columns)
    at = Index.of(i) * stride + j
    buffers = (Buffer("x", f32, rows * stride, "input"), Buffer("y", f32, rows * stride, "output"))
    return Nest(buffers, (i, j), (Load("v", f32, "x", at), Store("y", at, "v")), vector=True)


def test_only_outputs_larger_than_the_last_cache_stream(monkeypatch):
    monkeypatch.setattr(codegen, "last_cache_bytes", lambda: 1 << 20)
    size = (1 << 20) // 4
    assert "nontemporal" not in text(copy(1, size, size))
    assert "nontemporal" in text(copy(1, size + LANES, size + LANES))


def test_nothing_streams_where_the_caches_are_unknown(monkeypatch):
    monkeypatch.setattr(codegen, "last_cache_bytes", lambda: 0)
    assert "nontemporal" not in text(copy(4, 64, 64))


def test_what_is_in_place_or_starts_within_a_line_does_not_stream(all_outputs_are_large):
    assert "nontemporal" in text(copy(4, 64, 64))
    assert "nontemporal" not in text(copy(4, 64, 64), frozenset({0, 1}))
    assert "nontemporal" not in text(copy(4, 64, 65))


@pytest.mark.parametrize("offset", [0, 4, 32])
@pytest.mark.parametrize("nest", [copy(5, 64, 64), copy(3, 77, 80), nests.softmax(4, 64), nests.layer_norm(3, 128)])
def test_streaming_writes_the_same(all_outputs_are_large, nest, offset):
    """``offset`` is how many bytes after a line an output begins."""
    inputs = [np.random.default_rng(0).standard_normal(b.size).astype(np.float32) for b in nest.parameters[:-1]]
    assert "nontemporal" in text(nest)
    results = []
    for emit in (text(nest), text(nest).replace(", !nontemporal !0", "")):
        helpers = "\n".join(codegen.emit_nest(nest, "f").helpers)
        code = jit.LoadedCode([jit.compile_object(f"{helpers}\n{emit}")], ["f"])
        memory = np.zeros(nest.parameters[-1].size * 4 + 128, np.uint8)
        start = -memory.ctypes.data % 64 + offset
        output = memory[start : start + nest.parameters[-1].size * 4].view(np.float32)
        pointers = [array.ctypes.data for array in (*inputs, output)]
        function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 2, *[ctypes.c_void_p] * (1 + len(pointers)))
        function(code.address("f"))(0, widths.task_count(nest), None, *pointers)
        results.append(output.copy())
        assert not memory[:start].any() and not memory[start + output.nbytes :].any()
    np.testing.assert_array_equal(*results)
