#include "shared_memory.h"

#include <link.h>
#include <string.h>
#include <sys/mman.h>

#include <vector>

#include "faults.h"
#include "memory.h"
#include "poison.h"

namespace cuda_emulator {

unsigned char* dynamic_shared;

namespace {

constexpr size_t MOST_BYTES = 256 << 10, GUARD_BYTES = 64 << 10, RED_ZONE = 64, ALIGNMENT = 16;
constexpr size_t MOST_STATIC_BYTES = 48 << 10;

struct Piece {
    unsigned char* start;
    size_t bytes;
};

struct Array {
    Piece whole, elements;  // with the bytes around them, which nobody may change
    std::string name;
};

size_t dynamic_bytes, limit;
Piece variables;            // that the unit of the kernel declares as __shared__
std::vector<Array> arrays;  // that this block has entered; the first one is the dynamic one
size_t variable_bytes, array_bytes;

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

size_t rounded_up(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

void poison(const Piece& piece) { memset(piece.start, POISON, piece.bytes); }

// "byte 4 of the shared array 'tile' of 256 bytes".
std::string describe(const Array& array, const void* address) {
    std::string whole = array.name + " of " + std::to_string(array.elements.bytes) + " bytes";
    ptrdiff_t offset = static_cast<const unsigned char*>(address) - array.elements.start;
    return describe_offset(offset, array.elements.bytes, whole);
}

void check_around(const Array& array) {
    const unsigned char* end = array.elements.start + array.elements.bytes;
    const unsigned char* changed = first_changed(array.whole.start, array.elements.start);
    if (!changed) changed = first_changed(end, array.whole.start + array.whole.bytes);
    if (changed) record_fault(nullptr, {}, "it wrote %s", describe(array, changed).c_str());
}

const Array* array_at(const void* address) {
    for (const Array& array : arrays) {
        if (holds(array.whole, address, 1)) return &array;
    }
    return nullptr;
}

// Why a block cannot have what it declares; empty if it can.
std::string excess() {
    size_t declared = variable_bytes + array_bytes;
    if (declared > MOST_STATIC_BYTES) {
        return "it declares " + std::to_string(declared) + " bytes of shared memory; " +
               std::to_string(MOST_STATIC_BYTES) + " is the most that is not dynamic";
    }
    if (declared + dynamic_bytes <= limit) return "";
    return "it takes " + std::to_string(declared + dynamic_bytes) + " bytes of shared memory, " +
           std::to_string(dynamic_bytes) + " of them dynamic; a block has " + std::to_string(limit);
}

}  // namespace

void prepare_shared_memory(size_t bytes, size_t most, const Kernel& kernel, bool is_alone) {
    dynamic_bytes = bytes;
    limit = most;
    dynamic_shared = memory_before_guard() + MOST_BYTES - rounded_up(bytes);
    variables = find_variables(kernel);
    // One of the variables is the table's own.
    variable_bytes = is_alone ? (variables.bytes + SHARED_UNIT - 1) / SHARED_UNIT * SHARED_UNIT - SHARED_UNIT : 0;
    array_bytes = 0;
    if (std::string reason = excess(); !reason.empty()) record_fault_of_launch("%s", reason.c_str());
}

void poison_shared_memory() {
    Piece whole{dynamic_shared - RED_ZONE, RED_ZONE + rounded_up(dynamic_bytes)};
    arrays.clear();
    arrays.push_back({whole, {dynamic_shared, dynamic_bytes}, "dynamic shared memory"});
    array_bytes = 0;
    poison(whole);
    poison(variables);
}

void check_shared_memory() {
    for (const Array& array : arrays) check_around(array);
}

void enter_shared_array(void* whole, size_t whole_bytes, void* elements, size_t bytes, const char* name) {
    arrays.push_back({{static_cast<unsigned char*>(whole), whole_bytes},
                      {static_cast<unsigned char*>(elements), bytes},
                      "the shared array '" + std::string(name) + "'"});
    poison(arrays.back().whole);
    array_bytes += bytes;
    if (std::string reason = excess(); !reason.empty()) fail(0, "%s", reason.c_str());
}

std::string describe_shared_address(const void* address) {
    if (const Array* array = array_at(address)) return describe(*array, address);
    if (holds(variables, address, 1)) return "a variable that is __shared__";
    return holds({memory_before_guard() + MOST_BYTES, GUARD_BYTES}, address, 1) ? describe(arrays[0], address) : "";
}

bool is_around_shared_array(const void* address) {
    const Array* array = array_at(address);
    return array && !holds(array->elements, address, 1);
}

bool is_shared(const void* address, size_t bytes) {
    if (holds(variables, address, bytes)) return true;
    for (const Array& array : arrays) {
        if (holds(array.elements, address, bytes)) return true;
    }
    return false;
}

}  // namespace cuda_emulator
