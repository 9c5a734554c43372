#include "signals.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "faults.h"
#include "memory.h"

#if defined(__x86_64__)
#include <ucontext.h>
#endif

namespace cuda_emulator {

namespace {

constexpr int FAULTS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr size_t HANDLER_STACK_BYTES = 64 << 10;
constexpr long TICK_NANOSECONDS = 50'000'000;

CaughtSignals* caught;
pthread_t launcher;
struct sigaction previous[NSIG];
stack_t previous_stack;
timer_t timer;

unsigned long long watched_block;
int ticks_in_block;
double most_seconds;

int watchdog_signal() { return SIGRTMIN + 7; }

const char* access_of(const void* context) {
#if defined(__x86_64__)
    // Bit 1 of a page fault's error code: it was a write.
    return static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2 ? "writes" : "reads";
#else
    (void)context;
    return "accesses";
#endif
}

void record_bad_access(const siginfo_t* info, const void* context) {
    const void* address = info->si_addr;
    if (info->si_code == SI_KERNEL) {
        record_fault(current, "it accesses a vector at an address that is not a multiple of its size, or no address at all");
    } else if (is_below_a_stack(address)) {
        record_fault(current, "its stack is too small for its variables and calls");
    } else if (uintptr_t(address) < 65536) {
        record_fault(current, "it %s through a null pointer (address %p)", access_of(context), address);
    } else {
        std::string what = describe_address(address);
        if (what.empty()) what = "an address of no allocation";
        record_fault(current, "it %s %s", access_of(context), what.c_str());
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
    if (signal == SIGSEGV || signal == SIGBUS) {
        record_bad_access(info, context);
    } else if (signal == SIGFPE) {
        record_fault(current, "it divides an integer by zero, or the least one by -1");
    } else {
        record_fault(current, "it reaches what cannot be reached, or an instruction that this processor has not got");
    }
    siglongjmp(caught->recovery, 1);
}

void on_tick(int, siginfo_t*, void*) {
    if (!caught || !current || !pthread_equal(pthread_self(), launcher)) return;
    if (block_serial != watched_block) {
        watched_block = block_serial;
        ticks_in_block = 0;
        return;
    }
    if (++ticks_in_block * (TICK_NANOSECONDS * 1e-9) < most_seconds) return;
    record_fault(current, "the block has run for more than %g seconds and has not ended; here, threads and blocks do not run "
                          "at once, so one that waits for another by reading memory waits for ever", most_seconds);
    siglongjmp(caught->recovery, 1);
}

void install(int signal, void (*handler)(int, siginfo_t*, void*)) {
    struct sigaction action {};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, &previous[signal]);
}

}  // namespace

CaughtSignals::CaughtSignals(double block_seconds) {
    static unsigned char* const handler_stack = static_cast<unsigned char*>(
        mmap(nullptr, HANDLER_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    stack_t stack{handler_stack, 0, HANDLER_STACK_BYTES};
    sigaltstack(&stack, &previous_stack);
    launcher = pthread_self();
    most_seconds = block_seconds;
    watched_block = 0;
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
    itimerspec every{{0, TICK_NANOSECONDS}, {0, TICK_NANOSECONDS}};
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
