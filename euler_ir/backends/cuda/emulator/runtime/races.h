// Which threads touched each byte last, and whether anything orders them: barriers of the block and __syncwarp do, and
// nothing else. Only kernels that are compiled to report their accesses are watched.
#pragma once

#include <stddef.h>

#include "scheduler.h"

namespace cuda_emulator {

enum class AccessKind { READ, WRITE, ATOMIC };

void watch_accesses(bool watch);  // before a launch: forgets those of the last one
void begin_watched_block(unsigned long long number);
void pass_barrier();
void pass_warp_barrier(const Warp& warp, unsigned mask);

// An access of the thread that runs. Shared memory is another one for each block.
void check_race(const void* address, size_t bytes, AccessKind kind, bool is_shared, const void* instruction);

}  // namespace cuda_emulator
