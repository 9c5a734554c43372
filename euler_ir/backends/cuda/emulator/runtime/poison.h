// Bytes that nobody may change.
#pragma once

#include <stddef.h>
#include <string.h>

#include "runtime.h"

namespace cuda_emulator {

// The first byte that is no longer poison; null when all are.
inline const unsigned char* first_changed(const unsigned char* from, const unsigned char* to) {
    // Each byte is the one before it, and the first is poison.
    if (from >= to || (*from == POISON && !memcmp(from, from + 1, to - from - 1))) return nullptr;
    while (*from == POISON) ++from;
    return from;
}

}  // namespace cuda_emulator
