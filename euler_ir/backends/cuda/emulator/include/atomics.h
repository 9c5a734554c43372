// Atomic operations. They order nothing else, as on a GPU: all are relaxed.
#pragma once

#include "bits.h"
#include "language.h"

namespace cuda_emulator {

template <size_t bytes>
struct WordOf;
template <>
struct WordOf<2> { using Type = unsigned short; };
template <>
struct WordOf<4> { using Type = unsigned int; };
template <>
struct WordOf<8> { using Type = unsigned long long; };

// Puts `update(old)` in place of the old value, and returns the old one.
template <typename T, typename Update>
inline T atomically(T* address, Update update, int line) {
    using Word = typename WordOf<sizeof(T)>::Type;
    if (uintptr_t(address) % sizeof(T)) {
        fail(line, "an atomic operation at %p, not a multiple of %zu", (void*)address, sizeof(T));
    }
    Word* word = reinterpret_cast<Word*>(address);
    Word old = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(word, &old, bits_as<Word>(T(update(bits_as<T>(old)))), false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
    }
    return bits_as<T>(old);
}

template <typename T>
struct Same {
    using Type = T;
};
template <typename T>
using same = typename Same<T>::Type;  // of this parameter nothing is deduced

}  // namespace cuda_emulator

#define EMULATED_ATOMIC(name, result)                                            \
    template <typename T>                                                        \
    inline T name(T* address, cuda_emulator::same<T> value, int line = __builtin_LINE()) {   \
        return cuda_emulator::atomically(address, [=](T old) { return T(result); }, line);     \
    }

EMULATED_ATOMIC(atomicAdd, old + value)
EMULATED_ATOMIC(atomicSub, old - value)
EMULATED_ATOMIC(atomicMin, value < old ? value : old)
EMULATED_ATOMIC(atomicMax, value > old ? value : old)
EMULATED_ATOMIC(atomicExch, value)
EMULATED_ATOMIC(atomicAnd, old & value)
EMULATED_ATOMIC(atomicOr, old | value)
EMULATED_ATOMIC(atomicXor, old ^ value)
EMULATED_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
EMULATED_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)

#undef EMULATED_ATOMIC

template <typename T>
inline T atomicCAS(T* address, cuda_emulator::same<T> compare, cuda_emulator::same<T> value,
                   int line = __builtin_LINE()) {
    return cuda_emulator::atomically(address, [=](T old) { return old == compare ? value : old; }, line);
}
