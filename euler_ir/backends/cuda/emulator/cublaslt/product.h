// Products as cuBLASLt defines them, column-major, in f32 or f64, rounded once at the end.
#pragma once

#include <algorithm>
#include <cmath>

#include "objects.h"

struct bf16 { uint16_t bits; };

inline float wide(bf16 value) {
    uint32_t bits = uint32_t(value.bits) << 16;
    float result;
    std::memcpy(&result, &bits, 4);
    return result;
}
inline float wide(_Float16 value) { return float(value); }
inline float wide(float value) { return value; }
inline double wide(double value) { return value; }

// To the nearest, ties to even; a NaN stays one.
inline void round_to(bf16& result, float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    result.bits = uint16_t(std::isnan(value) ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline void round_to(_Float16& result, float value) { result = _Float16(value); }
inline void round_to(float& result, float value) { result = value; }
inline void round_to(double& result, double value) { result = value; }

// Ten bits of mantissa, to the nearest, as tensor cores read f32.
inline float to_tf32(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if (std::isfinite(value)) bits = (bits + 0x1000) & ~uint32_t(0x1fff);
    std::memcpy(&value, &bits, 4);
    return value;
}
inline double to_tf32(double value) { return value; }

const float INNER = 0.7978845608028654f, CUBIC = 0.044715f;

inline float gelu(float x) { return 0.5f * x * (1 + std::tanh(INNER * (x + CUBIC * x * x * x))); }

inline float gelu_slope(float x) {
    float t = std::tanh(INNER * (x + CUBIC * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * INNER * (1 + 3 * CUBIC * x * x);
}

// What the algorithm of a problem needs, as heuristics promise it.
struct Algorithm {
    uint64_t parts;  // of the sum, each kept in the workspace
    uint64_t workspace_bytes;
    uint64_t alignment[4];  // of A, B, C and D
    uint64_t unused[2];
};

struct Problem {
    const Object *operation, *a, *b, *c, *d;

    int64_t rows() const { return d->get<int64_t>(ROWS); }
    int64_t columns() const { return d->get<int64_t>(COLUMNS); }
    int64_t inner() const { return a->get<int64_t>(transposed_a() ? ROWS : COLUMNS); }
    int64_t items() const { return d->get<int32_t>(BATCH); }
    bool transposed_a() const { return operation->get<int32_t>(TRANS_A) == 1; }
    bool transposed_b() const { return operation->get<int32_t>(TRANS_B) == 1; }
    unsigned epilogue() const { return operation->get<uint32_t>(EPILOGUE); }
    int type() const { return d->get<int32_t>(TYPE); }
    int compute() const { return operation->get<int32_t>(COMPUTE); }
    size_t sum_bytes() const { return compute() == COMPUTE_F64 ? 8 : 4; }
    uint64_t address(int attribute) const { return operation->get<uint64_t>(attribute); }
    template <class T> T* pointer(int attribute) const { return reinterpret_cast<T*>(address(attribute)); }
};

template <class T, class Sum> struct Product {
    const Problem& problem;
    const T *a, *b, *c;
    T* d;
    Sum alpha, beta;
    uint64_t parts;
    Sum* workspace;
    int64_t rows = problem.rows(), columns = problem.columns(), inner = problem.inner();

    // Terms are added one after the other in the order of the sum, in parts that are added in the end.
    void run() {
        const bool is_tf32 = problem.compute() == COMPUTE_TF32;
        const std::vector<Sum> left = read(a, problem.a, problem.transposed_a(), is_tf32);
        const std::vector<Sum> right = read(b, problem.b, problem.transposed_b(), is_tf32);
        std::vector<Sum> whole(rows * columns), scratch(parts > 1 ? 0 : rows * columns);
        for (uint64_t part = 0; part < parts; ++part) {
            Sum* sums = parts > 1 ? workspace + part * rows * columns : scratch.data();
            std::fill(sums, sums + rows * columns, Sum(0));
            const int64_t begin = inner * part / parts, end = inner * (part + 1) / parts;
            for (int64_t column = 0; column < columns; ++column)
                for (int64_t k = begin; k < end; ++k) {
                    const Sum factor = right[column * inner + k];
                    const Sum* terms = &left[k * rows];
                    Sum* __restrict__ to = &sums[column * rows];
                    for (int64_t row = 0; row < rows; ++row) to[row] += terms[row] * factor;
                }
            for (int64_t n = 0; n < rows * columns; ++n) whole[n] += sums[n];
        }
        store(whole);
    }

    // The columns of op(matrix), one after the other.
    static std::vector<Sum> read(const T* matrix, const Object* layout, bool transposed, bool is_tf32) {
        const int64_t leading = layout->get<int64_t>(LEADING);
        const int64_t height = layout->get<int64_t>(ROWS), width = layout->get<int64_t>(COLUMNS);
        std::vector<Sum> values(height * width);
        for (int64_t column = 0; column < width; ++column)
            for (int64_t row = 0; row < height; ++row) {
                const Sum value = wide(matrix[column * leading + row]);
                values[transposed ? row * width + column : column * height + row] = is_tf32 ? to_tf32(value) : value;
            }
        return values;
    }

    void store(const std::vector<Sum>& sums) {
        const int64_t leading = problem.d->get<int64_t>(LEADING), addend_leading = problem.c->get<int64_t>(LEADING);
        const int64_t aux_leading = problem.operation->get<int64_t>(AUX_LD);
        const unsigned epilogue = problem.epilogue() == NO_EPILOGUE ? 0 : problem.epilogue();
        const T* bias = problem.pointer<T>(BIAS_POINTER);
        T* aux = problem.pointer<T>(AUX_POINTER);
        for (int64_t column = 0; column < columns; ++column)
            for (int64_t row = 0; row < rows; ++row) {
                Sum value = alpha * sums[column * rows + row];
                if (beta != 0) value += beta * wide(c[column * addend_leading + row]);
                if (epilogue & BIAS) value += wide(bias[row]);
                if (epilogue & GELU && epilogue & AUX) round_to(aux[column * aux_leading + row], value);
                if (epilogue & GELU) value = gelu(value);
                if (epilogue & GELU_GRADIENT) value *= gelu_slope(wide(aux[column * aux_leading + row]));
                round_to(d[column * leading + row], value);
            }
    }
};

template <class T, class Sum>
void multiply(const Problem& problem, const void* alpha, const void* beta, const void* a, const void* b, const void* c,
              void* d, uint64_t parts, void* workspace) {
    for (int64_t item = 0; item < problem.items(); ++item) {
        const auto before = [&](const Object* layout) { return item * layout->get<int64_t>(BATCH_STRIDE); };
        Product<T, Sum>{
            problem,
            static_cast<const T*>(a) + before(problem.a),
            static_cast<const T*>(b) + before(problem.b),
            static_cast<const T*>(c) + before(problem.c),
            static_cast<T*>(d) + before(problem.d),
            *static_cast<const Sum*>(alpha),
            *static_cast<const Sum*>(beta),
            parts,
            static_cast<Sum*>(workspace)}
            .run();
    }
}
