// A launch: all blocks of a grid, one after the other.
#include <dlfcn.h>
#include <fenv.h>
#include <stdio.h>
#include <string.h>

#include <mutex>

#include "accesses.h"
#include "faults.h"
#include "launch.h"
#include "memory.h"
#include "shared_memory.h"
#include "signals.h"

namespace cuda_emulator {

namespace {

std::mutex one_launch;

// The place-th block to run. In a random order the grid is walked in steps of a number that it has no factor with, from
// anywhere: each block once, and no table of them.
struct BlockOrder {
    Order order;
    unsigned long long count, step = 1, first = 0;

    BlockOrder(Order order, unsigned long long count) : order(order), count(count) {
        if (order != Order::RANDOM) return;
        first = random_below(count);
        do step = 1 + random_below(count);
        while (greatest_common_divisor(step, count) != 1);
    }
    static unsigned long long greatest_common_divisor(unsigned long long a, unsigned long long b) {
        while (b) {
            unsigned long long rest = a % b;
            a = b, b = rest;
        }
        return a;
    }
    unsigned long long operator()(unsigned long long place) const {
        if (order == Order::DESCENDING) return count - 1 - place;
        return (unsigned long long)((first + (unsigned __int128)place * step) % count);
    }
};

// Rounds to the nearest and keeps denormals, whatever the thread that launches has set for itself.
struct DefaultArithmetic {
    fenv_t before;
    DefaultArithmetic() {
        fegetenv(&before);
        fesetenv(FE_DFL_ENV);
    }
    ~DefaultArithmetic() { fesetenv(&before); }
};

void run_blocks(const Kernel& kernel, void* const* arguments, Order order) {
    unsigned long long count = (unsigned long long)gridDim.x * gridDim.y * gridDim.z;
    BlockOrder number_of(order, count);
    for (unsigned long long place = 0; place < count && !has_fault(); ++place) {
        unsigned long long number = number_of(place);
        blockIdx = block_at(number);
        begin_watched_block(number);
        poison_shared_memory();
        run_block(kernel, arguments, order);
        if (!has_fault()) check_shared_memory();
    }
}

}  // namespace

uint3 block_at(unsigned long long number) {
    return {unsigned(number % gridDim.x), unsigned(number / gridDim.x % gridDim.y),
            unsigned(number / gridDim.x / gridDim.y)};
}

}  // namespace cuda_emulator

using namespace cuda_emulator;

struct Launch {
    const Kernel* kernel;
    void* const* arguments;
    unsigned blocks[3], threads[3];
    unsigned long long shared_bytes, shared_limit;
    int order;
    unsigned long long seed;
    double block_seconds;
    bool is_alone;  // the kernel is the only one of its unit
};

// Where a fault is, so far as it is known: the line, or the instruction's place in the library that begins at
// `library`.
struct FaultPlace {
    int line;
    const void* library;
    const void* instruction;
    const void* other;  // of a race, the instruction of the other thread
};

// Runs the kernel; whether there was no fault. Its words go to `message`.
extern "C" bool cuda_emulator_launch(const Launch* launch, char* message, size_t bytes, FaultPlace* place) {
    std::lock_guard<std::mutex> lock(one_launch);
    const Kernel& kernel = *launch->kernel;
    clear_fault(kernel.name);
    gridDim = {launch->blocks[0], launch->blocks[1], launch->blocks[2]};
    blockDim = {launch->threads[0], launch->threads[1], launch->threads[2]};
    seed_order(launch->seed);
    prepare_shared_memory(launch->shared_bytes, launch->shared_limit, kernel, launch->is_alone);
    prepare_accesses(kernel);
    {
        CaughtSignals signals(launch->block_seconds);
        DefaultArithmetic arithmetic;
        if (!sigsetjmp(signals.recovery, 1)) run_blocks(kernel, launch->arguments, Order(launch->order));
        current = nullptr;
    }
    fflush(stdout);
    if (!has_fault()) check_canaries();
    if (!has_fault()) return true;
    strncpy(message, fault_message(), bytes - 1);
    message[bytes - 1] = 0;
    Dl_info library{};
    *place = {fault_place().line, nullptr, fault_place().instruction, other_fault_place().instruction};
    if (place->instruction && dladdr(place->instruction, &library)) place->library = library.dli_fbase;
    return false;
}
