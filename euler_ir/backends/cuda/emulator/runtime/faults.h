// What a kernel did wrong, in words; the first fault ends the launch.
#pragma once

#include <stdarg.h>
#include <stddef.h>

#include "scheduler.h"

namespace cuda_emulator {

constexpr size_t LONGEST_FAULT = 4096;

bool has_fault();
const char* fault_message();
void clear_fault(const char* kernel);

// A fault of `thread`, or of the whole block where that is null.
void record_fault(const Thread* thread, const char* format, ...) __attribute__((format(printf, 2, 3)));
// A fault of no block: of what lies around the memory after all have run.
void record_fault_of_launch(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Leaves the thread that runs for good.
[[noreturn]] void leave_kernel();

// The rules of masks: it names the caller, and no lane that is not there or has finished.
void check_mask(const Thread& caller, const Request& request);
// The last lane of the mask that is missing has finished: `waiting` waits for ever.
[[noreturn]] void fail_finished(const Thread& finished, const Request& request, int waiting);
void record_deadlock();

}  // namespace cuda_emulator
