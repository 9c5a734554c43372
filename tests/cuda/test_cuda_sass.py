"""Machine code as text: kernels by name, instructions counted, and what is missing said in words."""

from collections import Counter

import pytest

from euler_ir.backends.cuda import nvrtc, sass
from euler_ir.backends.cuda.sources import unit
from euler_ir.errors import LoweringError

_TWO = """
extern "C" __global__ void doubled(float* x) { x[threadIdx.x] *= 2; }
extern "C" __global__ void product(float* out, const unsigned* a, const unsigned* b) {
    float d[4] = {};
    const unsigned left[4] = {a[0], a[1], a[2], a[3]}, right[2] = {b[0], b[1]};
    eir::mma_m16n8k16<eir::bf16>(d, left, right);
    eir::mma_m16n8k16<eir::f16>(d, left, right);
    out[threadIdx.x] = d[0] + d[3];
}
"""


@pytest.fixture(scope="module")
def cubin():
    return nvrtc.compile_cuda(unit("two", ["target.cuh"], _TWO), "sm_80").cubin


def test_each_kernel_has_its_instructions(cubin):
    kernels = sass.disassemble(cubin)
    assert set(kernels) == {"doubled", "product"}
    counts = sass.opcodes(kernels["product"])
    assert counts["HMMA.16816.F32.BF16"] == counts["HMMA.16816.F32"] == 1
    assert sass.tensor_core_instructions(kernels["product"]) == 2
    assert sass.tensor_core_instructions(kernels["doubled"]) == 0
    assert sass.opcodes(kernels["doubled"])["STG.E"] == 1


def test_predicates_and_uniform_registers_are_no_part_of_a_name():
    lines = (
        "        /*0000*/                   LDC R1, c[0x0][0x28] ;\n"
        "        /*00b0*/              @!P0 LDG.E.128 R4, desc[UR6][R6.64] ;\n"
        "        /*00c0*/             @!UP0 UIADD3 UR4, UR5, 0x1, URZ ;\n"
        ".L_x_2:\n"
        "        /*1030*/                   EXIT ;\n"
    )
    assert sass.opcodes(lines) == Counter({"LDC": 1, "LDG.E.128": 1, "UIADD3": 1, "EXIT": 1})


@pytest.mark.usefixtures("gpu_compiler")
def test_what_is_no_cubin_is_refused():
    with pytest.raises(LoweringError, match="nvdisasm cannot read the cubin"):
        sass.disassemble(b"no machine code")


def test_a_missing_disassembler_is_said_with_the_command_that_installs_it(monkeypatch, cubin):
    monkeypatch.setattr(sass, "installed", lambda *where: ())
    monkeypatch.setenv("PATH", "")
    sass._tool.cache_clear()
    try:
        with pytest.raises(LoweringError, match="(?s)there is no nvdisasm.*pip install nvidia-cuda-nvdisasm"):
            sass.disassemble(cubin)
    finally:
        sass._tool.cache_clear()
