// The grid that runs.
#pragma once

#include "runtime.h"

namespace cuda_emulator {

// Blocks are numbered along x first, then y, then z.
uint3 block_at(unsigned long long number);

}  // namespace cuda_emulator
