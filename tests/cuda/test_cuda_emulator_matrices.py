"""Tensor cores in the emulator: every lane's fragments by the PTX ISA's formulas, and numpy in f64."""

import ml_dtypes
import numpy as np
import pytest
from launching import launch

HALVES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}

MATRICES = "\n".join(
    f"""
extern "C" __global__ void multiply_{half}(const unsigned* a, const unsigned* b, float* d) {{
    unsigned fragment_a[4], fragment_b[2];
    float sums[4];
    for (int i = 0; i < 4; ++i) fragment_a[i] = a[4 * threadIdx.x + i], sums[i] = d[4 * threadIdx.x + i];
    for (int i = 0; i < 2; ++i) fragment_b[i] = b[2 * threadIdx.x + i];
    eir::mma_m16n8k16<eir::{half}>(sums, fragment_a, fragment_b);
    for (int i = 0; i < 4; ++i) d[4 * threadIdx.x + i] = sums[i];
}}"""
    for half in HALVES
) + "\n".join(
    f"""
extern "C" __global__ void load_{kind}(const unsigned short* x, unsigned* r) {{
    EIR_SHARED(unsigned short, tile, {count} * 8 * 24);
    for (int i = threadIdx.x; i < {count} * 8 * 8; i += 32) tile[i / 8 * 24 + i % 8] = x[i];
    __syncwarp();
    unsigned registers[{count}];
    eir::ldmatrix_{kind}(registers, tile + threadIdx.x % {8 * count} * 24);
    for (int i = 0; i < {count}; ++i) r[{count} * threadIdx.x + i] = registers[i];
}}"""
    for count in (2, 4)
    for kind in (f"x{count}", f"x{count}_transposed")
)


def row_and_column_of_a(lane, i):
    """PTX ISA, "Matrix Fragments for mma.m16n8k16", .f16 and .bf16: of element a_i."""
    return lane // 4 + (8 if 2 <= i < 4 or i >= 6 else 0), lane % 4 * 2 + i % 2 + (8 if i >= 4 else 0)


def row_and_column_of_b(lane, i):
    return lane % 4 * 2 + i % 2 + (8 if i >= 2 else 0), lane // 4


def row_and_column_of_d(lane, i):
    return lane // 4 + (8 if i >= 2 else 0), lane % 4 * 2 + i % 2


def fragments(matrix, place, count):
    """[32, count]: of each lane its elements of ``matrix``."""
    return np.array([[matrix[place(lane, i)] for i in range(count)] for lane in range(32)], matrix.dtype)


@pytest.mark.parametrize("order", ["ascending", "descending", 0])
@pytest.mark.parametrize("half", HALVES)
def test_every_lane_of_a_product(half, order):
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal(shape).astype(HALVES[half]) for shape in ((16, 16), (16, 8)))
    d = generator.standard_normal((16, 8)).astype(np.float32)
    words = [fragments(a, row_and_column_of_a, 8).view(np.uint32), fragments(b, row_and_column_of_b, 4).view(np.uint32)]
    sums = fragments(d, row_and_column_of_d, 4)
    launch(MATRICES, f"multiply_{half}", 1, 32, *words, sums, order=order)
    expected = d + a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(sums, fragments(expected, row_and_column_of_d, 4), rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("half", HALVES)
def test_each_element_lies_where_the_isa_says(half):
    """One 1 in A and one in B, of each pair that meets: exactly one lane and register has the product."""
    for k in range(16):
        row, column = (3 * k + 1) % 16, (5 * k + 2) % 8
        a, b = np.zeros((16, 16), HALVES[half]), np.zeros((16, 8), HALVES[half])
        a[row, k], b[k, column] = 3, 5
        sums = np.zeros((32, 4), np.float32)
        words = [fragments(a, row_and_column_of_a, 8), fragments(b, row_and_column_of_b, 4)]
        launch(MATRICES, f"multiply_{half}", 1, 32, *(word.view(np.uint32) for word in words), sums)
        found = {row_and_column_of_d(lane, i): sums[lane, i] for lane, i in np.argwhere(sums)}
        assert found == {(row, column): 15}


@pytest.mark.parametrize("half", HALVES)
def test_nan_infinity_and_denormals_of_products(half):
    a, b = np.zeros((16, 16), HALVES[half]), np.zeros((16, 8), HALVES[half])
    tiny = ml_dtypes.finfo(HALVES[half]).smallest_subnormal
    a[:, 0] = [np.nan, np.inf, -np.inf, tiny, *[1] * 12]
    b[0] = [1, 1, 0, 1, 1, 1, 1, -1]
    sums = np.zeros((32, 4), np.float32)
    words = [fragments(a, row_and_column_of_a, 8), fragments(b, row_and_column_of_b, 4)]
    launch(MATRICES, f"multiply_{half}", 1, 32, *(word.view(np.uint32) for word in words), sums)
    with np.errstate(invalid="ignore"):
        expected = (a[:, :1].astype(np.float64) * b[:1].astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(sums, fragments(expected, row_and_column_of_d, 4))


@pytest.mark.parametrize("order", ["ascending", "descending", 0])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [2, 4])
def test_matrices_from_shared_memory(count, transposed, order):
    x = np.arange(count * 64, dtype=np.uint16).reshape(count, 8, 8)
    r = np.zeros((32, count), np.uint32)
    launch(MATRICES, f"load_x{count}{'_transposed' if transposed else ''}", 1, 32, x, r, order=order)
    for lane in range(32):
        for matrix in range(count):
            seen = x[matrix].T if transposed else x[matrix]
            low, high = seen[lane // 4, lane % 4 * 2], seen[lane // 4, lane % 4 * 2 + 1]
            assert r[lane, matrix] == int(low) | int(high) << 16
