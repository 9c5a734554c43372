// Each load and store of a kernel that is compiled to report them.
#pragma once

#include <stddef.h>

#include "races.h"

namespace cuda_emulator {

// Before a launch: whether the kernel reports, and where its unit's own variables lie.
void prepare_accesses(const Kernel& kernel);

// An access of the thread that runs; nothing where the kernel does not report. It fails where the bytes are not all of
// one allocation or array, and where another thread's access races with it.
void note_access(const void* address, size_t bytes, AccessKind kind, const void* instruction);

}  // namespace cuda_emulator
