"""Several units compiled as one: what they include comes once, and they do not see each other."""

import nests
from nest_launches import random_run, step_of

from euler_ir.backends.cuda import nvrtc
from euler_ir.backends.cuda.calls import Source
from euler_ir.backends.cuda.codegen import kernel_calls
from euler_ir.backends.cuda.emulator import build
from euler_ir.backends.cuda.sources import joined, own_code


def sources():
    runs = [random_run(nests.softmax(3, 40)), random_run(nests.scan(2, 9)), random_run(nests.softmax(3, 41))]
    return [kernel_calls(step_of([run])).calls[0].source for run in runs]


def test_files_come_once_and_own_code_stays():
    texts = [source.text for source in sources()]
    unit = joined("all", texts)
    assert unit.count("// ---- prelude.cuh ----") == unit.count("// ---- reduce.cuh ----") == 1
    assert all(own_code(text).strip() in unit and "namespace" not in own_code(text) for text in texts)
    compiled = nvrtc.compile_cuda(unit, "sm_80")
    assert {kernel for source in sources() for kernel in source.kernels} == set(compiled.resources)


def test_the_emulator_finds_each_kernel_where_it_is():
    first, second, third = sources()
    unlike = "extern \"C\" __global__ void alone(int* x) { x[0] = 1; }"
    modules = build.load_many([first, unlike, second, first, third])
    assert modules[0] is modules[2] is modules[3] is modules[4] and modules[1].kernels == ("alone",)
    assert set(modules[0].kernels) == {*first.kernels, *second.kernels, *third.kernels}


def test_sources_whose_kernels_have_one_name_stay_apart():
    texts = [f'extern "C" __global__ void k(int* x) {{ x[0] = {number}; }}' for number in (1, 2)]
    pairs = [texts, [Source("k.cu", text, ("k",)) for text in texts]]
    for first, second in pairs:
        modules = build.load_many([first, second, first])
        assert modules[0] is modules[2] and modules[0] is not modules[1]
