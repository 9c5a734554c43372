// The threads of one block: fibers, each of which runs until it waits for others.
#pragma once

#include <vector>

#include "fiber.h"
#include "runtime.h"

namespace cuda_emulator {

enum class Order { ASCENDING, DESCENDING, RANDOM };

struct PendingCopy {
    void* shared;
    const void* global;
    unsigned bytes;
    bool valid;
    unsigned group;
    const void* instruction;  // that asked for it
};

struct Warp;

struct Thread {
    Fiber fiber;
    uint3 index;
    Warp* warp;
    int lane;
    const char* barrier;  // that it waits at
    int barrier_line;

    std::vector<PendingCopy> copies;
    unsigned groups;  // of copies that were committed
};

struct Warp {
    Thread* threads;     // of its lanes
    unsigned exists;     // lanes that are there, as bits
    unsigned ready;      // lanes that can run
    unsigned finished;
    unsigned waiting;    // lanes that have a request
    unsigned char lane_order[WARP];
    Request* requests[WARP];

    unsigned live() const { return exists & ~finished; }
};

extern Thread* current;  // null outside of kernels

struct Threads {
    const Thread* first;
    int count;
    const Thread* begin() const { return first; }
    const Thread* end() const { return first + count; }
};
Threads block_threads();

// Runs all threads of the block to their end, in an order. Ends early when a fault was recorded.
void run_block(const Kernel& kernel, void* const* arguments, Order order);
void seed_order(unsigned long long seed);
unsigned long long random_below(unsigned long long bound);

}  // namespace cuda_emulator
