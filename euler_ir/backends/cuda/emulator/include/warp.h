// What the threads of a block and the lanes of a warp do together.
#pragma once

#include "language.h"

namespace cuda_emulator {

// A value from each lane, and a value for each lane.
template <typename In, typename Out>
struct Exchange : Request {
    In input;
    Out output;
    int argument;  // of shuffles: the lane, distance or mask that this lane names
    int width;
};

template <typename In, typename Out>
inline Exchange<In, Out>* exchange_of(Request* request) {
    return static_cast<Exchange<In, Out>*>(request);
}

template <typename T>
inline T poison() {
    T value;
    __builtin_memset(&value, POISON, sizeof value);
    return value;
}

// PTX ISA, "shfl.sync": lane i of a segment of `width` lanes reads lane `from`, or itself if that is outside.
template <typename T, int (*source)(int lane, int argument, int width)>
void __attribute__((no_sanitize("thread"))) execute_shuffle(Request* const* lanes, unsigned mask) {
    for (int i = 0; i < WARP; ++i) {
        if (!(mask >> i & 1)) continue;
        auto* mine = exchange_of<T, T>(lanes[i]);
        int from = source(i, mine->argument, mine->width);
        // What a lane outside of the mask would give is undefined, and often not used.
        mine->output = mask >> from & 1 ? exchange_of<T, T>(lanes[from])->input : poison<T>();
    }
}

inline int indexed_lane(int lane, int from, int width) { return (lane & ~(width - 1)) | (from & (width - 1)); }
inline int lane_above(int lane, int delta, int width) { return (lane & (width - 1)) - delta < 0 ? lane : lane - delta; }
inline int lane_below(int lane, int delta, int width) {
    return (lane & (width - 1)) + delta >= width ? lane : lane + delta;
}
inline int lane_across(int lane, int lanes, int width) {
    int from = lane ^ lanes;
    return from >= (lane & ~(width - 1)) + width ? lane : from & (WARP - 1);
}

template <typename T, int (*source)(int, int, int)>
inline T shuffle(const char* operation, unsigned mask, T value, int argument, int width, int line) {
    static_assert(sizeof(T) <= 8, "a shuffle moves 4 or 8 bytes");
    if (width < 1 || width > WARP || (width & (width - 1))) {
        fail(line, "%s has a width of %d; it is a power of two up to 32", operation, width);
    }
    Exchange<T, T> request{{operation, mask, line, execute_shuffle<T, source>}, value, value, argument, width};
    meet(request);
    return request.output;
}

inline void __attribute__((no_sanitize("thread"))) execute_ballot(Request* const* lanes, unsigned mask) {
    unsigned votes = 0;
    for (int i = 0; i < WARP; ++i) {
        if (mask >> i & 1) votes |= unsigned(exchange_of<bool, unsigned>(lanes[i])->input) << i;
    }
    for (int i = 0; i < WARP; ++i) {
        if (mask >> i & 1) exchange_of<bool, unsigned>(lanes[i])->output = votes;
    }
}

inline unsigned ballot(const char* operation, unsigned mask, bool vote, int line) {
    Exchange<bool, unsigned> request{{operation, mask, line, execute_ballot}, vote, 0, 0, WARP};
    meet(request);
    return request.output;
}

template <typename T>
void __attribute__((no_sanitize("thread"))) execute_match(Request* const* lanes, unsigned mask) {
    for (int i = 0; i < WARP; ++i) {
        if (!(mask >> i & 1)) continue;
        auto* mine = exchange_of<T, unsigned>(lanes[i]);
        for (int j = 0; j < WARP; ++j) {
            if (!(mask >> j & 1)) continue;
            bool is_equal = !__builtin_memcmp(&mine->input, &exchange_of<T, unsigned>(lanes[j])->input, sizeof(T));
            mine->output |= unsigned(is_equal) << j;
        }
    }
}

template <typename T>
inline unsigned match(const char* operation, unsigned mask, T value, int line) {
    Exchange<T, unsigned> request{{operation, mask, line, execute_match<T>}, value, 0, 0, WARP};
    meet(request);
    return request.output;
}

}  // namespace cuda_emulator

inline void __syncthreads(int line = __builtin_LINE()) { cuda_emulator::barrier("__syncthreads", true, line); }
inline int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
    return cuda_emulator::barrier("__syncthreads_count", predicate, line).count;
}
inline int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
    return cuda_emulator::barrier("__syncthreads_and", predicate, line).all;
}
inline int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
    return cuda_emulator::barrier("__syncthreads_or", predicate, line).count != 0;
}

inline void __syncwarp(unsigned mask, int line = __builtin_LINE()) {
    cuda_emulator::Request request{"__syncwarp", mask, line, cuda_emulator::order_accesses};
    cuda_emulator::meet(request);
}
// Without a mask, all lanes that are there. A mask that is written out must name no others.
namespace cuda_emulator {
struct LiveLanes {};
}
inline void __syncwarp(cuda_emulator::LiveLanes = {}, int line = __builtin_LINE()) {
    cuda_emulator::Request request{"__syncwarp", ~0u, line, cuda_emulator::order_accesses, true};
    cuda_emulator::meet(request);
}

template <typename T>
inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, int line = __builtin_LINE()) {
    return cuda_emulator::shuffle<T, cuda_emulator::indexed_lane>("__shfl_sync", mask, value, lane, width, line);
}
template <typename T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    return cuda_emulator::shuffle<T, cuda_emulator::lane_above>("__shfl_up_sync", mask, value, delta, width, line);
}
template <typename T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    return cuda_emulator::shuffle<T, cuda_emulator::lane_below>("__shfl_down_sync", mask, value, delta, width, line);
}
template <typename T>
inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, int line = __builtin_LINE()) {
    return cuda_emulator::shuffle<T, cuda_emulator::lane_across>("__shfl_xor_sync", mask, value, lanes, width, line);
}

// The lanes that run this together. CUDA does not promise that it is any but the caller, and here it is none.
inline unsigned __activemask() { return 1u << cuda_emulator::lane(); }

inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return cuda_emulator::ballot("__ballot_sync", mask, predicate, line);
}
inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return cuda_emulator::ballot("__any_sync", mask, predicate, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return cuda_emulator::ballot("__all_sync", mask, predicate, line) == mask;
}
template <typename T>
inline unsigned __match_any_sync(unsigned mask, T value, int line = __builtin_LINE()) {
    return cuda_emulator::match("__match_any_sync", mask, value, line);
}
template <typename T>
inline unsigned __match_all_sync(unsigned mask, T value, int* predicate, int line = __builtin_LINE()) {
    unsigned equal = cuda_emulator::match("__match_all_sync", mask, value, line);
    *predicate = equal == mask;
    return *predicate ? mask : 0;
}
