// float4 and its kin, with CUDA's alignments: a vector of 8 or 16 bytes lies on a multiple of as many.
#pragma once

#include "runtime.h"

#define EMULATED_VECTORS(name, type)                                                                              \
    struct name##1 { type x; };                                                                                   \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };                                                      \
    struct alignas(4 * sizeof(type) < 16 ? 4 * sizeof(type) : 16) name##4 { type x, y, z, w; };                   \
    inline constexpr name##1 make_##name##1(type x) { return {x}; }                                               \
    inline constexpr name##2 make_##name##2(type x, type y) { return {x, y}; }                                    \
    inline constexpr name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                         \
    inline constexpr name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

#define EMULATED_VECTORS_OF_3(name, type)  \
    struct name##3 { type x, y, z; };      \
    EMULATED_VECTORS(name, type)

EMULATED_VECTORS_OF_3(char, signed char)
EMULATED_VECTORS_OF_3(uchar, unsigned char)
EMULATED_VECTORS_OF_3(short, short)
EMULATED_VECTORS_OF_3(ushort, unsigned short)
EMULATED_VECTORS_OF_3(int, int)
EMULATED_VECTORS(uint, unsigned int)
EMULATED_VECTORS_OF_3(longlong, long long)
EMULATED_VECTORS_OF_3(ulonglong, unsigned long long)
EMULATED_VECTORS_OF_3(float, float)
EMULATED_VECTORS_OF_3(double, double)

#undef EMULATED_VECTORS_OF_3
#undef EMULATED_VECTORS
