"""Runs a nest as machine code, its tasks split in several ways that must not matter."""

import ctypes
import functools

import numpy as np

from euler_ir.backends.cpu import codegen, jit

POISON = 0x5A


@functools.cache
def _loaded(text, symbol):
    return jit.LoadedCode([jit.compile_object(text)], [symbol])


def run_native(nest, *inputs, in_place=frozenset()):
    """The outputs of ``nest`` and its fault number (0: none). Checks that no byte outside of the buffers is written."""
    module = codegen.ModuleText()
    symbol = module.add(nest, in_place)
    code = _loaded(module.render(), symbol)
    pointers = [ctypes.c_void_p] * (1 + len(nest.parameters))
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *pointers)(code.address(symbol))
    results = [_run(function, nest, inputs, split) for split in _splits(codegen.task_count(nest))]
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
    remaining, arrays, outputs = list(inputs), [], []
    for buffer in nest.parameters:
        memory = np.full(buffer.size * buffer.dtype.itemsize + 128, POISON, np.uint8)
        array = memory[64 : len(memory) - 64].view(buffer.dtype.numpy)
        if buffer.role == "input":
            array[:] = np.ravel(remaining.pop(0))
        else:
            outputs.append(array)
        arrays.append((memory, array))
    fault = np.zeros(1, np.int32)
    for begin, end in split:
        function(begin, end, fault.ctypes.data, *(array.ctypes.data for _, array in arrays))
    for memory, _ in arrays:
        assert np.all(memory[:64] == POISON) and np.all(memory[-64:] == POISON), "written outside of a buffer"
    return outputs, int(fault[0])
