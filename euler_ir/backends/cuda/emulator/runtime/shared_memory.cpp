#include "shared_memory.h"

#include <link.h>
#include <string.h>
#include <sys/mman.h>

#include <vector>

#include "faults.h"

namespace cuda_emulator {

unsigned char* dynamic_shared;

namespace {

constexpr size_t MOST_BYTES = 256 << 10, GUARD_BYTES = 64 << 10, ALIGNMENT = 16;

struct Piece {
    unsigned char* start;
    size_t bytes;
};

struct Array {
    Piece whole, elements;
    const char* name;
};

size_t dynamic_bytes, dynamic_capacity, limit;
Piece variables;  // that the unit of the kernel declares as __shared__
std::vector<Array> arrays;  // that this block has entered
size_t array_bytes;

unsigned char* memory_before_guard() {
    static unsigned char* const memory = [] {
        auto* mapped = static_cast<unsigned char*>(mmap(nullptr, MOST_BYTES + GUARD_BYTES, PROT_NONE,
                                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        mprotect(mapped, MOST_BYTES, PROT_READ | PROT_WRITE);
        return mapped;
    }();
    return memory;
}

// The thread-local variables of the library that holds the kernel's table, for this thread.
Piece find_variables(const Kernel& kernel) {
    struct Search {
        uintptr_t variable;
        Piece found;
    } search{uintptr_t(kernel.shared_variable()), {nullptr, 0}};
    dl_iterate_phdr(
        [](dl_phdr_info* library, size_t, void* data) {
            auto& search = *static_cast<Search*>(data);
            for (int i = 0; i < library->dlpi_phnum; ++i) {
                const auto& header = library->dlpi_phdr[i];
                if (header.p_type != PT_TLS || !library->dlpi_tls_data) continue;
                auto start = uintptr_t(library->dlpi_tls_data);
                if (search.variable - start >= header.p_memsz) continue;
                search.found = {static_cast<unsigned char*>(library->dlpi_tls_data), header.p_memsz};
                return 1;
            }
            return 0;
        },
        &search);
    return search.found;
}

bool holds(const Piece& piece, const void* address, size_t bytes) {
    size_t offset = uintptr_t(address) - uintptr_t(piece.start);
    return offset < piece.bytes && bytes <= piece.bytes - offset;
}

const unsigned char* first_changed(const unsigned char* from, const unsigned char* to) {
    while (from < to && *from == POISON) ++from;
    return from < to ? from : nullptr;
}

void check_around(const Array& array) {
    const unsigned char* start = array.elements.start;
    const unsigned char* end = start + array.elements.bytes;
    if (const unsigned char* changed = first_changed(array.whole.start, start)) {
        record_fault(nullptr, {}, "it wrote %td bytes before the start of the shared array '%s' of %zu bytes", start - changed,
                     array.name, array.elements.bytes);
    }
    if (const unsigned char* changed = first_changed(end, array.whole.start + array.whole.bytes)) {
        record_fault(nullptr, {}, "it wrote %td bytes past the end of the shared array '%s' of %zu bytes", changed - end,
                     array.name, array.elements.bytes);
    }
}

}  // namespace

void prepare_shared_memory(size_t bytes, size_t most, const Kernel& kernel) {
    dynamic_bytes = bytes;
    limit = most;
    dynamic_capacity = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    dynamic_shared = memory_before_guard() + MOST_BYTES - dynamic_capacity;
    variables = find_variables(kernel);
}

void poison_shared_memory() {
    arrays.clear();
    array_bytes = 0;
    // Some bytes before it too, which nobody may change.
    size_t before = dynamic_capacity + 4 * ALIGNMENT <= MOST_BYTES ? 4 * ALIGNMENT : 0;
    memset(dynamic_shared - before, POISON, before + dynamic_capacity);
    memset(variables.start, POISON, variables.bytes);
}

void check_shared_memory() {
    for (const Array& array : arrays) check_around(array);
    size_t before = dynamic_capacity + 4 * ALIGNMENT <= MOST_BYTES ? 4 * ALIGNMENT : 0;
    check_around({{dynamic_shared - before, before + dynamic_capacity}, {dynamic_shared, dynamic_bytes}, "(dynamic)"});
}

void enter_shared_array(void* whole, size_t whole_bytes, void* elements, size_t bytes, const char* name) {
    memset(whole, POISON, whole_bytes);
    arrays.push_back({{static_cast<unsigned char*>(whole), whole_bytes}, {static_cast<unsigned char*>(elements), bytes}, name});
    array_bytes += bytes;
    if (array_bytes > (48 << 10)) {
        fail(0, "it declares %zu bytes of shared memory; 49152 is the most that is not dynamic", array_bytes);
    }
    if (array_bytes + dynamic_bytes > limit) {
        fail(0, "it takes %zu bytes of shared memory, %zu of them dynamic; a block has %zu", array_bytes + dynamic_bytes,
             dynamic_bytes, limit);
    }
}

std::string describe_shared_address(const void* address) {
    size_t past = uintptr_t(address) - uintptr_t(dynamic_shared + dynamic_bytes);
    if (past >= GUARD_BYTES) return "";
    return std::to_string(past) + " bytes past the end of dynamic shared memory, of " + std::to_string(dynamic_bytes) + " bytes";
}

bool is_shared(const void* address, size_t bytes) {
    if (holds({dynamic_shared, dynamic_bytes}, address, bytes) || holds(variables, address, bytes)) return true;
    for (const Array& array : arrays) {
        if (holds(array.elements, address, bytes)) return true;
    }
    return false;
}

}  // namespace cuda_emulator
