// What a kernel did wrong, in words; the first fault ends the launch.
#pragma once

#include <stdarg.h>
#include <stddef.h>

#include <string>

#include "scheduler.h"

namespace cuda_emulator {

constexpr size_t LONGEST_FAULT = 4096;

bool has_fault();
const char* fault_message();
void clear_fault(const char* kernel);

// Where in the source: a line of it, or an instruction; neither where that is not known.
struct Place {
    int line = 0;
    const void* instruction = nullptr;
};
Place fault_place();
Place other_fault_place();  // of a race

// A fault of `thread`, or of the whole block where that is null.
void record_fault(const Thread* thread, Place place, const char* format, ...) __attribute__((format(printf, 3, 4)));
// A fault of no block: of what lies around the memory after all have run.
void record_fault_of_launch(const char* format, ...) __attribute__((format(printf, 1, 2)));

// As `fail`, at an instruction.
[[noreturn]] void fail_at(const void* instruction, const char* format, ...) __attribute__((format(printf, 2, 3)));
// And at another one too, which does not go with it.
[[noreturn]] void fail_at_both(const void* instruction, const void* other, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
// Leaves the thread that runs for good.
[[noreturn]] void leave_kernel();

// "byte 8 of allocation #3 'weights' of 4096 bytes", or of shared memory.
std::string describe_any_address(const void* address);

// The rules of masks: it names the caller, and no lane that is not there or has finished.
void check_mask(const Thread& caller, const Request& request);
// Two lanes wait for each other with different requests.
[[noreturn]] void fail_disagreement(const Request& request, const Request& other, int other_lane);
// The last lane of the mask that is missing has finished: `waiting` waits for ever.
[[noreturn]] void fail_finished(const Thread& finished, const Request& request, int waiting);
void record_deadlock();

}  // namespace cuda_emulator
