#include "scheduler.h"

#include <string.h>

#include "caller.h"
#include "faults.h"
#include "races.h"
#include "signals.h"

namespace cuda_emulator {

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
unsigned long long block_serial;
Thread* current;

namespace {

Thread threads[MOST_THREADS];
Warp warps[MOST_THREADS / WARP];
int warp_order[MOST_THREADS / WARP];
int thread_count, warp_count;
int warp_turn;  // which of warp_order runs
Order block_order;

int finished_threads, true_predicates;
BarrierResult released;

Fiber launcher;
const Kernel* running_kernel;
void* const* running_arguments;

unsigned long long random_state;

template <typename Number>
void shuffle_order(Number* order, int count) {
    for (int i = 0; i < count; ++i) order[i] = block_order == Order::DESCENDING ? count - 1 - i : i;
    if (block_order != Order::RANDOM) return;
    for (int i = count - 1; i > 0; --i) {
        int j = int(random_below(i + 1));
        Number other = order[i];
        order[i] = order[j], order[j] = other;
    }
}

void draw_orders() {
    shuffle_order(warp_order, warp_count);
    for (int i = 0; i < warp_count; ++i) shuffle_order(warps[i].lane_order, WARP);
    warp_turn = 0;
}

Thread* first_ready(Warp& warp) {
    if (!warp.ready) return nullptr;
    for (unsigned char lane : warp.lane_order) {
        if (warp.ready >> lane & 1) return &warp.threads[lane];
    }
    return nullptr;
}

// Each warp runs as far as it can before the next has its turn, so that warps are as far apart as barriers let them.
Thread* next_thread() {
    for (; warp_turn < warp_count; ++warp_turn) {
        if (Thread* thread = first_ready(warps[warp_order[warp_turn]])) return thread;
    }
    return nullptr;
}

void resume(Fiber& from, Thread* thread) {
    current = thread;
    if (thread) threadIdx = thread->index;
    switch_fiber(from, thread ? thread->fiber : launcher);
}

// Goes on with another thread, and comes back when this one is ready again.
void wait() {
    Thread* self = current;
    self->warp->ready &= ~(1u << self->lane);
    Thread* next = next_thread();
    if (next != self) resume(self->fiber, next);
}

// The lanes that take part.
unsigned mask_of(const Warp& warp, const Request& request) {
    return request.of_live_lanes ? request.mask & warp.live() : request.mask;
}

// Puts the request to those that wait for it. Whether all have come.
bool join(Warp& warp, int lane, Request& request) {
    request.first = &request;
    for (unsigned others = request.mask & warp.waiting; others; others &= others - 1) {
        const Request& other = *warp.requests[__builtin_ctz(others)];
        if (other.operation == request.operation && other.mask == request.mask) {
            request.first = other.first;
            break;
        }
        // Lanes that the mask names may come later, from what they do with other lanes until then.
        if (other.mask >> lane & 1) fail_disagreement(request, other, __builtin_ctz(others));
    }
    warp.requests[lane] = &request;
    warp.waiting |= 1u << lane;
    request.first->arrived |= 1u << lane;
    return request.first->arrived == mask_of(warp, request);
}

void execute(Warp& warp, const Request& request) {
    unsigned mask = mask_of(warp, request);
    request.execute(warp.requests, mask);
    warp.waiting &= ~mask;
    warp.ready |= mask;
}

void finish() {
    Thread& self = *current;
    Warp& warp = *self.warp;
    unsigned bit = 1u << self.lane;
    warp.finished |= bit;
    ++finished_threads;
    for (unsigned left = warp.waiting; left; left &= left - 1) {
        const Request& request = *warp.requests[__builtin_ctz(left)];
        if (!(request.mask & bit)) continue;
        if (!request.of_live_lanes) fail_finished(self, request, __builtin_ctz(left));
        if (request.first->arrived == mask_of(warp, request)) execute(warp, request);
        break;  // all that wait for this lane wait for the same
    }
    wait();
}

void run_thread() {
    running_kernel->call(running_arguments);
    finish();
    __builtin_unreachable();
}

// All threads of the block wait. Opens the barrier where they all are; else they wait for ever.
void open_barrier() {
    const Thread& first = threads[0];
    bool is_one = first.barrier != nullptr;
    for (int i = 1; i < thread_count && is_one; ++i) {
        is_one = threads[i].barrier == first.barrier && threads[i].barrier_line == first.barrier_line;
    }
    if (!is_one) {
        record_deadlock();
        return;
    }
    released = {true_predicates, true_predicates == thread_count};
    true_predicates = 0;
    pass_barrier();
    for (int i = 0; i < thread_count; ++i) threads[i].barrier = nullptr;
    for (int i = 0; i < warp_count; ++i) warps[i].ready = warps[i].exists;
}

void prepare_block() {
    ++block_serial;
    thread_count = int(blockDim.x * blockDim.y * blockDim.z);
    warp_count = (thread_count + WARP - 1) / WARP;
    finished_threads = true_predicates = 0;
    for (int i = 0; i < warp_count; ++i) {
        int lanes = thread_count - i * WARP;
        unsigned exists = lanes >= WARP ? ~0u : (1u << lanes) - 1;
        warps[i] = {};
        warps[i].threads = &threads[i * WARP];
        warps[i].exists = warps[i].ready = exists;
    }
    uint3 index{0, 0, 0};
    for (int i = 0; i < thread_count; ++i) {
        Thread& thread = threads[i];
        thread.index = index;
        thread.warp = &warps[i / WARP];
        thread.lane = i % WARP;
        thread.barrier = nullptr;
        thread.copies.clear();
        thread.groups = 0;
        prepare(thread.fiber, stack_number(i), run_thread);
        if (++index.x == blockDim.x) {
            index.x = 0;
            if (++index.y == blockDim.y) index.y = 0, ++index.z;
        }
    }
}

}  // namespace

void seed_order(unsigned long long seed) { random_state = seed; }

// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014); the bias of the remainder does not matter to a schedule.
unsigned long long random_below(unsigned long long bound) {
    unsigned long long z = random_state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) % bound;
}

void run_block(const Kernel& kernel, void* const* arguments, Order order) {
    block_order = order;
    running_kernel = &kernel;
    running_arguments = arguments;
    prepare_block();
    while (finished_threads < thread_count && !has_fault()) {
        draw_orders();
        if (Thread* thread = next_thread()) {
            resume(launcher, thread);
        } else {
            open_barrier();
        }
    }
    current = nullptr;
}

Threads block_threads() { return {threads, thread_count}; }

void leave_kernel() {
    resume(current->fiber, nullptr);
    __builtin_unreachable();
}

// -- called by kernels -----------------------------------------------------------------------------------------------

int lane() { return current->lane; }

unsigned live_lanes() { return current->warp->live(); }

void order_accesses(Request* const*, unsigned mask) { pass_warp_barrier(*current->warp, mask); }

void meet(Request& request) {
    if (must_stop) stop(CALLER);
    Thread& self = *current;
    Warp& warp = *self.warp;
    check_mask(self, request);
    if (join(warp, self.lane, request)) {
        execute(warp, request);
    } else {
        wait();
    }
}

BarrierResult barrier(const char* operation, bool predicate, int line) {
    if (must_stop) stop(CALLER);
    current->barrier = operation;
    current->barrier_line = line;
    true_predicates += predicate;
    wait();  // the last one to come too: the launcher opens the barrier, and draws a new order
    return released;
}

void yield() {
    if (must_stop) stop(CALLER);
    Thread& self = *current;
    // The others of its warp first, then all other warps, before it has its turn again.
    self.warp->ready &= ~(1u << self.lane);
    Thread* next = next_thread();
    self.warp->ready |= 1u << self.lane;
    resume(self.fiber, next);
}

}  // namespace cuda_emulator
