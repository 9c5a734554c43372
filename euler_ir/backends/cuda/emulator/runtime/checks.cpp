// What g++ calls where a check of -fsanitize fails: the kernel's fault, with its line. The forms of the data are those
// of GCC's ABI for its undefined-behaviour sanitizer, whose own library is not used.
#include "caller.h"
#include "faults.h"

namespace {

struct Location {
    const char* file;
    unsigned line, column;
};

struct Type {
    unsigned short kind, info;  // of integers: the lowest bit of info says that they are signed
    char name[1];               // in quotes
};

struct TypeMismatch {
    Location place;
    const Type& type;
    unsigned char log_alignment;
    unsigned char access;
};

struct OutOfBounds {
    Location place;
    const Type& array;
    const Type& index;
};

struct Overflow {
    Location place;
    const Type& type;
};

struct Shift {
    Location place;
    const Type& left;
    const Type& right;
};

using cuda_emulator::fail_at;
using Value = unsigned long;

}  // namespace

extern "C" {

void __ubsan_handle_type_mismatch_v1(const TypeMismatch* data, Value pointer) {
    fail_at(CALLER, "it accesses %s at %#lx, which is not a multiple of %d", data->type.name, pointer,
            1 << data->log_alignment);
}

void __ubsan_handle_out_of_bounds(const OutOfBounds* data, Value index) {
    fail_at(CALLER, "its index is %ld, in an array %s", long(index), data->array.name);
}

void __ubsan_handle_add_overflow(const Overflow* data, Value, Value) {
    fail_at(CALLER, "a sum overflows %s", data->type.name);
}
void __ubsan_handle_sub_overflow(const Overflow* data, Value, Value) {
    fail_at(CALLER, "a difference overflows %s", data->type.name);
}
void __ubsan_handle_mul_overflow(const Overflow* data, Value, Value) {
    fail_at(CALLER, "a product overflows %s", data->type.name);
}
void __ubsan_handle_negate_overflow(const Overflow* data, Value) {
    fail_at(CALLER, "the negative of the least %s overflows", data->type.name);
}

void __ubsan_handle_divrem_overflow(const Overflow* data, Value, Value) {
    fail_at(CALLER, "it divides %s by 0, or the least one by -1", data->type.name);
}

void __ubsan_handle_shift_out_of_bounds(const Shift* data, Value, Value count) {
    fail_at(CALLER, "it shifts %s by %ld", data->left.name, long(count));
}

void __ubsan_handle_builtin_unreachable(const Location*) {
    fail_at(CALLER, "it comes where it says that it never does");
}
void __ubsan_handle_missing_return(const Location*) { fail_at(CALLER, "a function ends without its value"); }

}  // extern "C"
