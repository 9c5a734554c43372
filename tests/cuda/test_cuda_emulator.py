"""The emulator runs kernels as a GPU does: against numpy, in three orders."""

import numpy as np
import pytest
from launching import launch

from euler_ir.backends.cuda.emulator import build
from euler_ir.backends.cuda.emulator.__main__ import main
from euler_ir.errors import ExecutionError, LoweringError

ORDERS = ["ascending", "descending", 0, 1]

ROW_SUMS = """
extern "C" __global__ void __launch_bounds__(128)
row_sums(const float* __restrict__ x, float* __restrict__ sums, int columns) {
    EIR_SHARED(float, partial, 4);
    float sum = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += x[blockIdx.x * (long long)columns + i];
    #pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) sums[blockIdx.x] = partial[0] + partial[1] + partial[2] + partial[3];
}
"""


@pytest.mark.parametrize("order", ORDERS)
def test_a_reduction_over_shuffles_and_shared_memory(order):
    x = np.random.default_rng(0).standard_normal((7, 300)).astype(np.float32)
    sums = np.zeros(7, np.float32)
    launch(ROW_SUMS, "row_sums", 7, 128, x, sums, 300, order=order)
    np.testing.assert_allclose(sums, x.astype(np.float64).sum(1), rtol=1e-5, atol=1e-4)


# As a user has it in a file of their own: shared memory by CUDA's words, blocks and threads in two dimensions.
TRANSPOSE = """
#define TILE 32
__global__ void transpose(const float *in, float *out, int rows, int columns) {
    __shared__ float tile[TILE][TILE + 1];
    extern __shared__ float scale[];
    if (threadIdx.x == 0 && threadIdx.y == 0) scale[0] = 2.0f;
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int i = 0; i < TILE; i += blockDim.y)
        if (x < columns && y + i < rows) tile[threadIdx.y + i][threadIdx.x] = in[(y + i) * columns + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x, y = blockIdx.x * TILE + threadIdx.y;
    for (int i = 0; i < TILE; i += blockDim.y)
        if (x < rows && y + i < columns) out[(y + i) * rows + x] = scale[0] * tile[threadIdx.x][threadIdx.y + i];
}
"""


@pytest.mark.parametrize("order", ORDERS)
def test_a_users_kernel_as_it_is(order):
    x = np.random.default_rng(1).standard_normal((70, 45)).astype(np.float32)
    out = np.zeros((45, 70), np.float32)
    launch(TRANSPOSE, "transpose", (2, 3), (32, 8), x, out, 70, 45, shared_bytes=4, order=order)
    np.testing.assert_array_equal(out, 2 * x.T)


INDICES = """
extern "C" __global__ void indices(unsigned* seen) {
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned* mine = seen + 12 * (block * blockDim.x * blockDim.y * blockDim.z + thread);
    unsigned values[] = {blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z,
                         gridDim.x, gridDim.y, gridDim.z, blockDim.x, blockDim.y, blockDim.z};
    for (int i = 0; i < 12; ++i) mine[i] += values[i];
}
"""


@pytest.mark.parametrize("order", ORDERS)
def test_each_thread_of_a_grid_of_three_dimensions_runs_once(order):
    grid, block = (3, 2, 4), (5, 3, 2)
    seen = np.zeros((24, 30, 12), np.uint32)
    launch(INDICES, "indices", grid, block, seen, order=order)
    for number in range(24):
        for thread in range(30):
            place = [number % 3, number // 3 % 2, number // 6, thread % 5, thread // 5 % 3, thread // 15]
            assert seen[number, thread].tolist() == [*place, *grid, *block]


# What people write: shared memory in templates, in device functions, of structures, and declared outside of functions.
WORDS = """
#include <cuda_runtime.h>
#define DOUBLED(name) __global__ void name##_doubled() {}
extern __shared__ __align__(16) unsigned char bytes[];
__constant__ float factors[2] = {2, 3};
__device__ int counter;
struct Pair { float sum; int count; };

template <typename T, int N>
__device__ __noinline__ T turned(T value) {
    __shared__ T tile[N];
    __shared__ Pair pair;
    tile[threadIdx.x] = value;
    if (threadIdx.x == 0) pair = {7, 8};
    __syncthreads();
    return tile[N - 1 - threadIdx.x] + T(pair.sum + pair.count - 15);
}

/* __global__ void not_this_one(int) */
// __global__ void nor_this(int);
template <typename T>
__global__ void __launch_bounds__(64, 1) scale(const T* __restrict__ x, T* __restrict__ y) {
    reinterpret_cast<T*>(bytes)[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = factors[sizeof(T) == 8] * turned<T, 64>(reinterpret_cast<T*>(bytes)[threadIdx.x]);
}

static __device__ __forceinline__ float half_of(float x) { return x / 2; }
__global__
__launch_bounds__(64)
void halve(float* x) { x[threadIdx.x] = half_of(x[threadIdx.x]); atomicAdd(&counter, 1); }
extern "C" __global__ void count(int* out, int n = 1) { out[0] = counter; }
"""


def test_kernels_as_people_write_them():
    assert build.kernel_names(WORDS) == ["halve", "count"]
    module = build.load(WORDS, kernels=["scale<float>", "scale<double>"])
    assert module.kernels == ("scale<float>", "scale<double>")
    for dtype, name, factor in [(np.float32, "float", 2), (np.float64, "double", 3)]:
        x, y = np.arange(64, dtype=dtype), np.zeros(64, dtype)
        for order in ORDERS:
            module.run(f"scale<{name}>", 1, 64, x, y, shared_bytes=512, order=order)
            np.testing.assert_array_equal(y, factor * x[::-1])
    x, counted = np.arange(64, dtype=np.float32), np.zeros(1, np.int32)
    launch(WORDS, "halve", 1, 64, x)
    launch(WORDS, "count", 1, 1, counted, 1)
    assert x.tolist() == (np.arange(64) / 2).tolist() and counted[0] == 64


@pytest.mark.usefixtures("cpp_compiler")
def test_the_command_says_what_each_order_gives(tmp_path, capsys):
    file = tmp_path / "sum.cu"
    file.write_text(
        """
        __global__ void sum(const float* x, const int* at, float* y, int n) { atomicAdd(y, x[at[blockIdx.x]] * n); }
        __global__ void last(int* y) { atomicExch(y, blockIdx.x); }
        """
    )
    assert main([str(file), "f32[4]", "i32[9]<4", "f32[1]", "2", "--blocks", "9", "--kernel", "sum"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ascending: ok" and "descending: other results than ascending" in lines
    assert main([str(file), "i32[1]", "--blocks", "1", "--threads", "1", "--kernel", "last"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ascending: ok",
        "descending: ok",
        "random, seed 0: ok",
        "random, seed 1: ok",
    ]
    for arguments, message in {
        (): "it has several kernels\n  hint: --kernel sum or last",
        ("--kernel", "last", "i32[x]"): "'i32[x]' is no argument",
        ("--kernel", "last", "i33[1]"): "no type i33",
        ("--kernel", "lost"): "has no kernel lost\n  hint: did you mean last?",
        ("--kernel", "last", "i32[4]<0"): "no number is from 0 to below 0",
        ("--kernel", "last", "i32[99999999999999]"): "Unable to allocate",
    }.items():
        assert main([str(file), *arguments]) == 1
        assert message in capsys.readouterr().err
    for threads in ("many", "1,2,3,4"):
        with pytest.raises(SystemExit):
            main([str(file), "--threads", threads])
        assert f"'{threads}' is not 1 to 3 numbers" in capsys.readouterr().err
    (tmp_path / "machine_code.cu").write_bytes(b"\x7fELF\xff")
    assert main([str(tmp_path / "machine_code.cu")]) == 1
    assert "is no text in UTF-8" in capsys.readouterr().err
    assert main([str(tmp_path / "none.cu")]) == 1
    assert "No such file" in capsys.readouterr().err


def test_a_file_with_what_it_includes(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "factor.cuh").write_text("#pragma once\n#define FACTOR 3\n")
    (tmp_path / "parts" / "tools.cuh").write_text(
        '#include "factor.cuh"\n__device__ float at(const float* x, int i) {\n    return FACTOR * x[i];\n}\n'
    )
    file = tmp_path / "scale.cu"
    file.write_text(
        '#include "parts/tools.cuh"\n#include "parts/factor.cuh"\n'
        "__global__ void scale(float* x, int by) {\n    float y = at(x, threadIdx.x + by);\n"
        "    x[threadIdx.x] = y;\n}\n"
    )
    x = np.ones(8, np.float32)
    module = build.load_file(file)
    module.run("scale", 1, 8, x, 0)
    assert x.tolist() == [3] * 8
    with pytest.raises(ExecutionError, match="it reads right past the end") as caught:
        module.run("scale", 1, 8, x, 1)
    assert f"{tmp_path}/parts/tools.cuh:3: return FACTOR * x[i];\n" in str(caught.value)
    assert f"{file}:4: float y = at(x, threadIdx.x + by);" in str(caught.value)
    (tmp_path / "parts" / "factor.cuh").write_text("#define FACTOR 5\n")
    build.load_file(file).run("scale", 1, 8, x, 0)
    assert x.tolist() == [15] * 8
    with pytest.raises(LoweringError, match='kernels.cu includes "parts/tools.cuh"\n  hint: build.load_file'):
        build.load(file.read_text())
