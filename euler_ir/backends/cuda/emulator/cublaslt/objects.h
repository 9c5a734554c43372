// Handles of cuBLASLt's interface: operations, layouts and preferences are lists of attributes, kept until destroyed.
#pragma once

#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

enum Status { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum DataType { F32 = 0, F64 = 1, F16 = 2, BF16 = 14 };
enum ComputeType { COMPUTE_F32 = 68, COMPUTE_F64 = 70, COMPUTE_TF32 = 77 };
enum Epilogue { BIAS = 4, GELU = 32, GELU_GRADIENT = 64, AUX = 128 };
constexpr unsigned NO_EPILOGUE = 1;
constexpr unsigned REDUCTION_IN_COMPUTE_TYPE = 2;

// An object keeps its attributes as they are set, by number; like NVIDIA's it looks at their sizes alone.
struct Object {
    enum Kind { LIBRARY, MATMUL, LAYOUT, PREFERENCE } kind;
    uint64_t values[40] = {};

    template <class T> T get(int attribute) const {
        T value;
        std::memcpy(&value, &values[attribute], sizeof value);
        return value;
    }
    template <class T> void set(int attribute, T value) { std::memcpy(&values[attribute], &value, sizeof value); }
};

inline std::set<const Object*> living;
inline std::mutex living_lock;

inline bool is_living(const Object* object, Object::Kind kind) {
    const std::lock_guard<std::mutex> guard(living_lock);
    return living.count(object) && object->kind == kind;
}

inline Object* create(Object::Kind kind) {
    Object* object = new Object{kind};
    const std::lock_guard<std::mutex> guard(living_lock);
    living.insert(object);
    return object;
}

inline int destroy(Object* object, Object::Kind kind) {
    if (object == nullptr) return SUCCESS;
    if (!is_living(object, kind)) return INVALID_VALUE;
    const std::lock_guard<std::mutex> guard(living_lock);
    living.erase(object);
    delete object;
    return SUCCESS;
}

enum MatmulAttribute { COMPUTE, SCALE, TRANS_A = 3, TRANS_B, EPILOGUE = 7, BIAS_POINTER, AUX_POINTER = 11, AUX_LD };
enum LayoutAttribute { TYPE, ORDER, ROWS, COLUMNS, LEADING, BATCH, BATCH_STRIDE };
enum PreferenceAttribute { WORKSPACE = 1, REDUCTION = 3, ALIGNMENT_A = 5, ALIGNMENT_B, ALIGNMENT_C, ALIGNMENT_D };

// By kind and number of the attribute: its bytes, 0 where there is none.
const std::vector<size_t> SIZES[] = {
    {}, {4, 4, 4, 4, 4, 4, 4, 4, 8, 0, 8, 8, 8}, {4, 4, 8, 8, 8, 4, 8}, {4, 8, 0, 4, 0, 4, 4, 4, 4}};

inline bool has(const Object* object, Object::Kind kind, int attribute, size_t bytes) {
    const std::vector<size_t>& sizes = SIZES[kind];
    const bool is_known = attribute >= 0 && size_t(attribute) < sizes.size() && sizes[attribute];
    return is_known && sizes[attribute] == bytes && is_living(object, kind);
}

inline int set_attribute(Object* object, Object::Kind kind, int attribute, const void* value, size_t bytes) {
    if (value == nullptr || !has(object, kind, attribute, bytes)) return INVALID_VALUE;
    std::memcpy(&object->values[attribute], value, bytes);
    return SUCCESS;
}

inline int get_attribute(
    const Object* object, Object::Kind kind, int attribute, void* value, size_t bytes, size_t* written) {
    if (value == nullptr || !has(object, kind, attribute, bytes)) return INVALID_VALUE;
    std::memcpy(value, &object->values[attribute], bytes);
    if (written) *written = bytes;
    return SUCCESS;
}
