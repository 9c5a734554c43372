// From a function that is __global__ to an entry of the table that the launcher reads.
#pragma once

#include <type_traits>

#include "language.h"

namespace cuda_emulator {

template <typename T>
constexpr char kind_of() {
    if (std::is_pointer_v<T>) return 'p';
    if (std::is_floating_point_v<T>) return 'f';
    if (!std::is_integral_v<T>) return 'o';
    return std::is_signed_v<T> ? 'i' : 'u';
}

// What a pointer points to: 'o' where that says nothing about the array behind it, as of void, a character or a struct.
template <typename T>
constexpr char pointee_kind() {
    using Pointee = std::remove_cv_t<std::remove_pointer_t<T>>;
    if constexpr (!std::is_pointer_v<T> || std::is_void_v<Pointee> || std::is_function_v<Pointee>) return 'o';
    else return sizeof(Pointee) == 1 ? 'o' : kind_of<Pointee>();
}

template <typename T>
constexpr unsigned pointee_size() {
    if constexpr (pointee_kind<T>() == 'o') return 0;
    else return sizeof(std::remove_pointer_t<T>);
}

template <int... numbers>
struct Numbers {};

template <typename... Arguments>
struct Signature {
    static constexpr int count = sizeof...(Arguments);
    static constexpr unsigned sizes[] = {sizeof(Arguments)..., 0};
    static constexpr char kinds[] = {kind_of<Arguments>()..., 0};
    static constexpr unsigned pointee_sizes[] = {pointee_size<Arguments>()..., 0};
    static constexpr char pointee_kinds[] = {pointee_kind<Arguments>()..., 0};

    // The arguments are the launcher's, and no access of the kernel.
    template <void (*kernel)(Arguments...), int... number>
    static __attribute__((no_sanitize("thread"))) void call_with(void* const* arguments, Numbers<number...>) {
        kernel(*static_cast<Arguments*>(arguments[number])...);
    }

    template <void (*kernel)(Arguments...)>
    static void call(void* const* arguments) {
        call_with<kernel>(arguments, Numbers<__integer_pack(count)...>{});
    }
};

template <typename... Arguments>
Signature<Arguments...> signature_of(void (*)(Arguments...));

}  // namespace cuda_emulator

#ifdef __SANITIZE_THREAD__
#define EMULATOR_REPORTS_ACCESSES true
#else
#define EMULATOR_REPORTS_ACCESSES false
#endif

// A table of kernels, which ends with {}.
#define EMULATED_KERNELS                                                                                    \
    namespace {                                                                                             \
    alignas(cuda_emulator::SHARED_UNIT) __shared__ char any_shared_variable[cuda_emulator::SHARED_UNIT];     \
    void* shared_variable() { return any_shared_variable; }                                                 \
    constexpr bool reports_accesses = EMULATOR_REPORTS_ACCESSES;                                            \
    }                                                                                                       \
    extern "C" __attribute__((visibility("default"))) const cuda_emulator::Kernel cuda_emulator_kernels[]

#define EMULATED_KERNEL(name, ...)                                                                          \
    cuda_emulator::Kernel {                                                                                 \
        name, decltype(cuda_emulator::signature_of(__VA_ARGS__))::template call<__VA_ARGS__>,                \
            decltype(cuda_emulator::signature_of(__VA_ARGS__))::count,                                      \
            decltype(cuda_emulator::signature_of(__VA_ARGS__))::sizes,                                      \
            decltype(cuda_emulator::signature_of(__VA_ARGS__))::kinds,                                      \
            decltype(cuda_emulator::signature_of(__VA_ARGS__))::pointee_sizes,                              \
            decltype(cuda_emulator::signature_of(__VA_ARGS__))::pointee_kinds, shared_variable,             \
            reports_accesses                                                                                \
    }
