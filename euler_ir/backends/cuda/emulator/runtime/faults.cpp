#include "faults.h"

#include <stdio.h>

#include "memory.h"
#include "shared_memory.h"

namespace cuda_emulator {

namespace {

char message[LONGEST_FAULT];
Place fault_at, other_at;
const char* kernel_name;

std::string name_place(const char* word, uint3 index) {
    char text[64];
    snprintf(text, sizeof text, "%s (%u, %u, %u)", word, index.x, index.y, index.z);
    return text;
}

void record(const std::string& where, Place place, Place other, const char* format, va_list values) {
    if (has_fault()) return;
    fault_at = place;
    other_at = other;
    int written = snprintf(message, sizeof message, "kernel %s%s: ", kernel_name, where.c_str());
    if (written < 0 || size_t(written) >= sizeof message) return;
    vsnprintf(message + written, sizeof message - written, format, values);
}

std::string lanes(unsigned mask) {
    std::string text;
    for (int i = 0; i < WARP; ++i) {
        if (!(mask >> i & 1)) continue;
        int last = i;
        while (last + 1 < WARP && mask >> (last + 1) & 1) ++last;
        text += (text.empty() ? "" : ", ") + std::to_string(i);
        if (last > i) text += " to " + std::to_string(last);
        i = last;
    }
    return (text.find_first_of(",t") == std::string::npos ? "lane " : "lanes ") + text;
}

std::string state_of(const Thread& thread) {
    char text[160];
    if (thread.warp->finished >> thread.lane & 1) return "finished";
    if (thread.barrier) {
        snprintf(text, sizeof text, "wait at %s on line %d", thread.barrier, thread.barrier_line);
    } else if (thread.warp->waiting >> thread.lane & 1) {
        const Request& request = *thread.warp->requests[thread.lane];
        snprintf(text, sizeof text, "wait at %s on line %d, mask 0x%08x", request.operation, request.line,
                 request.mask);
    } else {
        return "can run";
    }
    return text;
}

}  // namespace

bool has_fault() { return message[0] != 0; }
const char* fault_message() { return message; }
Place fault_place() { return fault_at; }
Place other_fault_place() { return other_at; }

void clear_fault(const char* kernel) {
    message[0] = 0;
    kernel_name = kernel;
}

void record_fault(const Thread* thread, Place place, const char* format, ...) {
    std::string where = ", " + name_place("block", blockIdx);
    if (thread) where += ", " + name_place("thread", thread->index);
    va_list values;
    va_start(values, format);
    record(where, place, {}, format, values);
    va_end(values);
}

void record_fault_of_launch(const char* format, ...) {
    va_list values;
    va_start(values, format);
    record("", {}, {}, format, values);
    va_end(values);
}

namespace {

std::string running() { return ", " + name_place("block", blockIdx) + ", " + name_place("thread", current->index); }

}  // namespace

void fail(int line, const char* format, ...) {
    va_list values;
    va_start(values, format);
    record(running(), {line}, {}, format, values);
    va_end(values);
    leave_kernel();
}

void fail_at(const void* instruction, const char* format, ...) {
    va_list values;
    va_start(values, format);
    record(running(), {0, instruction}, {}, format, values);
    va_end(values);
    leave_kernel();
}

void fail_at_both(const void* instruction, const void* other, const char* format, ...) {
    va_list values;
    va_start(values, format);
    record(running(), {0, instruction}, {0, other}, format, values);
    va_end(values);
    leave_kernel();
}

std::string describe_any_address(const void* address) {
    std::string what = describe_shared_address(address);
    if (what.empty()) what = describe_address(address);
    if (!what.empty()) return what;
    char text[64];
    snprintf(text, sizeof text, "%p, in no allocation", address);
    return text;
}

void check_mask(const Thread& caller, const Request& request) {
    const Warp& warp = *caller.warp;
    const char* operation = request.operation;
    unsigned mask = request.mask;
    if (!(mask >> caller.lane & 1)) {
        fail(request.line, "%s with mask 0x%08x, which leaves out the caller, lane %d", operation, mask,
             caller.lane);
    }
    if (request.of_live_lanes) return;
    if (unsigned absent = mask & ~warp.exists) {
        fail(request.line, "%s with mask 0x%08x, which names %s; the warp has no such", operation, mask,
             lanes(absent).c_str());
    }
    if (unsigned finished = mask & warp.finished) {
        fail(request.line, "%s with mask 0x%08x, which names %s; finished already", operation, mask,
             lanes(finished).c_str());
    }
}

void fail_disagreement(const Request& request, const Request& other, int other_lane) {
    fail(request.line, "%s with mask 0x%08x waits for lane %d, which waits for this one at %s on line %d, mask 0x%08x",
         request.operation, request.mask, other_lane, other.operation, other.line, other.mask);
}

void fail_finished(const Thread& finished, const Request& request, int waiting) {
    record_fault(&finished, {request.line}, "it finished while lane %d of its warp waits for it at %s, mask 0x%08x",
                 waiting, request.operation, request.mask);
    leave_kernel();
}

void record_deadlock() {
    auto [threads, count] = block_threads();
    std::string groups;
    for (int i = 0; i < count;) {
        std::string state = state_of(threads[i]);
        int last = i;
        while (last + 1 < count && state_of(threads[last + 1]) == state) ++last;
        groups += "\n" + name_place(last > i ? "threads" : "thread", threads[i].index);
        if (last > i) groups += name_place(" to", threads[last].index);
        groups += ": " + state;
        i = last + 1;
    }
    const char* what = "not all threads come to the same barrier";
    for (const Thread& thread : block_threads()) {
        if (thread.warp->waiting >> thread.lane & 1) what = "its threads wait for each other for ever";
    }
    record_fault(nullptr, {}, "%s%s", what, groups.c_str());
}

}  // namespace cuda_emulator
