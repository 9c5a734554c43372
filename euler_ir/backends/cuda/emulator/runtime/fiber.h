// A fiber: a stack of its own and a place in the code, which is left and come back to where the program says so.
#pragma once

#include <stddef.h>

#if defined(__x86_64__)
#define EMULATOR_OWN_SWITCH 1
#else
#include <ucontext.h>
#endif

namespace cuda_emulator {

struct Stack {
    unsigned char* lowest;
    size_t bytes;
};

struct Fiber {
#ifdef EMULATOR_OWN_SWITCH
    void* stack_pointer;
#else
    ucontext_t context;
#endif
};

// Makes `fiber` begin with `entry`, which never returns, on `stack`.
void prepare(Fiber& fiber, const Stack& stack, void (*entry)());

// Leaves `from`, which is the one that runs, and goes on with `to`.
void switch_fiber(Fiber& from, Fiber& to);

// Stacks, each below a part that faults. All are made at once and kept.
constexpr int MOST_THREADS = 1024;
Stack stack_number(int number);

// Whether the address lies where a stack that is too deep would go on.
bool is_below_a_stack(const void* address);
// Whose stack it lies on; -1 when on none.
int stack_of(const void* address);

}  // namespace cuda_emulator
