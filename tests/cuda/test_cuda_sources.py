"""How a unit of CUDA C++ is joined, and that what the units share compiles for each architecture."""

import pytest

from euler_ir.backends.cuda import nvrtc
from euler_ir.backends.cuda.sources import unit

_EACH_FUNCTION = """
template <class T> __device__ void run(float* out, const T* in) {
    EIR_DYNAMIC_SHARED(dynamic);
    EIR_SHARED(T, tile, 256);
    eir::cp_async_16(tile + threadIdx.x * 8, in + threadIdx.x * 8, threadIdx.x < 10);
    eir::cp_async_commit();
    eir::cp_async_wait<0>();
    __syncthreads();
    unsigned a[4], c[4], b[2], e[2];
    float d[4] = {};
    eir::ldmatrix_x4(a, tile + threadIdx.x * 8);
    eir::ldmatrix_x4_transposed(c, tile + threadIdx.x * 8);
    eir::ldmatrix_x2(b, dynamic + threadIdx.x * 16);
    eir::ldmatrix_x2_transposed(e, dynamic + threadIdx.x * 16);
    eir::mma_m16n8k16<T>(d, a, b);
    eir::mma_m16n8k16<T>(d, c, e);
    const float2 pair = eir::unpack2<T>(eir::pack2<T>(d[0], d[1]));
    out[threadIdx.x] = eir::exp2_approximate(pair.x) + pair.y + eir::to_float(eir::from_float<T>(d[2]));
}
extern "C" __global__ void each_function(float* out, const eir::bf16* brain, const eir::f16* half) {
    run(out, brain);
    run(out + 32, half);
}
"""


@pytest.mark.parametrize("architecture", ["sm_80", "sm_86", "sm_89", "sm_90"])
def test_every_function_of_the_target_compiles(architecture):
    text = unit("each function", ["target.cuh"], _EACH_FUNCTION)
    resources = nvrtc.compile_cuda(text, architecture).resources["each_function"]
    assert resources.spill_stores == resources.spill_loads == 0
    assert resources.shared == 2 * 512


def test_a_unit_holds_each_include_once_and_in_order(tmp_path):
    other = tmp_path / "other.cuh"
    other.write_text("// of the other\n")
    text = unit("mine", [other, "target.cuh", other], "body();")
    assert text.startswith("// mine\n")
    assert text.count("// of the other") == text.count("struct alignas(2) bf16") == 1
    assert text.index("// of the other") < text.index("struct alignas(2) bf16") < text.index("body();")
