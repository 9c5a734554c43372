// The words that CUDA adds to C++: what runs where, the variables that are built in, and shared memory.
#pragma once

#include "runtime.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

using cuda_emulator::blockDim;
using cuda_emulator::blockIdx;
using cuda_emulator::gridDim;
using cuda_emulator::threadIdx;
constexpr int warpSize = cuda_emulator::WARP;

// A variable of the one thread of the system that runs all fibers: it is static inside of functions, templates too, and
// all of a unit's lie in one piece of memory, which is poisoned before each block; `used` tells the compiler that
// others write there. `extern __shared__ type name[];` is written anew by build.py, as no macro can.
#define __shared__ thread_local __attribute__((used))

namespace cuda_emulator {

// An array of shared memory with room on both sides, which nobody may write to.
template <typename T, size_t count>
struct SharedArray {
    static constexpr size_t RED_ZONE = 64;
    alignas(64) unsigned char before[RED_ZONE];
    alignas(16) T elements[count];
    unsigned char after[RED_ZONE];
    unsigned long long entered_in;

    using Elements = T[count];
    Elements& enter(const char* name) {
        if (entered_in != block_serial) {
            entered_in = block_serial;
            enter_shared_array(before, offsetof(SharedArray, entered_in), elements, sizeof elements, name);
        }
        return elements;
    }
};

}  // namespace cuda_emulator

// `EIR_SHARED(float, tile, 32 * 33);` is `__shared__ float tile[32 * 33];`, aligned to 16 bytes, with red zones.
#define EIR_SHARED(type, name, ...)                                               \
    static cuda_emulator::SharedArray<type, (__VA_ARGS__)> name##_shared_array;   \
    auto& name = name##_shared_array.enter(#name)

// `EIR_DYNAMIC_SHARED(memory);` is `extern __shared__ unsigned char memory[];`, aligned to 16 bytes.
#define EIR_DYNAMIC_SHARED(name) unsigned char* const name = cuda_emulator::dynamic_shared

[[noreturn]] inline void __trap(int line = __builtin_LINE()) { cuda_emulator::fail(line, "it calls __trap()"); }

#undef assert
#define assert(condition) \
    ((condition) ? (void)0 : cuda_emulator::fail(__LINE__, "the assertion `%s` does not hold", #condition))

#define __builtin_assume(condition) \
    ((condition) ? (void)0 : cuda_emulator::fail(__LINE__, "`%s` is assumed and does not hold", #condition))

// Other threads see this thread's writes at once: there is nothing to wait for.
inline void __threadfence_block() {}
inline void __threadfence() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) { cuda_emulator::yield(); }
