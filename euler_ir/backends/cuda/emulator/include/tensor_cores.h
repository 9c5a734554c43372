// ldmatrix and mma.sync with the layouts of the PTX ISA ("Warp-level matrix instructions"): which element of a matrix
// lies in which register of which lane.
#pragma once

#include "halves.h"
#include "warp.h"

namespace cuda_emulator {

inline void load_matrices(unsigned* registers, int matrices, bool transposed, const void* row, const char* operation,
                          int line) {
    LoadMatrices request{{operation, ~0u, line, execute_load_matrices}, matrices, transposed, {}, registers};
    if (lane() < 8 * matrices) {
        if (uintptr_t(row) % 16) fail(line, "%s of a row at %p, not a multiple of 16", operation, row);
        if (!is_shared(row, 16)) fail(line, "%s of a row at %p, not in shared memory", operation, row);
        check_landed(row, line);
        __builtin_memcpy(request.row, row, 16);
    }
    meet(request);
}

inline void multiply_add(float* d, const unsigned* a, const unsigned* b, void (*execute)(Request* const*, unsigned),
                         int line) {
    MultiplyAdd request{{"mma_m16n8k16", ~0u, line, execute}, a, b, d};
    meet(request);
}

}  // namespace cuda_emulator

namespace eir {

// Matrices of 8 x 8 halves: lanes 8 i to 8 i + 7 name the rows, of 16 bytes in shared memory, of matrix i. Each lane
// gets two neighbours of row lane / 4 of each matrix; with `_transposed`, of column lane / 4.
inline void ldmatrix_x2(unsigned (&r)[2], const void* row, int line = __builtin_LINE()) {
    cuda_emulator::load_matrices(r, 2, false, row, "ldmatrix_x2", line);
}
inline void ldmatrix_x2_transposed(unsigned (&r)[2], const void* row, int line = __builtin_LINE()) {
    cuda_emulator::load_matrices(r, 2, true, row, "ldmatrix_x2_transposed", line);
}
inline void ldmatrix_x4(unsigned (&r)[4], const void* row, int line = __builtin_LINE()) {
    cuda_emulator::load_matrices(r, 4, false, row, "ldmatrix_x4", line);
}
inline void ldmatrix_x4_transposed(unsigned (&r)[4], const void* row, int line = __builtin_LINE()) {
    cuda_emulator::load_matrices(r, 4, true, row, "ldmatrix_x4_transposed", line);
}

// d += a b, with a of 16 x 16 and b of 16 x 8 halves of type T = bf16 or f16, summed in f32.
template <typename T>
void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], int line = __builtin_LINE());

template <>
inline void mma_m16n8k16<bf16>(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], int line) {
    cuda_emulator::multiply_add(d, a, b, cuda_emulator::execute_multiply_add_bf16, line);
}
template <>
inline void mma_m16n8k16<f16>(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], int line) {
    cuda_emulator::multiply_add(d, a, b, cuda_emulator::execute_multiply_add_f16, line);
}

}  // namespace eir
