// Signals of a kernel's faults, which end the launch and not the process; and the watchdog.
#pragma once

#include <setjmp.h>
#include <signal.h>
#include <time.h>

namespace cuda_emulator {

// The block has run for too long.
extern volatile bool must_stop;
[[noreturn]] void stop(const void* instruction);

// While there is one, faults of this thread of the system are the kernel's: they are recorded, and `recovery` is jumped
// to. Other threads' faults go to the handlers that were there before, which come back in the end.
class CaughtSignals {
public:
    // A block that takes more processor time than so many seconds is a fault.
    explicit CaughtSignals(double block_seconds);
    ~CaughtSignals();

    sigjmp_buf recovery;
};

}  // namespace cuda_emulator
