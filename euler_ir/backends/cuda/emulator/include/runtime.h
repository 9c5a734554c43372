// What kernels and the emulator's runtime say to each other. All of it is inside of one launch, and one launch runs at
// a time, on one thread of the system: each CUDA thread is a fiber that runs until it waits for others.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct uint3 {
    unsigned int x, y, z;
};

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};

namespace cuda_emulator {

constexpr int WARP = 32;
constexpr unsigned char POISON = 0xff;  // these bytes are NaN as bf16, f16, f32 and f64, and -1 as integers

// The variables that CUDA builds in, of the thread that runs.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

// Ends the launch with a fault of the thread that runs, on a line of the source, or 0 where that is not known. The
// message is made as printf makes it.
[[noreturn]] void fail(int line, const char* format, ...) __attribute__((format(printf, 2, 3)));

// -- warps and blocks ------------------------------------------------------------------------------------------------

// One lane's part in an operation of its warp. The last lane of the mask to arrive executes it for all of them:
// `lanes[i]` is what lane i asked for. It lies on the lane's own stack, which waits as long.
struct Request {
    const char* operation;
    unsigned mask;
    int line;
    void (*execute)(Request* const* lanes, unsigned mask);
    bool of_live_lanes = false;  // lanes of the mask that are not there or have finished need not come

    // Kept by `meet`: the first request that came of those that are executed together, and in it the lanes that have
    // come.
    Request* first = nullptr;
    unsigned arrived = 0;
};

// Waits until all lanes of the mask have come with the same operation and mask, and it is executed.
void meet(Request& request);

// What __syncwarp executes.
void order_accesses(Request* const* lanes, unsigned mask);

int lane();
unsigned live_lanes();  // of the warp that runs: those that have not finished

struct BarrierResult {
    int count;  // of the block's threads whose predicate was true
    bool all;
};

// Waits for all threads of the block at the same barrier: of one name, on one line.
BarrierResult barrier(const char* operation, bool predicate, int line);

// Lets the other threads of the block run.
void yield();

// -- matrices ---------------------------------------------------------------------------------------------------------

struct LoadMatrices : Request {
    int matrices;
    bool transposed;
    unsigned short row[8];  // of matrix lane / 8, row lane % 8
    unsigned* registers;
};

struct MultiplyAdd : Request {
    const unsigned* a;
    const unsigned* b;
    float* d;
};

void execute_load_matrices(Request* const* lanes, unsigned mask);
void execute_multiply_add_bf16(Request* const* lanes, unsigned mask);
void execute_multiply_add_f16(Request* const* lanes, unsigned mask);

// -- shared memory ---------------------------------------------------------------------------------------------------

constexpr size_t SHARED_UNIT = 64;  // what a unit's variables take is counted in so many bytes, which divide all limits

// Where the launch's dynamic shared memory begins. Its end, rounded up to 16 bytes, lies before a page that faults.
extern unsigned char* dynamic_shared;

// Changes with each block of each launch.
extern unsigned long long block_serial;

// Takes note of an array of shared memory that this block uses, and poisons it and the bytes around it.
void enter_shared_array(void* whole, size_t whole_bytes, void* elements, size_t bytes, const char* name);

// Whether an array of shared memory, or the dynamic one, has `bytes` bytes at `address`.
bool is_shared(const void* address, size_t bytes);

// -- asynchronous copies ---------------------------------------------------------------------------------------------

// The copy lands when the thread that runs waits for its group. Until then the target holds poison.
void begin_copy(void* shared, const void* global, unsigned bytes, bool valid, int line);
void commit_copies();
void wait_for_copies(unsigned groups_left);

// Fails when a copy to the 16 bytes at `shared` has not been waited for.
void check_landed(const void* shared, int line);

// -- kernels ---------------------------------------------------------------------------------------------------------

// A kernel as the launcher sees it. A table of them ends with a name of null.
struct Kernel {
    const char* name;
    void (*call)(void* const* arguments);
    int arguments;
    const unsigned* sizes;
    const char* kinds;  // 'p': a pointer, 'i' or 'u': an integer with or without sign, 'f': a float, 'o': another type
    const unsigned* pointee_sizes;
    const char* pointee_kinds;  // of what pointers point to
    void* (*shared_variable)();  // one of the variables that the unit declares as __shared__
    bool reports_accesses;       // its loads and stores call the runtime
};

}  // namespace cuda_emulator
