// cuBLASLt's C interface as far as euler_ir calls it, computed on the CPU: for memory of the emulator, on no GPU.
//
// It is stricter than NVIDIA's library where that would be undefined: handles that are gone, pointers less aligned than
// the algorithm was chosen for, and workspace that is too small are refused. What it accepts, that accepts as well.
// Numbers of enums and sizes of attributes are those of cublasLt.h.

#include "objects.h"
#include "product.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

bool is_multiple(uint64_t number, uint64_t of) { return number % of == 0; }

bool is_layout(const Object* layout, int64_t rows, int64_t columns, int64_t items, bool transposed = false) {
    if (transposed) std::swap(rows, columns);
    return layout->get<int64_t>(ROWS) == rows && layout->get<int64_t>(COLUMNS) == columns
        && layout->get<int64_t>(LEADING) >= rows && layout->get<int32_t>(BATCH) == items;
}

int check(const Problem& problem) {
    for (const Object* layout : {problem.a, problem.b, problem.c, problem.d})
        if (!is_living(layout, Object::LAYOUT)) return INVALID_VALUE;
    if (!is_living(problem.operation, Object::MATMUL)) return INVALID_VALUE;
    const int64_t rows = problem.rows(), columns = problem.columns(), inner = problem.inner(), items = problem.items();
    if (std::min({rows, columns, inner, items}) < 1) return INVALID_VALUE;
    if (std::max({rows, columns, inner}) > INT32_MAX) return INVALID_VALUE;
    const bool fits = is_layout(problem.a, rows, inner, items, problem.transposed_a())
        && is_layout(problem.b, inner, columns, items, problem.transposed_b())
        && is_layout(problem.d, rows, columns, items) && is_layout(problem.c, rows, columns, items);
    if (!fits) return INVALID_VALUE;
    for (const Object* layout : {problem.a, problem.b, problem.c, problem.d})
        if (layout->get<int32_t>(TYPE) != problem.type() || layout->get<int32_t>(ORDER) != 0) return NOT_SUPPORTED;
    // Results lie one after the other, or side by side within the distance from column to column.
    const int64_t leading = problem.d->get<int64_t>(LEADING), stride = problem.d->get<int64_t>(BATCH_STRIDE);
    const bool are_apart = stride >= leading * (columns - 1) + rows;
    const bool are_side_by_side = stride >= rows && leading >= stride * (items - 1) + rows;
    if (items > 1 && !are_apart && !are_side_by_side) return INVALID_VALUE;
    const int compute = problem.compute(), scale = problem.operation->get<int32_t>(SCALE), type = problem.type();
    const bool is_double = compute == COMPUTE_F64 && type == F64 && scale == F64;
    const bool is_single = (compute == COMPUTE_F32 || (compute == COMPUTE_TF32 && type == F32)) && scale == F32
        && (type == F32 || type == F16 || type == BF16);
    if (!is_double && !is_single) return NOT_SUPPORTED;

    const unsigned epilogue = problem.epilogue();
    if (epilogue == NO_EPILOGUE) return SUCCESS;
    static const std::set<unsigned> known = {
        BIAS, GELU, GELU | BIAS, GELU | AUX, GELU | AUX | BIAS, GELU_GRADIENT | AUX};
    if (!known.count(epilogue)) return NOT_SUPPORTED;
    if (is_double) return NOT_SUPPORTED;
    const uint64_t bias = problem.address(BIAS_POINTER), matrix = problem.address(AUX_POINTER);
    if (epilogue & BIAS && !bias) return INVALID_VALUE;
    if (epilogue & BIAS && !is_multiple(bias, 16)) return NOT_SUPPORTED;
    if (epilogue & AUX) {
        const int64_t leading = problem.operation->get<int64_t>(AUX_LD);
        if (!matrix || leading < rows) return INVALID_VALUE;
        if (!is_multiple(leading, 8) || !is_multiple(matrix, 16)) return NOT_SUPPORTED;
    }
    return SUCCESS;
}

uint64_t needed_bytes(const Problem& problem, uint64_t parts) {
    return parts > 1 ? parts * problem.rows() * problem.columns() * problem.sum_bytes() : 0;
}

bool is_aligned(const void* pointer, uint64_t alignment) {
    return pointer != nullptr && is_multiple(uint64_t(pointer), alignment);
}

}  // namespace

EXPORT size_t cublasLtGetVersion() { return 120900; }

EXPORT const char* cublasLtGetStatusName(int status) {
    switch (status) {
        case SUCCESS: return "CUBLAS_STATUS_SUCCESS";
        case NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
        case INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
        case NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
    return "unrecognized status";
}

EXPORT int cublasLtCreate(Object** handle) {
    *handle = create(Object::LIBRARY);
    return SUCCESS;
}
EXPORT int cublasLtDestroy(Object* handle) { return destroy(handle, Object::LIBRARY); }

EXPORT int cublasLtMatmulDescCreate(Object** operation, int compute, int scale) {
    *operation = create(Object::MATMUL);
    (*operation)->set<int32_t>(COMPUTE, compute);
    (*operation)->set<int32_t>(SCALE, scale);
    (*operation)->set<uint32_t>(EPILOGUE, NO_EPILOGUE);
    return SUCCESS;
}

EXPORT int cublasLtMatrixLayoutCreate(Object** layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    *layout = create(Object::LAYOUT);
    (*layout)->set<int32_t>(TYPE, type);
    (*layout)->set<uint64_t>(ROWS, rows);
    (*layout)->set<uint64_t>(COLUMNS, columns);
    (*layout)->set<int64_t>(LEADING, leading);
    (*layout)->set<int32_t>(BATCH, 1);
    return SUCCESS;
}

EXPORT int cublasLtMatmulPreferenceCreate(Object** preference) {
    *preference = create(Object::PREFERENCE);
    (*preference)->set<uint32_t>(REDUCTION, 7);
    for (int matrix = ALIGNMENT_A; matrix <= ALIGNMENT_D; ++matrix) (*preference)->set<uint32_t>(matrix, 256);
    return SUCCESS;
}

#define ATTRIBUTES(name, kind)                                                                                  \
    EXPORT int cublasLt##name##Destroy(Object* object) { return destroy(object, kind); }                        \
    EXPORT int cublasLt##name##SetAttribute(Object* object, int attribute, const void* value, size_t bytes) {   \
        return set_attribute(object, kind, attribute, value, bytes);                                            \
    }                                                                                                           \
    EXPORT int cublasLt##name##GetAttribute(const Object* object, int attribute, void* value, size_t bytes,     \
                                            size_t* written) {                                                  \
        return get_attribute(object, kind, attribute, value, bytes, written);                                   \
    }
ATTRIBUTES(MatmulDesc, Object::MATMUL)
ATTRIBUTES(MatrixLayout, Object::LAYOUT)
ATTRIBUTES(MatmulPreference, Object::PREFERENCE)

struct HeuristicResult {
    Algorithm algorithm;
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
};

// There is one algorithm. It cuts long sums of small results in two, where the workspace holds both.
EXPORT int cublasLtMatmulAlgoGetHeuristic(const Object* handle, const Object* operation, const Object* a,
                                          const Object* b, const Object* c, const Object* d, const Object* preference,
                                          int requested, HeuristicResult* results, int* returned) {
    if (!is_living(handle, Object::LIBRARY)) return NOT_INITIALIZED;
    if (!is_living(preference, Object::PREFERENCE) || requested < 1 || !results || !returned) return INVALID_VALUE;
    const Problem problem{operation, a, b, c, d};
    *returned = 0;
    if (int status = check(problem)) return status;
    const bool may_split = preference->get<uint32_t>(REDUCTION) & REDUCTION_IN_COMPUTE_TYPE;
    const bool is_long = problem.inner() >= 2 * std::max(problem.rows(), problem.columns());
    Algorithm algorithm = {};
    algorithm.parts = may_split && is_long && needed_bytes(problem, 2) <= preference->get<uint64_t>(WORKSPACE) ? 2 : 1;
    algorithm.workspace_bytes = needed_bytes(problem, algorithm.parts);
    for (int n = 0; n < 4; ++n) {
        algorithm.alignment[n] = preference->get<uint32_t>(ALIGNMENT_A + n);
        const size_t size = problem.type() == F64 ? 8 : problem.type() == F32 ? 4 : 2;
        if (algorithm.alignment[n] < size) return NOT_SUPPORTED;
    }
    results[0] = {algorithm, algorithm.workspace_bytes, SUCCESS, 1.0f, {}};
    *returned = 1;
    return SUCCESS;
}

EXPORT int cublasLtMatmul(const Object* handle, const Object* operation, const void* alpha, const void* a,
                          const Object* a_layout, const void* b, const Object* b_layout, const void* beta,
                          const void* c, const Object* c_layout, void* d, const Object* d_layout,
                          const Algorithm* algorithm, void* workspace, size_t workspace_bytes, void* stream) {
    (void)stream;  // the emulator's streams call this when it is its turn
    if (!is_living(handle, Object::LIBRARY)) return NOT_INITIALIZED;
    const Problem problem{operation, a_layout, b_layout, c_layout, d_layout};
    if (int status = check(problem)) return status;
    if (!alpha || !beta || !algorithm) return INVALID_VALUE;
    if (c == d && c_layout->get<int64_t>(LEADING) != d_layout->get<int64_t>(LEADING)) return INVALID_VALUE;
    const void* pointers[] = {a, b, c, d};
    for (int n = 0; n < 4; ++n)
        if (!is_aligned(pointers[n], algorithm->alignment[n])) return INVALID_VALUE;
    const uint64_t needed = needed_bytes(problem, algorithm->parts);
    if (needed > workspace_bytes || (needed && !is_aligned(workspace, 256))) return INVALID_VALUE;
    const auto run = problem.type() == F64 ? multiply<double, double>
        : problem.type() == F32            ? multiply<float, float>
        : problem.type() == F16            ? multiply<_Float16, float>
                                           : multiply<bf16, float>;
    run(problem, alpha, beta, a, b, c, d, algorithm->parts, workspace);
    return SUCCESS;
}
