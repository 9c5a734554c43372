"""The kernels whose rates are the ceilings do what is counted; no test looks at a rate."""

import ctypes

import numpy as np
import pytest

from euler_ir.backends.cpu import ceilings
from euler_ir.backends.cpu.jit import LoadedCode, compile_object
from euler_ir.backends.cpu.worker_pool import get_pool
from euler_ir.pages import allocate_pages

BLOCKS = 37


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_block_is_read_and_written(threads):
    code = LoadedCode([compile_object(ceilings._text())], ["eir_read", "eir_triad"])
    x, y, z = (allocate_pages(BLOCKS * 256).view(np.float32) for _ in range(3))
    sink = allocate_pages(64 * threads).view(np.float32)
    y[:], z[:] = np.arange(y.size), 1
    arrays = (ctypes.c_void_p * 5)(BLOCKS, *(array.ctypes.data for array in (sink, x, y, z)))
    get_pool(threads).run(code.address("eir_triad"), ctypes.addressof(arrays))
    assert np.array_equal(x, y + 3 * z)
    sink[:] = 0
    get_pool(threads).run(code.address("eir_read"), ctypes.addressof(arrays))
    # Each accumulator began with its own number.
    vectors = 256 // ceilings.vector_bytes()
    begun = threads * sum(range(vectors)) * (ceilings.vector_bytes() // 4)
    assert sink.sum() == y.sum() + begun


def test_measured():
    measured = ceilings.measure_ceilings(1)
    assert measured.threads == 1 and min(measured.fma, measured.read, measured.triad) > 0


def test_the_best_of_two_is_the_higher_of_each_rate():
    first, second = ceilings.Ceilings(2, 5.0, 1.0, 3.0), ceilings.Ceilings(2, 4.0, 2.0, 3.0)
    assert first.best(second) == second.best(first) == ceilings.Ceilings(2, 5.0, 2.0, 3.0)
