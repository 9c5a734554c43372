// cp.async: what lands at the wait, as late as it may.
#include <string.h>

#include "accesses.h"
#include "caller.h"
#include "faults.h"
#include "signals.h"

namespace cuda_emulator {

namespace {

bool overlaps(const PendingCopy& copy, const void* address, size_t bytes) {
    auto start = uintptr_t(copy.shared), other = uintptr_t(address);
    return start < other + bytes && other < start + copy.bytes;
}

void land(const PendingCopy& copy) {
    note_access(copy.shared, copy.bytes, AccessKind::WRITE, copy.instruction);
    if (copy.valid) {
        note_access(copy.global, copy.bytes, AccessKind::READ, copy.instruction);
        memcpy(copy.shared, copy.global, copy.bytes);
    } else {
        memset(copy.shared, 0, copy.bytes);
    }
}

void land_groups_below(unsigned group) {
    auto& copies = current->copies;
    size_t landed = 0;
    while (landed < copies.size() && copies[landed].group < group) land(copies[landed++]);
    copies.erase(copies.begin(), copies.begin() + landed);
}

}  // namespace

void begin_copy(void* shared, const void* global, unsigned bytes, bool valid, int line) {
    if (must_stop) stop(CALLER);
    if (uintptr_t(shared) % bytes || (valid && uintptr_t(global) % bytes)) {
        fail(line, "cp.async of %u bytes from %p to %p, which must be multiples of %u", bytes, global, shared, bytes);
    }
    if (!is_shared(shared, bytes)) fail(line, "cp.async to %p, which is not in shared memory", shared);
    for (const PendingCopy& other : current->copies) {
        if (overlaps(other, shared, bytes)) fail(line, "cp.async to %p while another copy to it is on its way", shared);
    }
    // It may be written from now on, and is at the wait.
    const void* instruction = CALLER;
    note_access(shared, bytes, AccessKind::WRITE, instruction);
    memset(shared, POISON, bytes);
    current->copies.push_back({shared, global, bytes, valid, current->groups, instruction});
}

void commit_copies() { ++current->groups; }

void wait_for_copies(unsigned groups_left) {
    // CUDA lets a thread do this. But one that waits for all and leaves some out goes on to use what is not there.
    const auto& copies = current->copies;
    if (groups_left == 0 && !copies.empty() && copies.back().group == current->groups) {
        fail_at(copies.back().instruction, "it waits for all of its copies, and no cp_async_commit follows this one");
    }
    if (current->groups > groups_left) land_groups_below(current->groups - groups_left);
}

void check_landed(const void* shared, int line) {
    unsigned first;
    memcpy(&first, shared, sizeof first);
    if (first != ~0u) return;  // no poison: nothing is on its way
    for (const Thread& thread : block_threads()) {
        for (const PendingCopy& copy : thread.copies) {
            if (!overlaps(copy, shared, 16)) continue;
            fail(line, "it reads what cp.async of thread (%u, %u, %u) copies to shared memory, before the wait for it",
                 thread.index.x, thread.index.y, thread.index.z);
        }
    }
}

}  // namespace cuda_emulator
