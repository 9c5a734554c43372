// Device memory: each allocation between pages that fault, and bytes around it that nobody may change.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string>

namespace cuda_emulator {

// "byte 4 of WHOLE", "4 bytes past the end of WHOLE", or "2 bytes before the start of WHOLE", which has so many bytes.
std::string describe_offset(ptrdiff_t offset, size_t bytes, const std::string& whole);

// "4 bytes past the end of allocation #3 'weights' of 4096 bytes"; empty when the address is near none.
std::string describe_address(const void* address);

// Where the allocation begins that holds the address, and its size; null when there is none.
const void* start_of_allocation(const void* address, size_t& bytes);

// Records a fault when bytes around an allocation were changed.
void check_canaries();

}  // namespace cuda_emulator
