// cp.async: 16 bytes on their way from global to shared memory, which are there only after the wait.
#pragma once

#include "language.h"

namespace eir {

// Zeros, when not valid: then nothing is read. Both addresses are multiples of 16.
inline void cp_async_16(void* shared, const void* global, bool valid, int line = __builtin_LINE()) {
    cuda_emulator::begin_copy(shared, global, 16, valid, line);
}

inline void cp_async_commit() { cuda_emulator::commit_copies(); }

// Waits for all groups that were committed but the last `pending` ones.
template <int pending>
inline void cp_async_wait() {
    cuda_emulator::wait_for_copies(pending);
}

}  // namespace eir
