// bf16 and f16: stored as 16 bits, computed with as f32.
#pragma once

#include <math.h>

#include "bits.h"
#include "vector_types.h"

namespace eir {

struct alignas(2) bf16 {
    unsigned short bits;
};
struct alignas(2) f16 {
    unsigned short bits;
};

inline float to_float(bf16 value) { return cuda_emulator::bits_as<float>(unsigned(value.bits) << 16); }
inline float to_float(f16 value) { return float(cuda_emulator::bits_as<_Float16>(value.bits)); }

// Rounds to the nearest, ties to even; denormals are kept, and a NaN stays one.
template <typename T>
T from_float(float value);

template <>
inline bf16 from_float<bf16>(float value) {
    unsigned bits = cuda_emulator::bits_as<unsigned>(value);
    if (value != value) return {0x7fff};
    return {(unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

template <>
inline f16 from_float<f16>(float value) {
    if (value != value) return {0x7fff};
    return {cuda_emulator::bits_as<unsigned short>(_Float16(value))};
}

// Two halves in a register, the low one in bits 0 to 15.
template <typename T>
inline unsigned pack2(float low, float high) {
    return from_float<T>(low).bits | unsigned(from_float<T>(high).bits) << 16;
}

template <typename T>
inline float2 unpack2(unsigned pair) {
    return {to_float(T{(unsigned short)pair}), to_float(T{(unsigned short)(pair >> 16)})};
}

// 2^value, as PTX's ex2.approx.ftz: results that would be denormal are 0.
inline float exp2_approximate(float value) {
    float result = exp2f(value);
    return result < 0x1p-126f ? 0.0f : result;
}

}  // namespace eir
