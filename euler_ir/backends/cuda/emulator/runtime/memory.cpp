#include "memory.h"

#include <string.h>
#include <sys/mman.h>

#include <map>
#include <mutex>

#include "faults.h"
#include "poison.h"

namespace cuda_emulator {

namespace {

constexpr size_t PAGE = 4096;
constexpr size_t GUARD = 16 * PAGE;  // wide enough for most of what goes too far
constexpr size_t MOST_FREED = 4096;  // so many freed allocations are remembered, without memory of their own

struct Allocation {
    unsigned char* start;
    size_t bytes;
    unsigned char* mapped;  // with the guards
    size_t mapped_bytes;
    unsigned long long serial;
    std::string name;
    bool is_freed;

    unsigned char* usable() const { return mapped + GUARD; }
    unsigned char* usable_end() const { return mapped + mapped_bytes - GUARD; }
};

std::mutex mutex;
std::map<uintptr_t, Allocation> allocations;  // by where they are mapped
unsigned long long serial;
size_t freed_count;

Allocation* near(const void* address) {
    auto after = allocations.upper_bound(uintptr_t(address));
    if (after == allocations.begin()) return nullptr;
    Allocation& found = std::prev(after)->second;
    return uintptr_t(address) < uintptr_t(found.mapped) + found.mapped_bytes ? &found : nullptr;
}

void forget_oldest_freed() {
    auto oldest = allocations.end();
    for (auto at = allocations.begin(); at != allocations.end(); ++at) {
        if (!at->second.is_freed) continue;
        if (oldest == allocations.end() || at->second.serial < oldest->second.serial) oldest = at;
    }
    munmap(oldest->second.mapped, oldest->second.mapped_bytes);
    allocations.erase(oldest);
    --freed_count;
}

std::string name_of(const Allocation& allocation) {
    std::string text = allocation.is_freed ? "freed allocation #" : "allocation #";
    text += std::to_string(allocation.serial);
    if (!allocation.name.empty()) text += " '" + allocation.name + "'";
    return text + " of " + std::to_string(allocation.bytes) + " bytes";
}

}  // namespace

std::string describe_offset(ptrdiff_t offset, size_t bytes, const std::string& whole) {
    if (offset < 0) return std::to_string(-offset) + " bytes before the start of " + whole;
    if (size_t(offset) < bytes) return "byte " + std::to_string(offset) + " of " + whole;
    size_t past = size_t(offset) - bytes;
    return (past ? std::to_string(past) + " bytes past the end of " : "right past the end of ") + whole;
}

std::string describe_address(const void* address) {
    std::lock_guard<std::mutex> lock(mutex);
    const Allocation* allocation = near(address);
    if (!allocation) return "";
    return describe_offset(static_cast<const unsigned char*>(address) - allocation->start, allocation->bytes,
                           name_of(*allocation));
}

const void* start_of_allocation(const void* address, size_t& bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    const Allocation* allocation = near(address);
    if (!allocation || allocation->is_freed) return nullptr;
    bytes = allocation->bytes;
    return allocation->start;
}

void check_canaries() {
    std::lock_guard<std::mutex> lock(mutex);
    for (const auto& [mapped, allocation] : allocations) {
        if (allocation.is_freed) continue;
        const unsigned char* before = first_changed(allocation.usable(), allocation.start);
        const unsigned char* end = allocation.start + allocation.bytes;
        const unsigned char* after = first_changed(end, allocation.usable_end());
        const unsigned char* changed = before ? before : after;
        if (!changed) continue;
        std::string where = describe_offset(changed - allocation.start, allocation.bytes, name_of(allocation));
        record_fault_of_launch("it wrote %s", where.c_str());
    }
}

}  // namespace cuda_emulator

using namespace cuda_emulator;

// Returns null when there is not so much. The end lies as near to the guard as the alignment lets it.
extern "C" void* cuda_emulator_allocate(size_t bytes, size_t alignment, bool poison, const char* name) {
    std::lock_guard<std::mutex> lock(mutex);
    size_t usable = (bytes + alignment - 1) / alignment * alignment;
    size_t pages = (usable + PAGE - 1) / PAGE * PAGE;
    void* mapped = mmap(nullptr, pages + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    Allocation allocation{nullptr,  bytes, static_cast<unsigned char*>(mapped), pages + 2 * GUARD,
                          ++serial, name,  false};
    if (mprotect(allocation.usable(), pages, PROT_READ | PROT_WRITE)) {
        munmap(mapped, pages + 2 * GUARD);
        return nullptr;
    }
    allocation.start = allocation.usable_end() - usable;
    unsigned char* end = allocation.start + bytes;
    memset(allocation.usable(), POISON, allocation.start - allocation.usable());
    memset(end, POISON, allocation.usable_end() - end);
    if (poison) memset(allocation.start, POISON, bytes);
    allocations[uintptr_t(mapped)] = allocation;
    return allocation.start;
}

// Whether there was such an allocation.
extern "C" bool cuda_emulator_free(void* start) {
    std::lock_guard<std::mutex> lock(mutex);
    Allocation* allocation = near(start);
    if (!allocation || allocation->is_freed || allocation->start != start) return false;
    // Replaced by a mapping that holds no memory and faults when touched.
    mmap(allocation->mapped, allocation->mapped_bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    allocation->is_freed = true;
    if (++freed_count > MOST_FREED) forget_oldest_freed();
    return true;
}

// The bytes from `address` to the end of its allocation; -1 when it points into none that is not freed.
extern "C" long long cuda_emulator_bytes_at(const void* address) {
    std::lock_guard<std::mutex> lock(mutex);
    const Allocation* allocation = near(address);
    if (!allocation || allocation->is_freed || address < allocation->start) return -1;
    return allocation->start + allocation->bytes - static_cast<const unsigned char*>(address);
}

// What is at the address, in words, for messages.
extern "C" void cuda_emulator_describe(const void* address, char* text, size_t bytes) {
    std::string description = describe_address(address);
    strncpy(text, description.c_str(), bytes - 1);
    text[bytes - 1] = 0;
}
