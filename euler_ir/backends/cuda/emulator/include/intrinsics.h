// Functions of one thread: bits, loads, and arithmetic under CUDA's names. What <math.h> has is taken from there.
#pragma once

#include "atomics.h"

// -- bits ------------------------------------------------------------------------------------------------------------

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1) << (31 - i);
    return reversed;
}
inline unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev(unsigned(x)) << 32 | __brev(unsigned(x >> 32));
}
inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long bytes = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        unsigned choice = selector >> 4 * i;
        unsigned byte = unsigned(bytes >> 8 * (choice & 7)) & 0xff;
        result |= (choice & 8 ? (byte & 0x80 ? 0xff : 0) : byte) << 8 * i;
    }
    return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return unsigned((((unsigned long long)high << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return unsigned(((unsigned long long)high << 32 | low) >> (shift & 31));
}

inline int __float_as_int(float x) { return cuda_emulator::bits_as<int>(x); }
inline unsigned __float_as_uint(float x) { return cuda_emulator::bits_as<unsigned>(x); }
inline float __int_as_float(int x) { return cuda_emulator::bits_as<float>(x); }
inline float __uint_as_float(unsigned x) { return cuda_emulator::bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return cuda_emulator::bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return cuda_emulator::bits_as<double>(x); }

// -- loads and stores with hints -------------------------------------------------------------------------------------

#define EMULATED_LOAD(name) \
    template <typename T>   \
    inline T name(const T* address) { return *address; }
EMULATED_LOAD(__ldg)
EMULATED_LOAD(__ldca)
EMULATED_LOAD(__ldcg)
EMULATED_LOAD(__ldcs)
EMULATED_LOAD(__ldlu)
EMULATED_LOAD(__ldcv)
#undef EMULATED_LOAD

#define EMULATED_STORE(name) \
    template <typename T>    \
    inline void name(T* address, cuda_emulator::same<T> value) { *address = value; }
EMULATED_STORE(__stwb)
EMULATED_STORE(__stcg)
EMULATED_STORE(__stcs)
EMULATED_STORE(__stwt)
#undef EMULATED_STORE

// -- arithmetic ------------------------------------------------------------------------------------------------------

// These are never contracted to a multiply-add: the barrier hides where the operand came from.
#define EMULATED_ROUNDED(name, type, operation)     \
    inline type name(type a, type b) {              \
        type result = a operation b;                \
        __asm__ volatile("" : "+m"(result));        \
        return result;                              \
    }
EMULATED_ROUNDED(__fadd_rn, float, +)
EMULATED_ROUNDED(__fsub_rn, float, -)
EMULATED_ROUNDED(__fmul_rn, float, *)
EMULATED_ROUNDED(__fdiv_rn, float, /)
EMULATED_ROUNDED(__dadd_rn, double, +)
EMULATED_ROUNDED(__dsub_rn, double, -)
EMULATED_ROUNDED(__dmul_rn, double, *)
EMULATED_ROUNDED(__ddiv_rn, double, /)
#undef EMULATED_ROUNDED

inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline double __dsqrt_rn(double x) { return sqrt(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float rsqrtf(float x) { return float(1.0 / sqrt(double(x))); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }

// A GPU's fast versions are less exact than these.
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return float(pow(10.0, double(x))); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float a, float b) { return a / b; }
inline float fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678f); }

inline int __float2int_rn(float x) { return int(nearbyintf(x)); }
inline int __float2int_rz(float x) { return int(x); }
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }

#define EMULATED_LEAST_AND_GREATEST(type)                                   \
    inline constexpr type min(type a, type b) { return b < a ? b : a; }     \
    inline constexpr type max(type a, type b) { return a < b ? b : a; }
EMULATED_LEAST_AND_GREATEST(int)
EMULATED_LEAST_AND_GREATEST(unsigned)
EMULATED_LEAST_AND_GREATEST(long)
EMULATED_LEAST_AND_GREATEST(unsigned long)
EMULATED_LEAST_AND_GREATEST(long long)
EMULATED_LEAST_AND_GREATEST(unsigned long long)
#undef EMULATED_LEAST_AND_GREATEST
inline constexpr unsigned min(int a, unsigned b) { return min(unsigned(a), b); }
inline constexpr unsigned min(unsigned a, int b) { return min(a, unsigned(b)); }
inline constexpr unsigned max(int a, unsigned b) { return max(unsigned(a), b); }
inline constexpr unsigned max(unsigned a, int b) { return max(a, unsigned(b)); }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

inline long long clock64() { return (long long)cuda_emulator::block_serial; }
