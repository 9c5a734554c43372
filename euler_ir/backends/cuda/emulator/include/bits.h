// The bits of one type as another.
#pragma once

namespace cuda_emulator {

template <typename T, typename From>
inline T bits_as(From value) {
    static_assert(sizeof(T) == sizeof value);
    T result;
    __builtin_memcpy(&result, &value, sizeof result);
    return result;
}

}  // namespace cuda_emulator
