#include "races.h"

#include <stdint.h>
#include <string.h>

#include <memory>
#include <unordered_map>

#include "faults.h"
#include "launch.h"
#include "shared_memory.h"

namespace cuda_emulator {

namespace {

struct Access {
    const void* instruction;  // null: there was none
    unsigned block, barriers, clock;
    unsigned short thread;
    bool is_atomic;
};

// What happened to a byte. Of two reads by different threads any write must be ordered behind both.
struct Byte {
    Access write, read, other_read;
};

constexpr size_t PAGE = 1024;
struct Page {
    Byte bytes[PAGE];
};
std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;
uintptr_t last_number;
Page* last_page;

// Time in a block is counted in barriers of the block. Between two of them each lane has a clock, and knows the clocks
// of its warp's other lanes as of when they last met; a lane's own clock goes on where it meets others.
bool watches;
unsigned block, barriers;
unsigned clocks[MOST_THREADS][WARP];

Page& page_of(uintptr_t address) {
    uintptr_t number = address / PAGE;
    if (number != last_number || !last_page) {
        auto& page = pages[number];
        if (!page) page = std::make_unique<Page>();
        last_number = number;
        last_page = page.get();
    }
    return *last_page;
}

unsigned number_of(const Thread& thread) { return unsigned(&thread - block_threads().begin()); }

bool is_before(const Access& earlier, unsigned thread, bool is_shared) {
    if (!earlier.instruction || (earlier.block == block && earlier.thread == thread)) return true;
    if (earlier.block != block) return is_shared;
    if (earlier.barriers != barriers) return true;
    return earlier.thread / WARP == thread / WARP && clocks[thread][earlier.thread % WARP] >= earlier.clock;
}

const char* word_for(AccessKind kind) {
    return kind == AccessKind::READ ? "reads" : kind == AccessKind::WRITE ? "writes" : "atomically changes";
}

[[noreturn]] void fail_race(const void* address, AccessKind kind, const void* instruction, const Access& other,
                            AccessKind other_kind) {
    uint3 thread = block_threads().begin()[other.thread].index, of = block_at(other.block);
    std::string what = describe_any_address(address);
    fail_at_both(instruction, other.instruction,
                 "it %s %s, which thread (%u, %u, %u) of block (%u, %u, %u) %s, and no barrier is between them",
                 word_for(kind), what.c_str(), thread.x, thread.y, thread.z, of.x, of.y, of.z, word_for(other_kind));
}

void check_byte(Byte& byte, const Access& access, const void* address, AccessKind kind, bool is_shared) {
    bool is_atomic = kind == AccessKind::ATOMIC;
    if (!is_before(byte.write, access.thread, is_shared) && !(is_atomic && byte.write.is_atomic)) {
        fail_race(address, kind, access.instruction, byte.write,
                  byte.write.is_atomic ? AccessKind::ATOMIC : AccessKind::WRITE);
    }
    if (kind == AccessKind::READ) {
        if (byte.read.instruction && byte.read.thread != access.thread) byte.other_read = byte.read;
        byte.read = access;
        return;
    }
    for (const Access& read : {byte.read, byte.other_read}) {
        if (!is_before(read, access.thread, is_shared)) {
            fail_race(address, kind, access.instruction, read, AccessKind::READ);
        }
    }
    byte.write = access;
}

}  // namespace

void watch_accesses(bool watch) {
    watches = watch;
    pages.clear();
    last_page = nullptr;
}

void begin_watched_block(unsigned long long number) {
    if (!watches) return;
    block = unsigned(number);
    barriers = 0;
    memset(clocks, 0, sizeof clocks);
    for (int i = 0; i < MOST_THREADS; ++i) clocks[i][i % WARP] = 1;
}

void pass_barrier() { ++barriers; }

void pass_warp_barrier(const Warp& warp, unsigned mask) {
    if (!watches) return;
    unsigned first = number_of(warp.threads[0]);
    unsigned known[WARP] = {};
    for (unsigned left = mask; left; left &= left - 1) {
        const auto& clock = clocks[first + __builtin_ctz(left)];
        for (int i = 0; i < WARP; ++i) known[i] = clock[i] > known[i] ? clock[i] : known[i];
    }
    for (unsigned left = mask; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        for (int i = 0; i < WARP; ++i) clocks[first + lane][i] = known[i];
        ++clocks[first + lane][lane];
    }
}

void check_race(const void* address, size_t bytes, AccessKind kind, bool is_shared, const void* instruction) {
    unsigned thread = number_of(*current);
    Access access{instruction, block, barriers, clocks[thread][thread % WARP], (unsigned short)thread,
                  kind == AccessKind::ATOMIC};
    auto at = uintptr_t(address);
    for (size_t i = 0; i < bytes; ++i) {
        Byte& byte = page_of(at + i).bytes[(at + i) % PAGE];
        check_byte(byte, access, static_cast<const char*>(address) + i, kind, is_shared);
    }
}

}  // namespace cuda_emulator
