"""What the emulator reports: each fault in a small kernel, with its place, beside the same kernel without it."""

import re
import struct

import numpy as np
import pytest
from launching import launch

from euler_ir.backends.cuda.emulator import build, memory
from euler_ir.errors import ExecutionError, LoweringError

# Each kernel goes wrong where `wrong` is 1. `x` has 64 elements, 0 to 63; blocks have 64 threads and grids 3 blocks.
SOURCE = """
#define SELF (blockIdx.x == 1 && threadIdx.x == 40)

KERNEL reads_past_the_end(float* x, int wrong) { if (SELF) x[0] = x[wrong ? 64 : 63]; }
KERNEL writes_past_the_end(float* x, int wrong) { if (SELF) x[wrong ? 64 : 63] = 1; }
KERNEL writes_before_the_start(float* x, int wrong) { if (SELF) x[wrong ? -1 : 0] = 1; }
KERNEL reads_far_before_the_start(float* x, int wrong) { if (SELF) x[0] = x[wrong ? -2000 : 0]; }
KERNEL uses_null(float* x, int wrong) { float* y = wrong ? nullptr : x; if (SELF) x[0] = y[threadIdx.x]; }

KERNEL comes_to_two_barriers(float* x, int wrong) {
    if (wrong && threadIdx.x >= 32)
        __syncthreads();
    else
        __syncthreads();
}
KERNEL leaves_before_the_barrier(float* x, int wrong) {
    if (wrong && threadIdx.x >= 60) return;
    __syncthreads();
}
KERNEL waits_for_each_other(float* x, int wrong) {
    if (wrong && threadIdx.x == 1) __syncthreads();
    __syncwarp(0xffffffff);
    if (!wrong || threadIdx.x != 1) __syncthreads();
}
KERNEL shuffles_in_two_ways(float* x, int wrong) {
    float y = wrong && threadIdx.x == 7 ? __shfl_up_sync(~0u, x[0], 1) : __shfl_down_sync(~0u, x[0], 1);
    x[threadIdx.x] = y;
}
KERNEL names_finished_lanes(float* x, int wrong) {
    if (wrong && threadIdx.x % 32 == 31) return;
    x[threadIdx.x] = __shfl_xor_sync(0xffffffff, x[threadIdx.x], 1);
}
KERNEL leaves_out_itself(float* x, int wrong) {
    unsigned mask = wrong ? 0xfffffffe : 0xffffffff;
    x[threadIdx.x] = __ballot_sync(mask, 1) != 0;
}
KERNEL shuffles_over_a_width_of_12(float* x, int wrong) {
    x[threadIdx.x] = __shfl_sync(~0u, x[threadIdx.x], 0, wrong ? 12 : 16);
}

KERNEL reads_a_misaligned_vector(float* x, int wrong) {
    if (SELF) x[0] = reinterpret_cast<const float4*>(x + wrong)->y;
}
KERNEL adds_to_a_misaligned_double(float* x, int wrong) {
    if (SELF) atomicAdd(reinterpret_cast<double*>(x + wrong), 1.0);
}
KERNEL copies_from_a_misaligned_address(float* x, int wrong) {
    EIR_SHARED(float, tile, 64);
    if (SELF) eir::cp_async_16(tile, x + wrong, true);
}
KERNEL copies_to_what_is_not_shared(float* x, int wrong) {
    EIR_SHARED(float, tile, 64);
    if (SELF) eir::cp_async_16(wrong ? x + 16 : tile + 16, x, true);
}
KERNEL copies_twice(float* x, int wrong) {
    EIR_SHARED(float, tile, 64);
    if (!SELF) return;
    eir::cp_async_16(tile, x, true);
    eir::cp_async_16(tile + (wrong ? 0 : 4), x, true);
}
KERNEL waits_for_a_copy_of_no_group(float* x, int wrong) {
    EIR_SHARED(float, tile, 64);
    if (!SELF) return;
    eir::cp_async_16(tile, x, true);
    eir::cp_async_commit();
    eir::cp_async_16(tile + 4, x, true);
    if (!wrong) eir::cp_async_commit();
    eir::cp_async_wait<1>();
    eir::cp_async_wait<0>();
}
KERNEL loads_a_matrix_before_it_landed(float* x, int wrong) {
    EIR_SHARED(float, tile, 128);
    unsigned r[4];
    if (threadIdx.x >= 32) return;
    eir::cp_async_16(tile + 4 * threadIdx.x, x + 4 * (threadIdx.x % 16), true);
    eir::cp_async_commit();
    if (!wrong) eir::cp_async_wait<0>();
    __syncwarp();
    eir::ldmatrix_x4(r, tile + 4 * threadIdx.x);
    x[threadIdx.x] = r[0];
}
KERNEL loads_a_matrix_from_odd_rows(float* x, int wrong) {
    EIR_SHARED(float, tile, 160);
    unsigned r[2];
    eir::ldmatrix_x2(r, tile + 4 * (threadIdx.x % 32) + wrong);
}

KERNEL writes_past_a_shared_array(float* x, int wrong) {
    EIR_SHARED(float, tile, 64);
    float* end = tile + threadIdx.x;
    end[wrong] = 1;
}
KERNEL indexes_past_a_shared_array(float* x, int wrong) {
    __shared__ float tile[8][8];
    tile[threadIdx.x / 8][threadIdx.x % 8 + wrong] = 1;
}
KERNEL reads_past_dynamic_shared_memory(float* x, int wrong) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = 1;
    x[threadIdx.x] = tile[threadIdx.x + wrong];
}
KERNEL indexes_past_registers(float* x, int wrong) {
    float sums[4];
    for (int i = 0; i < 4 + wrong; ++i) sums[i] = x[i];
    x[0] = sums[threadIdx.x % 4];
}
KERNEL takes_too_much_shared_memory(float* x, int wrong) {
    if (!wrong) return;
    EIR_SHARED(float, tile, 12 * 1024 + 1);
    x[0] = tile[0];
}

__device__ int depth(volatile int* n) { volatile int left = *n - 1; return left > 0 ? depth(&left) + *n : 0; }
KERNEL recurses_too_deep(float* x, int wrong) { volatile int n = wrong ? 100000 : 10; x[threadIdx.x] = depth(&n); }
KERNEL never_ends(float* x, int wrong) {
    volatile float* flag = x;
    if (SELF) while (wrong && *flag == 0) {}
}
KERNEL never_ends_with_others(float* x, int wrong) { while (wrong && __any_sync(~0u, 1)) {} }
KERNEL divides_by_zero(float* x, int wrong) { x[threadIdx.x] = 64 / (int(threadIdx.x) - 40 * wrong + (wrong ? 0 : 1)); }
KERNEL overflows(float* x, int wrong) { int n = 46340 + wrong; x[threadIdx.x] = n * n; }
KERNEL shifts_too_far(float* x, int wrong) { x[threadIdx.x] = 1u << (threadIdx.x % 32 + wrong); }
KERNEL traps(float* x, int wrong) { if (wrong && SELF) __trap(); }
KERNEL assumes(float* x, int wrong) { __builtin_assume(!wrong || threadIdx.x != 40); }
KERNEL aborts(float* x, int wrong) { if (wrong && SELF) __builtin_abort(); }
KERNEL prints_what_is_no_string(float* x, int wrong) { if (wrong && SELF) printf("%s", (const char*)8); }
KERNEL asserts(float* x, int wrong) { assert(!wrong || threadIdx.x != 40); }
""".replace("KERNEL", 'extern "C" __global__ void')

HERE = r"block \(1, 0, 0\), thread \(40, 0, 0\)"
FAULTS = {
    "reads_past_the_end": rf"{HERE}: it reads right past the end of allocation #\d+ 'argument 0' of 256 bytes",
    "writes_past_the_end": rf"{HERE}: it writes right past the end of allocation #\d+ 'argument 0' of 256 bytes",
    "writes_before_the_start": r"it wrote 4 bytes before the start of allocation #\d+ 'argument 0' of 256 bytes",
    "reads_far_before_the_start": rf"{HERE}: it reads 8000 bytes before the start of allocation #\d+ 'argument 0'",
    "uses_null": rf"{HERE}: it reads through a null pointer",
    "comes_to_two_barriers": r"block \(0, 0, 0\): not all threads come to the same barrier\n"
    r".*threads \(0, 0, 0\) to \(31, 0, 0\): wait at __syncthreads on line 14\n"
    r".*threads \(32, 0, 0\) to \(63, 0, 0\): wait at __syncthreads on line 12",
    "leaves_before_the_barrier": r"block \(0, 0, 0\): not all threads come to the same barrier\n"
    r".*threads \(0, 0, 0\) to \(59, 0, 0\): wait at __syncthreads on line 18\n"
    r".*threads \(60, 0, 0\) to \(63, 0, 0\): finished",
    "waits_for_each_other": r"block \(0, 0, 0\): its threads wait for each other for ever\n"
    r".*thread \(0, 0, 0\): wait at __syncwarp on line 22, mask 0xffffffff\n"
    r".*thread \(1, 0, 0\): wait at __syncthreads",
    "shuffles_in_two_ways": r"thread \(7, 0, 0\): __shfl_up_sync with mask 0xffffffff waits for lane 0, which waits "
    r"for this one at __shfl_down_sync",
    "names_finished_lanes": r"thread \(31, 0, 0\): it finished while lane 0 of its warp waits for it at __shfl_xor",
    "leaves_out_itself": r"thread \(0, 0, 0\): __ballot_sync with mask 0xfffffffe, which leaves out the caller, lane 0",
    "shuffles_over_a_width_of_12": r"thread \(0, 0, 0\): __shfl_sync has a width of 12",
    "reads_a_misaligned_vector": rf"{HERE}: it accesses 'const struct float4' at 0x\w+, which is not a multiple of 16",
    "adds_to_a_misaligned_double": rf"{HERE}: an atomic operation at 0x\w+, not a multiple of 8",
    "copies_from_a_misaligned_address": rf"{HERE}: cp.async of 16 bytes from \w+ to \w+, which must be multiples of 16",
    "copies_to_what_is_not_shared": rf"{HERE}: cp.async to \w+, which is not in shared memory",
    "copies_twice": rf"{HERE}: cp.async to \w+ while another copy to it is on its way",
    "waits_for_a_copy_of_no_group": rf"{HERE}: it waits for all of its copies, and no cp_async_commit follows this one",
    "loads_a_matrix_before_it_landed": r"thread \((\d+), 0, 0\): it reads what cp.async of thread \(\1, 0, 0\) ",
    "loads_a_matrix_from_odd_rows": r"thread \(0, 0, 0\): ldmatrix_x2 of a row at \w+, not a multiple of 16",
    "writes_past_a_shared_array": r"block \(0, 0, 0\): it wrote right past the end of the shared array 'tile' of 256",
    "indexes_past_a_shared_array": r"thread \(7, 0, 0\): its index is 8, in an array 'float \[8\]'",
    "reads_past_dynamic_shared_memory": r"thread \(63, 0, 0\): it reads right past the end of dynamic shared memory",
    "indexes_past_registers": r"thread \(0, 0, 0\): its index is 4, in an array 'float \[4\]'",
    "takes_too_much_shared_memory": r"thread \(0, 0, 0\): it declares 49156 bytes of shared memory; 49152 is the most",
    "recurses_too_deep": r"thread \(0, 0, 0\): its stack is too small",
    "never_ends": rf"{HERE}: the block has not ended in 0.1 seconds of processor time",
    "never_ends_with_others": r"block \(0, 0, 0\), thread \(\d+, 0, 0\): the block has not ended in 0.1 seconds",
    "divides_by_zero": r"thread \(40, 0, 0\): it divides 'int' by 0",
    "overflows": r"thread \(0, 0, 0\): a product overflows 'int'",
    "shifts_too_far": r"thread \(31, 0, 0\): it shifts 'unsigned int' by 32",
    "traps": rf"{HERE}: it calls __trap\(\)",
    "assumes": r"thread \(40, 0, 0\): `!wrong \|\| threadIdx.x != 40` is assumed and does not hold",
    "aborts": rf"{HERE}: it calls abort\(\)",
    "prints_what_is_no_string": rf"{HERE}: it reads through a null pointer \(address 0x8\)",
    "asserts": r"thread \(40, 0, 0\): the assertion `!wrong \|\| threadIdx.x != 40` does not hold",
}
PLACELESS = {"writes_before_the_start", "comes_to_two_barriers", "leaves_before_the_barrier", "waits_for_each_other",
             "writes_past_a_shared_array", "recurses_too_deep", "takes_too_much_shared_memory", "aborts",
             "prints_what_is_no_string"}  # fmt: skip


def run(kernel, wrong, **options):
    x = np.arange(64, dtype=np.float32)
    launch(SOURCE, kernel, 3, 64, x, wrong, shared_bytes=256, block_seconds=0.1, **options)
    return x


def line_of(kernel):
    """The first line of the kernel's text, and the last."""
    text = SOURCE[: SOURCE.index(f"void {kernel}(")]
    body = SOURCE[len(text) :]
    end = body.find("\nextern", 1)
    first = text.count("\n") + 1
    return first, first + body[: end if end > 0 else len(body)].count("\n")


@pytest.mark.parametrize("kernel", FAULTS)
def test_a_fault_is_reported_with_its_place_and_the_kernel_without_it_runs(kernel):
    with pytest.raises(ExecutionError) as caught:
        run(kernel, wrong=1)
    message = str(caught.value)
    assert re.search(f"kernel {kernel}[,:]", message)
    assert re.search(FAULTS[kernel], message), message
    if kernel not in PLACELESS:
        lines = [int(number) for number in re.findall(r"kernels\.cu:(\d+): ", message)]
        first, last = line_of(kernel)
        assert any(first <= line <= last for line in lines), message
    run(kernel, wrong=0)
    with pytest.raises(ExecutionError):
        run(kernel, wrong=1, order=5)


def test_every_kernel_of_the_source_is_tried():
    assert set(build.kernel_names(SOURCE)) == set(FAULTS)


def test_what_was_not_written_or_has_not_landed_is_nan():
    source = """
    extern "C" __global__ void reads(const float* x, float* y, int step) {
        EIR_SHARED(float, tile, 128);
        __shared__ float plain[128];
        EIR_DYNAMIC_SHARED(dynamic);
        if (step == 0) y[threadIdx.x] = tile[threadIdx.x];
        if (step == 1) y[threadIdx.x] = plain[threadIdx.x];
        if (step == 2) y[threadIdx.x] = reinterpret_cast<float*>(dynamic)[threadIdx.x];
        if (step < 3) {  // the next block must not see these
            __syncthreads();
            tile[threadIdx.x] = plain[threadIdx.x] = reinterpret_cast<float*>(dynamic)[threadIdx.x] = 1;
        } else {
            tile[threadIdx.x] = 5;
            __syncwarp();
            if (threadIdx.x < 8) eir::cp_async_16(tile + 4 * threadIdx.x, x + 4 * threadIdx.x, threadIdx.x < 6);
            eir::cp_async_commit();
            if (threadIdx.x < 8) eir::cp_async_16(tile + 32 + 4 * threadIdx.x, x, false);
            eir::cp_async_commit();
            if (step == 4) eir::cp_async_wait<2>();
            if (step == 5) eir::cp_async_wait<1>();
            if (step == 6) eir::cp_async_wait<0>();
            __syncwarp();
            y[threadIdx.x] = tile[threadIdx.x];
            y[32 + threadIdx.x] = tile[32 + threadIdx.x];
        }
    }
    """
    x = np.arange(1, 33, dtype=np.float32)
    landed = np.where(np.arange(32) < 24, x, 0)  # the last two pieces are not valid: zeros
    nothing, zeros = np.full(32, np.nan), np.zeros(32)
    expected = [nothing, nothing, nothing]
    for step in range(7):
        y = np.zeros(64, np.float32)
        launch(source, "reads", 2, 32, x, y, step, shared_bytes=128)
        if step < 3:
            np.testing.assert_array_equal(y[:32], expected[step])
        else:
            first, second = landed if step >= 5 else nothing, zeros if step == 6 else nothing
            np.testing.assert_array_equal(y, np.concatenate([first, second]), err_msg=f"step {step}")


def test_what_no_thread_ever_writes_is_nan():
    source = """
    extern "C" __global__ void reads(float* y) {
        __shared__ float never_written[32];
        y[threadIdx.x] = never_written[threadIdx.x];
    }
    """
    y = np.zeros(32, np.float32)
    launch(source, "reads", 1, 32, y)
    assert np.isnan(y).all()


INCREMENT = """
extern "C" __global__ void increment(float* const* x) { x[0][threadIdx.x] += 1; }
extern "C" __global__ void nothing(float*, double, char) {}
extern "C" __global__ void one_lane() { __shfl_sync(0xffffffff, 1, 0); }
"""


def test_memory_that_was_freed():
    module = build.load(INCREMENT)
    data = memory.from_array(np.zeros(32, np.float32), "activations")
    table = memory.from_array(np.array([data], np.uint64), "table")
    module.launch("increment", 1, 32, 0, [struct.pack("<Q", table)])
    np.testing.assert_array_equal(memory.to_array(data, (32,), np.float32), np.ones(32))
    memory.free(data)
    with pytest.raises(ExecutionError, match=r"it reads byte 0 of freed allocation #\d+ 'activations' of 128 bytes"):
        module.launch("increment", 1, 32, 0, [struct.pack("<Q", table)])
    with pytest.raises(ExecutionError, match="argument 0 points to no allocation\n.*freed allocation #.*'activations'"):
        module.launch("increment", 1, 32, 0, [struct.pack("<Q", data)])
    with pytest.raises(ExecutionError, match="no allocation to free"):
        memory.free(data)
    with pytest.raises(ExecutionError, match="no allocation to free"):
        memory.free(table + 1)
    memory.free(table)


@pytest.mark.parametrize(
    ("blocks", "threads", "shared_bytes", "message"),
    [
        (0, 32, 0, "0 blocks along x; there must be 1 to 2147483647"),
        ((1, 65536), 32, 0, "65536 blocks along y; there must be 1 to 65535"),
        ((1, 1, 65536), 32, 0, "65536 blocks along z; there must be 1 to 65535"),
        (1, 0, 0, "0 threads along x"),
        ((1, 1, 1, 1), 32, 0, "4 numbers of blocks"),
        (1, 1025, 0, "1025 threads along x; there must be 1 to 1024"),
        (1, (1, 1, 65), 0, "65 threads along z; there must be 1 to 64"),
        (1, (32, 33), 0, "a block of 1056 threads; 1024 is the most"),
        (1, 32, (163 << 10) + 1, "166913 bytes of dynamic shared memory; a block of sm_80 has 166912"),
        (1, 32, -1, "-1 bytes of dynamic shared memory"),
    ],
)
def test_what_a_gpu_cannot_launch(blocks, threads, shared_bytes, message):
    arguments = [struct.pack("<Q", 0), struct.pack("<d", 0), b"a"]
    with pytest.raises(ExecutionError, match=message):
        build.load(INCREMENT).launch("nothing", blocks, threads, shared_bytes, arguments, architecture="sm_80")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([bytes(8)], "takes 3 arguments and was given 1"),
        ([bytes(8), bytes(4), b"a"], "argument 1 has 4 bytes; its type has 8"),
        ([struct.pack("<Q", 12345), bytes(8), b"a"], "argument 0 points to no allocation"),
    ],
)
def test_arguments_that_are_not_the_kernels(arguments, message):
    with pytest.raises(ExecutionError, match=message):
        build.load(INCREMENT).launch("nothing", 1, 1, 0, arguments)


@pytest.mark.parametrize(
    ("number", "value", "takes"),
    [
        (0, 1.5, "an integer of 4 bytes"),
        (0, 2**31, "an integer of 4 bytes"),
        (1, -1, "an integer without sign of 8 bytes"),
        (1, np.zeros(3), "an integer without sign of 8 bytes"),
        (2, "1", "a floating-point number of 4 bytes"),
        (3, 0, "a pointer of 8 bytes"),
        (4, 1, "a value of 2 bytes"),
    ],
)
def test_numbers_that_a_parameter_cannot_hold(number, value, takes):
    source = """
    extern "C" __global__ void stores(int i, unsigned long long u, float f, double* x, eir::bf16 half) {
        x[0] = i, x[1] = u, x[2] = f, x[3] = to_float(half);
    }
    """
    x = np.zeros(4)
    arguments = [-(2**31), 2**63 + 1, 3, x, b"\x80\x3f"]
    launch(source, "stores", 1, 1, *arguments)
    assert x.tolist() == [-(2.0**31), 2.0**63, 3, 1]
    arguments[number] = value
    with pytest.raises(
        ExecutionError, match=rf"argument {number} is .*{re.escape(repr(value))}, and the kernel takes {takes}"
    ):
        launch(source, "stores", 1, 1, *arguments)


def test_an_array_must_hold_what_its_pointer_points_to():
    """numpy's own types are f64 and i64, and most kernels take neither."""
    source = """
    extern "C" __global__ void all(const float* f, unsigned* u, const void* any, char* bytes, eir::bf16* half) {
        u[0] += f[0], bytes[0] += ((const char*)any)[0];
    }
    """
    f, u, bytes_ = np.ones(1, np.float32), np.ones(1, np.int32), np.ones(8, np.uint8)
    launch(source, "all", 1, 1, f, u, np.array([2.0**-1074]), bytes_, np.ones(1, np.uint16))
    assert u[0] == 2 and bytes_[0] == 2
    for number, array, takes in (
        (0, np.ones(1), "a floating-point number of 4 bytes"),
        (0, u, "a floating-point number of 4 bytes"),
        (1, f, "an integer without sign of 4 bytes"),
        (1, np.arange(1), "an integer without sign of 4 bytes"),
    ):
        arguments = [f, u, u, bytes_, bytes_]
        arguments[number] = array
        with pytest.raises(ExecutionError, match=f"array of {array.dtype}, and the kernel takes a pointer to {takes}"):
            launch(source, "all", 1, 1, *arguments)


def test_shared_memory_that_a_gpu_has_not_got():
    """48 KiB are the most that a kernel may declare, and what is dynamic comes on top."""
    source = """
    extern __shared__ float more[];
    __global__ void sums(float* x) {
        __shared__ double tile[%d];
        tile[threadIdx.x] = x[threadIdx.x], more[threadIdx.x] = 1;
        __syncthreads();
        x[threadIdx.x] += tile[blockDim.x - 1 - threadIdx.x] + more[threadIdx.x];
    }
    """
    x = np.arange(32, dtype=np.float32)
    launch(source % 6144, "sums", 1, 32, x, shared_bytes=(227 - 48) << 10)
    assert x.tolist() == [32] * 32
    for count, shared_bytes, message in (
        (6145, 128, "declares 49[0-9]* bytes of shared memory; 49152 is the most that is not dynamic"),
        (6144, 227 << 10, "takes 281600 bytes of shared memory, 232448 of them dynamic; a block has 232448"),
    ):
        with pytest.raises(ExecutionError, match=message):
            launch(source % count, "sums", 1, 32, x, shared_bytes=shared_bytes)


def test_names_and_orders_that_are_not_there():
    module = build.load(INCREMENT)
    with pytest.raises(ExecutionError, match="has no kernel incremnt\n.*\n.*did you mean increment"):
        module.launch("incremnt", 1, 1, 0, [])
    with pytest.raises(ExecutionError, match="no order 'up'"):
        module.launch("one_lane", 1, 32, 0, [], order="up")


def test_a_mask_names_lanes_that_the_block_has_not_got():
    module = build.load(INCREMENT)
    module.launch("one_lane", 1, 64, 0, [])
    with pytest.raises(
        ExecutionError, match=r"thread \(32, 0, 0\): __shfl_sync .* names lanes 16 to 31; the warp has no such"
    ):
        module.launch("one_lane", 1, 48, 0, [])


@pytest.mark.usefixtures("cpp_compiler")
def test_what_the_compiler_refuses():
    with pytest.raises(
        LoweringError, match=r"g\+\+ refuses kernels.cu\n(.*\n)?.*kernels.cu:2:.*error: .nowhere. was not declared"
    ):
        build.load('extern "C" __global__ void k(float* x) {\n    *x = nowhere; }')
    with pytest.raises(LoweringError, match="kernels.cu has no kernel"):
        build.load("__device__ float f(float x) { return x; }")
    with pytest.raises(LoweringError, match="has no kernel\n  hint: a template is named .* 'half<float>'"):
        build.load("template <class T> __global__ void half(T* x) { *x /= 2; }")
    host = "__global__ void k() {}\nint main() { k<<<1, 1>>>(); }"
    with pytest.raises(LoweringError, match=r"(?s)g\+\+ refuses.*hint: put the host's side.*#ifndef EIR_EMULATOR"):
        build.load(host)
