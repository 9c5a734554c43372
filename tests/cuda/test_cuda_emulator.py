"""The emulator runs kernels as a GPU does: against numpy, in three orders."""

import numpy as np
import pytest
from launching import launch

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
