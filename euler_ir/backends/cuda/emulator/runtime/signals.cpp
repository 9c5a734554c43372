#include "signals.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "faults.h"

namespace cuda_emulator {

volatile bool must_stop;

namespace {

constexpr int FAULTS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr size_t HANDLER_STACK_BYTES = 64 << 10;
constexpr double TICK_SECONDS = 0.05;

CaughtSignals* caught;
pthread_t launcher;
struct sigaction previous[NSIG];
stack_t previous_stack;
timer_t timer;

unsigned long long watched_block;
int ticks_in_block;
double most_seconds;

int watchdog_signal() { return SIGRTMIN + 7; }

struct Interrupted {
    const void* instruction;
    const char* access;  // of memory, by its fault
};

Interrupted interrupted(const void* context) {
#if defined(__x86_64__)
    const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
    // Bit 1 of a page fault's error code: it was a write.
    return {reinterpret_cast<const void*>(registers[REG_RIP]), registers[REG_ERR] & 2 ? "writes" : "reads"};
#elif defined(__aarch64__)
    return {reinterpret_cast<const void*>(static_cast<const ucontext_t*>(context)->uc_mcontext.pc), "accesses"};
#else
    (void)context;
    return {nullptr, "accesses"};
#endif
}

void record_bad_access(const siginfo_t* info, const void* context) {
    const void* address = info->si_addr;
    Interrupted by = interrupted(context);
    Place at{0, by.instruction};
    if (info->si_code == SI_KERNEL) {
        record_fault(current, at, "it accesses what is no address, or a vector at no multiple of its size");
    } else if (is_below_a_stack(address)) {
        record_fault(current, at, "its stack is too small for its variables and calls");
    } else if (uintptr_t(address) < 65536) {
        record_fault(current, at, "it %s through a null pointer (address %p)", by.access, address);
    } else {
        record_fault(current, at, "it %s %s", by.access, describe_any_address(address).c_str());
    }
}

void hand_on(int signal) {
    // Comes again, to the handler that was there before.
    sigaction(signal, &previous[signal], nullptr);
}

void on_fault(int signal, siginfo_t* info, void* context) {
    if (!caught || !pthread_equal(pthread_self(), launcher) || !current) {
        hand_on(signal);
        return;
    }
    Place at{0, interrupted(context).instruction};
    if (signal == SIGSEGV || signal == SIGBUS) {
        record_bad_access(info, context);
    } else if (signal == SIGFPE) {
        record_fault(current, at, "it divides an integer by zero, or the least one by -1");
    } else if (signal == SIGABRT) {
        record_fault(current, {}, "it calls abort(), or C++ does for it");
    } else {
        record_fault(current, at, "it comes to an instruction that this processor has not got");
    }
    siglongjmp(caught->recovery, 1);
}

void record_endless(const void* instruction) {
    record_fault(current, {0, instruction},
                 "the block has not ended in %g seconds of processor time; threads and blocks take turns here, so one "
                 "that reads memory until another has written waits for ever",
                 most_seconds);
}

// Asks the kernel to stop where it next calls the runtime. One that does not within another tick calls nothing.
void on_tick(int, siginfo_t*, void* context) {
    if (!caught || !current || !pthread_equal(pthread_self(), launcher)) return;
    if (block_serial != watched_block) {
        watched_block = block_serial;
        ticks_in_block = 0;
    } else if (++ticks_in_block * TICK_SECONDS >= most_seconds) {
        if (must_stop) {
            record_endless(interrupted(context).instruction);
            siglongjmp(caught->recovery, 1);
        }
        must_stop = true;
    }
}

void install(int signal, void (*handler)(int, siginfo_t*, void*)) {
    struct sigaction action {};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, &previous[signal]);
}

}  // namespace

void stop(const void* instruction) {
    record_endless(instruction);
    leave_kernel();
}

CaughtSignals::CaughtSignals(double block_seconds) {
    static unsigned char* const handler_stack = static_cast<unsigned char*>(
        mmap(nullptr, HANDLER_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    stack_t stack{handler_stack, 0, HANDLER_STACK_BYTES};
    sigaltstack(&stack, &previous_stack);
    launcher = pthread_self();
    most_seconds = block_seconds;
    watched_block = 0;
    must_stop = false;
    caught = this;
    for (int signal : FAULTS) install(signal, on_fault);
    install(watchdog_signal(), on_tick);

    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = watchdog_signal();
#ifdef sigev_notify_thread_id
    event.sigev_notify_thread_id = pid_t(syscall(SYS_gettid));
#else
    event._sigev_un._tid = pid_t(syscall(SYS_gettid));
#endif
    timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer);
    timespec tick{0, long(TICK_SECONDS * 1e9)};
    itimerspec every{tick, tick};
    timer_settime(timer, 0, &every, nullptr);
}

CaughtSignals::~CaughtSignals() {
    timer_delete(timer);
    for (int signal : FAULTS) sigaction(signal, &previous[signal], nullptr);
    // A last tick may be on its way still: it must find no handler that ends the process.
    if (previous[watchdog_signal()].sa_handler == SIG_DFL) previous[watchdog_signal()].sa_handler = SIG_IGN;
    sigaction(watchdog_signal(), &previous[watchdog_signal()], nullptr);
    caught = nullptr;
    sigaltstack(&previous_stack, nullptr);
}

}  // namespace cuda_emulator
