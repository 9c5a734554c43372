// The shared memory of the block that runs.
#pragma once

#include <stddef.h>

#include <string>

#include "runtime.h"

namespace cuda_emulator {

// Makes dynamic shared memory of so many bytes, and finds the unit's variables that are __shared__. Records a fault
// where they are too large, if the kernel `is_alone` in its unit: else nobody knows whose they are.
void prepare_shared_memory(size_t dynamic_bytes, size_t limit, const Kernel& kernel, bool is_alone);

void poison_shared_memory();   // before a block
void check_shared_memory();    // after it: records a fault where bytes around an array were changed

// "4 bytes past the end of the shared array 'tile' of 256 bytes"; empty when the address is near none.
std::string describe_shared_address(const void* address);

// Whether the address lies in the bytes around an array, which nobody may touch.
bool is_around_shared_array(const void* address);

}  // namespace cuda_emulator
