// What ldmatrix and mma.sync do for a whole warp.
#include "halves.h"
#include "runtime.h"

namespace cuda_emulator {

namespace {

typedef float Row __attribute__((vector_size(8 * sizeof(float))));

// D (16 x 8) += A (16 x 16) B (16 x 8). The products are exact; the sums are in f32 over ascending k, as tensor cores
// do not say their order.
template <typename T>
void multiply_add(Request* const* lanes) {
    float a[16][16];
    Row b[16], d[16];
    for (int i = 0; i < WARP; ++i) {
        const auto& lane = *static_cast<const MultiplyAdd*>(lanes[i]);
        int group = i / 4, pair = i % 4 * 2;
        for (int j = 0; j < 4; ++j) {
            float2 values = eir::unpack2<T>(lane.a[j]);
            float* to = &a[group + 8 * (j % 2)][pair + 8 * (j / 2)];
            to[0] = values.x, to[1] = values.y;
        }
        for (int j = 0; j < 2; ++j) {
            float2 values = eir::unpack2<T>(lane.b[j]);
            b[pair + 8 * j][group] = values.x, b[pair + 8 * j + 1][group] = values.y;
        }
        for (int j = 0; j < 4; ++j) d[group + 8 * (j / 2)][pair + j % 2] = lane.d[j];
    }
    for (int i = 0; i < 16; ++i) {
        for (int k = 0; k < 16; ++k) d[i] += a[i][k] * b[k];
    }
    for (int i = 0; i < WARP; ++i) {
        const auto& lane = *static_cast<const MultiplyAdd*>(lanes[i]);
        for (int j = 0; j < 4; ++j) lane.d[j] = d[i / 4 + 8 * (j / 2)][i % 4 * 2 + j % 2];
    }
}

}  // namespace

void execute_multiply_add_bf16(Request* const* lanes, unsigned) { multiply_add<eir::bf16>(lanes); }
void execute_multiply_add_f16(Request* const* lanes, unsigned) { multiply_add<eir::f16>(lanes); }

void execute_load_matrices(Request* const* lanes, unsigned) {
    auto row = [&](int matrix, int i) { return static_cast<const LoadMatrices*>(lanes[8 * matrix + i])->row; };
    for (int i = 0; i < WARP; ++i) {
        const auto& lane = *static_cast<const LoadMatrices*>(lanes[i]);
        int group = i / 4, pair = i % 4 * 2;
        for (int matrix = 0; matrix < lane.matrices; ++matrix) {
            const unsigned short* first = row(matrix, lane.transposed ? pair : group);
            const unsigned short* second = row(matrix, lane.transposed ? pair + 1 : group);
            int low = lane.transposed ? group : pair, high = lane.transposed ? group : pair + 1;
            lane.registers[matrix] = first[low] | unsigned(second[high]) << 16;
        }
    }
}

}  // namespace cuda_emulator
