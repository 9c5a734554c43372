"""Operations of warps, of single lanes and on memory, against what the CUDA guide and the PTX ISA say of them."""

import ml_dtypes
import numpy as np
import pytest
from launching import launch

ORDERS = ["ascending", "descending", 3]
HALVES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}

SHUFFLES = "\n".join(
    f'extern "C" __global__ void {kind}_{name}({c_type}* x, unsigned mask, int argument, int width) {{\n'
    "    int i = threadIdx.x;\n"
    f"    if (mask >> (i % 32) & 1) x[i] = __shfl{kind}_sync(mask, x[i], argument, width);\n}}"
    for kind in ("", "_up", "_down", "_xor")
    for name, c_type in {"f32": "float", "f64": "double", "i32": "int", "i64": "long long", "u32": "unsigned"}.items()
)


def shuffled(kind, x, mask, argument, width):
    """By the table of PTX's shfl.sync: where the source lane lies outside, a lane keeps its own value."""
    result = x.copy()
    for i in range(len(x)):
        warp, lane = i - i % 32, i % 32
        first, last = lane - lane % width, lane - lane % width + width - 1
        source = {
            "": first + argument % width,
            "_up": lane - argument if lane - argument >= first else lane,
            "_down": lane + argument if lane + argument <= last else lane,
            "_xor": lane ^ argument if lane ^ argument <= last else lane,
        }[kind]
        if mask >> lane & 1:
            result[i] = x[warp + source]
    return result


@pytest.mark.parametrize("kind", ["", "_up", "_down", "_xor"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64", "u32"])
def test_shuffles(kind, dtype):
    numpy_dtype = {"f": "f", "i": "i", "u": "u"}[dtype[0]] + str(int(dtype[1:]) // 8)
    x = np.random.default_rng(0).integers(0, 1000, 64).astype(numpy_dtype)
    for order in ORDERS:
        for argument, width in [(0, 32), (1, 32), (5, 32), (31, 32), (1, 8), (3, 8), (9, 8), (16, 16), (1, 1)]:
            y = x.copy()
            launch(SHUFFLES, f"{kind}_{dtype}", 1, 64, y, np.uint32(0xFFFFFFFF), argument, width, order=order)
            np.testing.assert_array_equal(
                y, shuffled(kind, x, 0xFFFFFFFF, argument, width), err_msg=f"{argument} {width}"
            )
    y = x.copy()
    launch(SHUFFLES, f"{kind}_{dtype}", 1, 64, y, np.uint32(0x00FF00FF), 2, 8)
    np.testing.assert_array_equal(y, shuffled(kind, x, 0x00FF00FF, 2, 8))


TEAMS = """
extern "C" __global__ void sum_by_teams(float* x) {
    int team = threadIdx.x % 32 / 8, rounds = threadIdx.x < 32 ? team : 3 - team;
    float sum = x[threadIdx.x];
    for (int distance = 16; distance; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    for (; rounds; --rounds)  // teams come to the last sum at different times
        for (int distance = 4; distance; distance /= 2) sum += __shfl_xor_sync(0xffu << 8 * team, sum, distance);
    for (int distance = 16; distance; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    x[threadIdx.x] = sum;
}
"""


@pytest.mark.parametrize("order", ["ascending", "descending", *range(10)])
def test_lanes_meet_in_parts_of_the_warp_and_then_in_the_whole(order):
    x = np.ones(96, np.float32)
    launch(TEAMS, "sum_by_teams", 1, 96, x, order=order)
    assert (x == 8 * 32 * (1 + 8 + 64 + 512)).all()


VOTES = """
extern "C" __global__ void votes(const int* x, unsigned* y, unsigned mask) {
    int i = threadIdx.x;
    if (!(mask >> (i % 32) & 1)) return;
    int all;
    y[i] = __ballot_sync(mask, x[i] > 2);
    y[64 + i] = __any_sync(mask, x[i] == 5);
    y[128 + i] = __all_sync(mask, x[i] < 6);
    y[192 + i] = __match_any_sync(mask, x[i]);
    y[256 + i] = __match_all_sync(mask, x[i] / 100, &all) + (all ? 0 : 7);
}
extern "C" __global__ void barriers(const int* x, int* y) {
    int i = threadIdx.x;
    y[i] = __syncthreads_count(x[i] > 2);
    y[96 + i] = __syncthreads_and(x[i] < 6) + 2 * __syncthreads_and(x[i] > 0);
    y[i] += 1000 * (__syncthreads_and(1) + 2 * __syncthreads_and(i != 77) + 4 * __syncthreads_or(i == 77));
    y[192 + i] = __syncthreads_or(x[i] == 77) + 2 * __syncthreads_or(x[i] == 5);
}
extern "C" __global__ void alone(unsigned* y) { y[threadIdx.x] = __activemask(); }
extern "C" __global__ void first_lanes_leave(int* y) {
    if (threadIdx.x % 32 >= 20) return;
    __syncwarp();
    y[threadIdx.x] = __popc(__ballot_sync(0x000fffff, 1));
}
"""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x0F0F00F1])
def test_votes_and_matches(order, mask):
    x = np.random.default_rng(1).integers(0, 7, 64).astype(np.int32)
    y = np.zeros(320, np.uint32)
    launch(VOTES, "votes", 1, 64, x, y, np.uint32(mask), order=order)
    lanes = [lane for lane in range(32) if mask >> lane & 1]
    for warp in (0, 32):
        values = {lane: x[warp + lane] for lane in lanes}
        bits = lambda holds: sum(1 << lane for lane in lanes if holds(values[lane]))  # noqa: E731
        for lane in lanes:
            expected = [
                bits(lambda value: value > 2),
                5 in values.values(),
                all(value < 6 for value in values.values()),
                bits(lambda value: value == values[lane]),
                mask,
            ]
            assert [y[64 * row + warp + lane] for row in range(5)] == expected


@pytest.mark.parametrize("order", ORDERS)
def test_barriers_that_count(order):
    x = np.random.default_rng(2).integers(0, 7, 96).astype(np.int32)
    y = np.zeros(288, np.int32)
    launch(VOTES, "barriers", 1, 96, x, y, order=order)
    expected = [(x > 2).sum() + 5000, (x < 6).all() + 2 * (x > 0).all(), (x == 77).any() + 2 * (x == 5).any()]
    np.testing.assert_array_equal(y, np.repeat(expected, 96))


@pytest.mark.parametrize("order", ORDERS)
def test_a_warp_meets_without_the_lanes_that_left(order):
    y = np.zeros(64, np.int32)
    launch(VOTES, "first_lanes_leave", 1, 64, y, order=order)
    assert set(y[:20]) == set(y[32:52]) == {20} and not y[20:32].any()


def test_no_lane_may_rely_on_others_to_be_active():
    y = np.zeros(64, np.uint32)
    launch(VOTES, "alone", 1, 64, y)
    assert y.tolist() == [1 << lane for lane in range(32)] * 2


ATOMICS = """
template <typename T>
__device__ void all_of(T* y, T x) {
    atomicAdd(y, x); atomicMin(y + 2, x); atomicMax(y + 3, x); atomicExch(y + 4, T(9));
    for (T old = y[5], seen; (seen = atomicCAS(y + 5, old, T(old + 1))) != old; old = seen) {}
}
template <typename T>
__device__ void all_of_integers(T* y, T x) {
    atomicSub(y + 1, x); atomicAnd(y + 6, x); atomicOr(y + 7, x); atomicXor(y + 8, x);
}
extern "C" __global__ void of_int(int* y, const int* x) {
    all_of(y, x[threadIdx.x]); all_of_integers(y, x[threadIdx.x]);
}
extern "C" __global__ void of_long(unsigned long long* y, const unsigned long long* x) {
    all_of(y, x[threadIdx.x]); all_of_integers(y, x[threadIdx.x]);
}
extern "C" __global__ void of_unsigned(unsigned* y, const unsigned* x) {
    all_of(y, x[threadIdx.x]); all_of_integers(y, x[threadIdx.x]);
    atomicInc(y + 9, 5); atomicDec(y + 10, 5);
}
extern "C" __global__ void of_float(float* y, const float* x) { atomicAdd(y, x[threadIdx.x]); atomicExch(y + 4, 9.0f); }
extern "C" __global__ void of_double(double* y, const double* x) {
    atomicAdd(y, x[threadIdx.x]); atomicExch(y + 4, 9.0);
}
extern "C" __global__ void tickets(int* next, int* taken) {
    taken[atomicAdd(next, 1)] += threadIdx.x + blockDim.x * blockIdx.x;
}
"""


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        ("of_int", np.int32),
        ("of_unsigned", np.uint32),
        ("of_long", np.uint64),
        ("of_float", np.float32),
        ("of_double", np.float64),
    ],
)
def test_atomics(kernel, dtype):
    x = np.random.default_rng(3).integers(1, 100, 64).astype(dtype)
    y = np.full(11, 50, dtype)
    launch(ATOMICS, kernel, 1, 64, y, x)
    expected = {0: 50 + x.sum(), 4: 9}
    if kernel not in ("of_float", "of_double"):
        reduced = {1: np.subtract, 6: np.bitwise_and, 7: np.bitwise_or, 8: np.bitwise_xor}
        expected |= {2: min(50, x.min()), 3: max(50, x.max()), 5: 50 + 64}
        expected |= {at: f.reduce(x, initial=dtype(50)) for at, f in reduced.items()}
    if kernel == "of_unsigned":
        up = down = 50
        for _ in range(64):
            up, down = 0 if up >= 5 else up + 1, 5 if down == 0 or down > 5 else down - 1
        expected |= {9: up, 10: down}
    for at in range(11):
        assert y[at] == expected.get(at, 50), at


def test_an_atomic_sum_gives_each_thread_its_own_number_in_each_order():
    orders = {}
    for order in ["ascending", "descending", 0, 1]:
        taken = np.zeros(768, np.int32)
        launch(ATOMICS, "tickets", 12, 64, np.zeros(1, np.int32), taken, order=order)
        np.testing.assert_array_equal(np.sort(taken), np.arange(768))
        orders[order] = taken.tolist()
    assert orders["ascending"] == list(range(768))
    assert orders["descending"] == list(range(767, -1, -1))
    assert orders[0] != orders[1]


BITS = """
extern "C" __global__ void bits(const unsigned* x, const unsigned* y, long long* out) {
    int i = threadIdx.x;
    unsigned a = x[i], b = y[i];
    unsigned long long wide = (unsigned long long)a << 32 | b;
    long long results[] = {__popc(a), __clz(a), __ffs(a), __brev(a), __umulhi(a, b), __mulhi(int(a), int(b)),
                           __popcll(wide), __clzll(wide), __ffsll(wide), (long long)__brevll(wide),
                           __byte_perm(a, b, 0x7204),
                           __funnelshift_l(a, b, 11), __funnelshift_r(a, b, 11), (long long)__umul64hi(wide, wide)};
    for (int k = 0; k < 14; ++k) out[k * blockDim.x + i] = results[k];
}
extern "C" __global__ void numbers(const float* x, float* out) {
    float results[] = {rsqrtf(x[0]), __expf(x[1]), __fdividef(x[0], x[1]), __saturatef(x[0]), __saturatef(-x[0]),
                       float(__float2int_rn(x[2])), min(x[0], x[1]), max(x[0], x[1]), fmaxf(x[3], x[0]), __ldg(x + 1),
                       __int_as_float(__float_as_int(x[0])), float(max(3, 5u)), __fmaf_rn(x[0], x[1], x[2])};
    for (int k = 0; k < 13; ++k) out[k] = results[k];
}
extern "C" __global__ void uncontracted(const float* x, float* out) {
    out[0] = __fsub_rn(__fmul_rn(x[0], x[0]), x[1]);
    out[1] = x[0] * x[0] - x[1];
}
"""


def test_functions_of_bits():
    generator = np.random.default_rng(4)
    x, y = (
        np.append(generator.integers(0, 2**32, 30), edges).astype(np.uint32) for edges in ([0, 2**32 - 1], [1, 2**31])
    )
    out = np.zeros((14, 32), np.int64)
    launch(BITS, "bits", 1, 32, x, y, out)
    for i, (a, b) in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        wide = a << 32 | b
        first = lambda value: (value & -value).bit_length()  # noqa: E731
        signed = lambda value: value - (value >> 31 << 32)  # noqa: E731
        bytes_of = (b << 32 | a).to_bytes(8, "little")
        expected = [
            *(a.bit_count(), 32 - a.bit_length(), first(a), int(f"{a:032b}"[::-1], 2), a * b >> 32),
            *(signed(a) * signed(b) >> 32, wide.bit_count(), 64 - wide.bit_length(), first(wide)),
            *(int(f"{wide:064b}"[::-1], 2), int.from_bytes(bytes_of[k] for k in (4, 0, 2, 7))),
            *(((b << 32 | a) << 11 & 2**64 - 1) >> 32, (b << 32 | a) >> 11 & 2**32 - 1, wide * wide >> 64),
        ]
        expected[10] = int.from_bytes(bytes(bytes_of[k] for k in (4, 0, 2, 7)), "little")
        assert [value % 2**64 for value in out[:, i].tolist()] == [value % 2**64 for value in expected]


def test_functions_of_numbers():
    x = np.array([2.5, 0.75, 3.5, np.nan], np.float32)
    out = np.zeros(13, np.float32)
    launch(BITS, "numbers", 1, 1, x, out)
    expected = [2.5**-0.5, np.exp(0.75), 2.5 / 0.75, 1, 0, 4, 0.75, 2.5, 2.5, 0.75, 2.5, 5, 2.5 * 0.75 + 3.5]
    np.testing.assert_allclose(out, expected, rtol=1e-6)


@pytest.mark.parametrize("contract", [True, False])
def test_products_and_sums_are_contracted_or_not(contract):
    x = np.array([1 + 2**-12, 0], np.float32)
    exact = np.float64(x[0]) ** 2
    x[1] = np.float32(exact)
    out = np.zeros(2, np.float32)
    launch(BITS, "uncontracted", 1, 1, x, out, contract=contract)
    assert out[0] == 0
    has_fma = "fma" in open("/proc/cpuinfo").read().split()
    assert out[1] == (exact - np.float64(x[1]) if contract and has_fma else 0)


CONVERSIONS = "\n".join(
    f"""
extern "C" __global__ void widen_{half}(const eir::{half}* x, float* y) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = eir::to_float(x[i]);
}}
extern "C" __global__ void round_{half}(const float* x, eir::{half}* y, unsigned* pairs, float* unpacked) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = eir::from_float<eir::{half}>(x[i]);
    pairs[i] = eir::pack2<eir::{half}>(x[i], -x[i]);
    float2 pair = eir::unpack2<eir::{half}>(pairs[i]);
    unpacked[2 * i] = pair.x, unpacked[2 * i + 1] = pair.y;
}}"""
    for half in HALVES
)


@pytest.mark.parametrize("half", HALVES)
def test_every_half_is_widened_and_all_kinds_of_floats_are_rounded(half):
    every = np.arange(2**16, dtype=np.uint16)
    wide = np.zeros(2**16, np.float32)
    launch(CONVERSIONS, f"widen_{half}", 256, 256, every, wide)
    values = every.view(HALVES[half]).astype(np.float32)
    np.testing.assert_array_equal(wide, values)

    # Each half's neighbours, the middles between halves and theirs, and any bits at all.
    finite = np.sort(values[np.isfinite(values)]).astype(np.float64)
    middles = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
    near = [np.nextafter(middles, np.float32(sign * np.inf)) for sign in (-1, 1)]
    any_bits = np.random.default_rng(5).integers(0, 2**32, 2**16, dtype=np.uint32).view(np.float32)
    x = np.concatenate([values, middles, *near, any_bits])
    x = np.resize(x, -(-len(x) // 256) * 256)
    y, pairs, unpacked = np.zeros(len(x), np.uint16), np.zeros(len(x), np.uint32), np.zeros((len(x), 2), np.float32)
    launch(CONVERSIONS, f"round_{half}", len(x) // 256, 256, x, y, pairs, unpacked)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(HALVES[half])
    np.testing.assert_array_equal(y.view(HALVES[half]).astype(np.float32), expected.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(y.view(HALVES[half]))[~np.isnan(x)], np.signbit(x)[~np.isnan(x)])
    np.testing.assert_array_equal(pairs & 0xFFFF, y)
    np.testing.assert_array_equal(unpacked, np.stack([expected, -expected], 1).astype(np.float32))


def test_the_approximate_power_of_two():
    source = """
    extern "C" __global__ void power(float* x) { x[threadIdx.x] = eir::exp2_approximate(x[threadIdx.x]); }
    """
    x = np.array(
        [0, 1, -1, 0.5, 10.25, 127.9, 128, -126, -126.5, -149, -np.inf, np.inf, np.nan, -0.0, 1e-30], np.float32
    )
    y = x.copy()
    launch(source, "power", 1, len(x), y)
    with np.errstate(over="ignore"):
        expected = np.exp2(x.astype(np.float64)).astype(np.float32)
    expected[(x < -126)] = 0
    np.testing.assert_allclose(y, expected, rtol=2**-22)
