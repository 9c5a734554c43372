// What CUDA C++ alone does not say: half types, shared memory, tensor cores, asynchronous copies. No header is needed.
// The emulator's header, which comes before, defines all of this itself.
//
// Fragments of mma.m16n8k16 in a warp, with group = lane / 4 and pair = lane % 4 * 2 (PTX ISA, "Matrix Fragments"):
//   a[0] (group, pair ..)  a[1] (group + 8, pair ..)  a[2] (group, pair + 8 ..)  a[3] (group + 8, pair + 8 ..)
//   b[0] (pair .., group)  b[1] (pair + 8 .., group)
//   d[0], d[1] (group, pair ..)  d[2], d[3] (group + 8, pair ..)
// where ".." stands for two neighbours, the first in the low half of the word.
#ifndef EIR_EMULATOR

namespace eir {

struct alignas(2) bf16 { unsigned short bits; };
struct alignas(2) f16 { unsigned short bits; };

}  // namespace eir

#define EIR_SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define EIR_DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]

namespace eir {

// -- conversions: to the nearest, ties to even; NaN, infinities and denormals are kept --------------------------------

__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float(unsigned(x.bits) << 16); }

__device__ __forceinline__ float to_float(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

template <class T> __device__ __forceinline__ T from_float(float x);

template <> __device__ __forceinline__ bf16 from_float<bf16>(float x) {
    bf16 y;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
    const unsigned bits = __float_as_uint(x);
    y.bits = x == x ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fff;
#endif
    return y;
}

template <> __device__ __forceinline__ f16 from_float<f16>(float x) {
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

// Two halves in a word, `low` in its bits 0 to 15.
template <class T> __device__ __forceinline__ unsigned pack2(float low, float high);

template <> __device__ __forceinline__ unsigned pack2<bf16>(float low, float high) {
#if __CUDA_ARCH__ >= 800
    unsigned word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
#else
    return unsigned(from_float<bf16>(high).bits) << 16 | from_float<bf16>(low).bits;
#endif
}

template <> __device__ __forceinline__ unsigned pack2<f16>(float low, float high) {
#if __CUDA_ARCH__ >= 800
    unsigned word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
#else
    return unsigned(from_float<f16>(high).bits) << 16 | from_float<f16>(low).bits;
#endif
}

// `low` in x, `high` in y.
template <class T> __device__ __forceinline__ float2 unpack2(unsigned word) {
    return {to_float(T{(unsigned short)(word)}), to_float(T{(unsigned short)(word >> 16)})};
}

// 2^x with a relative error of at most 2^-22; results below 2^-126 are 0.
__device__ __forceinline__ float exp2_approximate(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// -- tensor cores: all 32 lanes of a warp take part -------------------------------------------------------------------

__device__ __forceinline__ unsigned shared_address(const void* shared) {
    return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

// Matrices of 8 x 8 halves from shared memory: lanes 8 i to 8 i + 7 name the rows, of 16 bytes, of matrix i. Each lane
// gets two neighbours of row lane / 4 of each matrix; with `_transposed`, of column lane / 4.
__device__ __forceinline__ void ldmatrix_x4(unsigned (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_transposed(unsigned (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}

__device__ __forceinline__ void ldmatrix_x2(unsigned (&r)[2], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(row)) : "memory");
}

__device__ __forceinline__ void ldmatrix_x2_transposed(unsigned (&r)[2], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(row)) : "memory");
}

// d += a b, with a of 16 x 16 and b of 16 x 8 halves of type T, summed in f32.
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]);

template <>
__device__ __forceinline__ void mma_m16n8k16<bf16>(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <>
__device__ __forceinline__ void mma_m16n8k16<f16>(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// -- asynchronous copies ----------------------------------------------------------------------------------------------

// 16 bytes from global to shared memory, both aligned to 16; zeros, and nothing is read, where not `valid`. They have
// arrived for this thread after cp_async_wait, for the others after a barrier behind that.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0) : "memory");
}

// Ends a group of copies.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all but the last `pending` groups of this thread have arrived.
template <int pending> __device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" :: "n"(pending) : "memory");
}

}  // namespace eir

#endif
