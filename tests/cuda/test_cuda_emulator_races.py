"""Kernels that report each access: races, and accesses that are out of bounds by a byte, with both places."""

import re
import struct

import numpy as np
import pytest
from launching import launch

from euler_ir.backends.cuda.emulator import build, memory
from euler_ir.errors import ExecutionError

# Each kernel goes wrong where `wrong` is 1, on the lines that say RACE. `x` has 64 elements; blocks have 64 threads.
SOURCE = """
KERNEL sums_in_a_tree(float* x, int wrong) {
    EIR_SHARED(float, part, 64);
    part[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    for (int half = 32; half; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];  // RACE
        if (!wrong || half > 16) __syncthreads();
    }
    if (threadIdx.x == 0) x[0] = part[0];
}
KERNEL overwrites_what_others_read(float* x, int wrong) {
    __shared__ float tile[64];
    for (int i = 0; i < 2; ++i) {
        tile[threadIdx.x] = x[threadIdx.x];  // RACE
        __syncthreads();
        x[threadIdx.x] = tile[threadIdx.x ^ 32];  // RACE
        if (!wrong) __syncthreads();
    }
}
KERNEL reads_its_neighbour(float* x, int wrong) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = x[threadIdx.x];  // RACE
    if (wrong) __shfl_sync(0xffffffff, 1, 0);  // lanes meet, but nothing is ordered
    else __syncwarp();
    x[threadIdx.x] = tile[threadIdx.x ^ 1];  // RACE
}
KERNEL orders_half_of_the_warp(float* x, int wrong) {
    EIR_SHARED(float, tile, 64);
    unsigned half = 0xffffu << (threadIdx.x & 16);
    tile[threadIdx.x] = x[threadIdx.x];  // RACE
    __syncwarp(half);
    x[threadIdx.x] = tile[threadIdx.x ^ (wrong ? 16 : 8)];  // RACE
}
KERNEL waits_through_another_lane(float* x, int wrong) {
    EIR_SHARED(float, value, 1);
    int i = threadIdx.x;
    if (i == 0) value[0] = 1;  // RACE
    if (i == 0 || i == 1) __syncwarp(0x3);
    if (i == 1 && wrong) return;
    if (i == 2 && wrong) x[0] = value[0];  // RACE
    if (!wrong && (i == 1 || i == 2)) __syncwarp(0x6);
    if (!wrong && i == 2) x[0] = value[0];
}
KERNEL waits_for_its_copy_alone(float* x, int wrong) {
    EIR_SHARED(float, tile, 64);
    if (threadIdx.x < 16) eir::cp_async_16(tile + 4 * threadIdx.x, x + 4 * threadIdx.x, true);  // RACE
    eir::cp_async_commit();
    eir::cp_async_wait<0>();
    if (!wrong) __syncthreads();
    float value = tile[threadIdx.x];  // RACE
    __syncthreads();
    x[threadIdx.x] = value;
}
KERNEL one_reads_and_another_writes(float* x, int wrong) {
    if (threadIdx.x == 0) x[1] = x[0];  // RACE
    if (threadIdx.x == 40 && wrong) x[0] = 1;  // RACE
}
KERNEL both_read_and_one_writes(float* x, int wrong) {
    float value = 0;
    if (threadIdx.x % 40 == 0) value = x[0];  // RACE
    if (threadIdx.x == 40 && wrong) x[0] = value;  // RACE
    if (threadIdx.x == 0) x[1] = value;
}
KERNEL counts_in_all_blocks(float* x, int wrong) {
    if (wrong && blockIdx.x == 1 && threadIdx.x == 5) x[0] = 1;  // RACE
    else if (threadIdx.x == 0) atomicAdd(x, 1.0f);  // RACE
}
KERNEL writes_where_another_block_reads(float* x, int wrong) {
    if (blockIdx.x == 0) x[threadIdx.x / 2] = 1;  // RACE-WITHIN
    if (blockIdx.x == 2) x[32 + (wrong ? 0 : threadIdx.x / 2)] = 2;  // RACE-WITHIN
}
KERNEL halves_share_no_word(float* x, int wrong) {
    auto* bytes = reinterpret_cast<unsigned char*>(x) + threadIdx.x;
    if (blockIdx.x < 2 && (threadIdx.x & 1) == blockIdx.x) *(bytes - (wrong && threadIdx.x == 7)) = 1;  // RACE
}
"""
RACES = [
    "sums_in_a_tree", "overwrites_what_others_read", "reads_its_neighbour", "orders_half_of_the_warp",
    "waits_through_another_lane", "waits_for_its_copy_alone", "one_reads_and_another_writes",
    "both_read_and_one_writes", "counts_in_all_blocks", "halves_share_no_word",
]  # fmt: skip
KERNELS = SOURCE.replace("KERNEL", 'extern "C" __global__ void')
ORDERS = ["ascending", "descending", 0, 1]


def run(kernel, wrong, order, sanitize=True):
    x = np.arange(64, dtype=np.float32)
    launch(
        KERNELS,
        kernel,
        1 if kernel not in RACES[-2:] else 3,
        64,
        x,
        wrong,
        shared_bytes=256,
        order=order,
        sanitize=sanitize,
    )
    return x


@pytest.mark.parametrize("kernel", RACES)
def test_a_race_is_found_in_every_order_with_both_lines_and_none_without_it(kernel):
    lines = [number for number, line in enumerate(KERNELS.split("\n"), 1) if "// RACE" in line]
    for order in ORDERS:
        run(kernel, 0, order)
        with pytest.raises(ExecutionError, match="no barrier is between them") as caught:
            run(kernel, 1, order)
        message = str(caught.value)
        assert (
            re.match(
                rf"kernel {kernel}, block \(\d, 0, 0\), thread \(\d+, 0, 0\): it (reads|writes|atomically changes) byte"
                r" \d+ of .*, which thread \(\d+, 0, 0\) of block \(\d, 0, 0\) (reads|writes|atomically changes), and no",
                message,
            )
            or "a variable that is __shared__" in message
        )
        named = [int(number) for number in re.findall(r"kernels\.cu:(\d+): ", message)]
        assert len(named) == 2 and set(named) <= set(lines), message


def test_equal_values_written_by_several_threads_race():
    with pytest.raises(ExecutionError, match="no barrier is between them"):
        run("writes_where_another_block_reads", 0, "ascending")


@pytest.mark.parametrize(
    "kernel", [kernel for kernel in RACES if kernel not in ("reads_its_neighbour", "orders_half_of_the_warp")]
)
def test_most_of_these_races_show_in_no_result_of_some_order(kernel):
    """Why races are looked for: nothing is NaN that was not written, in one order at least."""
    outcomes = []
    for order in ORDERS:
        with np.errstate(invalid="ignore"):
            outcomes.append(not np.isnan(run(kernel, 1, order, sanitize=False)).any())
    assert any(outcomes)


BOUNDS = """
extern "C" __global__ void reads(const char* x, char* y, int offset) { y[0] = x[offset]; }
extern "C" __global__ void shared(float* y, int offset) {
    EIR_SHARED(float, tile, 8);
    EIR_DYNAMIC_SHARED(dynamic);
    float* pointer = offset < 100 ? tile : reinterpret_cast<float*>(dynamic);
    pointer[0] = pointer[7] = 1;
    y[0] = pointer[offset % 100 - 10];
}
extern "C" __global__ void of_another(float* y) {
    EIR_SHARED(float*, local, 1);
    volatile float mine = threadIdx.x;
    if (threadIdx.x == 0) local[0] = const_cast<float*>(&mine);
    __syncthreads();
    y[threadIdx.x] = *local[0];
}
"""


def test_reads_just_outside_of_memory_and_arrays():
    module = build.load(BOUNDS, sanitize=True)
    x, y = memory.from_array(np.zeros(5, np.uint8), "five"), memory.allocate(4, "y")
    pointers = [struct.pack("<Q", x), struct.pack("<Q", y)]
    module.launch("reads", 1, 1, 0, [*pointers, struct.pack("<i", 4)])
    for offset, place in {5: "right past the end", -1: "1 bytes before the start", 9: "4 bytes past the end"}.items():
        with pytest.raises(ExecutionError, match=rf"reads 1 bytes at {place} of allocation #\d+ 'five' of 5 bytes"):
            module.launch("reads", 1, 1, 0, [*pointers, struct.pack("<i", offset)])
    for offset in (10, 17, 110, 117):
        module.launch("shared", 1, 1, 32, [pointers[1], struct.pack("<i", offset)])
    for offset, place in {
        9: "4 bytes before the start of the shared array 'tile' of 32 bytes",
        18: "right past the end of the shared array 'tile' of 32 bytes",
        109: "4 bytes before the start of dynamic shared memory of 32 bytes",
    }.items():
        with pytest.raises(ExecutionError, match=f"it reads 4 bytes at {place}"):
            module.launch("shared", 1, 1, 32, [pointers[1], struct.pack("<i", offset)])
    memory.free(x)
    memory.free(y)


def test_a_local_variable_is_a_threads_own():
    with pytest.raises(ExecutionError, match="it reads a local variable of another thread"):
        launch(BOUNDS, "of_another", 1, 2, np.zeros(2, np.float32), sanitize=True)
