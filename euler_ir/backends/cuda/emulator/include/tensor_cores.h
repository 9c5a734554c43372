// ldmatrix and mma.sync with the layouts of the PTX ISA ("Warp-level matrix instructions"): which element of a matrix
// lies in which register of which lane.
#pragma once

#include "halves.h"
#include "warp.h"

namespace cuda_emulator {

struct Row {
    unsigned words[4];  // 8 halves
};

template <int matrices>
struct LoadMatrix : Request {
    Row row;  // of matrix lane / 8, row lane % 8
    unsigned* registers;
};

// Lane i gets elements 2 (i % 4) and 2 (i % 4) + 1 of row i / 4 of each matrix.
template <int matrices, bool transposed>
void __attribute__((no_sanitize("thread"))) execute_load_matrix(Request* const* lanes, unsigned) {
    auto row = [&](int i) -> const Row& { return static_cast<LoadMatrix<matrices>*>(lanes[i])->row; };
    auto element = [&](int matrix, int i, int j) {
        return row(8 * matrix + i).words[j / 2] >> 16 * (j % 2) & 0xffff;
    };
    for (int i = 0; i < WARP; ++i) {
        unsigned* registers = static_cast<LoadMatrix<matrices>*>(lanes[i])->registers;
        for (int matrix = 0; matrix < matrices; ++matrix) {
            int major = i / 4, minor = 2 * (i % 4);
            registers[matrix] = transposed ? element(matrix, minor, major) | element(matrix, minor + 1, major) << 16
                                           : row(8 * matrix + major).words[i % 4];
        }
    }
}

template <int matrices, bool transposed>
inline void load_matrix(unsigned* registers, const void* address, const char* operation, int line) {
    LoadMatrix<matrices> request{{operation, ~0u, line, execute_load_matrix<matrices, transposed>}, {}, registers};
    if (lane() < 8 * matrices) {
        if (uintptr_t(address) % 16) fail("line %d: %s of a row at %p, not a multiple of 16", line, operation, address);
        if (!is_shared(address, 16)) fail("line %d: %s of a row at %p, not in shared memory", line, operation, address);
        request.row = *static_cast<const Row*>(address);
        if (request.row.words[0] == ~0u) check_landed(address, line);
    }
    meet(request);
}

struct MultiplyAdd : Request {
    const unsigned* a;
    const unsigned* b;
    float* d;
};

// D (16 x 8) += A (16 x 16) B (16 x 8), with sums in f32 over ascending k; tensor cores do not say their order.
template <typename T>
void __attribute__((no_sanitize("thread"))) execute_multiply_add(Request* const* lanes, unsigned) {
    float a[16][16], b[16][8], d[16][8];
    for (int i = 0; i < WARP; ++i) {
        const auto* mine = static_cast<MultiplyAdd*>(lanes[i]);
        int group = i / 4, member = i % 4;
        for (int j = 0; j < 4; ++j) {
            float2 pair = eir::unpack2<T>(mine->a[j]);
            float* to = &a[group + 8 * (j % 2)][2 * member + 8 * (j / 2)];
            to[0] = pair.x, to[1] = pair.y;
        }
        for (int j = 0; j < 2; ++j) {
            float2 pair = eir::unpack2<T>(mine->b[j]);
            b[2 * member + 8 * j][group] = pair.x, b[2 * member + 8 * j + 1][group] = pair.y;
        }
        for (int j = 0; j < 4; ++j) d[group + 8 * (j / 2)][2 * member + j % 2] = mine->d[j];
    }
    for (int i = 0; i < 16; ++i) {
        for (int k = 0; k < 16; ++k) {
            for (int j = 0; j < 8; ++j) d[i][j] += a[i][k] * b[k][j];
        }
    }
    for (int i = 0; i < WARP; ++i) {
        auto* mine = static_cast<MultiplyAdd*>(lanes[i]);
        for (int j = 0; j < 4; ++j) mine->d[j] = d[i / 4 + 8 * (j / 2)][2 * (i % 4) + j % 2];
    }
}

}  // namespace cuda_emulator

namespace eir {

// Each lane names the start of a row of 8 halves in shared memory: lanes 0 to 7 the rows of matrix 0, and so on.
inline void ldmatrix_x2(unsigned (&r)[2], const void* row, int line = __builtin_LINE()) {
    cuda_emulator::load_matrix<2, false>(r, row, "ldmatrix_x2", line);
}
inline void ldmatrix_x2_transposed(unsigned (&r)[2], const void* row, int line = __builtin_LINE()) {
    cuda_emulator::load_matrix<2, true>(r, row, "ldmatrix_x2_transposed", line);
}
inline void ldmatrix_x4(unsigned (&r)[4], const void* row, int line = __builtin_LINE()) {
    cuda_emulator::load_matrix<4, false>(r, row, "ldmatrix_x4", line);
}
inline void ldmatrix_x4_transposed(unsigned (&r)[4], const void* row, int line = __builtin_LINE()) {
    cuda_emulator::load_matrix<4, true>(r, row, "ldmatrix_x4_transposed", line);
}

// d += a b, of T = bf16 or f16 with sums in f32.
template <typename T>
inline void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], int line = __builtin_LINE()) {
    cuda_emulator::MultiplyAdd request{
        {"mma_m16n8k16", ~0u, line, cuda_emulator::execute_multiply_add<T>}, a, b, d};
    cuda_emulator::meet(request);
}

}  // namespace eir
