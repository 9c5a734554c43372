"""Runs a nest as machine code, its tasks split in several ways that must not matter."""

import ctypes
import functools
import mmap

import numpy as np

from euler_ir.backends.cpu import codegen, jit, widths

POISON = 0x5A
MARGIN = 64
PROT_NONE = 0


@functools.cache
def _loaded(text, symbol):
    return jit.LoadedCode([jit.compile_object(text)], [symbol])


def run_native(nest, *inputs, in_place=frozenset()):
    """The outputs of ``nest`` and its fault number (0: none). Checks that nothing outside of the buffers is touched."""
    modules = codegen.NestModules()
    symbol = modules.add(nest, in_place)
    code = _loaded(modules.texts[symbol], symbol)
    pointers = [ctypes.c_void_p] * (1 + len(nest.parameters))
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *pointers)(code.address(symbol))
    results = [_run(function, nest, inputs, split) for split in _splits(widths.task_count(nest))]
    for other in results[1:]:
        for first, array in zip((*results[0][0], np.int32(results[0][1])), (*other[0], np.int32(other[1]))):
            assert first.tobytes() == array.tobytes(), "the result depends on how tasks are split"
    return results[0]


def _splits(tasks):
    middle = tasks // 2
    yield [(0, tasks)]
    yield [(middle, tasks), (0, middle)]
    if 1 < tasks <= 100:
        yield [(task, task + 1) for task in reversed(range(tasks))]


def _run(function, nest, inputs, split):
    remaining, arrays, outputs, margins = list(inputs), [], [], []
    for buffer in nest.parameters:
        size = buffer.size * buffer.dtype.itemsize
        if buffer.role == "input":
            memory = _at_end_of_page(size)
            array = memory.view(buffer.dtype.numpy)
            array[:] = np.ravel(remaining.pop(0))
        else:
            memory = np.full(size + 2 * MARGIN, POISON, np.uint8)
            array = memory[MARGIN : MARGIN + size].view(buffer.dtype.numpy)
            outputs.append(array)
            margins += [memory[:MARGIN], memory[MARGIN + size :]]
        arrays.append(array)
    fault = np.zeros(1, np.int32)
    for begin, end in split:
        function(begin, end, fault.ctypes.data, *(array.ctypes.data for array in arrays))
    assert all(np.all(margin == POISON) for margin in margins), "written outside of a buffer"
    return outputs, int(fault[0])


def _at_end_of_page(size):
    """Memory of ``size`` bytes; who reads beyond it crashes."""
    usable = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, usable + mmap.PAGESIZE), np.uint8)
    end = memory.ctypes.data + usable
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(end), ctypes.c_size_t(mmap.PAGESIZE), PROT_NONE) == 0
    return memory[usable - size : usable]
