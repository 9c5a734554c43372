#include "fiber.h"

#include <stdint.h>
#include <sys/mman.h>

namespace cuda_emulator {

#ifdef EMULATOR_OWN_SWITCH

// System V ABI for x86-64: a function keeps rbx, rbp, r12 to r15 and the stack; the rest its caller has saved.
extern "C" void cuda_emulator_switch(void** from, void* to);
__asm__(R"(
.text
.hidden cuda_emulator_switch
.globl cuda_emulator_switch
.type cuda_emulator_switch, @function
cuda_emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size cuda_emulator_switch, .-cuda_emulator_switch
)");

void prepare(Fiber& fiber, const Stack& stack, void (*entry)()) {
    auto* top = reinterpret_cast<uintptr_t*>(stack.lowest + stack.bytes);
    // At its entry a function finds its return address on a stack that was a multiple of 16 before.
    *--top = 0;
    *--top = reinterpret_cast<uintptr_t>(entry);
    for (int registers = 0; registers < 6; ++registers) *--top = 0;
    fiber.stack_pointer = top;
}

void switch_fiber(Fiber& from, Fiber& to) { cuda_emulator_switch(&from.stack_pointer, to.stack_pointer); }

#else

void prepare(Fiber& fiber, const Stack& stack, void (*entry)()) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stack.lowest;
    fiber.context.uc_stack.ss_size = stack.bytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, entry, 0);
}

void switch_fiber(Fiber& from, Fiber& to) { swapcontext(&from.context, &to.context); }

#endif

namespace {

constexpr size_t STACK_BYTES = 256 << 10, GUARD_BYTES = 64 << 10, EACH_BYTES = GUARD_BYTES + STACK_BYTES;

// The tops of stacks are not all at multiples of the same power of two: they would share few lines of the caches.
constexpr size_t top_offset(int number) { return size_t(number) % 61 * 192; }

unsigned char* all_stacks() {
    static unsigned char* const memory = [] {
        void* stacks = mmap(nullptr, MOST_THREADS * EACH_BYTES, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return stacks == MAP_FAILED ? nullptr : static_cast<unsigned char*>(stacks);
    }();
    return memory;
}

}  // namespace

Stack stack_number(int number) {
    static int usable = 0;  // of the first so many the guard is followed by memory
    unsigned char* lowest = all_stacks() + number * EACH_BYTES + GUARD_BYTES;
    for (; usable <= number; ++usable) {
        mprotect(all_stacks() + usable * EACH_BYTES + GUARD_BYTES, STACK_BYTES, PROT_READ | PROT_WRITE);
    }
    return {lowest, STACK_BYTES - top_offset(number)};
}

bool is_below_a_stack(const void* address) {
    return stack_of(address) >= 0 && (uintptr_t(address) - uintptr_t(all_stacks())) % EACH_BYTES < GUARD_BYTES;
}

int stack_of(const void* address) {
    auto offset = uintptr_t(address) - uintptr_t(all_stacks());
    return offset < MOST_THREADS * EACH_BYTES ? int(offset / EACH_BYTES) : -1;
}

}  // namespace cuda_emulator
