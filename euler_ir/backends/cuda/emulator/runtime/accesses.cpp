#include "accesses.h"

#include <link.h>
#include <stdint.h>

#include "caller.h"
#include "faults.h"
#include "memory.h"
#include "shared_memory.h"

namespace cuda_emulator {

namespace {

struct Range {
    uintptr_t start, end;
    bool holds(uintptr_t address, size_t bytes) const {
        return address >= start && address < end && bytes <= end - address;
    }
};

bool reports;
Range unit, runtime;      // the libraries, with their variables
Range last_allocation;

Range library_of(const void* address) {
    struct Search {
        uintptr_t address;
        Range found;
    } search{uintptr_t(address), {0, 0}};
    dl_iterate_phdr(
        [](dl_phdr_info* library, size_t, void* data) {
            auto& search = *static_cast<Search*>(data);
            Range all{~uintptr_t(0), 0};
            for (int i = 0; i < library->dlpi_phnum; ++i) {
                const auto& header = library->dlpi_phdr[i];
                if (header.p_type != PT_LOAD) continue;
                uintptr_t start = library->dlpi_addr + header.p_vaddr;
                all = {start < all.start ? start : all.start,
                       start + header.p_memsz > all.end ? start + header.p_memsz : all.end};
            }
            if (!all.holds(search.address, 1)) return 0;
            search.found = all;
            return 1;
        },
        &search);
    return search.found;
}

bool is_of_an_allocation(uintptr_t address, size_t bytes) {
    if (last_allocation.holds(address, bytes)) return true;
    size_t size;
    auto start = uintptr_t(start_of_allocation(reinterpret_cast<void*>(address), size));
    if (!start) return false;
    last_allocation = {start, start + size};
    return last_allocation.holds(address, bytes);
}

}  // namespace

void prepare_accesses(const Kernel& kernel) {
    reports = kernel.reports_accesses;
    watch_accesses(reports);
    if (!reports) return;
    unit = library_of(reinterpret_cast<const void*>(kernel.call));
    runtime = library_of(&current);
    last_allocation = {0, 0};
}

void note_access(const void* address, size_t bytes, AccessKind kind, const void* instruction) {
    if (!reports || !current) return;
    auto at = uintptr_t(address);
    int stack = stack_of(address);
    if (stack == int(current - block_threads().begin())) return;
    bool is_in_shared = is_shared(address, bytes);
    if (is_in_shared || is_of_an_allocation(at, bytes)) {
        check_race(address, bytes, kind, is_in_shared, instruction);
        return;
    }
    if (runtime.holds(at, bytes) || (unit.holds(at, bytes) && !is_around_shared_array(address))) return;
    const char* word = kind == AccessKind::READ ? "reads" : "writes";
    if (stack >= 0) fail_at(instruction, "it %s a local variable of another thread", word);
    fail_at(instruction, "it %s %zu bytes at %s", word, bytes, describe_any_address(address).c_str());
}

}  // namespace cuda_emulator

// What g++ calls before each access with -fsanitize=thread, whose own library is not used.
using namespace cuda_emulator;

#define REPORTED(bytes)                                                                                           \
    extern "C" void __tsan_read##bytes(void* address) { note_access(address, bytes, AccessKind::READ, CALLER); }    \
    extern "C" void __tsan_write##bytes(void* address) { note_access(address, bytes, AccessKind::WRITE, CALLER); }  \
    extern "C" void __tsan_unaligned_read##bytes(void* address) {                                                 \
        note_access(address, bytes, AccessKind::READ, CALLER);                                                      \
    }                                                                                                             \
    extern "C" void __tsan_unaligned_write##bytes(void* address) {                                                \
        note_access(address, bytes, AccessKind::WRITE, CALLER);                                                     \
    }
REPORTED(1)
REPORTED(2)
REPORTED(4)
REPORTED(8)
REPORTED(16)

#define REPORTED_ATOMIC(bits, Word)                                                                            \
    extern "C" Word __tsan_atomic##bits##_load(const volatile Word* address, int) {                            \
        note_access(const_cast<const Word*>(address), sizeof(Word), AccessKind::ATOMIC, CALLER);                 \
        return *address;                                                                                       \
    }                                                                                                          \
    extern "C" bool __tsan_atomic##bits##_compare_exchange_strong(volatile Word* address, Word* expected,      \
                                                                  Word desired, int, int) {                    \
        note_access(const_cast<const Word*>(address), sizeof(Word), AccessKind::ATOMIC, CALLER);                 \
        return __atomic_compare_exchange_n(address, expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
    }
REPORTED_ATOMIC(16, unsigned short)
REPORTED_ATOMIC(32, unsigned)
REPORTED_ATOMIC(64, unsigned long long)

extern "C" {
void __tsan_read_range(void* address, size_t bytes) { note_access(address, bytes, AccessKind::READ, CALLER); }
void __tsan_write_range(void* address, size_t bytes) { note_access(address, bytes, AccessKind::WRITE, CALLER); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}
